"""What a notebook needs and whether it is there, said before hours of work find out.

    make preflight PRESET=paper ONLY="03 04"     all of it, with a trial call for each model at an endpoint
    make models                                  the models that presets name, and how each is fetched

Notebooks of the old package say the same in short at their top (:func:`check`). No model is loaded, nothing is fetched.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from pwagents.data import amazon, personalwab
from pwagents.data.files import refuse_foreign
from pwagents.errors import DataError, InfrastructureError, SettingsError
from pwagents.settings import COMPLETE, INTERACTIVE, NOTEBOOKS, project_path, settings_values
from pwagents.urls import KEY_VARIABLE, OPENAI_URL, endpoint_url
from pwagents.files import FILES, damage
from pwagents.llm.openai_model import OpenAIModel
from pwagents_old.notebook.forecast import Forecast, forecast
from pwagents.settings import ROOT

GB = 10**9
# Group of settings -> file of a clone.
PROMPTS = {"play": "PersonalWAB/agents/utils.py", "study": "PUMA/utils.py"}
LARGE_GB = 2  # weights from which on a model is not trained without a GPU
# Folder in params/paper.yaml -> repository, license, whether it is gated, GB of weights. The small model is
# made here, MiniLM comes with the environment.
LLAMA_2 = ("meta-llama/Llama-2-7b-chat-hf", "Llama 2 Community License", True, 13.5)
MODELS = {
    "data/models/Llama-2-7b-chat-hf": LLAMA_2,
    "data/models/Qwen2.5-7B-Instruct": ("Qwen/Qwen2.5-7B-Instruct", "Apache 2.0", False, 15.2),
}


class Need(NamedTuple):
    """What a notebook needs; why it cannot be used ("" where it can), and what brings it."""

    what: str
    wrong: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.wrong}; {self.remedy}" if self.wrong else self.what


def check(notebook: str, kind: type, parameters: Mapping[str, Any]) -> None:
    """Print in one line what a notebook needs and will take.

    Raises:
        SettingsError: something is missing; a line each, with the command that brings it.
    """
    try:
        values = settings_values(notebook, parameters, kind)
        estimated = forecast(notebook, values)
        found = [*needs(values)]
        place = disk(values, estimated.trainings)
    except (ValueError, TypeError):  # a wrong name, type or file: load_settings says which
        return
    if missing := [need for need in found if need.wrong]:
        raise SettingsError("\n".join(f"{notebook} cannot start: {need}" for need in missing))
    told = [need.what for need in [*found, place]]
    # Not refused: what was asked before is stored and free, and a run goes on where its budget stopped it.
    more = "".join(f" Note: {need}." for need in budgets(values, estimated) if need.wrong)
    print(f"{notebook} has what it needs ({'; '.join(told)}). {estimated}.{more}")


def needs(values: Mapping[str, Any]) -> Iterator[Need]:
    """Yield what a notebook needs beyond this repository and its environment."""
    data, players = values["data"], values.get("players", {})
    finders = {"personalwab": personalwab.find_files, "amazon": amazon.find_files}
    if data["data_dir"] and data["source"] in finders:
        wrong = _problem(finders[data["source"]], project_path(data["data_dir"]))
        yield Need(f"files in {data['data_dir']}", wrong, '`make data` (others: GUIDE.md, "Your data")')

    for group, file in PROMPTS.items():
        if repo := values.get(group, {}).get("official_repo"):
            wrong = "" if (project_path(repo) / file).exists() else f"no {file}"
            yield Need(f"prompts in {repo}", wrong, "`make data`")
    protocols = (values.get("play", {}).get("protocols"), values.get("study", {}).get("protocol"))
    if data["source"] == "personalwab" and "published" in str(protocols):
        wrong = "" if [*project_path(data["data_dir"]).rglob("pwab.pth")] else "no pwab.pth"
        yield Need("the published recommender", wrong, "`make data`, or the protocol leak_free")

    asked = [role for role, spec in players.items() if "openai:" in str(spec)]
    if asked and not values.get("stored_runs_only") and endpoint_url(players["base_url"]) == OPENAI_URL:
        wrong = "" if os.environ.get(KEY_VARIABLE, "").strip() else f"not set ({', '.join(asked)})"
        yield Need(f"key {KEY_VARIABLE}", wrong, f"`export {KEY_VARIABLE}=...`")

    if values.get("stored_runs_only"):
        return
    base = values.get("base", {}).get("model", "")
    named = re.findall(r"local:([^'\"\]]+)", str([*players.values()]))
    for name in dict.fromkeys([base, *named] if "/" in base else named):  # not those that are made here
        yield Need(f"model {name}", _problem(require_weights, project_path(name)), fetch_command(name))
    if (weights := size_gb(base)) >= LARGE_GB:
        groups = [group for group in values.values() if isinstance(group, Mapping)]
        yield _gpus(max(group.get("n_gpus", 1) for group in groups), weights)


def budgets(values: Mapping[str, Any], estimated: Forecast) -> Iterator[Need]:
    """Compare what replies are estimated to take with the budgets, at which a run stops half done."""
    players = values.get("players", {})
    for name, unit, most in (("usd", "US dollars", estimated.usd), ("tokens", "tokens", estimated.tokens)):
        if most and not values.get("stored_runs_only"):
            budget = players[f"budget_{name}"]
            wrong = f"estimated are {most:,.0f}" if most > budget else ""
            fewer = "fewer tasks, methods or models (`make preflight` estimates again)"
            yield Need(
                f"a budget of {budget:,} {unit}", wrong, f"raise players.budget_{name}, or take {fewer}"
            )


def disk(values: Mapping[str, Any], trainings: int) -> Need:
    """Compare the room that trained models may take with what is free; some may lie there from before."""
    folder = project_path(values.get("output_dir") or INTERACTIVE)
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free / GB
    most = trainings * size_gb(values["base"]["model"]) if trainings else 0
    what = f"disk: models take {most:.0f} GB, {free:.0f} GB are free"
    return Need(what, "too little" if most > free else "", "clear it, or set OUTPUTS to another one")


def require_weights(folder: Path) -> None:
    """Check that a model's files are all there; no weight is read.

    Raises:
        DataError: one is not, or is a Git LFS pointer.
    """
    files = {*folder.glob("*.safetensors")}
    if (index := folder / "model.safetensors.index.json").exists():
        refuse_foreign([index])
        files |= {folder / name for name in json.loads(index.read_text("utf-8"))["weight_map"].values()}
    absent = [file.name for file in sorted(files) if not file.exists()] if files else ["*.safetensors"]
    if absent:
        raise DataError(folder, "-", "(folder)", f"no {', '.join(absent)}", "all weights")
    refuse_foreign(files)


def fetch_command(name: str) -> str:
    """Say how the model of a folder is fetched, where it is one of :data:`MODELS`."""
    if name not in MODELS:
        return "name another folder, or put the model there"
    repository, _, is_gated, _ = MODELS[name]
    first = "accept its license on its page, `.venv/bin/hf auth login`, then " if is_gated else ""
    return f'{first}`.venv/bin/hf download {repository} --exclude "*.bin" --local-dir {name}`'


def size_gb(name: str) -> float:
    """Size a model's weights, as they lie in a folder, else as :data:`MODELS` has them."""
    size = sum(file.stat().st_size for file in project_path(name).glob("*.safetensors")) / GB
    return size or MODELS.get(name, (0.0,))[-1]


def _gpus(asked: int, weights: float) -> Need:
    """GPUs and their memory, asked of the driver: torch takes seconds to import."""
    lines = []
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=memory.free,name", "--format=csv,noheader,nounits"]
        done = subprocess.run(query, capture_output=True, text=True)
        lines = [] if done.returncode else done.stdout.splitlines()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if re.fullmatch(r"[\d, ]+", visible):  # names of GPUs and of their parts are left to CUDA
        lines = [line for i, line in enumerate(lines) if str(i) in re.findall(r"\d+", visible)]
    found = [line.partition(",")[0] for line in lines]
    # Where GPU and CPU share their memory the driver tells no number.
    free = min((float(mib) * 2**20 / GB for mib in found if mib.isdigit()), default=inf)
    told = f" with {free:.0f} GB free" if free < inf else ""
    what = f"GPUs: {asked} asked for, {len(found)} found{told}"
    wrong = "too few" if len(found) < asked else "" if free > weights else f"weights take {weights:.1f} GB"
    return Need(what, wrong, "set n_gpus, or take another machine")


def _problem(look: Callable[[Path], Any], place: Path) -> str:
    """What is wrong with a place, in a few words; an empty text where nothing is."""
    try:
        look(place)
    except DataError as error:
        return error.args[3]
    return ""


def kind_of(notebook: str) -> type:
    """Find the class of settings that a notebook starts with; one that has not moved names it in its code."""
    if notebook in NOTEBOOKS:
        return NOTEBOOKS[notebook]
    cells = json.loads((ROOT / "notebooks" / f"{notebook}.ipynb").read_text("utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (name,) = re.findall(rf'start\("{notebook}", globals\(\), (\w+)\)', code)
    (module,) = re.findall(rf"^from (pwagents(?:_old)?\.[\w.]+) import .*\b{name}\b", code, re.MULTILINE)
    return getattr(import_module(module), name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Say what notebooks need, before they start.")
    parser.add_argument("notebooks", nargs="*", help="for instance 03_benchmark")
    parser.add_argument("--preset", default=COMPLETE)
    parser.add_argument("--output-dir", default=INTERACTIVE)
    parser.add_argument("--models", action="store_true", help="name the models of presets instead")
    arguments = parser.parse_args()
    if arguments.models:
        for name, (repository, license, is_gated, size) in MODELS.items():
            terms = f"{license}, {'gated' if is_gated else 'not gated'}, {size:g} GB"
            print(f"{repository}: {terms}\n  {fetch_command(name)}")
        return

    missing, specs = 0, set()
    for notebook in arguments.notebooks:
        given = {"preset": arguments.preset, "output_dir": arguments.output_dir}
        values = settings_values(notebook, given, kind_of(notebook))
        estimated = forecast(notebook, values)
        print(f"{notebook}. {estimated}")
        for need in (
            *needs(values),
            *budgets(values, estimated),
            disk(values, estimated.trainings),
        ):
            print(f"  {'MISSING ' * bool(need.wrong)}{need}")
            missing += bool(need.wrong)
        players = values.get("players", {})
        asked = re.findall(r"openai:[^'\"\]]+", str([*players.values()]))
        specs |= {(spec, players["base_url"]) for spec in asked}
    for spec, base_url in sorted(specs):
        try:
            OpenAIModel(spec.partition(":")[2], base_url).try_out()
            print(f"{spec} answers")
        except (InfrastructureError, ValueError) as error:
            print(f"MISSING {spec} does not answer: {error}")
            missing += 1
    for listed in Path(arguments.output_dir).glob(f"*/*/{FILES}"):
        set_aside = listed.parent.name.startswith(".")
        if not set_aside and (wrong := damage(listed.parent, all_bytes=True)):
            print(f"{listed.parent} is damaged ({wrong}): it will be made again")
    sys.exit(missing > 0)


if __name__ == "__main__":
    main()
