"""Single examples that notebooks show, chosen by a rule, not by hand."""

from collections.abc import Mapping, Sequence

import pandas as pd

from pwagents.agents.conversation import transcript
from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.evaluation.viewer import show_episodes
from pwagents.lm.dialogues import DialogueText
from pwagents.orion.played import Played
from pwagents.orion.role_play import RolePlay
from pwagents.orion.study import Study
from pwagents.schema import FUNCTION_OF, Action, Task
from pwagents.web.environment import BeliefState


def longest_dialogue(text: DialogueText, n: int = 10) -> str:
    """The longest of the first ``n`` dialogues that the small base model is pre-trained on, without rules."""
    return transcript(max((text.dialogue(i)[1:] for i in range(n)), key=len))


def most_questions(study: Study, role_play: RolePlay, n: int) -> tuple[Task, Played]:
    """Of the first ``n`` conversations that were kept, the first of the longest, with its task."""
    longest = max(role_play.kept[:n], key=lambda played: len(played.trajectory.steps))
    return next(task for task in study.train_tasks if task.task_id == longest.task_id), longest


def show_task(study: Study, records: Mapping[str, Sequence[EpisodeRecord]], task_id: str):
    """Several methods' episodes of a test task beside each other, with the profile that they began with."""
    task = next(task for task in study.test_tasks if task.task_id == task_id)
    played = {
        method: record.trajectory
        for method, episodes in records.items()
        for record in episodes
        if record.task_id == task_id and record.trajectory
    }
    profile = study.context(task).profile.describe()
    return show_episodes(task, played, study.benchmark.products, dict.fromkeys(played, profile))


def gains(results: pd.DataFrame, before: str, after: str) -> pd.Series:
    """task_id -> how much more result accuracy ``after`` has; tasks without a score are left out."""
    wide = results.pivot(index="task_id", columns="method", values="result_final")
    return (wide[after] - wide[before]).dropna()


def judged_actions(study: Study) -> tuple[BeliefState, pd.DataFrame]:
    """What the judge says of some actions in one belief state, and once more with another hidden target.

    The state is the first of a search whose user avoids something, where there is one.

    Returns:
        The state, and a row an action: ``action``, ``call``, ``score``, ``with another target``.
    """
    avoids = {
        task.task_id: [line.value for line in study.context(task).profile.lines if not line.positive]
        for task in study.test_tasks
    }
    searches = (task for task in study.test_tasks if task.type == "search" and avoids[task.task_id])
    task = next(searches, study.test_tasks[0])
    other = next(asin for asin in study.benchmark.products if asin != task.target)
    state = study.start(task).state
    same = study.start(task.model_copy(update={"target": other})).state
    search = FUNCTION_OF["search"]
    actions = {
        "the teacher's": study.teacher(0)(state),
        "searches for the instruction": _call(search, query=state.instruction),
        "asks for a color": _call("respond", content="Which color would you like?"),
        "asks nothing in particular": _call("respond", content="Hello?"),
        "stops at once": _call("stop"),
    }
    if avoided := avoids[task.task_id]:
        query = f"{state.instruction} {avoided[0]}"
        actions["searches for what is to be avoided"] = _call(search, query=query)
    calls = [" ".join(map(str, [action.name, *action.arguments.values()])) for action in actions.values()]
    table = pd.DataFrame({"action": list(actions), "call": calls})
    for heading, seen in {"score": state, "with another target": same}.items():
        table[heading] = study.judge.scores([seen] * len(actions), list(actions.values()))
    return state, table


def _call(name: str, **arguments: str) -> Action:
    return Action(name=name, arguments=arguments)
