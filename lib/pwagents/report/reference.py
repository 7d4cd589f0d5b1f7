"""The committed reference: what a finished run of the preset laptop left, small enough for the repository.

    python -m pwagents.report.reference outputs/laptop    # makes outputs/reference anew

It holds tables (CSV and HTML), figures (PNG, and the numbers from which `make figures` draws them again),
what was timed, executed notebooks, the journal, and all episodes as compressed Parquet: 190 MB of JSON lines
become 4 MB. A record is whole but for its key, the seconds that it took, and what is empty or zero in its
steps. Reports and notebooks 00 and 10 read it like a preset's own results.
"""

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.files import read_json_lines, write_aside, written_aside
from pwagents.settings import INTERACTIVE, ROOT
from pwagents.urls import without_passwords

REFERENCE = ROOT / "outputs" / "reference"
PRESET = "laptop"  # what made it
_COPIED = {"tables": (".csv", ".html"), "figures": (".png", ".parquet")}
_COPIED |= {f"timings/{folder}": kinds for folder, kinds in _COPIED.items()}
_RUNS = ("key", "seconds", "sha256")  # fields that differ from run to run
_WHOLE = ("arguments", "observation")
_TEXTS = ("task_id", "method", "model")  # columns that hold a text as it is; all others hold JSON


def find_results(output_dir: Path, *kinds: str) -> Path:
    """Return the folder of results: the reference, with a line that says so, where nothing has run yet.

    Args:
        output_dir: of laptop or of notebooks opened by hand; any other folder is returned as it is.
        kinds: patterns of the files that count as results.
    """
    left = (path for kind in kinds for path in output_dir.glob(kind))
    if output_dir.name in (PRESET, Path(INTERACTIVE).name) and not any(left):
        print(f"{output_dir} holds no results yet; used instead: the committed reference, {REFERENCE}")
        return REFERENCE
    return output_dir


def read_lines(path: Path) -> Iterator[dict]:
    """Yield the rows of a JSONL file without passwords in URLs; a line that is being written is left out."""
    if path.exists():
        yield from (row for _, row in read_json_lines(path, torn=True, change=without_passwords))


def read_runs(output_dir: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all episodes of a preset or of the reference: the name of their file, and the record."""
    for kind, read in (("jsonl", read_lines), ("parquet", read_episodes)):
        for path in sorted((output_dir / "runs").glob(f"*.{kind}")):
            yield from ((path.stem, record) for record in read(path))


def read_episodes(path: Path, methods: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the records of one of the reference's files, those of some methods or all, in their order.

    What is left out there is missing: each field has its default once the record is validated.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(path, filters=[("method", "in", list(methods))] if methods else None)
    for row in table.to_pylist():
        stored = {name: value for name, value in row.items() if value is not None}
        yield {name: value if name in _TEXTS else json.loads(value) for name, value in stored.items()}


def make_reference(output_dir: Path, reference: Path = REFERENCE) -> None:
    """Write what ``output_dir`` holds over what is in ``reference``; notebooks that it lacks stay there.

    Tables and figures that a notebook no longer makes are removed.

    Raises:
        ValueError: nothing has run there.
    """
    journal = output_dir / "timings" / "journal.jsonl"
    finished = {row["notebook"]: row for row in read_lines(journal) if row["status"] == "finished"}
    rows = [*finished.values()]  # the last of each notebook
    if not rows:
        raise ValueError(f"{journal} lists no finished notebook; expected a preset's folder")
    places = sorted({row["settings"]["output_dir"] for row in rows}, key=len, reverse=True)

    def write_text(path: str, text: str) -> None:
        """Write it as if the run had been left where `make reproduce` leaves it, not where its runner did."""
        for place in places:
            text = text.replace(place, f"outputs/{PRESET}")
        write_aside(reference / path, text)

    # Tables and figures, the latter with fewer colours; notebooks, each image once; journal; runs.
    for folder, kinds in _COPIED.items():
        for path in (reference / folder).glob("*"):
            is_ours = any(path.name[:2] == name[:2] for name in finished)
            if is_ours and not (output_dir / folder / path.name).exists():
                path.unlink()
        for path in sorted((output_dir / folder).glob("*")):
            if path.suffix in kinds:
                content = path.read_bytes()
                content = _reduce_colours(content) if path.suffix == ".png" else content
                write_aside(reference / folder / path.name, content)
    for path in sorted((output_dir / "notebooks").glob("*.ipynb")):
        notebook = json.loads(path.read_text("utf-8"))
        outputs = [each for cell in notebook["cells"] for each in cell.get("outputs", ())]
        for shown in (output["data"] for output in outputs if "image/png" in output.get("data", {})):
            shown.pop("text/html", None)  # the same image once more, for JupyterLab
            png = _reduce_colours(b64decode("".join(shown["image/png"])))
            shown["image/png"] = b64encode(png).decode()
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        write_text(f"notebooks/{path.name}", text)
    others = [
        row for row in read_lines(reference / "timings/journal.jsonl") if row["notebook"] not in finished
    ]
    rows = sorted([*others, *rows], key=lambda row: row["notebook"])
    write_text("timings/journal.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for path in sorted((output_dir / "runs").glob("*.jsonl")):
        write_episodes(read_lines(path), reference / "runs" / f"{path.stem}.parquet")


def write_episodes(records: Iterator[dict[str, Any]], path: Path) -> None:
    """Write records as one Parquet file: a column a field, as compressed as can be (minutes for 100 MB)."""
    # All but :data:`_TEXTS` is a text of JSON, however deep.
    rows = []
    for record in records:
        kept = {n: value for n, value in record.items() if n not in _RUNS and value not in (None, {})}
        if "trajectory" in kept:
            kept["trajectory"] = {**kept["trajectory"], "steps": drop_empty(kept["trajectory"]["steps"])}
        compact = {"separators": (",", ":")}
        rows.append({n: value if n in _TEXTS else json.dumps(value, **compact) for n, value in kept.items()})
    frame = pd.DataFrame(rows)
    frame = frame[sorted(frame)]
    # One page a column, so that the compressor sees how alike the episodes are.
    look = {"compression": "zstd", "compression_level": 22, "data_page_size": 2**30}
    look |= {"row_group_size": len(rows), "use_dictionary": [n for n in frame if n != "trajectory"]}
    with written_aside(path) as file:
        frame.to_parquet(file, index=False, **look)


def drop_empty(value: Any) -> Any:
    """Return a value without what is empty or zero, as defaults are, but whole arguments and observations."""
    if isinstance(value, dict):
        kept = {key: each if key in _WHOLE else drop_empty(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in ("", None, [], {}, 0)}
    return [drop_empty(each) for each in value] if isinstance(value, list) else value


def _reduce_colours(png: bytes) -> bytes:
    """Write a figure with 256 colours: less than half as large, and to the eye the same."""
    from PIL import Image

    image, file = Image.open(BytesIO(png)).convert("RGB"), BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m pwagents.report.reference OUTPUTS/{PRESET}")
    try:
        make_reference(Path(sys.argv[1]))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
