"""All stored episodes as data that a page opened from a disk can load.

A page may not fetch files there, but it may add scripts. So the data are scripts, gzip in base64
(a thirteenth of their size): an index with a short row for each episode, and the conversations in chunks that
are loaded when they are looked at. Episodes are ordered by task, those of a task by stored run.
"""

import gzip
import json
from base64 import b64encode
from operator import itemgetter
from pathlib import Path
from typing import Any

from pwagents.progress import progress
from pwagents.report.reference import drop_empty, read_runs
from pwagents.results.episodes import FAILURES
from pwagents.results.viewer import Bubble, converse, describe_outcome
from pwagents.schema import Trajectory
from pwagents.shop.score import attempts

CHUNK = 200  # episodes
_SHORT = 160  # characters of an instruction in the index


def write_scripts(output_dir: Path, folder: Path) -> int:
    """Write the episodes of ``output_dir``'s stored runs to ``folder``; return how many there are.

    The index's rows are [run, method, model, settings, type, outcome: positions in its lists; task id, steps,
    final result or null, instruction or first call].
    """
    names = ("runs", "methods", "models", "settings", "types", "outcomes")
    lists: dict[str, dict[str, int]] = {name: {} for name in names}
    rows: list[tuple[str, list, str]] = []  # an episode's task, row and conversation

    for run, record in progress(read_runs(output_dir), desc="episodes", unit="episode"):
        # Of the shop, the role-play and the local web.
        asked = record.get("instruction") or record.get("observation") or record.get("query", "")
        trajectory, result, graded = record.get("trajectory") or {}, None, ""
        steps = trajectory.get("steps", ())
        if "target" in trajectory:  # of the shop: its grades are computed, not stored
            played = Trajectory.model_validate(trajectory)
            result, graded = (attempts(played) or [0.0])[-1], describe_outcome(played)
            bubbles = converse(played)
        else:
            bubbles = [bubble for step in steps for bubble in _converse_web(step)]
        facts = (
            *(run, record.get("method", "role-play"), record.get("model", "")),
            json.dumps(record.get("params", {})),
            record.get("type") or trajectory.get("type") or "other",
            _outcome(record, trajectory, result),
        )
        places = [
            lists[name].setdefault(fact, len(lists[name])) for name, fact in zip(names, facts, strict=True)
        ]
        # What the first call says, where it is not known what was asked for.
        text = asked or (bubbles[0].text if bubbles else "")
        row = [*places, record["task_id"], len(steps), result, text[:_SHORT]]
        # A conversation begins with what was asked for.
        first = [Bubble("answer", "User asks", asked)] if asked else []
        more = {"message": record.get("message"), "failure": record.get("failure"), "graded": graded}
        rows.append((record["task_id"], row, _json(drop_empty(more | {"bubbles": [*first, *bubbles]}))))

    # Methods that played the same task see the same products: beside each other they are packed to half.
    rows.sort(key=itemgetter(0))
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(0, len(rows), CHUNK):
        texts = (text for _, _, text in rows[i : i + CHUNK])
        _write_script(folder, f"chunk{i // CHUNK}", f"[{','.join(texts)}]")
    index = {name: list(of) for name, of in lists.items()}
    _write_script(folder, "index", _json({"chunk": CHUNK, "rows": [row for _, row, _ in rows], **index}))
    return len(rows)


def _converse_web(step: dict[str, Any]) -> list[Bubble]:
    """Turn a step of the local web into a look into the history, a question, or a page and an action."""
    reason, answer, error = step.get("reason", ""), step.get("answer", ""), step.get("error", "")
    if step["kind"] == "memory":
        who = f"Answer, from {len(step.get('retrieved', ()))} records"
        return [Bubble("agent", "Agent asks", step.get("query", ""), reason), Bubble("answer", who, answer)]
    if step["kind"] == "ask":
        agent = Bubble("agent", "Agent asks the user", step.get("question", ""), reason)
        return [agent, Bubble("answer", "User", answer)]
    page = Bubble("answer", "Page", step.get("observation", ""))
    return [page, Bubble("agent", "Agent does", step.get("action", ""), reason, error)]


def _outcome(record: dict, trajectory: dict, result: float | None) -> str:
    if "failure" in record:  # of the role-play
        return "not kept" if record["failure"] else "kept"
    if trajectory.get("end") in FAILURES:  # scored 0
        return FAILURES[trajectory["end"]]
    if record["outcome"] != "scored" or result is None:
        return record["outcome"].replace("_", " ")
    return "result 1" if result == 1 else "result above 0" if result > 0 else "result 0"


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def _write_script(folder: Path, name: str, text: str) -> None:
    packed = b64encode(gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)).decode("ascii")
    (folder / f"{name}.js").write_text(f'loaded("{name}","{packed}")\n', "ascii")
