"""The shop as a server of the Model Context Protocol, on this machine alone.

    python -m pwagents.adapters.serve --preset smoke --port 8010

A trainer or a harness needs nothing of this project's environment: it reaches http://127.0.0.1:8010/mcp.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pwagents import local_server
from pwagents.adapters.load import load_tasks
from pwagents.adapters.mcp_server import make_app
from pwagents.adapters.sessions import Sessions
from pwagents.notebook.settings import read_changes


@contextmanager
def serving(sessions: Sessions, port: int = 0) -> Iterator[str]:
    """Serve in a thread as long as the block runs; yields the URL.

    Raises:
        OSError: the port is taken; the message says so.
    """
    with local_server.serving(make_app(sessions), port) as taken:
        yield _url(taken)


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pwagents.adapters.serve", description="Serve the shop's tasks (MCP, loopback alone)"
    )
    parser.add_argument("--preset", default="smoke", help="smoke, laptop or paper; default: %(default)s")
    parser.add_argument("--track", default="multi_turn", help="multi_turn (the default) or single_turn")
    parser.add_argument("--split", default="test", help="test (the default), or train: tasks to learn from")
    parser.add_argument(
        "--source", default="", help="synthetic, amazon or personalwab; default: the preset's"
    )
    parser.add_argument("--data-dir", default="", help="the folder of the source's files")
    parser.add_argument("--tasks", type=int, help="how many, drawn at random; 0: all; default: the preset's")
    parser.add_argument("--output-dir", default="", help="of caches; default: outputs/evaluate/PRESET")
    parser.add_argument("--port", type=int, default=8010)
    parser.add_argument("--idle", type=float, default=600.0, help="seconds after which a silent session ends")
    parser.add_argument("-y", "--changes", default="{}", metavar="YAML", help="of the preset")
    given = vars(parser.parse_args())
    port, idle = given.pop("port"), given.pop("idle")
    try:
        changes = read_changes(given.pop("changes"))
        listener = local_server.listen(port)
        sessions = Sessions(load_tasks(**given, **changes), idle_s=idle)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(
        f"{len(sessions.task_set):,} tasks at {_url(listener.getsockname()[1])} (Ctrl+C ends it)", flush=True
    )
    local_server.serve(make_app(sessions), listener)
    return 0


if __name__ == "__main__":
    sys.exit(main())
