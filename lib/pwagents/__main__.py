"""The library from the shell.

pwagents evaluate my_agent.py:agent --preset smoke --track single_turn    # or python -m pwagents evaluate ...
pwagents web-bench --preset laptop                                        # its options: pwagents web-bench -h
"""

import argparse
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from pwagents.errors import SettingsError


def main() -> int:
    """Run what the arguments say; return 0, or 1 after one line on what went wrong."""
    parser = argparse.ArgumentParser(prog="pwagents", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="command")
    commands.add_parser("web-bench", help="serve the local web's tasks to any browser agent")
    add = commands.add_parser("evaluate", help="let an agent play test tasks; show scores").add_argument
    add("agent", help="FILE.py:NAME, openai:MODEL, local:FOLDER, replay:MODEL, or a trained model's folder")
    add("--preset", default="", help="default: smoke, or paper with --protocol published")
    add("--track", default="multi_turn", help="multi_turn (the default) or single_turn")
    add("--source", default="", help="synthetic, amazon or personalwab; default: the preset's")
    add("--data-dir", default="", help="the folder of the source's files")
    add("--protocol", default="leak_free", help="leak_free (the default) or published: PersonalWAB's own")
    add("--trials", type=int, default=1, help="how often each task is played; default: %(default)s")
    add("--export", default="", metavar="FILE", help="write the file of PersonalWAB's leaderboard, too")
    add("--tasks", type=int, help="how many, drawn at random; 0: all; default: the preset's")
    add("--output-dir", default="", help="default: outputs/evaluate/PRESET")
    add("--name", default="", help="what tables call the agent; default: its own name")
    add("--version", default="", help="of your own agent: stored episodes of it are used; none: all are new")
    add("--method", default="Last memory", help="how a chat model is prompted")
    add("-y", "--changes", default="{}", metavar="YAML", help="of the preset: '{players: {workers: 8}}'")
    if sys.argv[1:2] == ["web-bench"]:
        from pwagents.persona2web.bench import main as serve_bench

        return serve_bench(sys.argv[2:])
    given = vars(parser.parse_args())
    try:
        from pwagents.evaluation.evaluate import evaluate
        from pwagents.settings import read_changes

        agent, changes = load_agent(given.pop("agent")), read_changes(given.pop("changes"))
        given = {option: value for option, value in given.items() if value not in ("", None)}
        if twice := sorted(given.keys() & changes.keys()):
            raise ValueError(f"-y: found {', '.join(twice)}, which have options of their own")
        print("Making the world, its search and its recommender", flush=True)
        print(evaluate(agent, **given, **changes))
        return 0
    except KeyboardInterrupt:
        return 130
    except (ValueError, RuntimeError, OSError) as error:  # all that evaluate() names
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def load_agent(text: str) -> Any:
    """Load what ``FILE.py:NAME`` names, or raise a SettingsError; any other text stays as it is."""
    from pwagents.evaluation.own_agent import place_of

    match = re.fullmatch(r"(.+\.py):([A-Za-z_]\w*)", text)
    if not match and re.search(r"\.py(:|\Z)", text):
        raise SettingsError(f"agent {text}: found no NAME of a function or class; expected FILE.py:NAME")
    if not match:
        return text
    file, name = Path(match[1]), match[2]
    if not file.is_file():
        raise SettingsError(f"agent {text}: found no file {file}; expected FILE.py:NAME")
    sys.path.insert(0, str(file.parent.resolve()))  # for what it imports from beside it
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise SettingsError(f"agent {text}: {type(error).__name__}: {error}{place_of(error)}") from None
    if not hasattr(module, name):
        own = [each for each, value in vars(module).items() if getattr(value, "__module__", "") == file.stem]
        raise SettingsError(f"agent {text}: found no {name!r} in {file}, but {', '.join(own) or 'nothing'}")
    return getattr(module, name)


if __name__ == "__main__":
    sys.exit(main())
