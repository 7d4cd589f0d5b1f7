"""The tasks of a preset, for any adapter: what ``evaluate`` plays, and training tasks beside it."""

from pathlib import Path
from typing import Any

from pwagents import portable
from pwagents.adapters.core import TaskSet
from pwagents.agents.methods import METHODS
from pwagents.benchmark.evaluate import require_track, study_settings
from pwagents.benchmark.study import Study
from pwagents.data import load_benchmark
from pwagents.errors import SettingsError
from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.notebook.journal import Journal
from pwagents.notebook.run import Run
from pwagents.schema import Split, Task, check_choice
from pwagents.web.environment import Track, WebEnvironment


def load_tasks(
    preset: str = "smoke",
    track: Track = "multi_turn",
    split: Split = "test",
    *,
    source: str = "",
    data_dir: str = "",
    tasks: int | None = None,
    output_dir: str | Path = "",
    **changes: Any,
) -> TaskSet:
    """Data, shop and user of a preset, leak-free; an agent is told the user's latest purchases.

    Args:
        split: "test", or "train" for tasks to learn from. The recommender has learned from the train period,
            the training tasks' own purchases included: what it earns there says nothing of test tasks.
        source, data_dir, tasks, output_dir, changes: as of :func:`pwagents.benchmark.evaluate.evaluate`.

    Raises:
        SettingsError: an argument is wrong; says what was found and what was expected.
    """
    try:
        check_choice("split", split, Split)
    except ValueError as error:
        raise SettingsError(error) from None
    require_track(track)
    settings = study_settings(preset, source, data_dir, tasks, output_dir, changes)
    if not settings.portable:
        portable.switch_off()
    benchmark, _ = load_benchmark(settings.data, settings.seed)
    unrecorded = Journal(settings.output_dir / "timings" / "journal.jsonl", {})
    study = Study(benchmark, settings, Run("adapters", settings.output_dir, unrecorded))
    chosen = study.sample if split == "test" else _to_learn_from(study)
    user = study.user() if track == "multi_turn" else None

    def start(task: Task) -> WebEnvironment:
        environment = study.environment(task, track, user=user)
        environment.reset(task, benchmark.history(task, split))
        return environment

    playable = {task.task_id: task for task in chosen if task.type != "review" or task.review.text.strip()}
    return TaskSet(playable, start, METHODS["Last memory"](study.setup(track)))


def _to_learn_from(study: Study) -> tuple[Task, ...]:
    """Train tasks of users who have test tasks, too: a shop is that of a user's first test task."""
    users = {task.user_id for task in study.benchmark.tasks["test"]}
    tasks = [task for task in study.benchmark.tasks["train"] if task.user_id in users]
    return tuple(sample_tasks(tasks, study.settings.play.max_tasks, study.settings.seed))
