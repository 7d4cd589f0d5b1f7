"""The library from the shell.

python -m pwagents evaluate my_agent.py:agent --preset smoke --track single_turn
"""

import argparse
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from pwagents.errors import SettingsError

_FILE = re.compile(r"(.+\.py):([A-Za-z_]\w*)")


def main() -> int:
    """Run what the arguments say; 0, or 1 after one line on what went wrong."""
    arguments = _parser().parse_args()
    try:
        return _evaluate(arguments)
    except KeyboardInterrupt:
        return 130
    except (ValueError, RuntimeError, OSError) as error:  # all that evaluate() names
        print(f"{type(error).__name__}: {error}{_place(error.__cause__)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pwagents", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="command")
    command = commands.add_parser("evaluate", help="let an agent play test tasks, and show what it reached")
    command.add_argument(
        "agent",
        help="FILE.py:NAME of a function or class, the URL of an endpoint, openai:MODEL, local:FOLDER, "
        "replay:MODEL, or the folder of a trained model",
    )
    command.add_argument("--preset", default="smoke", help="smoke, laptop or paper; default: %(default)s")
    command.add_argument("--track", default="multi_turn", help="multi_turn (the default) or single_turn")
    command.add_argument(
        "--source", default="", help="synthetic, amazon or personalwab; default: the preset's"
    )
    command.add_argument("--data-dir", default="", help="the folder of the source's files")
    command.add_argument("--tasks", type=int, help="how many, drawn at random; 0: all; default: the preset's")
    command.add_argument("--output-dir", default="", help="default: outputs/evaluate/PRESET")
    command.add_argument("--name", default="", help="what tables call the agent; default: its own name")
    command.add_argument("--method", default="Last memory", help="how a chat model is prompted")
    command.add_argument(
        "-y",
        "--changes",
        default="{}",
        metavar="YAML",
        help="of the preset, such as '{players: {workers: 8}}'",
    )
    return parser


def _evaluate(arguments: argparse.Namespace) -> int:
    from pwagents.benchmark.evaluate import evaluate
    from pwagents.notebook.settings import read_changes

    given = dict(vars(arguments))
    agent, changes = _agent(given.pop("agent")), read_changes(given.pop("changes"))
    print(f"Making the world, its search and its recommender of preset {given['preset']}", flush=True)
    print(evaluate(agent, **given, **changes))
    return 0


def _agent(text: str) -> Any:
    """What ``FILE.py:NAME`` names; any other text as it is.

    Raises:
        SettingsError: there is no such file or name, or the file cannot be run.
    """
    found = _FILE.fullmatch(text)
    if not found:
        return text
    file, name = Path(found[1]), found[2]
    if not file.is_file():
        raise SettingsError(f"agent {text}: found no file {file}; expected FILE.py:NAME")
    sys.path.insert(0, str(file.parent.resolve()))  # for what it imports from beside it
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SettingsError(f"agent {text}: {type(error).__name__}: {error}{_place(error)}") from None
    if not hasattr(module, name):
        own = [each for each, value in vars(module).items() if getattr(value, "__module__", "") == file.stem]
        raise SettingsError(f"agent {text}: found no {name!r} in {file}, but {', '.join(own) or 'nothing'}")
    return getattr(module, name)


def _place(error: BaseException | None) -> str:
    """Where code outside the library raised, as " (FILE, line N)"; empty where none did."""
    while error and error.__cause__:
        error = error.__cause__
    own = re.escape(str(Path(__file__).parent))
    frames = traceback.extract_tb(error.__traceback__) if error else []
    found = [frame for frame in frames if not re.match(rf"{own}|<frozen|.*site-packages", frame.filename)]
    return f" ({found[-1].filename}, line {found[-1].lineno})" if found else ""


if __name__ == "__main__":
    sys.exit(main())
