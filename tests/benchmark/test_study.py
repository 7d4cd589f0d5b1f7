"""Notebook 03's study on a small world: tasks, shops, players, records."""

import json
from collections import Counter
from dataclasses import replace

from pwagents.notebook import Run
from pwagents.results.tables import recommender_name
from pwagents.schema import FUNCTION_OF, Behavior, Product, Review
from pwagents.settings import MethodPlayers
from pwagents.shop.sasrec import CHECKPOINT
from pwagents_old.benchmark import analyses_03 as analyses
from pwagents_old.benchmark.plain import PLAIN, play_plain
from pwagents_old.benchmark.study import Study

from ..agents.conftest import ScriptedModel, call
from ..clone import make_clone


def stored(settings, name):
    lines = (settings.output_dir / "runs" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_an_engine_plays_the_same_episodes(study, ship, monkeypatch, tmp_path):
    def played():
        runs = [study.play(method, "multi_turn") for method in ("PUMA (prompted)", "InteRecAgent")]
        runs += play_plain(study, "leak_free").values()
        return [record.trajectory for records in runs for record in records]

    here = played()
    monkeypatch.setattr(study, "folder", tmp_path)
    ship()
    assert played() == here


def test_only_the_published_protocol_knows_the_future(study, monkeypatch):
    behaviors, shop = study.benchmark.behaviors, study.shop
    user = max(behaviors, key=lambda user: len(behaviors[user]))
    task = [task for task in study.benchmark.tasks["test"] if task.user_id == user][-1]
    assert len(study.history(task)) < len(study.history(task, "published"))
    # Without the published files the recommender is ours under both protocols.
    ours, published = (study.environment(task, protocol=p) for p in ("leak_free", "published"))
    assert ours.recommender is published.recommender and shop.facts("published") == {}
    assert "leak-free" in recommender_name(shop, "bce", "published")
    monkeypatch.setattr(study, "shop", replace(shop, published=object(), published_hashes=(CHECKPOINT,)))
    shop = study.shop
    assert study.environment(task, protocol="published").recommender is shop.published
    assert study.environment(task).recommender is ours.recommender
    assert shop.facts("published") == {"published": (CHECKPOINT,)} and shop.facts("leak_free") == {}
    assert "checkpoint" in recommender_name(shop, "bce", "published")
    assert recommender_name(shop, "bce", "leak_free") == "SASRec trained here, bce loss"


def test_the_plain_agent_plays_every_task_with_each_memory(study, settings):
    assert set(study.sample) < set(study.tasks) and (len(study.tasks), len(study.sample)) == (30, 6)
    runs = play_plain(study, "leak_free")
    assert list(runs) == list(PLAIN)
    assert all([r.task_id for r in records] == [t.task_id for t in study.tasks] for records in runs.values())
    assert len(stored(settings, "03_single_turn")) == 5 * 30
    play_plain(study, "leak_free")
    assert len(stored(settings, "03_single_turn")) == 5 * 30, "stored episodes are not played again"
    params = stored(settings, "03_single_turn")[0]["params"]
    assert params["shop"]["recommender"]["epochs"] == 1 and params["protocol"] == "leak_free"


def test_what_was_bought_between_test_tasks_is_seen_as_published_alone(study, settings, tmp_path):
    # A purchase with a word of its own: after the user's first test task, and before the last one.
    benchmark = study.benchmark
    counts = Counter(task.user_id for task in benchmark.tasks["test"])
    user = max(counts, key=counts.get)
    by_time = sorted(benchmark.tasks["test"], key=lambda task: task.timestamp)
    first, *_, task = (task for task in by_time if task.user_id == user)
    assert first.timestamp + 1 < task.timestamp
    lamp = Product(parent_asin="B0ZORB", title="Zorblax", category="Home")
    review = Review(rating=5.0, text="Zorblax!")
    bought = Behavior(parent_asin="B0ZORB", timestamp=task.timestamp - 1, review=review)
    past = sorted([*benchmark.behaviors[user], bought], key=lambda behavior: behavior.timestamp)
    products = {**benchmark.products, "B0ZORB": lamp}
    benchmark = replace(benchmark, products=products, behaviors={**benchmark.behaviors, user: (*past,)})
    files = {"official_repo": str(make_clone(tmp_path)), "functions_file": str(tmp_path / "functions.json")}
    functions = {task.instruction: [FUNCTION_OF[task.type]] for task in by_time}
    (tmp_path / "functions.json").write_text(json.dumps(functions))
    protocols = ("published", "leak_free")
    play = settings.play.changed(protocols=protocols, **files, max_tasks=0, method_tasks=0)
    study = Study(benchmark, settings.changed(play=play, output_dir=tmp_path), Run("03", tmp_path, None))
    study.sample = [task]
    assert [cell.protocol for cell in study.roles.cells] == ["published", "leak_free"]

    def act(request):
        if request.messages[0]["role"] == "user":  # PUMA's first step
            return FUNCTION_OF[task.type]
        return call("stop") if len(request.messages) > 2 else call("nothing")

    model = ScriptedModel(act)
    for cell in study.roles.cells:
        study.roles.policies = {cell.policy: model}
        for track in ("single_turn", "multi_turn"):
            for method in study.roles.methods(track):
                if method == "No memory":
                    continue
                start = len(model.requests)
                records = study.play(method, track, cell=cell)
                told = str([request.messages for request in model.requests[start:]])
                is_recalled = method not in ("Chain of thought", "ChatShop")
                assert ("Zorblax" in told) == (cell.protocol == "published" and is_recalled), (method, cell)
                assert {record.params["protocol"] for record in records} == {cell.protocol}
    # What the recommender is given by the plain agent, which repeats what the memory recalls.
    study.tasks, study.roles.classifier = [task], lambda instruction: FUNCTION_OF["recommend"]
    for protocol in ("published", "leak_free"):
        (record,) = play_plain(study, protocol)["Plain, last memory"]
        given = record.trajectory.steps[0].action.arguments["product_sequence"]
        assert ("B0ZORB" in given) == (protocol == "published")


def test_rows_of_several_cells_say_which(study_of, settings):
    play = settings.play.changed(protocols=("published", "leak_free"), published_items=(10, 0))
    players = MethodPlayers(policy="replay:a", more_policies=("replay:b",))
    study = study_of(settings.changed(play=play, players=players))
    rows = analyses.rows_of(study, {cell: {"ReAct": []} for cell in study.roles.cells})
    cells = ("as published, 10 items", "as published, the paper's items", "leak-free")
    assert list(rows) == [f"ReAct, {model}, {cell}" for model in "ab" for cell in cells]
    plain = study_of(settings.changed(play=play.changed(published_items=(0,))))
    names = [" ".join(name) for name in analyses.name_cells(plain).values()]
    assert names == ["as published", "leak-free"]  # items tell published cells alone from each other
    assert analyses.backbone(study) == "a, as published, 10 items"
    assert analyses.backbone(plain, plain.roles.cells[1]) == "offline policy, leak-free"
    lengths = [study.roles.setup("multi_turn", cell=cell).length for cell in study.roles.cells[:3]]
    assert lengths == [10, None, None]
    note = analyses.note(study)
    assert "as published and leak-free" in note and "no published checkpoint" in note
    roles = study.roles.estimate(11)
    assert list(roles["role"][:2]) == ["a, single-turn", "a, multi-turn"]
    assert "b, multi-turn" in set(roles["role"]) and roles["calls"].min() > 0
    assert study_of(settings).roles.estimate(11).empty, "no language model plays"


def test_seeds_are_runs_of_their_own(study, settings):
    frame = analyses.over_seeds(study, ["Random memory"])
    assert sorted(set(frame["seed"])) == [0, 1] and set(frame["method"]) == {"Random memory"}
    assert {r["params"]["run_seed"] for r in stored(settings, "03_methods_multi_turn")} == {0, 1}
