"""Tables of Orion's notebooks, 05 to 08: episodes with their returns, the papers' rows and ours."""

from collections.abc import Callable, Sequence

import pandas as pd

from pwagents.orion.experiment import OrionRuns
from pwagents.orion.reward import episode_returns
from pwagents.orion.study import Study
from pwagents.orion.variations import OWN
from pwagents.results.episodes import mark_targets, records_frame
from pwagents.results.papers import below_paper, load_targets
from pwagents.results.statistics import add_targets, by_task, trained_differences
from pwagents.results.tables import format_intervals
from pwagents.rl.rollout import count_asks
from pwagents.schema import FUNCTION_OF, Benchmark, Step, Task, Trajectory
from pwagents.settings import GrpoSettings, OrionSettings
from pwagents.shop.search import SearchEngine
from pwagents.store import Episode
from pwagents.users.rules import RuleUser, find_run

ONE_TRAINING = (
    "95% intervals over tasks, clustered by user: other trainings, with other seeds, may differ by more."
)
METRICS = {  # columns of episodes -> headings
    "result_final": "result accuracy",
    "return": "return",
    "step_accuracy": "function accuracy",
    "steps": "steps",
    "asks": "questions",
}
# What a row of a table is about, in whatever tables have of it.
ROWS = ("comparison", "task", "method", "type", "setting", "value", "world", "without", "trajectories")


def orion_frame(runs: OrionRuns, *records: Sequence[Episode]) -> pd.DataFrame:
    """Return :func:`pwagents.results.episodes.records_frame` with ``asks``, ``query`` and ``return``.

    That is how often each episode asked the user, its last search, and what training pays for
    (:func:`pwagents.orion.reward.episode_returns`).
    """
    together = [record for run in records for record in run]
    return records_frame(together).assign(
        asks=[float(count_asks(r.trajectory)) if r.trajectory else float("nan") for r in together],
        query=[_last_query(r.trajectory) for r in together],
        **{"return": episode_returns(runs, together)},
    )


def _last_query(trajectory: Trajectory | None) -> str:
    """Return the query of an episode's last well-formed search; empty where there is none."""
    steps = reversed(trajectory.steps if trajectory else ())
    searches = (step for step in steps if step.action.name == FUNCTION_OF["search"] and not step.error)
    return next((step.action.arguments["query"] for step in searches), "")


def by_task_and_target(results: pd.DataFrame, benchmark: Benchmark) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the means of :data:`METRICS` by method and task, and their cells with intervals.

    Recommendations have further columns: of targets that the user had bought before their first test task,
    and of new ones. ``results`` are of :func:`orion_frame`.
    """
    means, cells = by_task(results, METRICS)
    marked = mark_targets(results[results["type"] == "recommend"], benchmark)
    add_targets(means, cells, marked, {name: METRICS[name] for name in ("result_final", "return")})
    return means, cells


def with_return(
    tabulate: Callable[[str], pd.DataFrame],
    format_table: Callable[[pd.DataFrame], pd.DataFrame],
    metrics: Sequence[str] = ("return",),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tabulate result accuracy and, beside it, the return, which is what training pays for.

    Args:
        tabulate: a metric of episodes -> means or differences, in ``mean`` or ``difference``, ``low, high``.
        format_table: such a table -> what is shown of it.
        metrics: of episodes, which stand beside result accuracy.

    Returns:
        The table of result accuracy with ``return, return_low, return_high`` (and so of each metric); and
        what is shown of it.
    """
    table = tabulate("result_final")
    shown, keys = format_table(table).reset_index(drop=True), [name for name in ROWS if name in table]
    for metric in metrics:
        names = {"difference" if "difference" in table else "mean": metric}
        names |= {"low": f"{metric}_low", "high": f"{metric}_high"}
        other = tabulate(metric)[[*keys, *names]].rename(columns=names)
        table = table.merge(other, how="left", on=keys)
        cells = table[list(names.values())].set_axis(["mean", "low", "high"], axis=1)
        shown[metric] = format_intervals(cells)
    return table, shown


def tell_difference(table: pd.DataFrame, **row: str) -> str:
    """Return result accuracy and return, with intervals, of one row of a table of differences.

    Args:
        table: as of :func:`with_return`.
        row: what the row alone has in some columns, such as ``comparison="GRPO - SFT"``.
    """
    found, told = table[table[list(row)].eq(pd.Series(row)).all(axis=1)], []
    for name, mean, prefix in (("result accuracy", "difference", ""), ("return", "return", "return_")):
        columns = found[[mean, f"{prefix}low", f"{prefix}high"]]
        (cell,) = format_intervals(columns.set_axis(["mean", "low", "high"], axis=1))
        told.append(f"{name} {cell}")
    return ", ".join(told)


def worth_of_profiles(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return what the own profile brings more than each other, paired by task, to each of these policies.

    ``frame`` is of
    :func:`orion_frame`, with the ``profiles`` that were told.
    """
    pairs = {
        f"{method}: {OWN} - {other}": (f"{method}, {OWN}", f"{method}, {other}")
        for method in frame["method"].unique()
        for other in frame["profiles"].unique()
        if other != OWN
    }
    named = frame.assign(method=frame["method"] + ", " + frame["profiles"])
    return trained_differences(named, pairs, metric)


def training_lines(curves: pd.DataFrame, config: GrpoSettings) -> list[str]:
    """Describe how trainings by rewards went: updates, entropy, tokens and groups that taught something.

    Args:
        curves: of :func:`pwagents.rl.log.read_curves`.
        config: GRPO's.
    """
    lines = []
    for name, own in curves.groupby("run", sort=False):
        end = own.tail(20).mean(numeric_only=True)
        line = f"{name}: {own['step'].max():.0f} steps, of the last 20: clipped {end['clip_fraction']:.3f}"
        line += f" of the tokens, approximate KL {end['approx_kl']:.2g}, entropy {end['entropy']:.2f} nats"
        if name == "PPO":
            line += f", the critic explains {end['explained']:.2f} of the returns"
        moved = own.filter(regex="^moved_").sum()
        kinds = [f"{kind.partition('_')[2]} {share:.2f}" for kind, share in (moved / moved.sum()).items()]
        sampled = f"  {own['sampled'].sum():,.0f} episodes sampled"
        lines += [line, f"{sampled}; tokens that move the policy: {', '.join(kinds)}"]
        drawn = own.filter(regex="^drawn_").sum() if name == "GRPO" and config.draws > 1 else {}
        for column, n_drawn in drawn.items():
            kind = column.removeprefix("drawn_")
            n_slots = config.max_steps * config.prompts_per_step / len(drawn)
            n_taught = own[f"informative_{kind}"].sum()
            line = f"  {kind}: of {n_drawn:,.0f} groups {n_taught:,.0f} teach something; "
            lines.append(line + f"{max(n_slots - n_taught, 0):,.0f} of {n_slots:,.0f} slots stayed empty")
    return lines


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
        frame: of :func:`orion_frame`.
        table: "Table 1", by task, or "Table 2", a mean over all three types of tasks.
        methods: to show, of ours and of the printed rows.
    """
    printed = (
        load_targets().query("paper == 'Orion' and table == @table and ours in @methods")["row"].unique()
    )
    own, here = frame[frame["method"].isin(methods)], (settings.base.backbone, settings.data.label)
    return below_paper(own, "Orion", table, *here, printed)


def cause_of(task: Task, steps: Sequence[Step], cooperative: RuleUser, engine: SearchEngine) -> str:
    """Return whose doing it is that a search failed: "tool", "simulator" or "agent", asked in this order.

    ``cooperative`` is a user who tells all that they are asked for.
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
