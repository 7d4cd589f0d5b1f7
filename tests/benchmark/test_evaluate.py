"""One call that evaluates an agent: each kind of agent on a tiny world, what it writes, what it refuses."""

import json
import sys

import numpy as np
import pytest

from pwagents import __main__ as shell
from pwagents.benchmark.evaluate import COST, evaluate
from pwagents.embedding import DIMENSION, Embedder
from pwagents.errors import SettingsError
from pwagents.llm.chat import ChatModel, Reply
from pwagents.schema import Action, Usage
from pwagents.web.recommender import RecommendersByTime

TINY = {
    "data": {"n_users": 12, "n_products": 300, "population": 0},
    "shop": {"rec_dates": 1, "recommender": {"epochs": 1, "hidden": 8}},
}


def search(state):
    return Action(name="search_product_by_query", arguments={"query": state.instruction})


def patient(state):
    """Searches, then stops."""
    return Action(name="stop") if state.session else search(state)


class HashedWords:
    """Stands in for MiniLM, which takes seconds to load: the same text, the same vector."""

    def encode(self, texts, **_):
        vectors = [np.bincount([sum(map(ord, word)) % DIMENSION for word in text.split() or ["-"]],
                               minlength=DIMENSION) for text in texts]  # fmt: skip
        return np.array([v / np.linalg.norm(v) for v in vectors], np.float32)


@pytest.fixture(autouse=True)
def nothing_heavy(monkeypatch):
    """Neither MiniLM nor SASRec: they take seconds, and are tested elsewhere."""
    monkeypatch.setattr(Embedder, "_load_model", lambda self: HashedWords())
    monkeypatch.setattr(RecommendersByTime, "fit", lambda *_: RecommendersByTime([], []))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("evaluate")


@pytest.fixture
def play(folder):
    """``evaluate`` on a tiny world, with six tasks."""
    return lambda agent, **options: evaluate(agent, **{"tasks": 6, "output_dir": folder, **TINY, **options})


def test_a_function_stands_beside_references_with_intervals_and_its_episodes_can_be_read(play, folder):
    done = play(patient)
    assert [r.outcome for r in done.records] == ["scored"] * 6
    assert [r.task_id for r in done.records] == [task.task_id for task in done.tasks]
    rows = list(done.table.index)
    named = ("instruction alone", "content words alone", "oracle")
    assert "patient" in rows and {f"Reference: {name}" for name in named} < set(rows)
    assert done.table.loc["patient", ("overall", "steps")] == 2
    alone = done.table.loc["Reference: instruction alone", ("search", "official")]
    assert done.table.loc["patient", ("search", "official")] == alone
    cell = done.cells.loc["patient", ("overall", "official")]
    assert "±" in cell or " to " in cell, "an interval"
    assert COST not in done.table.columns.get_level_values(0), "no language model was asked"
    assert (folder / "tables" / "evaluate_patient_multi_turn.csv").exists()
    page = done.page.read_text()
    assert page.count("<details><summary>") == 6
    assert done.tasks[0].instruction.split()[-1] in done.show(0).data
    assert "patient" in str(done) and "6 test tasks, embedded world, preset smoke" in str(done)
    assert "<table" in done._repr_html_()
    assert repr(done) == str(done) and len(repr(done)) < 5000, "a shell shows no catalogue"


def test_what_cannot_be_pickled_is_played_again_and_the_note_says_so(play):
    def counting(state):
        return next(endless) or search(state)

    endless = (None for _ in range(10_000))
    for version, stored in {"": ("0 of 2", "0 of 2"), "1": ("0 of 2", "2 of 2")}.items():
        notes = [play(counting, track="single_turn", tasks=2, version=version).note for _ in range(2)]
        assert all(f"{n} episodes were stored." in note for n, note in zip(stored, notes, strict=True))
        assert all(("cannot pickle 'generator' object" in note) == (not version) for note in notes)


def test_errors_of_the_agent_count_as_0_with_their_reason(play):
    flawed = play(
        lambda state: search(state) if "the" in state.instruction else {}["brand"], tasks=6, name="flawed"
    )
    ended = [record.trajectory.end for record in flawed.records]
    assert 0 < ended.count("error") < 6
    assert f"{ended.count('error')} of 6 tasks ended in an error of the agent and count as 0" in flawed.note
    assert "KeyError: 'brand' (test_evaluate.py, line " in flawed.note
    assert all(r.grade.result_final == 0 for r in flawed.records if r.trajectory.end == "error")


def test_files_of_names_that_are_written_alike_do_not_collide(play, folder):
    names = ["A b", "A_b", "A/b", "Ärger", "漢字", "x" * 300]
    pages = {play(patient, tasks=1, name=name).page for name in names}
    assert len(pages) == len(names) and all(page.exists() for page in pages)
    assert folder / "episodes" / "A_b_multi_turn.html" in pages
    with pytest.raises(SettingsError, match="expected one that no reference has"):
        play(patient, tasks=1, name="Reference: oracle")


def test_a_chat_model_plays_by_a_method_and_its_cost_is_a_column(play, chat_server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    server = chat_server()
    options = {"method": "ReAct", "track": "single_turn", "tasks": 2}
    options["players"] = {"base_url": server.url, "user": "none"}
    done = play("openai:gpt-4o-mini", **options)
    assert done.name == "ReAct, gpt-4o-mini" and server.calls
    again = play("replay:gpt-4o-mini", **options)
    assert done.table.loc[done.name, (COST, "prompt tokens")] > 0
    assert done.table.loc[done.name, (COST, "US dollars")] > 0
    assert again.table.equals(done.table)


def test_an_agent_can_say_what_it_paid(play):
    def paying(state):
        return search(state).model_copy(update={"usage": Usage(calls=2, prompt_tokens=10, usd=0.5)})

    done = play(paying, track="single_turn")
    assert done.cells.loc["paying", (COST, "US dollars")] == "0.50000"


class Silent(ChatModel):
    """Stands in for a model on disk."""

    def __init__(self, folder):
        self.name = folder.name

    def reply(self, request):
        return Reply(text="", usage=Usage(calls=1))


def test_the_folder_of_a_trained_model_plays(play, tmp_path, monkeypatch):
    monkeypatch.setattr("pwagents.llm.make.LocalModel", Silent)
    (tmp_path / "config.json").write_text("{}")
    done = play(tmp_path, track="single_turn", tasks=1, name="mine")
    assert done.records[0].model == tmp_path.name and "mine" in done.table.index
    with pytest.raises(SettingsError, match=r"holds no config\.json"):
        play(tmp_path.parent)


def test_calls_that_could_not_be_carried_out_are_told(play):
    done = play(
        lambda state: Action(name="search_product_by_query", arguments={"query": 5}), tasks=2, name="five"
    )
    assert "20 of 20 calls could not be carried out, the first (task " in done.note


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"agent": "https://my.server/act"}, r"agent: model 'https://my.server/act'; expected .*openai:NAME"),
        ({"agent": 5}, "agent: found the int 5; expected a function from BeliefState"),
        ({"agent": patient, "track": "both"}, "track is 'both'; expected one of single_turn, multi_turn"),
        ({"agent": patient, "tasks": -1}, "tasks: found -1; expected a number"),
        ({"agent": patient, "plya": {"max_tasks": 5}}, "plya: Key 'plya' not in 'BenchmarkNotebook'"),
        ({"agent": "offline", "method": "Magic"}, "method: found 'Magic'; expected one of No memory"),
        ({"agent": "offline", "method": "ChatShop", "track": "single_turn"}, "multi-turn track alone"),
    ],
)
def test_wrong_arguments_are_refused_before_any_work(tmp_path, given, message):
    with pytest.raises(SettingsError, match=message):
        evaluate(output_dir=tmp_path, **given)
    assert not list(tmp_path.iterdir())


SHELL = """
from helper import search
from pwagents.schema import Action


def agent(state):
    return search(state)


def broken(state):
    return {}["brand"]
"""


@pytest.fixture
def files(tmp_path):
    """A folder with ``my_agent.py``, and the options of a run of it."""
    helper = "from pwagents.schema import Action\n\n\ndef search(state):\n    return Action(name='stop')\n"
    (tmp_path / "helper.py").write_text(helper)
    (tmp_path / "my_agent.py").write_text(SHELL)
    return tmp_path, ["--tasks", "1", "--output-dir", str(tmp_path / "out"), "-y", json.dumps(TINY)]


@pytest.fixture
def run(files, monkeypatch, capsys):
    """The command in this process: its status and what it prints as errors."""
    folder, options = files

    def command(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(sys, "argv", ["pwagents", "evaluate", *arguments, *options])
        for name in ("my_agent", "helper"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return shell.main(), capsys.readouterr().err

    return command


def test_an_agent_that_raises_is_one_line_with_its_place_in_the_shell(run):
    status, printed = run("my_agent.py:broken")
    (line,) = [line for line in printed.splitlines() if "Error" in line]
    assert status == 1 and "KeyError: 'brand' (" in line and line.endswith("my_agent.py, line 11)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.py:agent"], "found no file none.py; expected FILE.py:NAME"),
        (["my_agent.py:nobody"], "found no 'nobody' in my_agent.py, but "),
        (["my_agent.py:agent", "--changes", "[1]"], "changes: found '[1]'; expected names and values"),
    ],
)
def test_what_is_wrong_is_one_line_in_the_shell(run, files, arguments, message):
    if "--changes" in arguments:
        files[1][-2:] = []
    status, printed = run(*arguments)
    assert status == 1 and message in printed and len(printed.splitlines()) == 1
