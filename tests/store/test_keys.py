"""Stored results depend on the modules that decide them, as they were loaded, and on no others."""

import re
import sys
import threading
from pathlib import Path

import grimp
import pytest

import pwagents
from pwagents import code, store
from pwagents.agents import methods, offline
from pwagents.evaluation import own_agent
from pwagents.llm import make
from pwagents.lm import train
from pwagents.orion import baselines, references
from pwagents.orion import play as orion_play
from pwagents.orion import train as orion_train
from pwagents.persona2web.agents import episode
from pwagents.puma import play
from pwagents.puma import train as puma_train
from pwagents.users import rules

from ..notebook.notebooks import QUICK, cells_of

LIBRARY = Path(pwagents.__file__).parent
PLAYED = ["offline", "methods", "pairs", "puma", "own"]  # what is played in the shop
KEYS = {
    "offline": offline.CODE,
    "methods": methods.CODE,
    "llm": make.CODE,
    "train": train.CODE,
    "pairs": puma_train.CODE,
    "puma": play.CODE,
    "own": own_agent.CODE,
    "web": episode.CODE,
    "search": ("shop.search",),
    "sasrec": ("shop.sasrec", "portable"),
}


@pytest.fixture
def keys_after(monkeypatch):
    """``keys_after(file, old, new)``: what is made again once a file has been loaded with other words."""

    def after(file, old, new):
        before = {name: code.hashes_of(*modules) for name, modules in KEYS.items()}
        loaded = code.LOADED[f"pwagents/{file}"]
        assert loaded.count(old.encode()), f"{file} has no {old!r}"
        monkeypatch.setitem(code.LOADED, f"pwagents/{file}", loaded.replace(old.encode(), new.encode(), 1))
        code.hashes_of.cache_clear()
        return [name for name, modules in KEYS.items() if code.hashes_of(*modules) != before[name]]

    yield after
    code.hashes_of.cache_clear()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("results/episodes.py", "refused by its model", "refused by the model"),  # a label
        ("results/style.py", "import", "import os, "),  # a figure's looks
        ("settings/group.py", "Name of the endpoint", "The name of the endpoint"),  # a meaning
        ("errors.py", "expected {}", "we expected {}"),  # an error message
        ("agents/offline.py", '"""Rule-based agents', '"""Agents by rules'),  # a docstring of what decides
        ("shop/search.py", "import ", "# A comment.\nimport "),
        ("results/web.py", "no history", "without a history"),
        ("notebook.py", "Preset smoke", "The preset smoke"),  # a title
    ],
)
def test_what_only_people_read_makes_nothing_again(keys_after, file, old, new):
    assert keys_after(file, old, new) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "again"),
    [
        ("agents/chat.py", "You are the personal assistant", "You are an assistant", ["methods"]),  # a prompt
        ("agents/offline.py", "CONSIDERED = 10", "CONSIDERED = 9", PLAYED[:-1]),
        # What the user says, and how a reply is read.
        ("users/rules.yaml", "manners:", "manners: # so\n  extra: [x]\n", ["methods", "own"]),
        ("llm/parts.yaml", ":", ": # so\n", ["methods", "llm", "pairs", "puma", "own", "web"]),
        ("llm/openai_model.py", "FIRST_WAIT_S = 0.5", "FIRST_WAIT_S = 0.4", ["llm"]),
        ("llm/failures.yaml", "words:", "words: # so", ["llm"]),  # how a refusal is read
        ("llm/budget.csv", "0.15", "0.16", ["llm"]),  # what a reply costs
        ("shop/search.py", "np.float32(0.9)", "np.float32(0.8)", [*PLAYED, "web", "search"]),
        ("shop/sasrec.py", "betas=(0.9, 0.98)", "betas=(0.9, 0.99)", [*PLAYED, "sasrec"]),
        ("shop/environment.py", "MAX_STEPS = 10", "MAX_STEPS = 9", PLAYED),
        ("shop/environment.py", "Search all products", "Search products", PLAYED),  # a tool
        # Of episodes, scores are computed when they are read.
        ("shop/score.py", "return 1 - (rank - 1) / 10", "return 1 - (rank - 1) / 9", ["pairs"]),
        ("puma/memory.py", "Name the tool", "Name a tool", ["pairs", "puma"]),  # rows hold their prompts
        ("lm/train.py", 'chance="fine-tuning"', 'chance="tuning"', ["train", "pairs"]),
        ("llm/replies.py", "Your answer", "The answer", ["web"]),  # no shop's episode holds such
        ("users/llm.py", "temperature", "Temperature", ["methods", "own"]),
        ("persona2web/site/pages.yaml", ":", ": # so", ["web"]),  # words on pages
        ("persona2web/site/pages.html", "<", "\n<", ["web"]),
        ("seeds.py", '"\\x1f"', '"\\x1e"', [name for name in KEYS if name not in ("search", "sasrec")]),
        ("portable.py", '"1"', '"2"', [name for name in KEYS if name not in ("search", "llm")]),
    ],
)
def test_what_decides_results_makes_them_again(keys_after, file, old, new, again):
    assert keys_after(file, old, new) == again


def test_a_module_that_is_not_there_is_an_error():
    with pytest.raises(KeyError, match="shop/gone"):
        code.hashes_of("shop.gone")


# They keep, show and check, and decide nothing; settings stand in keys by their values. So do data and
# instructions, by the hash of what they are: whoever made them, episodes on them are the same.
MACHINERY = {"__init__", "code", "engine", "errors", "files", "progress", "store", "urls"}
MACHINERY |= {"lm.launch", "local_server", "tasks.writers"}  # the first two start processes and servers
# They say who plays under which conditions, as the keys do.
MACHINERY |= {"persona2web.experiment", "persona2web.judge.meta"}
BY_CONTENT = ("data", "settings")


def is_machinery(module: str) -> bool:
    """Whether a module's name (without the package's) stands for what no key need hold as code."""
    return module in MACHINERY or module.partition(".")[0] in BY_CONTENT


@pytest.mark.parametrize(
    "modules",
    [
        *(each.CODE for each in (offline, methods, make, train, puma_train, play, own_agent, episode)),
        *(each.CODE for each in (orion_play, baselines)),
        (*rules.CODE, *offline.CODE),
        (*orion_play.CODE, *references.CODE),
        (*orion_play.CODE, *orion_train.TEACHER),
        orion_train.TALK,
        orion_train.RL,
    ],
)
def test_every_module_that_a_deciding_one_imports_is_in_the_key(modules):
    """Also one that gives constants alone, in which nothing runs."""
    graph = grimp.build_graph("pwagents", exclude_type_checking_imports=True)
    for name in graph.modules - {"pwagents"}:
        short = name.removeprefix("pwagents.")
        if is_machinery(short) and short not in modules:
            graph.remove_module(name)
    names = graph.modules & {f"pwagents.{module}" for module in modules}  # folders of templates are none
    imported = set().union(*map(graph.find_upstream_modules, names))
    assert {module.removeprefix("pwagents.") for module in imported} <= {*modules}


def test_data_of_deciding_modules_stand_beside_them_where_keys_find_them():
    """But for rooms that show, and for data, which are in keys by their content."""
    files = {file for kind in ("yaml", "csv") for file in LIBRARY.rglob(f"*.{kind}")}
    files = {f for f in files if f.relative_to(LIBRARY).parts[0] not in ("results", "report", "data")}
    assert files and [file for file in files if not file.with_suffix(".py").exists()] == []


def executed(function, *arguments):
    """Call a function, and return its result and the library's modules whose code ran."""
    seen = set()

    def note(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(LIBRARY)) and file.endswith(".py"):  # others: templates
            path = Path(file).relative_to(LIBRARY).with_suffix("")
            seen.add(".".join(path.parts).removesuffix(".__init__"))

    threading.setprofile(note), sys.setprofile(note)
    try:
        return function(*arguments), seen
    finally:
        threading.setprofile(None), sys.setprofile(None)


# What each stores; but for the small base model, whose texts stand in its key by what they are.
STORED = {
    "03_benchmark": {"03_single_turn.jsonl", "03_methods_multi_turn.jsonl", "sasrec"},
    "05_orion_sft": {"orion.jsonl", "orion_ladder.jsonl", "orion-sft"},
    "06_orion_grpo": {"orion.jsonl", "orion-sft", "orion-grpo", "orion-ppo"},
    "04_puma": {"04_puma.jsonl", "puma-function", "puma-sft", "puma-merged", "puma-samples", "puma-dpo"},
    "09_persona2web": {"09_level_2.jsonl", "09_variants.jsonl", "09_scripts.jsonl"},
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("notebook", [*[*STORED][:2], pytest.param([*STORED][2], marks=pytest.mark.slow)])
def test_every_module_that_runs_while_a_result_is_decided_is_in_its_key(monkeypatch, tmp_path, notebook):
    """Run a notebook's cells, traced: episodes and what is made once."""
    missing, real_episodes, real_made = {}, store.episodes, store.made

    def note_missing(name, modules):
        missing.setdefault(name, set()).update(each for each in modules if not is_machinery(each))

    def episodes(file, tasks, play, facts, **options):
        def traced(*arguments):
            result, seen = executed(play, *arguments)
            note_missing(file.name, seen - {*facts["code"]})
            return result

        return real_episodes(file, tasks, traced, facts, **options)

    def made(root, name, facts, make, **options):
        def traced(folder):
            _, seen = executed(make, folder)
            note_missing(name, seen - {*facts["code"]})

        return real_made(root, name, facts, make if name == "base" else traced, **options)

    code_cells = [cell for cell in cells_of(notebook) if cell.cell_type == "code"]
    code_cells = [each for each in code_cells if "parameters" not in each.metadata.get("tags", ())]
    for name in [name for name in sys.modules if name.startswith("pwagents.")]:
        for function, traced in ((real_episodes, episodes), (real_made, made)):
            if getattr(sys.modules[name], function.__name__, None) is function:
                monkeypatch.setattr(sys.modules[name], function.__name__, traced)
    parameters = {"preset": "smoke", "output_dir": str(tmp_path)} | QUICK[notebook]
    for group in ("play", "rl"):
        if "worlds" in parameters.get(group, {}):
            parameters[group] = parameters[group] | {"worlds": []}  # tracing takes long: one world will do
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)  # other processes are not traced
    namespace = {"display": lambda shown: None}
    for cell in code_cells:
        exec(re.sub(r"globals\(\)", repr(parameters), cell.source), namespace)
    assert missing.keys() >= STORED[notebook]
    assert {name: modules for name, modules in missing.items() if modules} == {}
