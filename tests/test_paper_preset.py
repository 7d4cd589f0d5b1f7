"""Presets paper and open end to end: their parameters, with small stand-ins for models, endpoints and data.

What each part left behind is looked at: a notebook that runs through may have skipped one.
"""

import json
from collections import Counter

import nbformat
import pandas as pd
import pytest
from safetensors.torch import load_file

from pwagents.agents.methods import PUMA_BY_FILE, TRACKS
from pwagents.llm.store import ResponseStore
from pwagents.rl.log import read_rows
from pwagents.schema import FUNCTION_OF
from pwagents.settings import settings_values

from .llm.server import ChatServer, transformers_serve
from .notebook import notebooks
from .notebook.notebooks import ROOT
from .paper_standins import SIZES, answer, overrides, save_clone, save_llama, save_qwen

pytestmark = pytest.mark.timeout(1200)  # minutes on a busy machine
# How what each role of Orion is told begins.
ROLES = {
    "writer": "You play a customer of an online shop who writes",
    "profiler": "You analyse what a customer",
    "profiler of interests": "You analyse a few purchases",
    "updater": "You keep the profile",
    "teacher": "You are the personal assistant",
    "user": "You play a customer of an online shop. A shopping",
    "judge": "You check the work",
}
ORION = [name for name in notebooks.NOTEBOOKS if "05" <= name[:2] <= "08"]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Folders of the models and of the clone."""
    folder = tmp_path_factory.mktemp("paper")
    return (save_qwen(folder / "qwen"), save_llama(folder / "llama")), save_clone(folder / "personalwab")


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


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


@pytest.fixture
def execute(stand_ins, kernel, tmp_path):
    """A function that runs a notebook into a folder; it returns the requests that the endpoint had."""

    def run(notebook, output, group="study", preset="paper", url="", **changes):
        from papermill import execute_notebook

        fresh = nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4)
        fresh.cells.insert(0, nbformat.v4.new_code_cell("%reset -f\n%reset -f in"))
        nbformat.write(fresh, tmp_path / "fresh.ipynb")
        executed = tmp_path / "executed.ipynb"
        with ChatServer(reply=answer) as server:
            values = settings_values(notebook, {"preset": preset})
            parameters = overrides(values, *stand_ins, url or server.url, output)
            parameters[group] = parameters.get(group, {}) | changes
            options = {"km": kernel, "kernel_name": "python3", "progress_bar": False}
            execute_notebook(tmp_path / "fresh.ipynb", executed, parameters, **options)
            bodies = list(server.bodies)
        cells = [cell for cell in nbformat.read(executed, as_version=4).cells if cell.cell_type == "code"]
        assert f"{notebook} finished" in cells[-1].outputs[-1].text
        for kind in ("tables", "figures"):
            assert list((output / kind).glob(f"{notebook[:2]}_*.csv")), f"no {kind}"
        return bodies

    return run


@pytest.mark.slow
@pytest.mark.xdist_group("Orion at paper")  # each reads from the one before
@pytest.mark.parametrize("notebook", ORION)
def test_a_notebook_runs_with_the_parameters_of_the_paper_preset(notebook, execute, output):
    bodies = execute(notebook, output)
    models, runs = output / "models", output / "runs"
    if notebook == "05_orion_sft":
        heard = [body["messages"][0]["content"] for body in bodies]
        silent = {role for role, begin in ROLES.items() if not any(text.startswith(begin) for text in heard)}
        assert not silent, "nobody asked them"
        assert (runs / "role_play.jsonl").read_text().count("\n") >= SIZES["role_play"]["n_trajectories"]
        (tuned,) = models.glob("orion-sft-*")
        assert pd.read_csv(tuned / "log.csv")["step"].iloc[-1] > 0
        results = pd.read_csv(output / "tables" / "05_results.csv").set_index("method")
        assert not results.loc[["Base", "SFT"]].isna().any(axis=None)
    if notebook == "06_orion_grpo":
        for method in ("grpo", "ppo"):
            (trained,) = models.glob(f"orion-{method}-*")
            assert read_rows(trained / "log.jsonl")[-1]["step"] == SIZES["rl"]["max_steps"]
            # The judge cannot tell a random model's malformed calls apart: a group has nothing to compare.
            assert has_moved(trained / "model") or method == "grpo"
        table = pd.read_csv(output / "tables" / "06_orion_table_1.csv")
        ours = table[table["backbone"] == "gpt-4.1-2025-04-14"].filter(regex="^n$|: steps$")
        assert len(ours) == 5 and not ours.isna().any(axis=None), "the prompt baselines"


@pytest.mark.slow
def test_the_papers_models_play_each_protocol_in_the_clones_words(execute, stand_ins, tmp_path):
    output, functions = tmp_path / "outputs", tmp_path / "functions.json"  # as notebook 04 writes them
    tasks = json.loads((stand_ins[1] / "user_instructions.json").read_text())["test"]
    functions.write_text(json.dumps({task["task"]: FUNCTION_OF[task["type"]] for task in tasks}))
    bodies = execute("03_benchmark", output, "play", functions_file=str(functions))

    # The items that a memory recalls are the code's and the paper's; the models those of Tables 3 and 4.
    ways = {("published", 10), ("published", 0), ("leak_free", 0)}
    for track in ("single_turn", "multi_turn"):
        lines = (output / "runs" / f"03_methods_{track}.jsonl").read_text().splitlines()
        played = Counter()
        for r in map(json.loads, lines):
            played[r["method"], r["model"], r["params"]["protocol"], r["params"]["items"]] += 1
        is_large = {name: track == "single_turn" or name == PUMA_BY_FILE for name in TRACKS[track]}
        models = {True: "gpt-4o-2024-08-06", False: "gpt-4o-mini-2024-07-18"}
        assert {*played} == {(name, models[is_large[name]], *way) for name in TRACKS[track] for way in ways}
    for name in ("single_turn_with_paper", "methods_multi_turn"):  # PersonalWAB's Tables 3 and 4
        table = pd.read_csv(output / "tables" / f"03_{name}.csv")
        ours = table[(table["source"] == "here") & (table["backbone"] != "none")]
        ours = ours.drop(columns=["USD a task", "tokens a task"]).dropna(axis=1, how="all")
        assert not ours.isna().any(axis=None) and ours["row"].str.contains("PUMA \\(gpt-4o").any(), ours

    # Our own rules of agents and user begin with "You".
    begin = {body["messages"][0]["content"].split()[0].lstrip("[") for body in bodies}
    prompts = {"SYS_PROMPT_SINGLE", "SYS_PROMPT_MULTI", "RECMIND_ST_PROMPT", "RECMIND_MT_PROPMT"}
    prompts |= {"INTEREC_PROMPT", "TS_AGENT_PROMPT", "TS_AGENT_MT_PROMPT", "USER_PROFILE_PROMPT"}
    assert prompts | {"INTEREC_UPDATE_MEM_PROMPT"} <= begin and "You" not in begin


@pytest.mark.slow
@pytest.mark.parametrize("notebook", ["02_profiles", "03_benchmark"])
def test_one_open_model_behind_a_server_plays_all_roles(notebook, execute, tmp_path):
    """The notebooks of preset open that ask a model, of random weights and eight tokens a reply."""
    with transformers_serve() as url:
        execute(notebook, tmp_path, "players", "open", url, sampling={"max_tokens": 8})
    (model,) = ResponseStore(tmp_path / "runs" / "replies.sqlite").models()
    assert model.endswith("qwen")
    if notebook == "03_benchmark":
        lines = (tmp_path / "runs" / "03_methods_multi_turn.jsonl").read_text().splitlines()
        assert {json.loads(line)["params"]["protocol"] for line in lines} == {"published", "leak_free"}


@pytest.mark.slow
def test_every_part_of_puma_ran(execute, stand_ins, tmp_path):
    output = tmp_path / "outputs"
    bodies = execute("04_puma", output)
    tables = {path.stem[3:]: pd.read_csv(path) for path in (output / "tables").glob("04_*.csv")}

    # A language model wrote the query of each search that is learned from, in the clone's words.
    asked = [message["content"] for body in bodies for message in body["messages"]]
    queries = [text for text in asked if text.startswith("[QUERY ")]
    tasks = json.loads((stand_ins[1] / "user_instructions.json").read_text())["train"]
    searches = {task["task"] for task in tasks if task["type"] == "search"}
    assert 0 < len(queries) == len({*queries})
    assert {text.removeprefix("[QUERY ").partition("|")[0] for text in queries} <= searches
    asked = ResponseStore(output / "runs" / "replies.sqlite").models()
    assert asked == {"gpt-4o-mini-2024-07-18": len({*queries})}

    # Every task of every type made a pair.
    files = [*(output / "models").glob("puma-samples-*/scores.json")]
    assert {len(json.loads(file.read_text())) for file in files} == {SIZES["study"]["train_tasks"]}

    # Whoever stands in Tables 5 and 6 was trained: steps were made, and moved the weights.
    lines = (output / "runs" / "04_puma.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    models = {record["method"]: record["model"].split(", ") for record in records}
    lengths = {f"PUMA, {tokens} tokens" for tokens in SIZES["study"]["memory_lengths"]}
    trained = {"PUMA", "PUMA+", "w/o DPO", "w/o Task-specific Memory", "w/o SFT", *lengths}
    kinds = Counter()
    for name in trained:
        for folder in models[name]:
            assert steps(output / "models" / folder) > 0
            kinds[folder.rpartition("-")[0]] += 1
    assert kinds["puma-function"] == len(trained) and kinds["puma-sft"] == 1
    assert kinds["puma-dpo"] == len(trained) - 1

    # Notebook 03 finds the function that step 1 named for each test task.
    functions = json.loads((output / "runs" / "04_functions.json").read_text())
    assert len(functions) == SIZES["study"]["test_tasks"]
    first, *results = json.loads((output / "runs" / "04_leaderboard.json").read_text())
    assert len(results) == first["results"]["overall"]["total_count"] == SIZES["study"]["test_tasks"]
    assert (first["run_args"]["model"], first["run_args"]["max_steps"]) == ("llama", -1)

    # No row of ours has an empty cell.
    for name, n in {"table_5": 4, "table_6": 2}.items():
        table = tables[name]
        ours = table[table["backbone"] == "llama"]
        assert len(ours) == n and not ours.isna().any(axis=None), f"{name}\n{ours}"
    single = tables["single_turn"].set_index("row")
    ours = single[single["backbone"] == "llama"].filter(regex="(function|result) accuracy$")
    assert len(ours) > len(trained) and not ours.isna().any(axis=None)
    actions = [record["trajectory"]["steps"][0]["action"] for record in records if record["method"] == "PUMA"]
    assert any(action["name"] for action in actions)  # step 1 has learned to name functions


def steps(folder):
    """How many steps a training made that moved the weights of its adapter."""
    return int(pd.read_csv(folder / "log.csv")["step"].iloc[-1]) if has_moved(folder) else 0


def has_moved(folder):
    """Whether an adapter is no longer as it began."""
    weights = load_file(folder / "adapter_model.safetensors")
    assert all(w.isfinite().all() for w in weights.values())
    return any(w.any() for name, w in weights.items() if "lora_B" in name)
