"""What fine-tuning looks like: the tokens it learns from, and its losses."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pwagents.evaluation.figures import plain, use_style
from pwagents.lm.pretrain import LOG
from pwagents.lm.tokens import Example

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_STYLES = ("-", "--", ":", "-.")  # a second cue beside colour
_PAGE = """\
<style>
.tokens {{ font-family: monospace; line-height: 1.9; max-width: 60em; overflow-wrap: anywhere; }}
.tokens span {{ border-right: 1px solid #0003; padding: 1px 2px; white-space: pre-wrap; color: #111; }}
.tokens .learned {{ background: #9fd3f5; }}
.tokens .given {{ background: #ececec; }}
</style>
<div class="tokens"><p><span class="learned">learned from: {learned:,} tokens</span>
<span class="given">given: {given:,} tokens</span></p>{runs}</div>
"""


def show_tokens(tokenizer: "PreTrainedTokenizerBase", example: Example, most: int = 1000):
    """A conversation token by token, those that the loss is on coloured; what they say is escaped.

    Args:
        most: of its tokens, the first; long ones fill a page.

    Returns:
        An ``IPython.display.HTML`` for the end of a cell; its ``data`` is the page's text.
    """
    from IPython.display import HTML

    tokens = list(zip(example.input_ids, example.mask, strict=True))[:most]
    runs = []
    for learned, run in groupby(tokens, key=lambda token: token[1]):
        kind = "learned" if learned else "given"
        said = (escape(tokenizer.decode([token])) for token, _ in run)
        runs.append("<p>" + "".join(f'<span class="{kind}">{text}</span>' for text in said) + "</p>")
    learned = sum(example.mask)
    return HTML(_PAGE.format(learned=learned, given=len(example.mask) - learned, runs="\n".join(runs)))


def read_base_log(folder: Path) -> pd.DataFrame:
    """The learning curve of the small base model: ``lesson`` and ``step`` (counted through), ``loss``,
    ``query_accuracy``."""
    log = pd.read_csv(folder / LOG)
    lengths = log.groupby("lesson")["step"].max()
    before = (lengths.cumsum() - lengths).rename("before")
    return log.assign(step=log["step"] + log["lesson"].map(before), lesson=log["lesson"] + 1)


def plot_base(log: pd.DataFrame):
    """Loss and query accuracy of the base model by step, a line a lesson.

    Args:
        log: from :func:`read_base_log`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figures.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    fig, axes = plt.subplots(1, 2, figsize=(11, 4.2))
    panels = {"loss": "loss (nats a token)", "query_accuracy": "query words right, held out"}
    for ax, (name, ylabel) in zip(axes, panels.items(), strict=True):
        for i, (lesson, part) in enumerate(log.groupby("lesson")):
            ax.plot(part["step"], part[name], marker="osD"[i % 3], markersize=5, label=f"lesson {lesson}")
        ax.set(xlabel="step", ylabel=ylabel)
    axes[1].set_ylim(-0.02, 1.02)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return fig


def read_losses(folders: dict[str, Path]) -> pd.DataFrame:
    """The logs of fine-tunings, name -> folder: ``training``, ``step``, ``loss`` and more."""
    logs = [pd.read_csv(folder / "log.csv").assign(training=name) for name, folder in folders.items()]
    return pd.concat(logs, ignore_index=True)


def has_fallen(losses: Sequence[float]) -> bool:
    """Whether a loss is lower in its last third than at the start: no training that failed does that."""
    third = losses[-max(1, len(losses) // 3) :]
    return len(losses) > 1 and sum(third) / len(third) < losses[0]


def plot_losses(losses: pd.DataFrame) -> Any:
    """Loss by step, a line a training.

    Args:
        losses: from :func:`read_losses`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figures.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    fig, ax = plt.subplots(figsize=(8, 4.5))
    for i, (name, log) in enumerate(losses.groupby("training", sort=False)):
        ax.plot(log["step"], log["loss"], linestyle=_STYLES[i % len(_STYLES)], label=plain(name))
    ax.set(xlabel="step", ylabel="loss (nats a token)")
    ax.set_ylim(bottom=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    fig.legend(loc="outside upper center", ncols=3)
    return fig
