"""Model cards: the README.md of a model's folder, made of facts that the training hands over."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd
import yaml

from pwagents.files import CARD, write_aside

USE = """\
from pwagents.llm.local_model import LocalModel

model = LocalModel("path/to/this/folder")
print(model.complete([{"role": "user", "content": "Hello"}], max_tokens=20).text)"""


def write_card(
    folder: Path,
    title: str,
    what: str,
    trained_on: Mapping[str, object],
    training: Mapping[str, object],
    results: pd.DataFrame | None = None,
    base: str | None = None,
    tags: tuple[str, ...] = (),
    use: str = USE,
    license: str = "mit",
) -> None:
    """Write ``folder/README.md``: YAML as Hugging Face reads it, then Markdown for people.

    Args:
        title: the model's name.
        what: what it is and is not, in a few sentences.
        trained_on: the data as fact -> value (name, number of trajectories, content hash ...).
        training: the settings as name -> value; TRL's fields, under ``trainer``, get rows of their own.
        results: measured numbers with a row for each comparison, as in the notebook's table.
        base: the model it was trained from: an id at Hugging Face, or a folder, of which the name is told.
        use: Python that shows how the model is used.
        license: of the weights, by its name at Hugging Face.
    """
    title = _line(title)
    header = {
        "model_name": title,
        "license": license,
        "base_model": Path(base).name if base and Path(base).is_absolute() else base,
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["personalized-web-agents", *tags],
    }
    header = yaml.safe_dump({name: value for name, value in header.items() if value}, sort_keys=False)
    settings = {name: value for name, value in training.items() if name != "trainer"}
    settings |= training.get("trainer", {})
    measured = ""
    if results is not None:
        measured = f"## Results\n\n{_table(results, results.itertuples(index=False))}\n\n"
    card = f"""\
---
{header}---

# {title}

{what.strip()}

## Trained on

{_table(("", ""), trained_on.items())}

## Training

{_table(("", ""), settings.items())}

{measured}## Use

```python
{use.strip()}
```
"""
    write_aside(folder / CARD, card)


def _table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Markdown, values as they are, a line each; 6 significant digits of a fraction."""
    headings = list(headings)
    lines = [headings, ["---"] * len(headings)]
    for row in rows:
        cells = (f"{value:.6g}" if isinstance(value, float) else _line(str(value)) for value in row)
        lines.append([re.sub(r"([\\`*_\[\]<>&|~#$])", r"\\\1", cell) for cell in cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _line(text: str) -> str:
    """The text in one line, without what cannot be printed."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
