"""The notebooks of the project, for tests: their parameters cells and classes of settings."""

import re
from functools import cache
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(
    path.stem for path in (ROOT / "notebooks").glob("*.ipynb") if re.fullmatch(r"\d\d_[a-z0-9_]+", path.stem)
)
FEW = {"n_users": 20, "n_products": 300, "population": 20, "history": [8, 20]}
# What makes Orion's notebooks quick: a few conversations and steps.
ORION = {
    "data": FEW,
    "study": {"training_users": 8, "eval_tasks": 6},
    "role_play": {"n_trajectories": 6, "ladder": [0, 2], "ladder_tasks": 6, "success_rank": 10},
    "sft": {"trainer": {"max_steps": 3}},
    "play": {"turn_tokens": 16, "episode_tokens": 200},
}
FEWER = ORION | {"role_play": ORION["role_play"] | {"n_trajectories": 2}}
LITTLE = {"max_steps": 1, "log_tasks": 3, "num_generations": 2}
SWEEP = {"alpha": [0], "l_c": [1], "last": [5], "users": ["rules"], "worlds": ["as it is"], "patience": [0.1]}
# What makes the moved ones quick at preset smoke.
QUICK = {
    "00_tour": {"data": FEW},
    "01_data": {"data": FEW},
    "02_profiles": {"data": FEW},
    "03_benchmark": {"data": FEW, "play": {"max_tasks": 24, "method_tasks": 6, "worlds": [0]}},
    "04_puma": {
        "data": FEW,
        "study": {"variants": "few", "test_tasks": 9, "train_tasks": 12, "timed_tasks": 1},
        "dpo": {"train_tasks": 8, "variants": []},
    },
    "05_orion_sft": ORION | {"role_play": ORION["role_play"] | {"scaling": [3]}},
    "06_orion_grpo": ORION | {"rl": LITTLE | {"worlds": [5]}},
    "07_ablations": FEWER | {"rl": LITTLE | {"seeds": [5, 1], "variants": [], "design": []}},
    "08_sensitivity": ORION | {"rl": LITTLE, "study": ORION["study"] | {"sweep": SWEEP}},
    "09_persona2web": {"study": {"runs": 1, "dials": {"consistency": [0.62]}}},
    "10_summary": {},
}


@cache
def cells_of(notebook: str) -> list:
    return nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells


def parameters_of(notebook: str) -> dict:
    """What the parameters cell says as it is committed."""
    values: dict = {}
    (source,) = (c.source for c in cells_of(notebook) if "parameters" in c.metadata.get("tags", ()))
    exec(source, values)
    del values["__builtins__"]
    return values
