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


def test_an_error_on_some_tasks_scores_0_with_its_reason_and_loses_no_other(play):
    def flawed(state):
        is_wrong = state.session and "the" not in state.instruction
        return sys.exit("no") if is_wrong else search(state)

    done = play(flawed)
    failed = [record for record in done.records if record.trajectory.end == "error"]
    assert 0 < len(failed) < 6
    assert f"{len(failed)} of 6 tasks ended in an error of the agent and count as 0" in done.note
    assert "SystemExit: no (test_evaluate.py, line " in done.note
    assert all(r.outcome == "scored" and len(r.trajectory.steps) == 1 for r in failed)
    assert all(r.grade.function_accuracy == r.grade.result_final == 0 for r in failed)
    assert all(r.trajectory.end == "steps" for r in done.records if r not in failed)


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


def test_what_an_agent_paid_and_its_calls_that_could_not_be_carried_out_are_told(play):
    def paying(state):
        usage = Usage(calls=2, prompt_tokens=10, usd=0.5)
        return Action(name="search_product_by_query", arguments={"query": 5}, usage=usage)

    done = play(paying, tasks=2)
    assert done.cells.loc["paying", (COST, "US dollars")] == "5.00000"
    assert "20 of 20 calls could not be carried out, the first (task " in done.note


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


def agent(state):
    return search(state)


def broken(state):
    return {}["brand"]
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The command beside ``my_agent.py``, in this process: its status and what it prints as errors."""
    helper = "from pwagents.schema import Action\n\n\ndef search(state):\n    return Action(name='stop')\n"
    (tmp_path / "helper.py").write_text(helper)
    (tmp_path / "my_agent.py").write_text(SHELL)

    def command(agent, changes):
        options = ["--tasks", "1", "--output-dir", str(tmp_path / "out"), "--changes", changes]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(sys, "argv", ["pwagents", "evaluate", agent, *options])
        for name in ("my_agent", "helper"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return shell.main(), capsys.readouterr().err

    return command


@pytest.mark.parametrize(
    ("agent", "changes", "message"),
    [
        ("my_agent.py:broken", TINY, "my_agent.py, line 10)"),
        ("none.py:agent", TINY, "found no file none.py; expected FILE.py:NAME"),
        ("my_agent.py:nobody", TINY, "found no 'nobody' in my_agent.py, but "),
        ("my_agent.py:agent", [1], "changes: found '[1]'; expected names and values"),
    ],
)
def test_what_is_wrong_is_one_line_in_the_shell(run, agent, changes, message):
    status, printed = run(agent, json.dumps(changes))
    (line,) = [line for line in printed.splitlines() if "rror" in line or "found" in line]
    assert status == 1 and message in line
    assert "broken" not in agent or "KeyError: 'brand' (" in line


def test_an_agent_beside_its_helper_plays_in_the_shell(run, tmp_path):
    assert run("my_agent.py:agent", json.dumps(TINY))[0] == 0
    assert (tmp_path / "out" / "tables" / "evaluate_agent_multi_turn.csv").exists()
