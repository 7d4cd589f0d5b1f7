"""The tasks of a preset, for any adapter: what ``evaluate`` plays, and training tasks beside it."""

from pathlib import Path
from typing import Any

from pwagents.adapters.core import TaskSet
from pwagents.agents.methods import METHODS
from pwagents.benchmark.evaluate import study_settings
from pwagents.benchmark.study import Study
from pwagents.data import load_benchmark
from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.notebook.run import Run
from pwagents.schema import Split, Task, check_choice
from pwagents.web.environment import Track, WebEnvironment


def load_tasks(
    preset: str = "smoke",
    track: Track = "multi_turn",
    split: Split = "test",
    *,
    tasks: int | None = None,
    output_dir: str | Path = "",
    **changes: Any,
) -> TaskSet:
    """Load data, shop and user of a preset, leak-free; an agent is told the user's latest purchases.

    Args:
        split: "test", or "train" for tasks to learn from. The recommender has learned from the train period,
            the training tasks' own purchases included: what it earns there says nothing of test tasks.
        tasks, output_dir, changes: as of :func:`pwagents.benchmark.evaluate.evaluate`.

    Raises:
        SettingsError: an argument is wrong; says what was found and what was expected.
    """
    check_choice("split", split, Split)
    check_choice("track", track, Track)
    settings = study_settings(preset, tasks, output_dir, changes)
    benchmark, _ = load_benchmark(settings.data, settings.seed)
    study = Study(benchmark, settings, Run("adapters", settings.output_dir))
    chosen = study.sample
    if split == "train":
        # Of users who have test tasks, too: a shop is that of a user's first test task.
        users = {task.user_id for task in benchmark.tasks["test"]}
        train = [task for task in benchmark.tasks["train"] if task.user_id in users]
        chosen = sample_tasks(train, settings.play.max_tasks, settings.seed)

    def start(task: Task) -> WebEnvironment:
        environment = study.environment(task, track)
        environment.reset(task, benchmark.history(task, split))
        return environment

    playable = {task.task_id: task for task in chosen if task.type != "review" or task.review.text.strip()}
    return TaskSet(playable, start, METHODS["Last memory"](study.setup(track)))
