"""Settings by the real loading path: files of a preset, a parameters cell, a class of settings."""

import pytest
import yaml

from pwagents.errors import DataError, SettingsError
from pwagents.lm.settings import SftSettings
from pwagents.notebook import settings as module
from pwagents.notebook.run import settings_table
from pwagents.notebook.settings import NotebookSettings, changes, load_settings, parameters_of, rows
from pwagents.settings import plain, settings
from pwagents.web.settings import ShopSettings

DATA = {"n_users": 40, "n_products": 400, "history": [5, 40], "interests": [2, 9], "drift": 0.5}
FLAT = {
    "preset": "laptop",
    "source": "",
    "data_dir": "",
    "output_dir": "",
    "seed": None,
    "stored_runs_only": False,
}


@settings
class Toy(NotebookSettings):
    """A notebook with a shop and a training."""

    shop: ShopSettings
    sft: SftSettings


@pytest.fixture
def params(tmp_path, monkeypatch):
    """A folder of parameters with two presets; returns what writes another file into it."""

    def write(path, **values):
        file = tmp_path / f"{path}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(values))

    monkeypatch.setattr(module, "PARAMS", tmp_path)
    data = {**DATA, "completeness": 0.2, "categories": []}
    shop = {"rec_dates": 4, "recommender": {"epochs": 25, "loss": "gbce"}}
    write("laptop/common", source="synthetic", seed=0, data=data, shop=shop, players={"workers": 3})
    write("laptop/toy", sft={"num_train_epochs": 3.0, "lora": [16, 32]})
    write("smoke/common", data={"n_users": 4}, shop={"recommender": {"epochs": 5}})
    return write


def load(**parameters):
    return load_settings("toy", Toy, {**FLAT, "data": {}, "shop": {}, "sft": {}, **parameters})


def test_a_preset_changes_laptop_and_the_parameters_cell_changes_the_preset(params):
    assert load().data.n_users == 40
    smoke = load(preset="smoke", shop={"recommender": {"dropout": 0.1}})
    assert (smoke.data.n_users, smoke.data.n_products) == (4, 400)
    recommender = smoke.shop.recommender
    assert (recommender.epochs, recommender.loss, recommender.dropout) == (5, "gbce", 0.1)


def test_the_notebooks_own_file_comes_last_and_lists_are_replaced(params):
    params("smoke/toy", sft={"lora": [4, 8]}, data={"n_users": 7})
    smoke = load(preset="smoke")
    assert (smoke.sft.lora, smoke.data.n_users) == ((4, 8), 7)
    assert smoke.sft.num_train_epochs == 3.0


def test_groups_that_other_notebooks_read_are_passed_over(params):
    assert not hasattr(load(), "players")


@settings
class OwnData:
    """Data of another kind than the shop's."""

    source: str
    drift: float = 0.0

    def require_files(self):
        """Nothing is needed."""


@settings
class Other(NotebookSettings):
    """A notebook with such data."""

    data: OwnData


def test_a_notebook_with_data_of_its_own_takes_what_it_has_of_the_shared_ones(params):
    own = load_settings("toy", Other, {**FLAT, "data": {}})
    assert (own.data.source, own.data.drift) == ("synthetic", 0.5)
    params("laptop/toy", data={"n_users": 3})  # its own file is held to its names
    with pytest.raises(SettingsError, match="found setting 'n_users'"):
        load_settings("toy", Other, {**FLAT, "data": {}})


def test_a_group_takes_the_runs_seed_unless_it_has_its_own(params):
    assert (load(seed=5).seed, load(seed=5).sft.seed) == (5, 5)
    assert load(seed=5, sft={"seed": 9}).sft.seed == 9


def test_source_and_data_dir_are_flat_and_go_to_the_data(params, tmp_path):
    for name in ("reviews.jsonl.gz", "meta.jsonl.gz"):
        (tmp_path / name).touch()
    loaded = load(source="amazon", data_dir=str(tmp_path))
    assert (loaded.data.source, loaded.data.data_dir) == ("amazon", str(tmp_path))


def test_results_of_an_opened_notebook_lie_apart(params):
    assert load().output_dir.parts[-2:] == ("outputs", "interactive")
    assert load(output_dir="elsewhere").output_dir.name == "elsewhere"


def test_settings_are_shown_with_their_meaning_and_changed_ones_bold(params):
    given = {"shop": {"recommender": {"epochs": 7}}, "source": "synthetic"}
    loaded = load(**given)
    listed = {(group, name): (value, meaning) for group, name, value, meaning in rows(loaded)}
    assert listed["shop.recommender", "epochs"] == (7, "Passes over the training sequences.")
    assert all(meaning for _, meaning in listed.values())
    shown = settings_table(loaded, changes({**FLAT, **given})).html
    bold = [line for line in shown.split("<tr") if "font-weight: bold" in line and "<td" in line]
    assert len(bold) == 2 and "epochs" in "".join(bold) and "source" in "".join(bold)


def test_settings_are_plain_json_for_journals_and_keys(params):
    values = plain(load())
    assert values["sft"]["lora"] == [16, 32] and values["shop"]["recommender"]["epochs"] == 25


def test_an_injected_name_that_the_notebook_lacks_is_an_error():
    cells = ["preset = 'laptop'", "# Parameters\nseed = 3\nsedd = 4\n"]
    namespace = {**FLAT, "data": {}, "shop": {}, "sft": {}, "In": cells}
    with pytest.raises(SettingsError, match=r"^toy: found parameter 'sedd'; expected seed$"):
        parameters_of("toy", Toy, namespace)
    assert parameters_of("toy", Toy, {**namespace, "In": cells[:1]})["preset"] == "laptop"


def test_a_parameters_cell_that_lost_a_name_is_an_error():
    with pytest.raises(SettingsError, match="the parameters cell lacks sft; restore it"):
        parameters_of("toy", Toy, {**FLAT, "data": {}, "shop": {}})


def test_a_broken_file_is_named(params, tmp_path):
    (tmp_path / "smoke" / "toy.yaml").write_text("sft: [1, 2")
    with pytest.raises(DataError, match=r"smoke/toy\.yaml.*expected a YAML file"):
        load(preset="smoke")
    (tmp_path / "smoke" / "toy.yaml").write_text("- sft")
    with pytest.raises(DataError, match=r"found list; expected lines of 'name: value'"):
        load(preset="smoke")


def test_every_wrong_setting_gets_its_line(params):
    with pytest.raises(SettingsError) as told:
        load(data={"n_users": 0, "drift": 2}, sft={"epochs": 3})
    lines = str(told.value).splitlines()
    assert len(lines) == 3
    assert lines[0] == "toy, group data, setting n_users: found 0; expected greater than 0"
    assert lines[2] == "toy, group sft: found setting 'epochs'; expected num_train_epochs"
