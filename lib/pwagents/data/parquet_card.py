"""What lies beside a benchmark's Parquet files: ``benchmark.json``, and the data card ``README.md``."""

import json
import re
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from pwagents.errors import DataError
from pwagents.project import file_hash
from pwagents.schema import Benchmark, Record, Split

if TYPE_CHECKING:
    from datasets import Dataset
    from huggingface_hub import DatasetCardData

R = TypeVar("R", bound=Record)
Place = tuple[Path, str]  # a file and a row, as a DataError names them

INFO, CARD = "benchmark.json", "README.md"


class Info(Record):
    """What ``benchmark.json`` holds; ``splits`` in the benchmark's order."""

    name: str
    content_hash: str
    repairs: dict[str, int]
    splits: tuple[Split, ...]


def write_info(benchmark: Benchmark, folder: Path) -> None:
    """Raises DataError for a name or a repair that is no valid Unicode."""
    info = Info(
        name=benchmark.name,
        content_hash=benchmark.content_hash,
        repairs=dict(benchmark.repairs),
        splits=tuple(benchmark.tasks),
    )
    try:
        # json and not pydantic, which would write another character for half a surrogate pair in a key.
        text = json.dumps(info.model_dump(), indent=2, ensure_ascii=False)
        (folder / INFO).write_text(text + "\n", "utf-8")
    except UnicodeEncodeError as error:
        found = f"half a surrogate pair ({error})"
        raise DataError(INFO, "-", "name, repairs", found, "text that is valid Unicode") from None


def read_info(folder: Path) -> Info:
    """Raises DataError where ``folder`` has no sound ``benchmark.json``."""
    file = folder / INFO
    try:
        return checked(Info.model_validate_json, file.read_bytes(), (file, "-"))
    except OSError as error:
        expected = "a folder that write_parquet wrote"
        raise DataError(file, "-", "(file)", f"'{error.strerror}'", expected) from None


def checked(validate: Callable[[Any], R], value: Any, place: Place) -> R:
    """``validate(value)``; the first of pydantic's complaints becomes a DataError with its place."""
    try:
        return validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    separator = "_" if first["loc"][:1] == ("review",) else "."  # as the review's columns are called
    field = separator.join(map(str, first["loc"])) or "(file)"
    raise DataError(*place, field, repr(first["input"])[:80], first["msg"])


def write_card(
    benchmark: Benchmark, tables: Mapping[str, "Dataset"], folder: Path, licence: str, source_note: str
) -> None:
    """Write README.md beside the files of ``tables``. Texts of the data break neither YAML nor Markdown."""
    from huggingface_hub import DatasetCard

    files = []
    for name, rows in tables.items():
        path = folder / f"{name}.parquet"
        files.append((*name.split("/"), len(rows), path.stat().st_size, file_hash(path)))
    card = DatasetCard.from_template(
        _metadata(benchmark, tables, licence),
        template_path=Path(__file__).with_suffix(".md"),
        name=_escape(benchmark.name),
        licence=_escape(licence),
        # A quote ends where its ">" end, whatever a line of it opens.
        note="\n".join(f"> {_visible(line).replace('<', '&lt;')}" for line in source_note.splitlines()),
        content_hash=benchmark.content_hash,
        files=files,
        repairs=[(_escape(what), count) for what, count in benchmark.repairs.items()],
    )
    card.save(folder / CARD)


def _metadata(benchmark: Benchmark, tables: Mapping[str, "Dataset"], licence: str) -> "DatasetCardData":
    """The card's YAML. ``datasets`` cannot load what has no rows, so that is left out."""
    from datasets import DatasetInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    configs, infos = [], DatasetInfosDict()
    filled = [name for name, rows in tables.items() if len(rows)]
    for config, names in groupby(filled, key=lambda name: name.partition("/")[0]):
        splits = {name.partition("/")[2]: tables[name] for name in names}
        configs.append(
            {
                "config_name": config,
                **({"default": True} if config == "tasks" else {}),
                "data_files": [{"split": split, "path": f"{config}/{split}.parquet"} for split in splits],
            }
        )
        infos[config] = DatasetInfo(  # lets ``datasets`` notice that rows are missing
            features=next(iter(splits.values())).features,
            splits=[
                {"name": split, "num_bytes": rows.data.nbytes, "num_examples": len(rows)}
                for split, rows in splits.items()
            ],
        )
    data = DatasetCardData(license=_one_line(licence), pretty_name=_one_line(benchmark.name), configs=configs)
    infos.to_dataset_card_data(data)
    return data


def _escape(text: str) -> str:
    """``text`` as one line of Markdown that shows it as it is, in a table too."""
    return re.sub(r"([\\`*_\[\]<>&|~#$])", r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    """``text`` without line ends, invisible characters and runs of white space."""
    return " ".join(_visible(text).split())


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
