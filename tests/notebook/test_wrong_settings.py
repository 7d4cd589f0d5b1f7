"""Wrong settings of every notebook: a line each, within seconds, before anything is made."""

import time

import nbformat
import pytest
from papermill import execute_notebook
from papermill.exceptions import PapermillExecutionError

from pwagents.errors import SettingsError
from pwagents.notebook.settings import load_settings

from .notebooks import NOTEBOOKS, ROOT, kind_of, parameters_of

# Changes of the parameters cell, and what the line says after the notebook's name.
EVERYWHERE = [
    ({"preset": "smok"}, "preset: found 'smok'; expected one of laptop, paper, smoke"),
    ({"seed": -1}, "setting seed: found -1; expected greater than or equal to 0"),
    ({"seed": "one"}, "setting seed: found 'one'; expected a valid integer"),
    ({"data": 3}, "group data: found 3; expected names and values"),
]
IN_THE_SHOP = [
    ({"source": "ebay"}, "group data, setting source: found 'ebay'; expected 'synthetic', 'amazon' or"),
    ({"source": "amazon"}, "group data: data_dir is empty; source 'amazon' needs the folder"),
    ({"source": "personalwab", "data_dir": "nowhere"}, "group data: "),
    ({"data": {"n_user": 3}}, "group data: found setting 'n_user'; expected n_users"),
    ({"data": {"n_users": 0}}, "group data, setting n_users: found 0; expected greater than 0"),
    (
        {"data": {"n_products": "400"}},
        "group data, setting n_products: found '400'; expected a valid integer",
    ),
    ({"data": {"drift": 1.5}}, "group data, setting drift: found 1.5; expected less than or equal to 1"),
    ({"data": {"history": [9, 5]}}, "group data, setting history: found [9, 5]; expected two whole numbers"),
]
TRAINED = ["05_orion_sft", "06_orion_grpo", "07_ablations", "08_sensitivity"]
REINFORCED = TRAINED[1:]
SOME = {
    "02_profiles": [
        ("players", "profiler", "gpt-4o", "expected offline, openai:NAME"),
        ("players", "updater", "openai:", "expected offline, openai:NAME"),
        ("players", "judge", "remote:gpt", "expected offline, openai:NAME"),
        ("players", "writer", "local:nowhere", "expected the folder of a saved model"),
        ("players", "budget_usd", 0.0, "expected greater than 0"),
        ("players", "budget_tokens", -1, "expected greater than 0"),
        ("profiles", "l_c", 0, "expected greater than 0"),
    ],
    "03_benchmark": [
        ("players", "policy", "gpt-4o", "expected offline, openai:NAME"),
        ("players", "user", "offline", "expected"),
        ("players", "workers", 0, "expected greater than 0"),
        ("shop", "search_engine", "lucene", "expected 'bm25' or 'pyserini'"),
        ("shop", "observation", "tiny", "expected 'full' or 'compact'"),
        ("shop", "rec_dates", 0, "expected greater than 0"),
        ("shop.recommender", "epochs", 0, "expected greater than 0"),
        ("shop.recommender", "learning_rate", -0.1, "expected greater than 0"),
        ("shop.recommender", "loss", "mse", "expected 'bce', 'cross_entropy' or 'gbce'"),
    ],
    "04_puma": [
        ("players", "label_writer", "gpt-4o", "expected offline, openai:NAME"),
        ("sft", "learning_rate", 0.0, "expected greater than 0"),
        ("sft", "num_train_epochs", 0.0, "expected greater than 0"),
        ("sft", "per_device_train_batch_size", 0, "expected greater than 0"),
        ("dpo", "beta", "0.1", "expected a valid number"),
        ("dpo", "max_length", -5, "expected greater than 0"),
        ("base", "model", "nowhere", "expected"),
    ],
} | {
    notebook: [
        ("players", "teacher", "gpt-4o", "expected offline, openai:NAME"),
        ("players", "judge", "rules", "expected offline, openai:NAME"),
        ("players", "user", "human", "expected rules, terse, vague, wrong, impatient, none, openai:NAME"),
        ("role_play", "success_rank", 11, "expected less than or equal to 10"),
        ("role_play", "n_trajectories", 0, "expected greater than 0"),
        ("sft", "learning_rate", "2e-3", "expected a valid number"),
        ("sft", "lora", [16], "expected"),
        ("play", "turn_tokens", 0, "expected greater than 0"),
        ("base", "model", "nowhere", "expected small"),
    ]
    for notebook in TRAINED
}
SOME["09_persona2web"] = [
    ("players", "policy", "gpt-4.1", "expected offline, openai:NAME"),
    ("players", "judge", "rules", "expected offline, openai:NAME"),
    ("histories", "n_users", 0, "expected greater than 0"),
    ("histories", "n_domains", 22, "expected less than or equal to 21"),
    ("histories", "consistency", 1.1, "expected less than or equal to 1"),
    ("queries", "form", "official", "expected 'paper' or 'released'"),
    ("study", "driver", "firefox", "expected 'html' or 'chromium'"),
    ("study", "faults", -0.1, "expected greater than or equal to 0"),
]
for notebook in REINFORCED:
    SOME[notebook] = SOME[notebook] + [
        ("rl", "max_steps", 0, "expected greater than 0"),
        ("rl", "credit", "token", "expected 'episode', 'turn' or 'state'"),
        ("rl", "num_generations", 1, "expected greater than or equal to 2"),
        ("rl", "learning_rate", -1e-4, "expected greater than 0"),
    ]


def nested(group, name, value):
    """{"shop": {"recommender": {name: value}}} for the group "shop.recommender"."""
    first, *rest = group.split(".")
    return {first: nested(".".join(rest), name, value) if rest else {name: value}}


# What may hold a password is not shown.
URLS = [
    ({"players": {"base_url": url}}, "group players, setting base_url: found '(not shown)'; expected", "http")
    for url in ("not a url", "http://me:secret@host/v1")
]
CASES = [("03_benchmark", *case) for case in URLS]
CASES += [
    (
        "09_persona2web",
        {"source": "amazon"},
        "group data, setting source: found 'amazon'; expected",
    ),
    ("09_persona2web", {"data_dir": "nowhere"}, "group data: data_dir 'nowhere' holds no queries.jsonl"),
    ("09_persona2web", {"data": {"n_users": 3}}, "group data: found setting 'n_users'; expected"),
]
CASES += [(notebook, change, said) for notebook in NOTEBOOKS for change, said in EVERYWHERE]
CASES += [
    (notebook, change, said)
    for notebook in NOTEBOOKS
    if notebook != "09_persona2web"
    for change, said in IN_THE_SHOP
] + [
    (notebook, nested(group, name, value), f"group {group}, setting {name}: found {value!r}; ", expected)
    for notebook, rows in SOME.items()
    for group, name, value, expected in rows
]


@pytest.mark.parametrize(("notebook", "change", "said"), [(n, c, s) for n, c, *s in CASES])
def test_a_wrong_setting_is_one_line_that_names_it(notebook, change, said):
    begin = time.process_time()
    with pytest.raises(SettingsError) as told:
        load_settings(notebook, kind_of(notebook), parameters_of(notebook) | change)
    (line,) = str(told.value).splitlines()
    assert line.startswith(f"{notebook}, ")
    assert all(part in line for part in said)
    assert time.process_time() - begin < 5


def test_there_are_many_cases():
    assert len(CASES) >= 60


ROLES = {
    "02_profiles": "judge",
    "03_benchmark": "policy",
    "04_puma": "label_writer",
    "05_orion_sft": "teacher",
    "09_persona2web": "policy",
}


@pytest.mark.parametrize("notebook", ROLES)
def test_a_missing_key_is_told_first_unless_stored_replies_will_do(notebook, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    change = {"players": {ROLES[notebook]: "openai:gpt-4o-mini"}}
    with pytest.raises(
        SettingsError, match=rf"^{notebook}, group players: {ROLES[notebook]}: .*OPENAI_API_KEY$"
    ):
        load_settings(notebook, kind_of(notebook), parameters_of(notebook) | change)
    stored = parameters_of(notebook) | change | {"stored_runs_only": True}
    assert load_settings(notebook, kind_of(notebook), stored).stored_runs_only


def test_papermill_tells_a_wrong_name_in_a_line_and_at_once(tmp_path):
    with pytest.raises(PapermillExecutionError) as told:
        execute_notebook(
            ROOT / "notebooks/01_data.ipynb", tmp_path / "out.ipynb", {"preset": "smoke", "sede": 3}
        )
    assert "SettingsError: 01_data: found parameter 'sede'; expected seed" in str(told.value)
    code = [c for c in nbformat.read(tmp_path / "out.ipynb", 4).cells if c.cell_type == "code"]
    starts = next(i for i, cell in enumerate(code) if "start(" in cell.source)
    assert not any(cell.execution_count for cell in code[starts + 1 :])


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_an_opened_notebook_runs_on_laptops_values(notebook):
    """The parameters cell changes nothing of its preset, so that JupyterLab and `make` run the same."""
    loaded = load_settings(notebook, kind_of(notebook), parameters_of(notebook))
    assert loaded.preset == "laptop" and loaded.output_dir == ROOT / "outputs" / "interactive"
    made = parameters_of(notebook) | {"output_dir": "outputs/laptop"}
    assert load_settings(notebook, kind_of(notebook), made) == type(loaded)(
        **{name: getattr(loaded, name) for name in loaded.__dataclass_fields__}
        | {"output_dir": ROOT / "outputs" / "laptop"}
    )
