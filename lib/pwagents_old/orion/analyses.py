"""What notebooks 05 to 08 look at beside results: single episodes, questions, failures, GRPO's groups."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import pandas as pd

from pwagents.agents.messages import transcript
from pwagents.shop.score import grade
from pwagents.results.viewer import show_episodes
from pwagents.schema import FUNCTION_OF, Action, Step, Task, Trajectory
from pwagents.shop.environment import BeliefState
from pwagents.shop.search import SearchEngine
from pwagents.store import Episode
from pwagents.users.rules import RuleUser, find_run
from pwagents.words import content_words
from pwagents.base_model.dialogues import DialogueText
from pwagents_old.orion.role_play import Played, RolePlay
from pwagents_old.orion.study import Study
from pwagents.profiles.catalogue import BANDS, TOPIC, Catalogue, Trait
from pwagents_old.rl.rollout import count_asks


def longest_dialogue(text: DialogueText) -> str:
    """The longest of the first ten dialogues that the small base model is pre-trained on, without rules."""
    return transcript(max((text.dialogue(i)[1:] for i in range(10)), key=len))


def most_questions(study: Study, role_play: RolePlay, n: int) -> tuple[Task, Played]:
    """Of the first ``n`` conversations that were kept, the first of the longest, with its task."""
    longest = max(role_play.kept[:n], key=lambda played: len(played.trajectory.steps))
    return next(task for task in study.train_tasks if task.task_id == longest.task_id), longest


def show_task(study: Study, records: Mapping[str, Sequence[Episode]], task_id: str):
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


def judged_actions(study: Study, questions: int) -> tuple[BeliefState, pd.DataFrame]:
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
    # Who knows the target would score otherwise where it is another.
    other = next(asin for asin in study.benchmark.products if asin != task.target)
    state = study.start(task).state
    same = study.start(task.model_copy(update={"target": other})).state
    search = FUNCTION_OF["search"]
    actions = {
        "the teacher's": study.teacher(0, questions)(state),
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


TYPE, OTHER, NOTHING = "type", "other words", "nothing"


def query_pattern(query: str, catalogue: Catalogue) -> str:
    """The attributes that a query names, in alphabetical order: "brand + color + type".

    ``type`` stands for words of products' titles that are no attribute's value, "other words" for the rest.
    """
    found = catalogue.find(query)
    taken = {word for trait in found for word in trait.value.lower().split()}
    names = {trait.about for trait in found}
    if not set(query.lower().split()).isdisjoint(BANDS):
        names.add("price")
    for word in content_words(query):
        if word not in taken and word not in BANDS:
            names.add(TYPE if catalogue.is_used(Trait(TOPIC, word)) else OTHER)
    return " + ".join(sorted(names)) or NOTHING


def queries(trajectory: Trajectory, catalogue: Catalogue) -> list[str]:
    """The patterns of an episode's searches, each once."""
    texts = [step.action.arguments["query"] for step in _valid(trajectory, FUNCTION_OF["search"])]
    return list(dict.fromkeys(query_pattern(text, catalogue) for text in texts))


def questions(trajectory: Trajectory, catalogue: Catalogue) -> list[str]:
    """What an episode's questions are about, in their order, as one pattern: "color, brand"."""
    texts = [step.action.arguments["content"] for step in _valid(trajectory, "respond")]
    abouts = [catalogue.find_attribute(text) or "something else" for text in texts]
    return [", ".join("type or anything" if about == TOPIC else about for about in abouts) or NOTHING]


def frequent_patterns(
    records: Sequence[Episode],
    results: pd.DataFrame,
    patterns_of: Callable[[Trajectory], list[str]],
    n: int = 10,
) -> pd.DataFrame:
    """The ``n`` most frequent patterns of each method, side by side.

    Args:
        records: of one or several methods; those that were not scored are left out.
        results: one row an episode, theirs among them, as of :meth:`pwagents_old.orion.runs.OrionRuns.frame`.
        patterns_of: the patterns of an episode, such as :func:`queries`.

    Returns:
        Rows by ``rank``; a method's columns are ``pattern``, ``share`` of its episodes that have it, and the
        ``result accuracy`` and ``return`` of these episodes.
    """
    scored = [record for record in records if record.outcome == "scored"]
    rows = [(r.method, r.task_id, pattern) for r in scored for pattern in patterns_of(r.trajectory)]
    found = pd.DataFrame(rows, columns=["method", "task_id", "pattern"])
    frame = found.merge(results[["method", "task_id", "result_final", "return"]], how="left")
    parts = {}
    for method, episodes in Counter(record.method for record in scored).items():
        groups = frame[frame["method"] == method].groupby("pattern")
        table = groups[["result_final", "return"]].mean().rename(columns={"result_final": "result accuracy"})
        table.insert(0, "share", groups.size() / episodes)
        table = table.reset_index().sort_values(["share", "pattern"], ascending=[False, True]).head(n)
        parts[method] = table.set_axis(range(1, len(table) + 1))
    return pd.concat(parts, axis=1).rename_axis("rank")


def sameness(records: Sequence[Episode], catalogue: Catalogue) -> pd.DataFrame:
    """Whether methods ask the same on every task, one row a method.

    Returns:
        ``method``, its ``most frequent`` sequence of questions, the ``share`` of its episodes that ask just
        that, how many ``different`` sequences there are, and the mean number of ``questions``.
    """
    scored: dict[str, list[Trajectory]] = {}
    for record in records:
        if record.outcome == "scored":
            scored.setdefault(record.method, []).append(record.trajectory)
    rows = []
    for method, episodes in scored.items():
        found = Counter(pattern for episode in episodes for pattern in questions(episode, catalogue))
        pattern, times = min(found.items(), key=lambda item: (-item[1], item[0]))
        asks = sum(map(count_asks, episodes)) / len(episodes)
        rows.append((method, pattern, times / len(episodes), len(found), asks))
    return pd.DataFrame(rows, columns=["method", "most frequent", "share", "different", "questions"])


def _valid(trajectory: Trajectory, function: str) -> Iterator[Step]:
    return (step for step in trajectory.steps if step.action.name == function and not step.error)


Cause = Literal["agent", "simulator", "tool"]


def failure_causes(study: Study, records: Mapping[str, Sequence[Episode]]) -> pd.DataFrame:
    """How many searches fail, and whose doing it is, as shares of all searches.

    Args:
        records: a name (of a user, say) -> episodes on the study's test tasks.

    Returns:
        A row a name: ``method, searches, found``, and a share for each :data:`Cause`; they add up to 1.
    """
    tasks = {task.task_id: task for task in study.test_tasks}
    cooperative = RuleUser(study.benchmark.products, study.benchmark.profiles, study.seed)
    rows = []
    for name, played in records.items():
        searches = [record for record in played if record.type == "search" and record.trajectory]
        outcomes = [
            "found"
            if grade(record.trajectory).result_final
            else cause_of(tasks[record.task_id], record.trajectory.steps, cooperative, study.engine)
            for record in searches
        ]
        shares = pd.Series(outcomes).value_counts(normalize=True)
        rows.append({"method": name, "searches": len(searches), **shares})
    return pd.DataFrame(rows, columns=["method", "searches", "found", *get_args(Cause)]).fillna(0.0)


def cause_of(task: Task, steps: Sequence[Step], cooperative: RuleUser, engine: SearchEngine) -> Cause:
    """Whose doing it is that a search failed.

    Args:
        cooperative: the user who tells all that they are asked for.
    """
    said = " ".join([task.instruction, *(fact.value for fact in cooperative.facts(task))])
    if task.target not in [asin for asin, _ in engine.search(said)]:
        return "tool"
    for i, step in enumerate(steps):
        if step.is_talk:
            _, fact = cooperative.react(task, steps[:i], step.action.arguments["content"])
            if fact and find_run(fact.value, step.observation.text) is None:
                return "simulator"
    return "agent"
