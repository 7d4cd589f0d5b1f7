"""The paper preset end to end: its parameters, with small stand-ins for models, endpoints and data."""

import nbformat
import pytest

from pwagents.notebook.preflight import kind_of
from pwagents.notebook.settings import preset_values

from .llm.server import ChatServer
from .notebook import notebooks
from .notebook.notebooks import ROOT
from .paper_standins import answer, overrides, save_data, save_qwen

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # minutes on a busy machine
NOTEBOOKS = [name for name in notebooks.NOTEBOOKS if "04" <= name[:2] <= "08"]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Folders of the model and of the data."""
    folder = tmp_path_factory.mktemp("paper")
    return save_qwen(folder / "qwen"), save_data(folder / "personalwab"), folder / "outputs"


@pytest.fixture(scope="module")
def kernel():
    """One kernel for all, as they import the same; each begins without what the one before left."""
    from jupyter_client import AsyncKernelManager
    from nbclient.util import run_sync

    manager = AsyncKernelManager(kernel_name="python3")  # the first notebook starts it
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}.items():
            patch.setenv(name, value)
        yield manager
        if manager.has_kernel:
            run_sync(manager.shutdown_kernel)(now=True)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_runs_with_the_parameters_of_the_paper_preset(notebook, stand_ins, kernel, tmp_path):
    from papermill import execute_notebook

    model, data, output = stand_ins
    fresh = nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4)
    fresh.cells.insert(0, nbformat.v4.new_code_cell("%reset -f\n%reset -f in"))
    nbformat.write(fresh, tmp_path / "fresh.ipynb")
    with ChatServer(reply=answer) as server:
        preset = preset_values(notebook, kind_of(notebook), "paper")
        executed = tmp_path / "executed.ipynb"
        execute_notebook(
            tmp_path / "fresh.ipynb",
            executed,
            overrides(preset, model, data, server.url, output),
            km=kernel,
            kernel_name="python3",
            progress_bar=False,
        )
    last = [cell for cell in nbformat.read(executed, as_version=4).cells if cell.cell_type == "code"][-1]
    assert f"{notebook} finished" in last.outputs[-1].text
    for kind in ("tables", "figures"):
        assert list((output / kind).glob(f"{notebook[:2]}_*.csv")), f"no {kind}"
