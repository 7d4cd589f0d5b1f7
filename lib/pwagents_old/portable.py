"""One instruction set and one thread for all arithmetic: the same numbers on every x86-64 CPU with AVX2.

Left alone, torch, numpy and faiss take the widest vector units a CPU has. Each width sums in another order,
the last bits differ, and a training of some hundred steps turns them into other weights and other tables. So
does the number of threads. On a CPU with AVX-512, training takes about 40% more time so.

Libraries read these variables when they are loaded: import this package before torch and numpy. Intel
promises equal results of ``MKL_CBWR=AVX2`` for its own CPUs; others' numbers may differ from these.
"""

import os
import re
import sys
from pathlib import Path

from pwagents.portable import SWITCH, VARIABLES, _before, one_core, set_variables, switch_off  # one state

__all__ = [
    "SWITCH",
    "VARIABLES",
    "cpu_name",
    "has_avx2",
    "one_core",
    "set_variables",
    "shortfall",
    "switch_off",
]

CPU_INFO = Path("/proc/cpuinfo")

_set_before = VARIABLES.items() <= os.environ.items()  # by the process that started this one
_loaded_early = [name for name in ("torch", "numpy") if name in sys.modules and not _set_before]


def shortfall() -> str:
    """Say in a line why numbers of this process are not portable; empty where they are."""
    if not has_avx2():
        return "This CPU has no AVX2 (or no Linux to tell): last digits may differ from other machines'."
    if not _before:
        return f"Not portable: {SWITCH}=0 leaves the instruction set to the CPU."
    if _loaded_early:
        early = f"imported before pwagents, with the CPU's own instruction set: {', '.join(_loaded_early)}"
        return f"Not portable: {early}. Restart the kernel and import pwagents_old first."
    return ""


def cpu_name() -> str:
    """Return what the CPU is called; "a CPU" where Linux does not tell."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", CPU_INFO.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "a CPU"


def has_avx2() -> bool:
    """Ask Linux whether this is an x86-64 CPU with AVX2."""
    try:
        return " avx2 " in CPU_INFO.read_text(encoding="utf-8")
    except OSError:
        return False
