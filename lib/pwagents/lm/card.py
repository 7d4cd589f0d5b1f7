"""Model cards: the README.md of a model's folder, made of facts that the training hands over."""

import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from pwagents.project import write_aside

CARD = "README.md"
_USE = """\
from pwagents.llm.local_model import LocalModel

model = LocalModel("path/to/this/folder")
print(model.complete([{"role": "user", "content": "Hello"}], max_tokens=20).text)"""


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
        training: the settings as name -> value.
        results: measured numbers with a row for each comparison, as in the notebook's table.
        base: the model it was trained from: an id at Hugging Face, or a folder, of which the name is told.
        use: Python that shows how the model is used; empty: as any chat model.
        license: of the weights, by its name at Hugging Face.
    """
    from huggingface_hub import ModelCardData

    header = ModelCardData(
        model_name=_line(title),
        license=license,
        base_model=Path(base).name if base is not None and Path(base).is_absolute() else base,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["personalized-web-agents", *tags],
    ).to_yaml()
    training = {**training, **training.get("trainer", {})}  # TRL's fields get rows of their own
    training.pop("trainer", None)
    data, settings = (_table(["", ""], facts.items()) for facts in (trained_on, training))
    measured = (
        "" if results is None else f"## Results\n\n{_table(results, results.itertuples(index=False))}\n\n"
    )
    card = f"""\
---
{header}
---

# {_line(title)}

{what.strip()}

## Trained on

{data}

## Training

{settings}

{measured}## Use

```python
{(use or _USE).strip()}
```
"""
    write_aside(Path(folder) / CARD, card)


def _table(headings, rows) -> str:
    """Markdown, values as they are, a line each; 6 significant digits of a fraction."""
    lines = [map(str, headings), ["---"] * len(list(headings))]
    for row in rows:
        cells = (f"{value:.6g}" if isinstance(value, float) else _line(str(value)) for value in row)
        lines.append([re.sub(r"([\\`*_\[\]<>&|~#$])", r"\\\1", cell) for cell in cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
