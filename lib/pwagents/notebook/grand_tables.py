"""The papers' whole tables of methods, and below them all of our rows.

Nothing is computed: our rows are those that notebooks 03 to 06 show below rows of the same table, with the
notebook that made them. Of a printed row the last column says what it takes to run it here.
"""

from pathlib import Path

import pandas as pd

from pwagents.evaluation.paper import Setup, below_paper
from pwagents.evaluation.tables import format_intervals, heading
from pwagents.notebook.summary import METHODS, results_folder

# Paper and table -> the tables of notebooks whose rows stand below it.
MADE = {
    ("PersonalWAB", "Table 3"): ("03_single_turn_with_paper", "03_table_3", "04_table_3"),
    ("PersonalWAB", "Table 4"): ("03_table_4",),
    ("Orion", "Table 1"): ("03_orion_table_1", "05_orion_table_1", "06_orion_table_1"),
}
# Printed rows of trained models -> the notebook that trains them; all others are prompted.
_TRAINED = {
    "PUMA (LLaMA-7B)": "04",
    "Qwen2.5-7B-Instruct (SFT)": "05",
    "Qwen2.5-7B-Instruct (SFT + PPO)": "06",
    "Orion (Ours)": "06",
}


def grand_table(output_dir: Path, paper: str, table: str, lines: pd.DataFrame) -> pd.DataFrame:
    """A table of :data:`MADE` as printed, and our rows.

    Args:
        lines: the summary (:func:`pwagents.notebook.summary.summary_of`).

    Returns:
        ``source, row, backbone, data, n, grader``, what a task cost, and the metrics, as of
        :func:`pwagents.evaluation.paper.below_paper` with headings in one level; then ``notebook``, which
        made a row of ours, ``over pipelines``, what pipelines with other seeds reach (result accuracies as
        shares, intervals over seeds) where several were trained, and ``to run it here``, of a printed one.
    """
    printed = below_paper(pd.DataFrame(), paper, table, Setup("", ""))
    printed.columns = list(map(heading, printed.columns))
    needs = list(map(_needs, printed["row"], printed["backbone"]))
    parts = [printed.assign(notebook="", **{"over pipelines": "", "to run it here": needs})]
    tables = results_folder(output_dir) / "tables"
    for name in MADE[paper, table]:
        path = tables / f"{name}.csv"
        if path.exists():
            made = pd.read_csv(path)
            ours = made[made["source"] == "here"]
            over = [_over_pipelines(row, lines) for row in ours["row"]]
            parts.append(ours.assign(notebook=name[:2], **{"over pipelines": over, "to run it here": ""}))
    joined = pd.concat(parts, ignore_index=True)[list(parts[0])]
    return joined.drop_duplicates(["source", "row"]).reset_index(drop=True)


def _over_pipelines(row: str, lines: pd.DataFrame) -> str:
    """ "search 0.745 ±0.049, ..., 5 seeds" of a row of ours; "" where one pipeline was trained."""
    methods = {name: place.method for name, place in METHODS.items() if name.endswith("_pipelines")}
    names = [name for name, method in methods.items() if row.endswith(f"({method})")]
    own = lines[lines["name"].isin(names)]
    if own.empty:
        return ""
    cells = format_intervals(own.rename(columns={"value": "mean"}))
    means = [f"{task} {cell}" for task, cell in zip(own["task"], cells, strict=True)]
    return ", ".join([*means, f"{own['n_seeds'].iloc[0]} seeds"])


def _needs(row: str, backbone: str) -> str:
    """What it takes to run a printed row here."""
    if row in _TRAINED:
        return f"preset paper on GPUs, notebook {_TRAINED[row]}"
    return f"notebook 03, players.policy: an endpoint's {backbone}"
