"""Model cards: the README.md of a model's folder, made of facts that the training hands over."""

import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from pwagents.project import write_aside

CARD = "README.md"
_USE = """
from pwagents.llm.local_model import LocalModel

model = LocalModel("path/to/this/folder")
print(model.complete([{"role": "user", "content": "Hello"}], max_tokens=20).text)
"""


def write_card(
    folder: Path | str,
    title: str,
    what: str,
    trained_on: Mapping[str, object],
    training: Mapping[str, object],
    results: pd.DataFrame | None = None,
    base: str | None = None,
    tags: tuple[str, ...] = (),
    use: str = "",
    license: str = "mit",
) -> None:
    """Write ``folder/README.md``: YAML as Hugging Face reads it, then Markdown for people.

    Args:
        title: the model's name.
        what: what it is and is not, in a few sentences.
        trained_on: the data as fact -> value (name, number of trajectories, content hash ...).
        training: the settings as name -> value, for instance :func:`pwagents.settings.plain` of a group.
        results: measured numbers with a row for each comparison, as in the notebook's table.
        base: the model it was trained from: an id at Hugging Face, or a folder, of which the name is told.
        use: Python that shows how the model is used; empty: as any chat model.
        license: of the weights, by its name at Hugging Face.
    """
    parts = [f"# {_line(title)}", what.strip()]
    parts += ["## Trained on", _facts(trained_on), "## Training", _facts(training)]
    if results is not None:
        parts += ["## Results", _table(list(map(str, results.columns)), results.itertuples(index=False))]
    parts += ["## Use", f"```python\n{(use or _USE).strip()}\n```"]
    header = _header(title, base, tags, license)
    write_aside(Path(folder) / CARD, f"---\n{header}\n---\n\n" + "\n\n".join(parts) + "\n")


def _header(title: str, base: str | None, tags: tuple[str, ...], license: str) -> str:
    from huggingface_hub import ModelCardData

    named = Path(base).name if base is not None and Path(base).is_absolute() else base
    return ModelCardData(
        model_name=_line(title),
        license=license,
        base_model=named,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["personalized-web-agents", *tags],
    ).to_yaml()


def _facts(facts: Mapping[str, object]) -> str:
    return _table(["", ""], facts.items())


def _table(headings: list[str], rows) -> str:
    lines = [map(_cell, headings), ["---"] * len(headings), *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(value: object) -> str:
    """One line of Markdown that shows the value as it is; 6 significant digits of a fraction."""
    text = f"{value:.6g}" if isinstance(value, float) else _line(str(value))
    return re.sub(r"([\\`*_\[\]<>&|~#$])", r"\\\1", text)


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
