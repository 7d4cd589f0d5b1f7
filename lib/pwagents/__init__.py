"""Personalized web agents: the library behind the notebooks.

Importing the package fixes how numbers are computed and remembers the code as it is loaded.
"""

from pathlib import Path

from pwagents import portable

portable.set_variables()

_ROOT = Path(__file__).parent
# Code and data of the library when it was imported: the keys of stored results hash these bytes, not the
# files, which may be edited while a kernel runs.
LOADED = {
    str(file.relative_to(_ROOT)): file.read_bytes()
    for file in sorted(_ROOT.rglob("*"))
    if file.suffix in (".py", ".yaml", ".csv", ".html")
}
