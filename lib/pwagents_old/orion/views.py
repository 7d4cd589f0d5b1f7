"""What notebooks 05 to 08 show of studies, trainings and results: tables, and pages for single examples."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pwagents.files import CARD
from pwagents.results.statistics import trained_differences
from pwagents.results.papers import below_paper
from pwagents.results.statistics import paired_test
from pwagents.results.tables import Html, format_intervals
from pwagents.lm.tokens import Example
from pwagents_old.orion.control import FOREIGN, OWN
from pwagents_old.orion.role_play import RolePlay
from pwagents_old.orion.settings import OrionSettings
from pwagents_old.orion.study import Study

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
    """Result accuracy and return, with intervals, of one row of a table of differences.

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


def by_profile(frame: pd.DataFrame) -> pd.DataFrame:
    """Episodes of :func:`pwagents_old.orion.control.play_with_profiles`, methods called "GRPO, no profile"."""
    return frame.assign(method=frame["method"] + ", " + frame["profiles"])


def worth_of_profiles(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """What the own profile brings more than each other, paired by task, to each of these policies.

    Each is compared with itself, so the noise of seeds is no measure here; what the profile is worth to one
    policy and to another differs by it.

    Args:
        frame: of :func:`pwagents_old.orion.control.play_with_profiles`.

    Returns:
        The columns of :func:`pwagents.results.statistics.trained_differences`.
    """
    pairs = {
        f"{method}: {OWN} - {other}": (f"{method}, {OWN}", f"{method}, {other}")
        for method in frame["method"].unique()
        for other in frame["profiles"].unique()
        if other != OWN
    }
    return trained_differences(by_profile(frame), pairs, metric)


def profile_effect(frame: pd.DataFrame, before: str, after: str, metric: str) -> pd.DataFrame:
    """What the user's own profile is worth before and after a training, and to the training's gain.

    Args:
        frame: one row an episode with ``method, task_id, user_id``, ``metric`` and ``profiles``, as of
            :func:`pwagents_old.orion.control.play_with_profiles`; of those, OWN and FOREIGN count.
        before, after: the methods; tasks that not all four runs were scored on are left out.

    Returns:
        One row a comparison, as of :func:`paired_test`, without p, since each was trained once: own minus
        another user's profile, before and after; the gain of after over before, when after plays with its own
        profiles and when it has to play with others'; the gain when both play with others'; and the
        difference of the first gain and the last.
    """
    own_before, own_after = (f"{method}, {OWN}" for method in (before, after))
    other_before, other_after = (f"{method}, {FOREIGN}" for method in (before, after))
    wide = by_profile(frame).pivot_table(metric, ["user_id", "task_id"], "method")
    wide = wide[[own_before, own_after, other_before, other_after]].dropna()
    # The gains are compared as if they were methods.
    wide["first gain"] = wide[own_after] - wide[own_before]
    wide["last gain"] = wide[other_after] - wide[other_before]
    pairs = {
        f"{before}: own - another user's profile": (own_before, other_before),
        f"{after}: own - another user's profile": (own_after, other_after),
        f"{after} - {before}": (own_after, own_before),
        f"{after} with another user's profile - {before}": (other_after, own_before),
        f"{after} - {before}, both with another user's profile": (other_after, other_before),
        "difference of the first gain and the last": ("first gain", "last gain"),
    }
    runs = wide.melt(value_name=metric, ignore_index=False).reset_index()
    tests = {name: paired_test(runs, metric, *pair, flips=0)._asdict() for name, pair in pairs.items()}
    table = pd.DataFrame({"comparison": name, **test} for name, test in tests.items())
    return table.drop(columns=["p", "n_left_out"])


def circumstances(study: Study) -> str:
    """What a table's note says of the test: on what, and with which model."""
    data, base = study.settings.data, study.settings.base
    tasks = f"{len(study.test_tasks):,} tasks of held-out users, source {data.source}"
    return f"{tasks}, backbone: {base.backbone}."


def orion_rows(
    frame: pd.DataFrame, table: str, methods: Sequence[str], settings: OrionSettings
) -> pd.DataFrame:
    """Trained rows of Orion as printed, and ours in rows of their own, for the tasks that were played here.

    Args:
        frame: one row an episode, as from :meth:`pwagents_old.orion.runs.OrionRuns.frame`.
        table: "Table 1", by task, or "Table 2", a mean over all three types of tasks.
        methods: ours that are shown, in the frame's order, and of the printed rows those that :data:`PRINTED`
            gives to them.
    """
    here = (settings.base.backbone, settings.data.label)
    printed = [row for method, row in PRINTED[table].items() if method in methods]
    return below_paper(frame[frame["method"].isin(methods)], "Orion", table, *here, printed)


def role_play_outcomes(role_play: RolePlay) -> pd.DataFrame:
    """How many conversations were kept, and why others were not, the most frequent reason first."""
    counts = {"kept": len(role_play.kept), **dict(role_play.failures.most_common())}
    frame = pd.DataFrame(counts.items(), columns=["outcome", "conversations"])
    return frame.assign(share=frame["conversations"] / frame["conversations"].sum())


def of_one_seed(seed_noise: Mapping[str, float] | None) -> str:
    """The note below differences of policies that were trained once.

    Args:
        seed_noise: as of :func:`pwagents.results.seeds.must_exceed`.
    """
    known = ", ".join(f"{task} {noise:.2g}" for task, noise in (seed_noise or {}).items())
    return (
        "95% intervals over tasks, clustered by user. One seed each: no p for a way of training. "
        f"Noise of seeds (notebook 07): {known or 'not measured at this preset'}."
    )


def starts_and_gains(means: pd.DataFrame, curves: pd.DataFrame, start: str, steps: int = 10) -> pd.DataFrame:
    """What each training by rewards began with, and what it gained, one row a training.

    Args:
        means: of a metric, by ``method, type, seed`` (:func:`pwagents.results.seeds.means_by_seed`).
        curves: of :func:`pwagents_old.rl.log.read_curves`; runs are called "GRPO, seed 0".
        start: the method that each seed's trainings began with.
        steps: how many first steps tell what there was to explore.

    Returns:
        ``run``, then of the episodes of the first steps ``entropy`` (nats a token), ``questions`` and
        ``deviation of rewards``; and for each type of task what the start reaches and what was gained.
    """
    explored = {"entropy": "entropy", "asks": "questions", "reward_std": "deviation of rewards"}
    begun = curves[curves["step"].between(1, steps)].groupby("run", sort=False)[list(explored)].mean()
    names = means["method"] + ", seed " + means["seed"].astype(str)
    reached = means.assign(run=names).set_index(["run", "type"])["mean"].unstack("type", sort=False)
    starts = reached.loc[[f"{start}, seed {run.rpartition(' ')[2]}" for run in begun.index]]
    gains = reached.loc[begun.index] - starts.to_numpy()
    columns = {f"{start}: {task}": starts[task].to_numpy() for task in starts}
    columns |= {f"gain: {task}": gains[task].to_numpy() for task in gains}
    return begun.rename(columns=explored).assign(**columns).reset_index()


def show_tokens(tokenizer: "PreTrainedTokenizerBase", example: Example) -> Html:
    """A conversation token by token, those that the loss is on coloured; what they say is escaped.

    Of a long one, which would fill pages, the first thousand tokens are shown.
    """
    learned, tokens = sum(example.mask), list(zip(example.input_ids, example.mask, strict=True))[:1000]
    given = len(example.mask) - learned
    lines = [_token(f"learned from: {learned:,} tokens", True) + _token(f"given: {given:,} tokens", False)]
    for is_learned, run in groupby(tokens, key=lambda token: token[1]):
        lines.append("".join(_token(tokenizer.decode([token]), bool(is_learned)) for token, _ in run))
    page = "".join(f'<div style="margin:0 0 10px 0">{line}</div>' for line in lines)
    look = "font:13px/1.9 monospace;max-width:1000px;overflow-wrap:anywhere;background:#fff;padding:8px"
    return Html(f'<div style="{look}">{page}</div>')


def _token(text: str, is_learned: bool) -> str:
    colour = "#9fd3f5" if is_learned else "#ececec"
    look = f"background:{colour};color:#111;border-right:1px solid #bbb;padding:1px 2px;white-space:pre-wrap"
    return f'<span style="{look}">{escape(text)}</span>'


def show_card(folder: Path) -> Html:
    """A model's card as text: its headings are none of the notebook's."""
    _, _, card = (folder / CARD).read_text("utf-8").split("---", 2)
    look = "background:#fff;color:#111;border:1px solid #ccc;padding:8px 12px;white-space:pre-wrap"
    return Html(f'<pre style="{look}">{escape(card.strip())}</pre>')
