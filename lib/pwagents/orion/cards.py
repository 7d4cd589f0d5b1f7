"""Model cards of Orion's trained policies."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.cache import KEY
from pwagents.evaluation.tables import format_intervals
from pwagents.lm.card import write_card

POLICY = "model"  # in the folder of a run of reinforcement learning: the trained policy
_WHAT = {
    "orion-sft": "Orion's agent after supervised fine-tuning on role-play: a thought, then one call.",
    "orion-grpo": "Orion's agent after GRPO on whole episodes, from the fine-tuned one.",
    "orion-ppo": "Orion's agent after PPO on whole episodes, from the fine-tuned one: the paper's baseline.",
}
_USE = """
from pwagents.orion.agent import OrionAgent
from pwagents.llm.local_model import LocalModel

agent = OrionAgent(LocalModel("path/to/this/folder"), shown={shown})  # belief state -> action
"""


def write_orion_card(
    folder: Path, name: str, parts: Mapping[str, Any], results: pd.DataFrame | None = None
) -> None:
    """Write the card of a model that :class:`pwagents.orion.train.OrionModels` made.

    Args:
        folder: of the model, or of the run that holds it.
        name: of its stage, such as "orion-sft".
        parts: what it was made from: ``start``, ``facts``, ``settings``.
    """
    policy = folder / POLICY if (folder / POLICY).exists() else folder
    base = parts["start"].partition("@")[0]
    tags = ("orion", name.rpartition("-")[2])
    facts = parts["facts"]
    use = _USE.format(shown=facts["shown"] if "shown" in facts else facts["decoding"]["shown"])
    write_card(policy, name, _WHAT[name], facts, parts["settings"], results, base=base, tags=tags, use=use)


def add_results(folder: Path, measured: pd.DataFrame) -> None:
    """Write a trained model's card anew, with measured numbers: a row for each comparison.

    Args:
        measured: ``method, type, mean, low, high, n_tasks`` of the result accuracy, as from
            :func:`pwagents.evaluation.breakdowns.by_type_and_mean`.
    """
    parts = json.loads((folder / KEY).read_text("utf-8"))
    rows = measured.assign(**{"result accuracy": format_intervals(measured), "tasks": measured["n_tasks"]})
    results = rows[["method", "type", "result accuracy", "tasks"]]
    write_orion_card(folder, folder.name.rpartition("-")[0], parts, results)
