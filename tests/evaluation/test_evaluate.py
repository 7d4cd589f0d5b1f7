"""One call that evaluates an agent: each kind of agent on a tiny world, what it remembers and is known by,
what is written of it, what ends in one line.
"""

import json
import shutil
import sys
from functools import partial

import numpy as np
import pytest

from pwagents import __main__ as shell
from pwagents import embedding, engine
from pwagents.embedding import DIMENSION
from pwagents.errors import InfrastructureError, NotEvaluableError, SettingsError
from pwagents.evaluation import testbed
from pwagents.evaluation.evaluate import COST, TRIALS, evaluate
from pwagents.schema import Action, Usage
from pwagents.shop.environment import Environment
from pwagents.shop.sasrec import RecommendersByTime
from pwagents.shop.score import grade

from ..agents.conftest import ScriptedModel
from ..personalwab_files import records, write_records

TINY = {
    "data": {"n_users": 12, "n_products": 300, "population": 0},
    "shop": {"rec_dates": 1, "recommender": {"epochs": 1}},
}


def search(state):
    return Action(name="search_product_by_query", arguments={"query": state.instruction})


def patient(state):
    """Searches, then stops."""
    return Action(name="stop") if state.session else search(state)


class Remembers:
    """Knows of which users it has played tasks, and says so."""

    def __init__(self):
        self.memory = {"users": []}

    def __call__(self, state):
        if state.session:
            return Action(name="stop")
        self.memory["users"].append(state.user_id)
        return search(state).model_copy(update={"thought": ",".join(self.memory["users"])})


class Titles:
    """Searches for the title bought last."""

    def __init__(self, products):
        self.products = products

    def __call__(self, state):
        title = self.products[state.history[-1].parent_asin].title
        return Action(name="search_product_by_query", arguments={"query": title})


def hashed_words(texts):
    """Stand in for MiniLM, which takes seconds to load: the same text, the same vector."""
    vectors = [np.bincount([sum(map(ord, word)) % DIMENSION for word in text.split() or ["-"]],
                           minlength=DIMENSION) for text in texts]  # fmt: skip
    return np.array([v / np.linalg.norm(v) for v in vectors], np.float32)


@pytest.fixture(autouse=True)
def nothing_heavy(monkeypatch):
    """Neither MiniLM nor SASRec: they take seconds, and are tested elsewhere."""
    monkeypatch.setattr(embedding, "_model", lambda max_tokens: hashed_words)
    monkeypatch.setattr(RecommendersByTime, "fit", lambda *_: RecommendersByTime([], []))
    monkeypatch.setattr(testbed, "_kept", {})


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
    assert rows.index("patient") < rows.index("Reference: oracle"), "who knows the answer stands last"
    assert done.table.loc["patient", ("overall", "steps")] == 2
    alone = done.table.loc["Reference: instruction alone", ("search", "official")]
    assert done.table.loc["patient", ("search", "official")] == alone
    cell = done.cells.loc["patient", ("overall", "official")]
    assert "±" in cell or " to " in cell, "an interval"
    assert COST not in done.table.columns.get_level_values(0), "no language model was asked"
    assert (folder / "tables" / "evaluate_patient_multi_turn_synthetic_smoke_6.csv").exists()
    page = done.page.read_text()
    assert page.count("<details><summary>") == 6
    assert done.tasks[0].instruction.split()[-1] in done.show(0).data
    assert "patient" in str(done) and "6 test tasks, embedded world, preset smoke" in str(done)
    assert "<table" in done._repr_html_()
    assert repr(done) == str(done) and len(repr(done)) < 5000, "a shell shows no catalogue"


@pytest.fixture
def played(monkeypatch):
    """The tasks of the episodes that agents of one's own play."""
    tasks, play = [], Environment.play

    def noting(environment, agent):
        tasks.append(environment.task.task_id)
        return play(environment, agent)

    monkeypatch.setattr(Environment, "play", noting)
    return tasks


def test_an_agent_is_played_anew_and_with_a_version_its_stored_episodes_are_used(play, played, tmp_path):
    def asking(state, words="?"):
        ask = Action(name="respond", arguments={"content": words})
        return Action(name="stop") if state.session else ask

    def asked(done):
        return {record.trajectory.steps[0].action.arguments["content"] for record in done.records}

    options = {"tasks": 3, "name": "a", "output_dir": tmp_path}
    changed = partial(asking, words="red")
    first, again = play(asking, **options), play(changed, **options)  # as in a cell that is changed
    assert (asked(first), asked(again), len(played)) == ({"?"}, {"red"}, 6)
    assert "All were played anew" in again.note
    of_version = [play(asking, version="1", **options) for _ in range(2)]
    assert of_version[0].records == of_version[1].records and len(played) == 9
    stored = ["0 of 3 episodes were stored", "3 of 3 episodes were stored"]
    assert all(text in done.note for text, done in zip(stored, of_version, strict=True))
    for changes in ({"version": "2"}, {"name": "b"}):
        assert stored[0] in play(changed, **{**options, "version": "1", **changes}).note
    assert len(played) == 15


def test_the_world_is_kept_for_the_next_agent_unless_its_folder_is_gone(play, tmp_path):
    first, second = (play(patient, output_dir=tmp_path / folder) for folder in ("one", "two"))
    shutil.rmtree(tmp_path / "one")
    third = play(patient, output_dir=tmp_path / "three")
    assert second.benchmark is first.benchmark and third.benchmark is not first.benchmark
    assert second.table.equals(first.table) and third.table.equals(first.table)


def test_an_engine_plays_the_same_episodes(play, ship, tmp_path, monkeypatch):
    def play_both(folder):
        own = play(Remembers, tasks=12, output_dir=folder)
        by_method = play("offline", method="InteRecAgent", tasks=12, output_dir=folder)
        return [record.trajectory for done in (own, by_method) for record in done.records]

    here = play_both(tmp_path / "here")
    ship()
    monkeypatch.setattr(engine, "use", lambda name: None)  # "local", as the preset has it
    assert play_both(tmp_path / "there") == here


def test_the_published_protocol_has_its_history_its_scorer_trials_and_the_leaderboards_file(play, tmp_path):
    def recalls(state):
        known[state.instruction] = len(state.history)
        return patient(state)

    known, file = {}, tmp_path / "results.json"
    asked = {"protocol": "published", "preset": "smoke", "output_dir": tmp_path}
    done = play(recalls, trials=3, export=file, tasks=24, **asked)
    tasks, history = done.tasks[:24], done.benchmark.history
    assert known == {task.instruction: len(history(task, "test", "published")) for task in tasks}
    assert any(known[task.instruction] > len(history(task, "test")) for task in tasks)
    first, *results = json.loads(file.read_text())
    row, official = done.table.loc["recalls"], first["results"]["overall"]
    assert [row["overall", "official"], row[TRIALS, "mean"]] == pytest.approx([official["avg_res_acc"]] * 2)
    assert row[TRIALS, "variance"] == 0 and "3 trials of 24" in done.note and "as published" in done.note
    assert (first["run_args"]["model"], len(results), len(done.records)) == ("recalls", 72, 72)
    by_model = play("offline", tasks=1, method="Random memory", trials=2, **asked)
    assert [record.params["seed"] for record in by_model.records] == [0, 1], "each trial is drawn anew"


def test_missing_official_files_are_named_with_what_brings_them(tmp_path, benchmark):
    asked = {
        "source": "personalwab",
        "protocol": "published",
        "preset": "smoke",
        "output_dir": tmp_path / "out",
    }
    files = write_records(records(benchmark), tmp_path / "files")
    for folder, lacking in ((tmp_path, "user_profiles"), (files, r"pwab\.pth")):
        with pytest.raises(ValueError, match=rf"{lacking}.*make data"):
            evaluate(patient, data_dir=str(folder), **asked)


@pytest.mark.parametrize("given", [Remembers, Remembers()], ids=["class", "object"])
def test_memory_goes_from_task_to_task_of_one_user(play, played, tmp_path, given):
    done = play(given, tasks=24, name="a", output_dir=tmp_path)
    seen = {}
    by_time = sorted(zip(done.tasks, done.records, strict=True), key=lambda pair: pair[0].timestamp)
    for task, record in by_time:
        seen[task.user_id] = seen.get(task.user_id, 0) + 1
        assert record.trajectory.steps[0].action.thought.split(",") == [task.user_id] * seen[task.user_id]
    assert max(seen.values()) > 1
    assert len(played) == len(done.tasks)


def test_a_class_may_take_the_catalogue_and_a_memory_that_cannot_be_stored_costs_its_task_alone(play):
    class Spoils(Remembers):
        def __call__(self, state):
            if not state.session and len(self.memory["users"]) == 1:
                self.memory["set"] = {1}
            return super().__call__(state)

    ends = [record.trajectory.end for record in play(Spoils, tasks=24).records]
    assert {*ends} == {"error", "stop"} and len(ends) == 24
    done = play(Titles, track="single_turn", tasks=1)
    last = done.benchmark.history(done.tasks[0], "test")[-1].parent_asin
    query = done.records[0].trajectory.steps[0].action.arguments["query"]
    assert query == done.benchmark.products[last].title


class Writes(Titles):
    def __call__(self, state):
        self.products["B1"] = None


class NoKey(Titles):
    def __init__(self):
        raise KeyError("API_KEY")


class Forgets(Remembers):
    def __call__(self, state):
        self.memory = [state.user_id]
        return Action(name="stop")


WRONG = {
    "a text": (lambda state: "search", "TypeError: the agent returned the str 'search'; expected an action"),
    "no JSON": (
        lambda state: Action(name="stop", arguments={"x": object()}),
        "the agent returned an action that cannot be stored: Object of type object is not JSON",
    ),
    "it raises": (lambda state: {}[state.instruction], "KeyError: "),
    "it ends the process": (lambda state: sys.exit(3), "SystemExit: 3"),
    "memory": (Forgets, "the agent's memory is the list "),
    "it changes the catalogue": (Writes, "TypeError: 'mappingproxy' object does not support item assignment"),
    "it cannot be made": (NoKey, "cannot be made: KeyError: 'API_KEY'"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_an_agent_with_a_mistake_is_told_in_one_line_after_three_tasks_with_nothing_stored(
    play, played, tmp_path, given, message
):
    with pytest.raises(RuntimeError) as caught:
        play(given, name="mine", output_dir=tmp_path)
    (line,) = str(caught.value).splitlines()
    assert "agent mine" in line and message in line
    assert "cannot be made" in line or "the first 3 tasks" in line
    assert len(played) == (0 if "cannot be made" in line else 3)
    assert caught.value.__cause__ is None or caught.value.__cause__.__traceback__
    assert not list(tmp_path.glob("runs/evaluate.jsonl"))


class BusyError(Exception):
    status_code = 429


@pytest.mark.parametrize("cause", [ConnectionRefusedError(), BusyError()])
def test_what_is_down_or_busy_is_tried_again_and_costs_no_task(play, played, tmp_path, cause):
    is_down = [True]

    def asking(state):
        if is_down:
            raise ValueError("no answer") from cause
        return search(state)

    for n in (4, 8):  # the first task is tried, then all three are played
        with pytest.raises(InfrastructureError, match=r"paused after 3 failures .* no answer"):
            play(asking, tasks=3, output_dir=tmp_path)
        assert len(played) == n
    is_down.clear()
    done = play(asking, tasks=3, output_dir=tmp_path)
    assert not [record for record in done.records if record.trajectory.end == "error"]


def test_a_refusal_of_the_agents_model_scores_0(play):
    def refusing(state):
        raise NotEvaluableError("content filter")

    refused = play(refusing, tasks=3).records
    ends = {(r.outcome, r.trajectory.end, grade(r.trajectory).result_final) for r in refused}
    assert ends == {("scored", "refused", 0)} and refused[0].trajectory.message.endswith(": content filter")


class Unreadable(Exception):
    def __str__(self):
        raise KeyError("text")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit("no"), "SystemExit: no"),
        (ValueError("half \ud83d"), "ValueError: half ?"),
        (Unreadable(), "Unreadable: (its message raises KeyError)"),
    ],
)
def test_an_error_on_some_tasks_scores_0_with_its_reason_and_loses_no_other(play, error, told):
    def flawed(state):
        if state.session and "the" not in state.instruction:
            raise error
        return search(state)

    done = play(flawed)
    failed = [record for record in done.records if record.trajectory.end == "error"]
    assert 0 < len(failed) < 6
    assert f"{len(failed)} of 6 tasks ended in an error of the agent and count as 0" in done.note
    assert f"{told} (test_evaluate.py, line " in done.note
    assert all(r.outcome == "scored" and len(r.trajectory.steps) == 1 for r in failed)
    assert all(grade(r.trajectory).function_accuracy == grade(r.trajectory).result_final == 0 for r in failed)
    assert all(r.trajectory.end == "steps" for r in done.records if r not in failed)


def test_files_of_names_that_are_written_alike_do_not_collide(play, folder):
    names = ["A b", "A_b", "A/b", "Ärger", "漢字", "x" * 300]
    pages = {play(patient, tasks=1, name=name).page for name in names}
    assert len(pages) == len(names) and all(page.exists() for page in pages)
    assert folder / "episodes" / "A_b_multi_turn_synthetic_smoke_1.html" in pages
    with pytest.raises(SettingsError, match="is the name of a reference row"):
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


def test_the_folder_of_a_trained_model_plays(play, tmp_path, monkeypatch):
    asked = []
    model = ScriptedModel(lambda request: asked.append(request.sampling) or "")  # in the place of one on disk
    monkeypatch.setattr("pwagents.llm.make.LocalModel", lambda folder, dtype, workers: model)
    (tmp_path / "config.json").write_text("{}")
    done = play(tmp_path, track="single_turn", tasks=1, name="mine")
    assert done.records[0].model == "scripted" and "mine" in done.table.index
    play(tmp_path, track="single_turn", tasks=1, name="mine", players={"max_new_tokens": 9})
    assert [each["max_tokens"] for each in asked] == [128, 9]  # another limit is another episode
    with pytest.raises(SettingsError, match=r"holds no config\.json"):
        play(tmp_path.parent)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"agent": "https://my.server/act"}, r"agent: model 'https://my.server/act'; expected .*openai:NAME"),
        ({"agent": patient, "output_dir": __file__}, "output_dir: no folder can be made there .*File exists"),
        ({"agent": patient, "output_dir": f"{__file__}/x"}, "output_dir: no folder .*Not a directory"),
        ({"agent": patient, "track": "both"}, "track is 'both'; expected one of single_turn, multi_turn"),
        ({"agent": patient, "tasks": -1}, "tasks: found -1; expected a number"),
        ({"agent": patient, "plya": {"max_tasks": 5}}, "plya: no such setting; did you mean 'play'"),
        ({"agent": "offline", "method": "ChatShop", "track": "single_turn"}, "multi-turn track alone"),
    ],
)
def test_wrong_arguments_are_refused_before_any_work(tmp_path, given, message):
    with pytest.raises(SettingsError, match=message):
        evaluate(**{"output_dir": tmp_path} | given)
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
        ("my_agent.py:agent", TINY, ""),
        ("my_agent.py:broken", TINY, "my_agent.py, line 10)"),
        ("none.py:agent", TINY, "found no file none.py; expected FILE.py:NAME"),
        ("my_agent.py", TINY, "my_agent.py: found no NAME of a function or class; expected FILE.py:NAME"),
        ("my_agent.py:", TINY, "expected FILE.py:NAME"),
        ("my_agent.py:nobody", TINY, "found no 'nobody' in my_agent.py, but "),
        ("my_agent.py:agent", [1], "changes: found a list; expected names and values"),
    ],
)
def test_an_agent_plays_beside_its_helper_and_what_is_wrong_is_one_line_in_the_shell(
    run, tmp_path, agent, changes, message
):
    status, printed = run(agent, json.dumps(changes))
    lines = [line for line in printed.splitlines() if "rror" in line or "found" in line]
    assert (status, len(lines)) == (bool(message), bool(message)) and message in "".join(lines)
    table = tmp_path / "out" / "tables" / "evaluate_agent_multi_turn_synthetic_smoke_1.csv"
    assert table.exists() == (not message)
