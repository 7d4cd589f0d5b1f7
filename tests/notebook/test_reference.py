"""The committed reference: small, complete, and read like a preset's own results."""

import json
from base64 import b64decode, b64encode
from io import BytesIO

import nbformat
import pandas as pd
import pytest
from PIL import Image

from pwagents.report.reference import REFERENCE, make_reference, read_episodes, read_runs
from pwagents.results.episodes import records_frame
from pwagents.schema import TASK_TYPES, Action, Observation, Step, Trajectory
from pwagents.store import Episode

PLACE = "/home/somebody/results/laptop"


def record(task_id="t1", method="GRPO", products=("B1",)):
    call = Action(name="search_product_by_query", arguments={"query": "", "n": 0})
    step = Step(action=call, observation=Observation(text="", products=products))
    ids = {"task_id": task_id, "user_id": "u", "type": "search"}
    run = {"key": "k", "method": method, "model": "none", "params": {"seed": 0}, "seconds": 0.5}
    trajectory = Trajectory(**ids, target="B1", steps=(step,))
    return Episode(**ids, **run, outcome="scored", trajectory=trajectory)


def photograph():
    """A PNG with more colours than a figure has."""
    down, file = Image.linear_gradient("L"), BytesIO()
    Image.merge("RGB", (down, down.rotate(90), Image.radial_gradient("L"))).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def finished(tmp_path):
    """A folder as a run of the preset leaves it; the one who ran it had it elsewhere."""
    folder = tmp_path / "laptop"
    records = [record(), record("t2", "SFT", ("x", "B1")), record("t1", "GRPO", ())]
    png = b64encode(photograph()).decode()
    image = {"image/png": png, "text/html": f'<img src="data:image/png;base64,{png}">', "text/plain": "F"}
    outputs = [
        nbformat.v4.new_output("display_data", image),
        nbformat.v4.new_output("stream", text=f"in {PLACE}"),
    ]
    cells = [nbformat.v4.new_code_cell("x", outputs=outputs)]
    row = {"notebook": "03_benchmark", "settings": {"output_dir": PLACE}}
    journal = [row | {"status": status} for status in ("unfinished", "finished")]
    for name, content in {
        **{f"tables/03_x.{kind}": "x" for kind in ("csv", "html", "tex")},
        **{"figures/03_x.png": photograph(), "figures/03_x.svg": "x", "figures/03_x.parquet": "x"},
        "notebooks/03_benchmark.ipynb": nbformat.writes(nbformat.v4.new_notebook(cells=cells)),
        "timings/journal.jsonl": "".join(json.dumps(row) + "\n" for row in journal),
        "runs/orion.jsonl": "".join(r.model_dump_json() + "\n" for r in records),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder, records


def test_it_holds_what_is_read_and_no_place_of_whoever_ran_it(finished, tmp_path):
    folder, _ = finished
    reference = tmp_path / "reference"
    (reference / "tables").mkdir(parents=True)
    for name in ("tables/07_older.csv", "tables/03_dropped.csv", "tables/03_dropped.html"):
        (reference / name).touch()
    (reference / "timings").mkdir()
    older = (
        {"notebook": "07_ablations", "status": "finished"},
        {"notebook": "03_benchmark", "status": "finished"},
    )
    (reference / "timings" / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in older))
    make_reference(folder, reference)
    assert sorted(str(path.relative_to(reference)) for path in reference.rglob("*.*")) == [
        "figures/03_x.parquet", "figures/03_x.png", "notebooks/03_benchmark.ipynb", "runs/orion.parquet",
        "tables/03_x.csv", "tables/03_x.html", "tables/07_older.csv", "timings/journal.jsonl",
    ]  # fmt: skip
    assert not any(PLACE.encode() in path.read_bytes() for path in reference.rglob("*.*"))
    row, other = map(json.loads, (reference / "timings" / "journal.jsonl").read_text().splitlines())
    assert row["settings"]["output_dir"] == "outputs/laptop" and other == older[0]
    image, said = nbformat.read(reference / "notebooks" / "03_benchmark.ipynb", 4).cells[0].outputs
    assert set(image.data) == {"image/png", "text/plain"} and said.text == "in outputs/laptop"
    for picture in (b64decode(image.data["image/png"]), (reference / "figures" / "03_x.png").read_bytes()):
        stored = Image.open(BytesIO(picture))
        assert stored.size == (256, 256) and len(stored.getcolors()) <= 256
        assert len(picture) < len(photograph())


def test_episodes_come_back_as_they_were(finished, tmp_path):
    folder, records = finished
    make_reference(folder, tmp_path / "reference")
    again = [Episode(key="k", seconds=0.5, **row) for _, row in read_runs(tmp_path / "reference")]
    assert again == records
    stored = tmp_path / "reference" / "runs" / "orion.parquet"
    assert [row["task_id"] for row in read_episodes(stored, ["SFT"])] == ["t2"]
    rows = pd.read_parquet(stored).query("method in ['SFT', 'GRPO']").drop_duplicates(["task_id", "method"])
    first = rows.set_index(["task_id", "method"])["trajectory"].map(Trajectory.model_validate_json).to_dict()
    assert first == {("t1", "GRPO"): records[0].trajectory, ("t2", "SFT"): records[1].trajectory}


def test_the_committed_one_is_small_and_all_of_the_runs_that_its_readme_names():
    sizes = {path: path.stat().st_size for path in REFERENCE.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 25e6
    rows = [json.loads(line) for line in (REFERENCE / "timings/journal.jsonl").read_text().splitlines()]
    readme = (REFERENCE / "README.md").read_text()
    assert all(row["commit"][:7] in readme and not row["local_changes"] for row in rows)
    made = {table for row in rows for table in row.get("tables", ())}  # else it is an older run's
    assert {path.stem for path in (REFERENCE / "tables").glob("*.csv")} - made == set()
    executed = {path.stem for path in (REFERENCE / "notebooks").glob("*.ipynb")}
    assert executed == {row["notebook"] for row in rows}


def test_the_committed_episodes_give_the_committed_tables():
    rows = read_episodes(REFERENCE / "runs" / "orion.parquet", ["SFT", "GRPO", "PPO"])
    first = {(row["task_id"], row["method"]): row for row in reversed([*rows])}
    # PPO played the main test alone; the others' variations have tasks of their own, too.
    tested = [row for (task_id, _), row in first.items() if (task_id, "PPO") in first]
    frame = records_frame([Episode(key="", seconds=0, **row) for row in tested])
    means = frame.groupby(["method", "type"])["result_final"].mean()
    table = pd.read_csv(REFERENCE / "tables" / "06_results.csv", index_col="method")
    assert len(means) == 3 * len(TASK_TYPES)
    for (method, type_), mean in means.items():
        assert mean == pytest.approx(table.loc[method, f"{type_}: result accuracy"], abs=1e-5)
