"""The paper preset end to end: its parameters, with small stand-ins for models, endpoints and data."""

import nbformat
import pytest

from pwagents.notebook.settings import preset_values

from .llm.server import ChatServer
from .notebook import notebooks
from .notebook.notebooks import ROOT, kind_of
from .paper_standins import answer, overrides, save_data, save_qwen

pytestmark = pytest.mark.timeout(1200)  # minutes each, more on a busy machine
NOTEBOOKS = [name for name in notebooks.NOTEBOOKS if "04" <= name[:2] <= "07"]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Folders of the model and of the data."""
    folder = tmp_path_factory.mktemp("paper")
    return save_qwen(folder / "qwen"), save_data(folder / "personalwab"), folder / "outputs"


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_runs_with_the_parameters_of_the_paper_preset(notebook, stand_ins, tmp_path, monkeypatch):
    from papermill import execute_notebook

    for name, value in {"OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    model, data, output = stand_ins
    with ChatServer(reply=answer) as server:
        preset = preset_values(notebook, kind_of(notebook), "paper")
        executed = tmp_path / "executed.ipynb"
        execute_notebook(
            ROOT / "notebooks" / f"{notebook}.ipynb",
            executed,
            overrides(preset, model, data, server.url, output),
            kernel_name="python3",
            progress_bar=False,
        )
    last = [cell for cell in nbformat.read(executed, as_version=4).cells if cell.cell_type == "code"][-1]
    assert f"{notebook} finished" in last.outputs[-1].text
    for kind in ("tables", "figures"):
        assert list((output / kind).glob(f"{notebook[:2]}_*.csv")), f"no {kind}"
