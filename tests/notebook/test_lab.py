"""An executed notebook as a reader meets it: in JupyterLab, in real Chromium, not trusted, in both themes."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

import nbformat
import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
CI = os.environ.get("CI") == "true"
pytestmark = pytest.mark.skipif(
    BROWSER is None and not CI, reason=f"none of {', '.join(BROWSERS)} is installed"
)

SHOW = """
import pandas as pd
from pwagents.evaluation import tables
from pwagents.evaluation.figures import plot_lines
from pwagents.notebook.figures import save_figure

frame = pd.DataFrame({"query": ["instruction <b>alone</b>"], "accuracy": [0.491]})
rewards = pd.DataFrame({"run": "a", "step": [0, 1], "reward": [1, 2]})
looks = {"x": "step", "y": "reward", "hue": "run", "xlabel": "steps", "ylabel": "reward"}
save_figure(plot_lines, "01_reward", rewards, output_dir=output_dir, **looks)
display(tables.banner("Preset smoke"))
tables.save_table(frame, "01_accuracy", title="Accuracy", output_dir=output_dir)
"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The folder of a notebook that ``make`` would leave."""
    from pwagents.notebook import execute

    root = tmp_path_factory.mktemp("lab")
    parameters = nbformat.v4.new_code_cell("preset = output_dir = ''", metadata={"tags": ["parameters"]})
    notebook = nbformat.v4.new_notebook(cells=[parameters, nbformat.v4.new_code_cell(SHOW.strip())])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    (root / "notebooks").mkdir()
    nbformat.write(notebook, root / "notebooks/01_toy.ipynb")
    with contextlib.chdir(root):
        execute.run("01_toy", "smoke", root / "outputs")
    return root / "outputs" / "notebooks"


@pytest.fixture(scope="module")
def lab(executed, tmp_path_factory):
    """A JupyterLab that never saw its notebooks before: its address, and the file of its theme."""
    folder = tmp_path_factory.mktemp("jupyter")
    settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "JUPYTER_DATA_DIR": str(folder / "data"),  # where signatures of trusted notebooks are kept
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }
    arguments = ["--no-browser", "--port=0", "--IdentityProvider.token=", "--allow-root", "--ip=127.0.0.1"]
    command = [sys.executable, "-m", "jupyterlab", *arguments, f"--ServerApp.root_dir={executed}"]
    with open(folder / "lab.log", "w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            while not (found := re.search(r"http://127\.0\.0\.1:\d+/lab", (folder / "lab.log").read_text())):
                assert process.poll() is None, (folder / "lab.log").read_text()
                time.sleep(0.2)
            yield found.group(), settings / "themes.jupyterlab-settings"
        finally:
            process.kill()  # its kernels end with it
            process.wait()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    assert BROWSER, "a browser is needed in CI: install chromium-headless-shell"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened.new_context(viewport={"width": 1280, "height": 1600})
        opened.close()


@pytest.fixture(params=["JupyterLab Light", "JupyterLab Dark"])
def page(request, lab, browser):
    """The executed notebook, opened in one theme."""
    address, theme = lab
    theme.write_text(json.dumps({"theme": request.param}))
    page = browser.new_page()
    page.goto(f"{address}/workspaces/{request.param[-4:].strip()}/tree/01_toy.ipynb")
    page.wait_for_selector(".jp-OutputArea-output table", timeout=90_000)
    page.wait_for_function(f"document.body.dataset.jpThemeName == {request.param!r}")
    if folder := os.environ.get("PWAGENTS_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{request.param}.png")
    yield page
    page.close()


def look(page, selector):
    """Computed styles and attributes of the first element that fits."""
    return page.locator(selector).first.evaluate(
        "node => ({color: getComputedStyle(node).color, weight: getComputedStyle(node).fontWeight,"
        " background: getComputedStyle(node).backgroundColor, text: node.textContent,"
        " alt: node.getAttribute('alt'), width: node.getBoundingClientRect().width})"
    )


def brightness(color):
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


def test_tables_banners_and_figures_are_legible_in_either_theme(page):
    table, cell = look(page, ".jp-OutputArea-output table"), look(page, ".jp-OutputArea-output tbody td")
    assert brightness(table["background"]) > 240 > 120 > brightness(cell["color"])
    assert cell["text"] == "instruction <b>alone</b>"
    banner = look(page, ".jp-OutputArea-output div[style*='bold']")
    assert banner["text"] == "Preset smoke" and int(banner["weight"]) >= 600
    assert brightness(banner["background"]) - brightness(banner["color"]) > 120
    image = look(page, ".jp-OutputArea-output img")
    assert image["alt"].startswith("Figure 01_reward: reward against steps") and image["width"] > 300
    parameters = page.locator(".jp-CodeCell").first
    assert parameters.locator(".jp-Placeholder").count() > 0  # its source is collapsed
