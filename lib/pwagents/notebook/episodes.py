"""All stored episodes as data that a page opened from a disk can load.

A page may not fetch files there, but it may add scripts. So the data are scripts, gzip in base64
(episodes say the same again and again: a thirteenth is left): an index with a short row for each episode, and
the conversations in chunks that are loaded when they are looked at. Episodes stand in the order of their
tasks, those of a task in the order of the stored runs.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from joblib import Parallel, cpu_count, delayed

from pwagents.data import load_benchmark
from pwagents.data.settings import DataSettings
from pwagents.evaluation.metrics import attempts
from pwagents.notebook.reference import full, read_runs
from pwagents.notebook.results import read_lines
from pwagents.progress import progress
from pwagents.schema import Trajectory

CHUNK = 200  # episodes
_SHORT = 160  # characters of an instruction in the index


def write_episodes(output_dir: Path, folder: Path) -> int:
    """Write the episodes of ``output_dir``'s stored runs to ``folder``; return how many there are.

    The index's rows are [run, method, model, settings, type, outcome: positions in its lists; task id, steps,
    final result or null, instruction or first call].
    """
    instructions = _Instructions(output_dir)
    lists: dict[str, dict[str, int]] = {
        name: {} for name in ("runs", "methods", "models", "settings", "types", "outcomes")
    }
    made: list[tuple[str, list, str]] = []  # an episode's task, row and conversation

    def number(name: str, text: str) -> int:
        return lists[name].setdefault(text, len(lists[name]))

    for run, record in progress(read_runs(output_dir), desc="episodes", unit="episode"):
        instruction = instructions.of(record)
        trajectory, grade = _with_results(record.get("trajectory") or {}), record.get("grade") or {}
        steps = trajectory.get("steps") or []
        row = [
            number("runs", run),
            number("methods", record.get("method", "role-play")),
            number("models", record.get("model", "")),
            number("settings", json.dumps(record.get("params", {}))),
            number("types", record.get("type") or trajectory.get("type") or "other"),
            number("outcomes", _outcome(record, grade)),
            record["task_id"],
            len(steps),
            grade.get("result_final"),
            (instruction or _first_call(steps))[:_SHORT],
        ]
        kept = {name: record.get(name) for name in ("message", "failure", "seconds", "grade")}
        text = _json(full({"instruction": instruction, **kept, "trajectory": trajectory}))
        made.append((record["task_id"], row, text))

    # Methods that played the same task see the same products: beside each other they are packed to half.
    made.sort(key=itemgetter(0))
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(0, len(made), CHUNK):
        texts = (text for _, _, text in made[i : i + CHUNK])
        _write_script(folder, f"chunk{i // CHUNK}", f"[{','.join(texts)}]")
    index = {name: list(of) for name, of in lists.items()}
    _write_script(folder, "index", _json({"chunk": CHUNK, "rows": [row for _, row, _ in made], **index}))
    return len(made)


def _outcome(record: dict, grade: dict) -> str:
    if "failure" in record:  # of the role-play
        return "not kept" if record["failure"] else "kept"
    if record["outcome"] != "scored":
        return record["outcome"].replace("_", " ")
    result = grade.get("result_final")
    if result is None:
        return "scored"
    return "result 1" if result == 1 else "result above 0" if result > 0 else "result 0"


def _with_results(trajectory: dict) -> dict:
    """A trajectory in the shop with the result accuracy on each attempt; any other as it is."""
    if "target" not in trajectory:
        return trajectory
    played = Trajectory.model_validate(trajectory)
    results, steps = iter(attempts(played)), []
    for step, told in zip(played.steps, trajectory["steps"], strict=True):
        steps.append(told | ({"result": f"{next(results):.2f}"} if played.is_attempt(step) else {}))
    return trajectory | {"steps": steps}


def _first_call(steps: list[dict]) -> str:
    arguments = (steps[0].get("action") or {}).get("arguments") or {} if steps else {}
    return " ".join(map(str, arguments.values()))


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def _write_script(folder: Path, name: str, text: str) -> None:
    packed = b64encode(gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)).decode("ascii")
    (folder / f"{name}.js").write_text(f'loaded("{name}","{packed}")\n', "ascii")


class _Instructions:
    """What the tasks asked for: records do not repeat it, but the embedded world can be made again."""

    def __init__(self, output_dir: Path):
        self._of_data: dict[str, dict[str, str]] = {}  # hash of a benchmark -> task id -> instruction
        worlds = []
        for row in read_lines(output_dir / "timings" / "journal.jsonl"):
            settings, data = row["settings"], row["settings"]["data"]
            if data["source"] == "synthetic" and "n_users" in data:  # not the local web
                # Notebooks that train play in a world with further users.
                more = settings.get("study", {}).get("training_users", 0)
                for users in {data["n_users"], data["n_users"] + more}:
                    world = (data | {"n_users": users}, settings["seed"])
                    worlds += [world] if world not in worlds else []
        worlds.sort(key=lambda world: -world[0]["n_users"])  # the longest work first
        for told in in_parallel(_of_world, worlds):
            self._of_data |= told

    def of(self, record: dict) -> str:
        """Of a record's task; empty where it is not known."""
        tasks = self._of_data.get(record.get("params", {}).get("data", ""), {})
        return tasks.get(record["task_id"]) or record.get("observation") or record.get("query", "")


def _of_world(world: tuple[dict[str, Any], int]) -> dict[str, dict[str, str]]:
    data, seed = world
    tuples = {key: tuple(value) for key, value in data.items() if isinstance(value, list)}
    try:
        benchmark, _ = load_benchmark(DataSettings(**data | tuples), seed)
    except ValueError:  # settings of another version of the code: episodes are shown without
        return {}
    return {benchmark.content_hash: {task.task_id: task.instruction for task in benchmark.all_tasks()}}


def in_parallel(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """``function`` of each item, in their order, on all cores."""
    jobs = max(1, min(cpu_count(), len(items)))
    return Parallel(n_jobs=jobs)(delayed(function)(item) for item in items)
