"""Who learns from what under each protocol; trainings on a tiny model are found again."""

from functools import partial
from types import SimpleNamespace

import pytest

from pwagents.errors import DataError
from pwagents.puma import train as module
from pwagents.puma.labels import as_text
from pwagents.puma.memory import RECOMMEND, SEARCH
from pwagents.puma.study import (
    NO_DPO,
    NO_MEMORY,
    NO_SFT,
    PLUS,
    PUMA,
    UNTUNED,
    Study,
    load_worlds,
    make_variants,
    purchases_to_learn_from,
)
from pwagents.puma.train import (
    candidate_pairs,
    carry_out,
    choose_pair,
    choose_preferences,
    fine_tuned,
    pair_rows,
    parameter_rows,
    preferred,
    split_pairs,
    train,
)
from pwagents.results.episodes import share_of_known_ids
from pwagents.schema import Action
from pwagents.settings import PreferenceSettings
from pwagents.shop.environment import Environment

from .conftest import CIRCUMSTANCES, changed


def with_study(settings, **changes):
    return settings.changed(study=settings.study.changed(**changes))


def test_further_users_are_trained_on_and_none_of_them_is_tested(tiny, study):
    worlds = study.worlds
    trained = {task.user_id for task in worlds.train_tasks}
    assert trained and not trained & worlds.tested.behaviors.keys()
    assert {task.user_id for task in worlds.tasks} <= worlds.tested.behaviors.keys()
    for user, behaviors in worlds.tested.behaviors.items():  # the same people in both
        assert worlds.learned.behaviors[user] == behaviors
    # Without further users the tested ones are trained on; both sorts of task can be few.
    own, few = (load_worlds(with_study(tiny, training_users=0, train_tasks=n, test_tasks=4)) for n in (0, 3))
    assert own.learned is own.tested and own.train_tasks == list(own.tested.tasks["train"])
    assert (len(few.train_tasks), len(few.tasks)) == (3, 4)


def test_published_all_tasks_stay_and_all_before_a_task_may_be_known(tiny, study):
    settings = with_study(tiny, protocol="published", test_tasks=0)
    worlds = load_worlds(settings)
    assert worlds.tasks == list(worlds.tested.tasks["test"]) and worlds.n_left_out == (0, 0)
    other = Study(worlds, settings, study.base, study.prompts)
    assert other.shop.searched == other.learning_shop.searched != study.shop.searched == ""
    published = other.begun
    for each in published:
        assert each.state.history == worlds.learned.before(each.task.user_id, each.task.timestamp)
    known = {each.task.task_id: len(each.state.history) for each in published}
    assert any(known[each.task.task_id] > len(each.state.history) for each in study.begun)


def test_the_shop_to_learn_in_knows_nothing_from_the_first_train_task_on(study):
    world, bought = study.worlds.learned, purchases_to_learn_from(study.worlds)
    for user in {task.user_id for task in world.tasks["train"]}:
        first = min(world.first_task(user, "train"), study.worlds.date)
        assert bought[user] == [b.parent_asin for b in world.before(user, first)]
    (recommender,) = study.learning_shop.recommenders.recommenders
    assert {*recommender.index} <= {asin for own in bought.values() for asin in own}


def test_a_call_is_worth_what_it_reaches_in_the_shop_to_learn_in(study):
    asked = next(each for each in study.begun if each.function == SEARCH)
    queries = (study.worlds.products[asked.task.target].title, "qqq", "")  # the last one is a malformed call
    calls = [Action(name=SEARCH, arguments={"query": each}) for each in queries]
    start = partial(Environment, study.learning_shop, protocol=study.protocol, split="train")
    assert [carry_out(asked, call, start) for call in calls] == [1.0, 0.0, 0.0]


def test_every_task_pairs_the_first_of_the_best_with_the_last_of_the_worst(begun):
    for scores, chosen, rejected, outcome in CIRCUMSTANCES["pairs"]:
        pair = choose_pair(begun["query"], scores)
        assert (pair.chosen, pair.rejected, pair.outcome) == (chosen, rejected, outcome)
        assert (pair.best, pair.worst) == (max(scores.values()), min(scores.values()))
    # All settings are judged by the same held-out pairs that differ.
    pairs = [choose_pair(begun["query"], each) for each in [{"a": 1.0, "b": 0.0}, {"a": 0.5, "b": 0.5}] * 4]
    every, judges = split_pairs(pairs, PreferenceSettings(held_out=0.5))
    differing, same = split_pairs(pairs, PreferenceSettings(held_out=0.5, pairs="differing"))
    assert every == pairs[:4] and differing == pairs[:4:2] and judges == same == pairs[4::2]
    assert split_pairs(pairs, PreferenceSettings()) == (pairs, pairs[::2])  # none is held out


@pytest.fixture(scope="module")
def made(study):
    """Trainings: of step 2 for PUMA on labels, then on pairs that are all alike."""
    methods, settings = make_variants(study.settings.study), study.settings
    searches = [each for each in study.begun if each.function == SEARCH]
    pairs = [choose_pair(each, {"red mug": 1.0, "blue": 0.0}) for each in searches]
    writer = fine_tuned(study, "puma-sft", parameter_rows(study, methods[PUMA]), settings.sft)
    rows = pair_rows(study, pairs, methods[PUMA])
    improved = preferred(study, writer, rows, settings.dpo)
    return SimpleNamespace(methods=methods, writer=writer, rows=rows, improved=improved)


def test_rows_are_prompts_in_plain_text_and_bare_parameters(study, made):
    labels, rows = study.labels("leak_free")[0], parameter_rows(study, made.methods[PUMA])
    for (begun, parameter), row in zip(labels, rows, strict=True):
        assert begun.state.instruction in row["prompt"] and begun.function in row["prompt"]
        assert row["completion"] == as_text(parameter)
    # Without memory recommendations are trained all the same.
    bare = parameter_rows(study, made.methods[NO_MEMORY])
    assert [row["completion"] for row in bare] == [row["completion"] for row in rows]
    assert all("Memory: \n" in row["prompt"] for row in bare)
    numbered = [row for row in parameter_rows(study, made.methods[PLUS]) if RECOMMEND in row["prompt"]]
    assert numbered and all(n.strip().isdigit() for row in numbered for n in row["completion"].split(","))
    assert not any(asin in row["prompt"] for row in numbered for asin in study.memory.products)


def test_what_was_trained_is_found_again_and_nothing_else(study, made):
    methods, settings = made.methods, study.settings
    trainer = settings.sft.trainer | {"save_steps": 7, "report_to": "tensorboard"}
    tracked = settings.sft.changed(trainer=trainer, sharding="fsdp")
    stored, rows = changed(study, stored_runs_only=True), parameter_rows(study, methods[PUMA])
    assert fine_tuned(stored, "puma-sft", rows, tracked) == made.writer
    assert preferred(stored, made.writer, made.rows, settings.dpo) == made.improved
    with pytest.raises(DataError, match="stored_runs_only"):
        fine_tuned(stored, "puma-sft", parameter_rows(study, methods[NO_MEMORY]), settings.sft)
    other = study.with_trainings(settings.seeded(5), made.writer)  # which changes trainings alone
    assert (other.seed, other.settings.sft.seed, other.base) == (study.seed, 5, made.writer)
    assert other.base_name != study.base_name
    assert other.shop is study.shop and other.labels("published") == study.labels("published")


def test_without_sft_it_is_the_base_and_without_pairs_the_model_stays_what_it_is(study, made):
    assert preferred(study, made.writer, [], study.settings.dpo) == made.writer
    assert train(study, made.methods[UNTUNED], "as set")[1:] == (study.base, study.base)
    assert train(study, made.methods[NO_SFT], "as set").before_dpo == study.base
    assert train(study, made.methods[NO_DPO], "as set").writer == made.writer


def test_candidates_are_sampled_once_and_preferences_chosen_on_held_out_train_pairs(study, made, monkeypatch):
    puma, dpo = made.methods[PUMA], study.settings.dpo
    pairs = candidate_pairs(study, made.writer, puma, dpo)
    assert len(pairs) == dpo.train_tasks  # every task makes one
    assert candidate_pairs(changed(study, stored_runs_only=True), made.writer, puma, dpo) == pairs
    stiff = {"name": "stiff", "trainer": {"beta": 0.5}}
    tried = changed(study, dpo=dpo.changed(held_out=0.5, variants=(stiff,)))
    pairs = [choose_pair(each, {"red": 1.0, "blue": 0.0}) for each in study.begun[:8]]
    monkeypatch.setattr(module, "candidate_pairs", lambda *_: pairs)
    name, table = choose_preferences(tried, made.writer, puma)
    assert list(table["preferences"]) == ["as set", "stiff"]
    assert list(table["pairs trained on"]) == list(table["pairs judged"]) == [4, 4]
    assert name == table.loc[table["accuracy"].idxmax(), "preferences"] and table["margin"].notna().all()


def test_a_model_that_cannot_copy_ids_shows_by_the_share_of_ids_that_are_products():
    runs = {}
    for method, ids in (("PUMA", ["AX", "A", "B1", "C"]), ("PUMA+", ["A", "B"])):
        step = SimpleNamespace(action=Action(name="", arguments={"product_sequence": ids}))
        runs[method] = [SimpleNamespace(trajectory=SimpleNamespace(steps=[step]))]
    assert share_of_known_ids(runs, {"A", "B"}) == {"PUMA": 0.25, "PUMA+": 1.0}
