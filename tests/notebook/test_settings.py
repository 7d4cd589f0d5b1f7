"""Settings: files of presets, a parameters cell, a class of settings; and the real ones of every notebook."""

import ast
import os
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import ClassVar

import nbformat
import pytest
import yaml

import pwagents.notebook
from pwagents import portable
from pwagents import settings as module
from pwagents.errors import SettingsError
from pwagents.notebook import read_parameters, settings_table
from pwagents.settings import (
    PARAMS,
    NotebookSettings,
    SftSettings,
    ShopSettings,
    changes,
    load_settings,
    plain,
    read_changes,
    rows,
    settings_values,
    substitutes,
)

from . import notebooks
from .notebooks import NOTEBOOKS, ROOT

CELL = {"preset": "laptop", "source": "", "data_dir": "", "output_dir": "", "seed": None, "sft": {}}
LAPTOP = """
all:
  seed: 0
  data: {source: synthetic, n_users: 40, n_products: 400, history: [5, 40], interests: [2, 9], drift: 0.5,
         completeness: 0.2}
  shop: {rec_dates: 4, recommender: {epochs: 25, loss: bce}}
  players: {workers: 3}
toy:
  sft: {trainer: {num_train_epochs: 3.0}, lora: [16, 32]}
"""
SMOKE = """
all: {data: {n_users: 4}, shop: {recommender: {epochs: 5}}}
toy: {sft: {lora: [4, 8]}, data: {n_products: 7}}
"""


class Toy(NotebookSettings):
    """A notebook with a shop and a training, but without players."""

    FOLLOWS: ClassVar = {"sft.seed": "seed"}

    shop: ShopSettings
    sft: SftSettings


@pytest.fixture
def params(tmp_path, monkeypatch):
    """The folder of two presets."""
    (tmp_path / "laptop.yaml").write_text(LAPTOP)
    (tmp_path / "smoke.yaml").write_text(SMOKE)
    monkeypatch.setattr(module.load, "PARAMS", tmp_path)
    monkeypatch.setitem(module.NOTEBOOKS, "toy", Toy)
    return tmp_path


def load(**parameters):
    return load_settings("toy", {**CELL, **parameters})


@pytest.mark.parametrize(("is_portable", "gpus"), [(True, ""), (False, "0,1")])
def test_the_small_model_is_trained_on_the_cpu_where_numbers_are_to_be_portable(
    tmp_path, monkeypatch, is_portable, gpus
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(portable, "switch_off", lambda: None)
    parameters = CELL | {"preset": "smoke", "output_dir": str(tmp_path), "portable": is_portable}
    pwagents.notebook.start("04_puma", parameters)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == gpus


def test_a_preset_changes_laptop_and_the_parameters_cell_changes_the_preset(params):
    assert load().data.n_users == 40 and load().sft.lora == (16, 32)
    assert load().output_dir == ROOT / "outputs" / "interactive"
    assert load(seed=5).sft.seed == 5 and load(seed=5, sft={"seed": 9}).sft.seed == 9
    smoke = load(preset="smoke", shop={"recommender": {"dropout": 0.1}}, source="synthetic")
    assert (smoke.data.n_users, smoke.data.n_products) == (4, 7)
    recommender = smoke.shop.recommender
    assert (recommender.epochs, recommender.loss, recommender.dropout) == (5, "bce", 0.1)
    # Lists are replaced, groups merged.
    assert (smoke.sft.lora, smoke.sft.trainer) == ((4, 8), {"num_train_epochs": 3.0})


def test_numbers_with_an_exponent_are_numbers_whoever_reads_the_yaml(params):
    written = "{sft: {trainer: {learning_rate: 1e-4, warmup_steps: 2E+1, run_name: '1e'}}}"
    trainer = load(**read_changes(written)).sft.trainer
    expected = {"learning_rate": 1e-4, "warmup_steps": 20.0, "run_name": "1e"}
    assert trainer == load(preset="smoke").sft.trainer | expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("~/results", Path.home() / "results"), ("2024", ROOT / "2024"), ("a/b", ROOT / "a/b"),
     ("/a", Path("/a")), (2024, "not a valid path"), (True, "not a valid path"),
     ("~nobody-of-this-name/a", "home directory")],
)  # fmt: skip
def test_a_path_of_outputs_is_taken_from_the_root_or_home_and_a_number_is_none(params, given, expected):
    if isinstance(expected, Path):
        assert load(output_dir=given).output_dir == expected
    else:
        with pytest.raises(SettingsError, match=rf"\Atoy[^\n]*{expected}[^\n]*\Z"):
            load(output_dir=given)


# What is wrong, and what the line says after the notebook's name.
WRONG = [
    ({"preset": "smok"}, "preset: found 'smok'; expected one of laptop, smoke"),
    ({"sedd": 4}, "sedd: no such setting; did you mean 'seed'?"),
    (
        {"shop": {"recommender": {"epoch": 3}}},
        "shop.recommender.epoch: no such setting; did you mean 'epochs'?",
    ),
    ({"data": {"drift": 1.5}}, "data.drift: Input should be less than or equal to 1 (found 1.5)"),
    ({"data": {"history": [9, 5]}}, "data.history: expected two whole numbers [least, most]"),
]


@pytest.mark.parametrize(("change", "line"), WRONG)
def test_a_wrong_setting_is_one_line_that_names_it(params, change, line):
    with pytest.raises(SettingsError) as refused:
        load(**change)
    assert str(refused.value).startswith("toy") and line in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_bfloat16_is_refused_where_numbers_are_to_be_portable():
    given = {"players": {"dtype": "bfloat16"}}
    with pytest.raises(SettingsError, match=r"\A03_benchmark, players\.dtype: .*portable holds torch"):
        load_settings("03_benchmark", given)
    assert load_settings("03_benchmark", given | {"portable": False}).players.dtype == "bfloat16"


def test_missing_files_of_a_source_are_one_line_before_any_work(tmp_path):
    given = {"source": "personalwab", "data_dir": "nowhere", "output_dir": str(tmp_path)}
    with pytest.raises(SettingsError, match=r"\A03_benchmark: [^\n]*nowhere[^\n]*\Z"):
        pwagents.notebook.start("03_benchmark", given)


def test_every_value_out_of_range_gets_a_line_and_a_broken_file_is_named(params):
    with pytest.raises(SettingsError) as refused:
        load(data={"n_users": 0, "drift": 2}, sft={"n_gpus": 0})
    assert len(str(refused.value).splitlines()) == 3
    (params / "smoke.yaml").write_text("toy: [1, 2")
    with pytest.raises(SettingsError, match=r"while parsing.*smoke\.yaml"):
        load(preset="smoke")
    for text, line in (("study: {", "expected YAML"), ("study", "found a str; expected names and values")):
        with pytest.raises(SettingsError, match=f"changes: .*{line}"):
            read_changes(text)


def test_tokens_and_passwords_in_urls_are_not_repeated_and_a_missing_key_is_told_first(monkeypatch):
    url = "https://gateway.example/v1/acc0123456789abcdef/openai"
    settings = load_settings("02_profiles", {"players": {"base_url": url}})
    assert settings.players.base_url == url
    shown = settings_table(settings, {}, {}).html + str(plain(settings)) + str(settings.players.facts())
    assert "gateway.example/v1/" in shown and "acc0123456789abcdef" not in f"{shown}{settings}"
    given = {"players": {"base_url": "http://me:secret@host/v1"}}
    with pytest.raises(SettingsError, match=r"^03_benchmark, players\.base_url: ") as refused:
        load_settings("03_benchmark", given)
    assert "secret" not in str(refused.value)
    for text in ("http://me:secret@host/v1", "players: {base_url: http://me:secret@host"):
        with pytest.raises(SettingsError, match=r"^changes: ") as refused:
            read_changes(text)
        assert "secret" not in str(refused.value)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given = {"players": {"teacher": "openai:gpt-4o-mini"}}
    with pytest.raises(SettingsError, match=r"^05_orion_sft: teacher: .*OPENAI_API_KEY$"):
        load_settings("05_orion_sft", given)
    stored = given | {"stored_runs_only": True}  # replies will do
    assert load_settings("05_orion_sft", stored)


CELLS = "preset = 'laptop'\ndata = {'n_users': 5}"
READ = {"preset": "laptop", "data": {"n_users": 5}}
# Cells that ran, names as they are now, and what is read.
RAN = {
    "a comment first": (["# mine\n" + CELLS], {}, READ),
    "edited and run again": ([CELLS, "preset = 'smoke'\ndata = {}"], {}, {"preset": "smoke", "data": {}}),
    "a line less, and run again": ([CELLS, "preset = 'smoke'"], {}, {"preset": "smoke"}),
    "a name used again": ([CELLS, "data = load()"], {"data": 1}, READ),
    "computed": (["preset = 'laptop'\nseed = 1 + _two"], {"seed": 3}, {"preset": "laptop", "seed": 3}),
    "helpers": (["preset = 'laptop'\n_n = 5\nimport os"], {"_n": 5}, {"preset": "laptop"}),
    "a cell that did not run": ([CELLS, "preset = ("], {}, READ),
    "papermill's": ([CELLS, "# Parameters\nsedd = 4\n"], {}, READ | {"sedd": 4}),
    "papermill's, then run by hand": (
        ["preset = 'laptop'", "# Parameters\npreset = 'smoke'\n", "preset = 'laptop'"],
        {},
        {"preset": "laptop"},
    ),
    "a script": (None, {"preset": "smoke", "seed": 3, "os": os}, {"preset": "smoke", "seed": 3}),
    "a script in a kernel": (["%run x.py", "exec(code)"], {"preset": "smoke", "os": os}, {"preset": "smoke"}),
}


@pytest.mark.parametrize(("cells", "names", "expected"), RAN.values(), ids=RAN)
def test_settings_are_what_the_parameters_cell_assigned(cells, names, expected):
    namespace = names if cells is None else {**names, "In": ["", *cells]}
    assert read_parameters(namespace, Toy) == expected


def test_a_misspelt_parameter_of_papermill_stops_the_run_before_any_work(tmp_path):
    command = [sys.executable, "-m", "papermill", "notebooks/01_data.ipynb", str(tmp_path / "out.ipynb")]
    command += ["-p", "preset", "smoke", "-p", "sede", "3", "--no-progress-bar"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last == "SettingsError: 01_data, sede: no such setting; did you mean 'seed'?"
    code = [cell for cell in nbformat.read(tmp_path / "out.ipynb", 4).cells if cell.cell_type == "code"]
    starts = next(i for i, cell in enumerate(code) if "start(" in cell.source)
    assert not any(cell.execution_count for cell in code[starts + 1 :])


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_an_opened_notebook_runs_on_laptops_values_and_reads_them_alone(notebook):
    """The parameters cell lists every group and changes nothing: JupyterLab and `make` run the same."""
    given, kind = notebooks.parameters_of(notebook), module.NOTEBOOKS[notebook]
    settings, usual = load_settings(notebook, given), settings_values(notebook, {})
    assert settings == load_settings(notebook, {})
    for more, bold in (
        ({}, 0),
        ({"seed": settings.seed}, 0),
        ({"stored_runs_only": True}, 4),
    ):  # cells of a row
        assert settings_table(settings, changes(given | more), usual).html.count('bold" headers') == bold
    flat = {"preset", "source", "data_dir", "output_dir", "seed"}
    listed = flat | {*kind.model_fields} - {"portable", "engine"}
    assert listed - {*given} <= {"stored_runs_only"} and {*given} <= listed  # the tour has no stored runs
    # No cell after the settings reads a parameter instead of them.
    code = [cell.source for cell in notebooks.cells_of(notebook) if cell.cell_type == "code"]
    after = code[next(i for i, source in enumerate(code) if "start(" in source) + 1 :]
    nodes = [node for source in after for node in ast.walk(ast.parse(source))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    read, assigned = ({n.id for n in names if isinstance(n.ctx, kind)} for kind in (ast.Load, ast.Store))
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    assert not read & ({*given} - {"preset"}) - assigned - arguments


def test_every_setting_has_a_meaning_and_a_line_in_laptop():
    for notebook in NOTEBOOKS:
        file = settings_values(notebook, {"preset": "laptop"})
        for group, name, _, what in rows(load_settings(notebook, {})):
            values = reduce(dict.get, group.split("."), file) if group else file
            assert what and name in {*values, "preset", "output_dir", "stored_runs_only"}, f"{group}.{name}"


def test_a_model_that_plays_in_the_place_of_the_presets_is_named(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    given = {
        "preset": "paper",
        "players": {"policy": "openai:x", "user": "openai:x", "baselines": "openai:y"},
    }
    named = {"openai:x": "gpt-4o-2024-08-06 and gpt-4o-mini-2024-07-18", "openai:y": "gpt-4o-mini-2024-07-18"}
    assert substitutes("03_benchmark", load_settings("03_benchmark", given)) == named
    given = {"players": {"policy": "openai:x"}}  # of rules
    assert substitutes("03_benchmark", load_settings("03_benchmark", given)) == {}


def keys(values, path=()):
    """The paths of all names within."""
    for name, value in values.items():
        yield (*path, name)
        yield from keys(value, (*path, name)) if isinstance(value, dict) else ()


def test_a_file_sets_nothing_that_nobody_reads():
    """A notebook passes over groups that it lacks, and all would pass over a misspelt one."""
    keys_of = {name: {*keys(plain(load_settings(name, {})))} for name in NOTEBOOKS}
    sections = {name: module.NOTEBOOKS[name].SECTION for name in NOTEBOOKS}
    for preset in ("laptop", "smoke", "paper", "open"):
        file = yaml.safe_load((PARAMS / f"{preset}.yaml").read_text("utf-8"))
        assert {*file} <= {"all", "orion", *NOTEBOOKS}
        for section, values in file.items():
            readers = [name for name in NOTEBOOKS if section in ("all", name, sections[name])]
            assert {*keys(values)} <= set().union(*(keys_of[name] for name in readers)), (preset, section)
