"""What lies beside a benchmark's Parquet files: ``benchmark.json``, and the data card ``README.md``."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints, ValidationError

from pwagents.data.parquet_files import Place, schemas
from pwagents.errors import DataError
from pwagents.schema import Record

INFO, CARD = "benchmark.json", "README.md"
_PATH = r"^((users|products|histories)/all|tasks/(train|test))-\d{5}-of-\d{5}\.parquet$"


class FileInfo(Record):
    rows: int
    size: int  # bytes, as the file lies on disk
    uncompressed: int  # bytes
    sha256: str


class Info(Record):
    """What ``benchmark.json`` holds; ``files`` are in the order of writing."""

    name: str
    content_hash: str
    repairs: dict[str, int]
    files: dict[Annotated[str, StringConstraints(pattern=_PATH)], FileInfo]

    def tables(self) -> dict[str, dict[str, list[str]]]:
        """Table -> split -> the paths of its files; the split of a table without splits is "all"."""
        tables: dict[str, dict[str, list[str]]] = {}
        for path in self.files:
            table, _, name = path.partition("/")
            tables.setdefault(table, {}).setdefault(name.partition("-")[0], []).append(path)
        return tables


def write_info(info: Info, folder: Path) -> None:
    """Raises DataError for a name or a repair that is no valid Unicode."""
    text = json.dumps(info.model_dump(), indent=2, ensure_ascii=False)
    try:
        (folder / INFO).write_text(text + "\n", "utf-8")
    except UnicodeEncodeError as error:
        expected = "text that is valid Unicode"
        raise DataError(INFO, "-", "name, repairs", f"half a surrogate pair ({error})", expected) from None


def read_info(folder: Path) -> Info:
    """Raises DataError where ``folder`` has no sound ``benchmark.json``."""
    file = folder / INFO
    try:
        return Info.model_validate_json(file.read_bytes())
    except OSError as error:
        expected = "a folder that write_parquet wrote"
        raise DataError(file, "-", "(file)", f"'{error.strerror}'", expected) from None
    except ValidationError as error:
        raise data_error(error, (file, "-")) from None


def data_error(error: ValidationError, place: Place) -> DataError:
    """The first complaint of pydantic, with the place it is about."""
    first = error.errors(include_url=False)[0]
    # A review's fields are columns of their own: review_rating, review_title, review_text.
    separator = "_" if first["loc"][:1] == ("review",) else "."
    field = separator.join(map(str, first["loc"])) or "(file)"
    return DataError(*place, field, repr(first["input"])[:80], first["msg"])


def write_card(info: Info, folder: Path, licence: str, source_note: str) -> None:
    """README.md: YAML for ``datasets``, Markdown for people. Texts of the data break neither."""
    contents = []
    for table, splits in info.tables().items():
        for split, paths in splits.items():
            size = _size(info, split, paths)
            contents.append((table, size["name"], str(len(paths)), f"{size['num_examples']:,}"))
    files = [(path, f"{file.size:,}", f"`{file.sha256}`") for path, file in info.files.items()]
    repairs = [(_escape(what), f"{count:,}") for what, count in info.repairs.items()]
    # A quote ends where its ">" end, whatever a line of it opens.
    note = "\n".join(f"> {_visible(line).replace('<', '&lt;')}" for line in source_note.splitlines())
    text = _TEXT.format(
        front_matter=_front_matter(info, licence),
        name=_escape(info.name),
        licence=_escape(licence),
        note=note,
        content_hash=info.content_hash,
        contents=_table(("configuration", "split", "files", "rows"), contents),
        files=_table(("file", "bytes", "SHA-256"), files),
        repairs=_table(("what was mended", "how often"), repairs) if repairs else "Nothing was mended.",
    )
    (folder / CARD).write_text(text, "utf-8")


def _front_matter(info: Info, licence: str) -> str:
    """YAML. ``datasets`` cannot load what has no rows, so that is left out."""
    from datasets import DatasetInfo, Features
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    configs, infos = [], DatasetInfosDict()
    for table, splits in info.tables().items():
        sizes = {split: _size(info, split, paths) for split, paths in splits.items()}
        sizes = {split: size for split, size in sizes.items() if size["num_examples"]}
        if not sizes:
            continue
        data_files = [
            {"split": sizes[split]["name"], "path": f"{table}/{split}-*.parquet"} for split in sizes
        ]
        default = {"default": True} if table == "tasks" else {}
        configs.append({"config_name": table, **default, "data_files": data_files})
        infos[table] = DatasetInfo(
            features=Features.from_arrow_schema(schemas()[table]),
            splits=list(sizes.values()),
            download_size=sum(info.files[path].size for paths in splits.values() for path in paths),
            dataset_size=sum(size["num_bytes"] for size in sizes.values()),
        )
    card = DatasetCardData(license=_one_line(licence), pretty_name=_one_line(info.name), configs=configs)
    infos.to_dataset_card_data(card)
    return card.to_yaml()


def _size(info: Info, split: str, paths: list[str]) -> dict:
    """A split as ``datasets`` describes it; there "all" is the union of all splits and cannot be one."""
    files = [info.files[path] for path in paths]
    return {
        "name": "full" if split == "all" else split,
        "num_bytes": sum(file.uncompressed for file in files),
        "num_examples": sum(file.rows for file in files),
    }


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [headings, ["---"] * len(headings), *rows])


def _escape(text: str) -> str:
    """``text`` as one line of Markdown that shows it as it is, in a table too."""
    return re.sub(r"([\\`*_\[\]<>&|~#$])", r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    """``text`` without line ends, invisible characters and runs of white space."""
    return " ".join(_visible(text).split())


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


_TEXT = """---
{front_matter}
---

# {name}

A benchmark for personalized web agents: the products of a shop, users with their behaviours (purchases and
the reviews that came with them), and tasks, each an instruction of one user with the truth it is graded
against.

- Source: {name}
- Licence: {licence}
- Content hash: `{content_hash}`

{note}

## Contents

{contents}

- `users`: `n_behaviors` counts the user's rows in `histories`. The other columns are the profile that was
  published with the data, null where there is none; it may have been made from the whole history, test
  purchases included.
- `products`: `details` is a list of names and values, because they differ by product. Prices are in US
  dollars.
- `histories`: one row a behaviour; `position` 0 is the oldest of its user. A history goes on to its end, the
  tasks' own purchases included: an agent may see only what lies before the user's first task of the split.
- `tasks`: `type` is search, recommend or review. `target` is the product that the user really bought and
  `review_*` what they really wrote about it: the truth, which no agent may see.

Times are milliseconds since 1970. What has no rows has a file but cannot be loaded with `datasets`.

## Reading it

```python
from datasets import load_dataset

tasks = load_dataset("path/to/this/folder", "tasks", split="test")
products = load_dataset("path/to/this/folder", "products", split="full")
```

```python
from pathlib import Path

from pwagents.data.parquet import read_parquet

benchmark = read_parquet(Path("path/to/this/folder"))  # checks types, values and the content hash
```

## How it was made

Written by `pwagents.data.parquet.write_parquet` from the source named above. The content hash is a SHA-256,
cut to 16 digits, over all records. `benchmark.json` holds it for programs, with the repairs and the files.

{files}

## Repairs

{repairs}
"""
