"""Tables of Orion's notebooks, 05 to 08: episodes with their returns, the papers' rows and ours."""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from pwagents.llm.budget import Load, estimate
from pwagents.orion.experiment import OrionRuns
from pwagents.orion.reward import episode_returns
from pwagents.orion.study import Study
from pwagents.orion.variations import OWN
from pwagents.results.episodes import mark_targets, records_frame
from pwagents.results.papers import below_paper
from pwagents.results.statistics import by_task, summarise, trained_differences
from pwagents.results.tables import format_intervals
from pwagents.rl.rollout import count_asks
from pwagents.schema import FUNCTION_OF, Benchmark, Step, Task, Trajectory
from pwagents.settings import OrionSettings
from pwagents.shop.search import SearchEngine
from pwagents.store import Episode
from pwagents.users.rules import RuleUser, find_run

METRICS = {  # columns of episodes -> headings
    "result_final": "result accuracy",
    "return": "return",
    "step_accuracy": "function accuracy",
    "steps": "steps",
    "asks": "questions",
}
# What a row of a table is about, in whatever tables have of it.
ROWS = ("comparison", "task", "method", "type", "setting", "value", "world", "without", "trajectories")
PRINTED = {  # table of the paper -> our method -> the row of the same training
    "Table 1": {
        "SFT": "Qwen2.5-7B-Instruct (SFT)",
        "PPO": "Qwen2.5-7B-Instruct (SFT + PPO)",
        "GRPO": "Orion (Ours)",
    },
    "Table 2": {
        "GRPO": "Orion (Full Model)",
        "SFT": "w/o RL (SFT only)",
        "w/o micro-profiles, trained so": "w/o G-M Profile",
        "w/o update, trained so": "w/o DPU",
        "w/o asking, trained so": "w/o PD",
    },
}


def orion_frame(runs: OrionRuns, *records: Sequence[Episode]) -> pd.DataFrame:
    """Return one row an episode (:func:`pwagents.results.episodes.records_frame`), with three columns more.

    ``asks`` is how often each episode asked the user, ``query`` its last search, and ``return`` what
    training pays for (:func:`pwagents.orion.reward.episode_returns`).
    """
    together = [record for run in records for record in run]
    return records_frame(together).assign(
        asks=[float(count_asks(r.trajectory)) if r.trajectory else float("nan") for r in together],
        query=[last_query(r.trajectory) for r in together],
        **{"return": episode_returns(runs, together)},
    )


def last_query(trajectory: Trajectory | None) -> str:
    """Return the query of an episode's last well-formed search; empty where there is none."""
    steps = reversed(trajectory.steps if trajectory else ())
    searches = (step for step in steps if step.action.name == FUNCTION_OF["search"] and not step.error)
    return next((step.action.arguments["query"] for step in searches), "")


def by_task_and_target(results: pd.DataFrame, benchmark: Benchmark) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the means of :data:`METRICS` by method and task, and their cells with intervals.

    Recommendations have further columns: of targets that the user had bought before their first test task,
    and of new ones.

    Args:
        results: of :func:`orion_frame`.
    """
    means, cells = by_task(results, METRICS)
    marked = mark_targets(results[results["type"] == "recommend"], benchmark)
    for target, part in marked.groupby("target", sort=False):
        for metric in ("result_final", "return"):
            table = summarise(part, ["method"], [metric]).set_index("method")
            column = ("recommend", f"{METRICS[metric]}, {target}")
            means[column], cells[column] = table["mean"], format_intervals(table)
    return means, cells


def with_return(
    tabulate: Callable[[str], pd.DataFrame], format_table: Callable[[pd.DataFrame], pd.DataFrame]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tabulate result accuracy and, beside it, the return, which is what training pays for.

    Args:
        tabulate: a metric of episodes -> means or differences, in ``mean`` or ``difference``, ``low, high``.
        format_table: such a table -> what is shown of it.

    Returns:
        The table of result accuracy with ``return, return_low, return_high``; and what is shown of it.
    """
    accuracy, returns = tabulate("result_final"), tabulate("return")
    names = {"difference" if "difference" in accuracy else "mean": "return"}
    names |= {"low": "return_low", "high": "return_high"}
    keys = [name for name in ROWS if name in accuracy]
    table = accuracy.merge(returns[[*keys, *names]].rename(columns=names), how="left", on=keys)
    cells = format_intervals(table[list(names.values())].set_axis(["mean", "low", "high"], axis=1))
    return table, format_table(accuracy).reset_index(drop=True).assign(**{"return": cells})


def tell_difference(table: pd.DataFrame, **row: str) -> str:
    """Return result accuracy and return, with intervals, of one row of a table of differences.

    Args:
        table: as of :func:`with_return`.
        row: its values in some columns, such as ``comparison="GRPO - SFT"``; no other row has them.
    """
    found, told = table[table[list(row)].eq(pd.Series(row)).all(axis=1)], []
    for name, mean, prefix in (("result accuracy", "difference", ""), ("return", "return", "return_")):
        columns = found[[mean, f"{prefix}low", f"{prefix}high"]]
        (cell,) = format_intervals(columns.set_axis(["mean", "low", "high"], axis=1))
        told.append(f"{name} {cell}")
    return ", ".join(told)


def worth_of_profiles(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return what the own profile brings more than each other, paired by task, to each of these policies.

    Each is compared with itself, so the noise of seeds is no measure here; what the profile is worth to one
    policy and to another differs by it.

    Args:
        frame: of :func:`orion_frame`, with the ``profiles`` that were told.

    Returns:
        The columns of :func:`pwagents.results.statistics.trained_differences`.
    """
    pairs = {
        f"{method}: {OWN} - {other}": (f"{method}, {OWN}", f"{method}, {other}")
        for method in frame["method"].unique()
        for other in frame["profiles"].unique()
        if other != OWN
    }
    named = frame.assign(method=frame["method"] + ", " + frame["profiles"])
    return trained_differences(named, pairs, metric)


def circumstances(study: Study) -> str:
    """Return what a table's note says of the test: on what, and with which model."""
    data, base = study.settings.data, study.settings.base
    tasks = f"{len(study.test_tasks):,} tasks of held-out users, source {data.source}"
    return f"{tasks}, backbone: {base.backbone}."


def orion_rows(
    frame: pd.DataFrame, table: str, methods: Sequence[str], settings: OrionSettings
) -> pd.DataFrame:
    """Return trained rows of Orion as printed, and ours in rows of their own, for the tasks played here.

    Args:
        frame: one row an episode, as from :func:`orion_frame`.
        table: "Table 1", by task, or "Table 2", a mean over all three types of tasks.
        methods: ours that are shown, in the frame's order, and of the printed rows those that :data:`PRINTED`
            gives to them.
    """
    here = (settings.base.backbone, settings.data.label)
    printed = [row for method, row in PRINTED[table].items() if method in methods]
    return below_paper(frame[frame["method"].isin(methods)], "Orion", table, *here, printed)


def of_one_seed(seed_noise: Mapping[str, float] | None) -> str:
    """Return the note below differences of policies that were trained once.

    Args:
        seed_noise: as of :func:`pwagents.results.seeds.must_exceed`.
    """
    known = ", ".join(f"{task} {noise:.2g}" for task, noise in (seed_noise or {}).items())
    return (
        "95% intervals over tasks, clustered by user. One seed each: no p for a way of training. "
        f"Noise of seeds (notebook 07): {known or 'not measured at this preset'}."
    )


def cause_of(task: Task, steps: Sequence[Step], cooperative: RuleUser, engine: SearchEngine) -> str:
    """Return whose doing it is that a search failed: "tool", "simulator" or "agent", asked in this order.

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


def estimate_roles(settings: OrionSettings, episodes: int, **further: Load) -> pd.DataFrame:
    """Estimate what language models behind the roles are asked at most.

    Args:
        episodes: that are played.
        further: other roles' loads by name.

    Returns:
        See :func:`pwagents.llm.budget.estimate`.
    """
    players, users = settings.players, settings.data.n_users + settings.study.training_users
    return estimate(
        {
            "writer": Load(players.writer, 9 * users, 1.1, 900, 40),  # PersonalWAB has nine tasks a user
            "profiler": Load(players.profiler, users, 10, 1_200, 250),
            "user": Load(players.user, episodes, 1.5, 1_200, 40),
            "updater": Load(players.updater, episodes, 4, 900, 150),
            "judge": Load(players.judge, episodes, 4, 1_500, 10),
            **further,
        }
    )
