"""What episodes cost: pages to read, and a language model's tokens and dollars."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.persona2web.agent import PAGES_TOLD
from pwagents.persona2web.runs import WebEpisode
from pwagents.persona2web.study import CHANCE, OFFLINE, ORACLE
from pwagents.persona2web.views import told


def reading(
    runs: Mapping[str, Sequence[WebEpisode]], count: Callable[[Sequence[str]], Sequence[int]]
) -> pd.DataFrame:
    """What an episode has to read, on average: steps, looks, tokens of a page and of all pages sent.

    A model is sent the page of each step, and as many before it as its architecture keeps.

    Args:
        runs: by what the row is called.
        count: texts -> tokens of each.
    """
    rows = []
    for name, records in runs.items():
        steps = [step for record in records for step in record.trajectory.steps]
        texts = [[s.observation for s in r.trajectory.steps if s.kind == "web"] for r in records]
        pages = [count(each) for each in texts]
        kept = PAGES_TOLD[records[0].trajectory.architecture]
        sent = [sum(each[max(0, i + 1 - kept) : i + 1]) for each in pages for i in range(len(each))]
        n, read = len(records), [tokens for each in pages for tokens in each]
        looks = sum(step.kind == "memory" for step in steps)
        rows.append((name, len(steps) / n, looks / n, float(np.mean(read)), sum(sent) / n))
    names = ["episodes", "steps", "looks", "tokens of a page", "tokens of pages sent"]
    return pd.DataFrame(rows, columns=names)


def costs(frame: pd.DataFrame) -> pd.DataFrame:
    """What a language model's episodes took: tokens and US dollars an episode and in all."""
    spent = told(frame[~frame["method"].isin([OFFLINE, CHANCE, ORACLE])])
    groups = spent.groupby(["architecture", "agent", "access", "level"], sort=False)
    table = groups.agg(
        episodes=("task_id", "size"), steps=("steps", "mean"), tokens=("tokens", "mean"), usd=("usd", "mean")
    )
    table = table.assign(total=groups["usd"].sum())
    return table.rename(columns={"usd": "US dollars", "total": "US dollars in all"}).reset_index()
