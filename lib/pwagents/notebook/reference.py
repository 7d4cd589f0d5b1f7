"""The committed reference: what a finished run of the preset laptop left, small enough for the repository.

    python -m pwagents.notebook.reference outputs/laptop    # makes outputs/reference anew

It holds the summary of notebook 10, tables (CSV and HTML), figures (PNG, and the numbers from which `make
figures` draws them again), executed notebooks, the journal, and all episodes as compressed Parquet: 190 MB of
JSON lines become 4 MB. Of a record all is kept but its key, the seconds that it took, and what is empty or
zero in its steps. Reports and notebook 00 read it like a preset's own results.
"""

import json
import shutil
import sys
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from pwagents.evaluation.records import regraded
from pwagents.notebook.results import read_lines
from pwagents.project import ROOT, write_aside, written_aside
from pwagents.schema import Trajectory

REFERENCE = ROOT / "outputs" / "reference"
PRESET = "laptop"  # what made it
SUMMARY = "summary.csv"  # of notebook 10
_COPIED = {"tables": (".csv", ".html"), "figures": (".png", ".parquet")}
_LEFT_OUT = ("key", "seconds")
_WHOLE = ("arguments", "observation")
_TEXTS = ("task_id", "method", "model")  # columns that hold a text as it is; all others hold JSON


def read_runs(output_dir: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """All episodes of a preset or of the reference: the name of their file, and the record.

    Each is graded by the present grader. Passwords in URLs are taken out.
    """
    for path in sorted((output_dir / "runs").glob("*.jsonl")):
        yield from ((path.stem, regraded(record)) for record in read_lines(path))
    for path in sorted((output_dir / "runs").glob("*.parquet")):
        yield from ((path.stem, record) for record in read_episodes(path))


def read_episodes(path: Path, methods: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """The records of one of the reference's files, those of some methods or all, in their order.

    What is left out there is missing: each field has its default once the record is validated.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(path, filters=[("method", "in", list(methods))] if methods else None)
    for row in table.to_pylist():
        known = {name: value for name, value in row.items() if value is not None}
        yield regraded({n: value if n in _TEXTS else json.loads(value) for n, value in known.items()})


def first_episodes(path: Path, methods: Collection[str]) -> dict[str, dict[str, Trajectory]]:
    """task id -> method -> its first episode, which is that of the main test: variations are played later."""
    found: dict[str, dict[str, Trajectory]] = {}
    for record in read_episodes(path, methods):
        if record["method"] not in found.setdefault(record["task_id"], {}):
            trajectory = Trajectory.model_validate(record["trajectory"])
            found[record["task_id"]][record["method"]] = trajectory
    return found


def make_reference(output_dir: Path, reference: Path = REFERENCE) -> None:
    """Write what ``output_dir`` holds over what is in ``reference``; what it does not hold stays.

    Raises:
        ValueError: nothing has run there.
    """
    journal = output_dir / "timings" / "journal.jsonl"
    rows = [row for row in read_lines(journal) if row["status"] == "finished"]
    if not rows:
        raise ValueError(f"{journal} tells of no finished notebook; expected a preset's folder")
    places = {row["settings"]["output_dir"] for row in rows}  # of whoever ran it
    for folder, kinds in _COPIED.items():
        (reference / folder).mkdir(parents=True, exist_ok=True)
        for path in sorted((output_dir / folder).iterdir()):
            if path.suffix in kinds:
                made = path.read_bytes()
                made = _in_256_colours(made) if path.suffix == ".png" else made
                (reference / folder / path.name).write_bytes(made)
    if (output_dir / SUMMARY).exists():
        shutil.copyfile(output_dir / SUMMARY, reference / SUMMARY)
    for path in sorted((output_dir / "notebooks").glob("*.ipynb")):
        text = _placed(_lighter(path.read_text("utf-8")), places)
        write_aside(reference / "notebooks" / path.name, text)
    told = "".join(json.dumps(row) + "\n" for row in rows)
    write_aside(reference / "timings" / "journal.jsonl", _placed(told, places))
    for path in sorted((output_dir / "runs").glob("*.jsonl")):
        write_episodes(read_lines(path), reference / "runs" / f"{path.stem}.parquet")


def write_episodes(records: Iterator[dict[str, Any]], path: Path) -> None:
    """Records as one Parquet file: a column a field, as compressed as can be (minutes for a hundred MB)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for record in records:
        kept = {name: value for name, value in record.items() if name not in _LEFT_OUT and value is not None}
        if "trajectory" in kept:
            kept["trajectory"] = {**kept["trajectory"], "steps": full(kept["trajectory"]["steps"])}
        rows.append({n: value if n in _TEXTS else _compact(value) for n, value in kept.items()})
    names = sorted({name for row in rows for name in row})
    table = pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names})
    # One page a column, so that the compressor sees how alike the episodes are.
    look = {"compression": "zstd", "compression_level": 22, "data_page_size": 2**30}
    look |= {"row_group_size": len(rows), "use_dictionary": [name for name in names if name != "trajectory"]}
    with written_aside(path) as file:
        pq.write_table(table, file, **look)


def full(value: Any) -> Any:
    """``value`` without what is empty or zero, as defaults are; arguments and observations stay whole."""
    if isinstance(value, dict):
        kept = {key: each if key in _WHOLE else full(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in ("", None, [], {}, 0)}
    return [full(each) for each in value] if isinstance(value, list) else value


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _lighter(text: str) -> str:
    """An executed notebook with each image once (it holds them as HTML, too, for JupyterLab), and smaller."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            shown = output.get("data", {})
            if "image/png" in shown:
                shown.pop("text/html", None)
                png = _in_256_colours(b64decode("".join(shown["image/png"])))
                shown["image/png"] = b64encode(png).decode()
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _in_256_colours(png: bytes) -> bytes:
    """A figure, less than half as large, and to the eye the same."""
    from PIL import Image

    image, file = Image.open(BytesIO(png)).convert("RGB"), BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def _placed(text: str, places: set[str]) -> str:
    """``text`` as if the run had been left where ``make reproduce`` leaves it."""
    for place in sorted(places, key=len, reverse=True):
        text = text.replace(place, f"outputs/{PRESET}")
    return text


def main() -> int:
    if len(sys.argv) != 2:
        print(f"usage: python -m pwagents.notebook.reference OUTPUTS/{PRESET}", file=sys.stderr)
        return 2
    try:
        make_reference(Path(sys.argv[1]))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
