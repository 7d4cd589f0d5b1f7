"""Metadata of an exported benchmark, for harnesses that read Croissant (``pip install -e .[croissant]``).

python -m pwagents_old.data.croissant my_data --license MIT
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

DESCRIPTION = "Products, users' histories and tasks of a benchmark of personalized web agents."


def describe_tables(folder: Path, license: str) -> Path:
    """Write ``croissant.json`` beside the Parquet tables of a folder, and return its path.

    Each table is a record set of the same name. A struct, such as a review, becomes a field with sub-fields;
    a list becomes an array of any length. Files are known by their SHA-256.

    Args:
        license: of the data, as a name of SPDX or a URL.

    Raises:
        FileNotFoundError: the folder holds no Parquet file.
    """
    import mlcroissant as mlc
    import pyarrow.parquet as pq

    files = sorted(folder.glob("*.parquet"))
    if not files:
        expected = "*.parquet, as GUIDE, Your data, writes them"
        raise FileNotFoundError(f"{folder}: found no table; expected {expected}")
    context = mlc.Context(conforms_to=["http://mlcommons.org/croissant/1.1"])
    distribution, record_sets = [], []
    for file in files:
        # The file as it is, and its columns by the types that Parquet gives them.
        distribution.append(
            mlc.FileObject(
                ctx=context,
                id=file.name,
                name=file.name,
                content_url=file.name,
                content_size=f"{file.stat().st_size} B",
                encoding_formats=["application/x-parquet"],
                sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
            )
        )
        fields = [_field(context, file, column, column.name) for column in pq.read_schema(file)]
        record_sets.append(mlc.RecordSet(ctx=context, id=file.stem, name=file.stem, fields=fields))
    metadata = mlc.Metadata(
        ctx=context,
        name=folder.resolve().name,
        description=DESCRIPTION,
        license=[license],
        distribution=distribution,
        record_sets=record_sets,
    )
    path = folder / "croissant.json"
    path.write_text(json.dumps(metadata.to_json(), indent=2) + "\n", "utf-8")
    return path


def _field(context: Any, file: Path, column: Any, name: str) -> Any:
    """Describe a column, or the part of a struct's column that follows its name and a slash."""
    import mlcroissant as mlc
    import pyarrow.types as types

    kind, n_axes = column.type, 0
    while types.is_list(kind):
        kind, n_axes = kind.value_type, n_axes + 1
    options: dict[str, Any] = {"is_array": True, "array_shape": ",".join(["-1"] * n_axes)} if n_axes else {}
    if types.is_struct(kind):
        options["sub_fields"] = [_field(context, file, part, f"{name}/{part.name}") for part in kind]
    else:
        number = mlc.DataType.FLOAT if types.is_floating(kind) else mlc.DataType.INTEGER
        is_number = types.is_floating(kind) or types.is_integer(kind)
        options["data_types"] = [number if is_number else mlc.DataType.TEXT]
        top, *below = name.split("/")
        options["source"] = mlc.Source(
            file_object=file.name,
            extract=mlc.Extract(column=top),
            transforms=[mlc.Transform(json_path=part) for part in below],
        )
    return mlc.Field(ctx=context, id=f"{file.stem}/{name}", name=name, **options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the Parquet tables")
    parser.add_argument("--license", required=True, help="of the data: a name of SPDX (MIT) or a URL")
    given = parser.parse_args()
    print(describe_tables(given.folder, given.license))
