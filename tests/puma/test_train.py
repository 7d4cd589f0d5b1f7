"""Who learns from what under each protocol; trainings on a tiny model: they learn, and are found again."""

from copy import copy
from dataclasses import replace

import pytest

from pwagents.errors import DataError
from pwagents.lm.log import read_losses
from pwagents.puma.agent import call_of
from pwagents.puma.labels import as_text
from pwagents.puma.memory import RECOMMEND, REVIEW, SEARCH
from pwagents.puma.pairs import carry_out, choose_pair, part
from pwagents.puma.settings import NO_DPO, NO_MEMORY, NO_SFT, PLUS, PUMA, UNTUNED, PreferenceSettings
from pwagents.puma.study import PumaStudy
from pwagents.puma.train import PumaModels
from pwagents.puma.worlds import load_worlds, purchases_to_learn_from


def with_study(settings, **changes):
    return replace(settings, study=replace(settings.study, **changes))


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
    assert str(own).startswith(f"{len(own.train_tasks):,} train tasks of 8 users, 4 test tasks")
    assert (len(few.train_tasks), len(few.tasks)) == (3, 4)


def test_published_all_tasks_stay_and_all_before_a_task_may_be_known(tiny, study):
    settings = with_study(tiny, protocol="published", test_tasks=0)
    worlds = load_worlds(settings)
    assert worlds.tasks == list(worlds.tested.tasks["test"]) and worlds.n_left_out == (0, 0)
    published = PumaStudy(worlds, settings, study.base).begun
    for each in published:
        assert each.state.history == worlds.learned.before(each.task.user_id, each.task.timestamp)
    known = {each.task.task_id: len(each.state.history) for each in published}
    assert any(known[each.task.task_id] > len(each.state.history) for each in study.begun)


def test_the_shop_to_learn_in_knows_nothing_from_the_first_train_task_on(study):
    world, bought = study.worlds.learned, purchases_to_learn_from(study.worlds)
    for user in {task.user_id for task in world.tasks["train"]}:
        first = min(world.first_task(user, "train"), study.worlds.date)
        assert bought[user] == [b.parent_asin for b in world.before(user, first)]
    assert {*study.learning_shop.recommender.index} <= {asin for own in bought.values() for asin in own}


def test_labels_are_worth_what_they_reach_in_the_shop_to_learn_in(study):
    worth = study.worth_of_labels(["published", "leak_free"]).set_index(["task", "target"])
    assert list(worth.columns) == ["instruction alone", "published", "leak-free", "tasks"]
    review, search = worth.loc["review", "all"], worth.loc["search"]["tasks"]
    assert review["published"] == pytest.approx(1, abs=1e-4) and review["tasks"] > 0
    assert search["all"] == search.drop("all").sum()


def test_a_call_is_worth_the_result_accuracy_of_the_real_environment(study):
    shop, kinds = study.learning_shop, set()
    for each in study.begun[:30]:
        kinds.add(each.function)
        if each.function == SEARCH:
            title = shop.benchmark.products[each.task.target].title
            queries = (title, "qqq", "")  # a malformed call is worth nothing
            assert [carry_out(each, call_of(SEARCH, q), study.start) for q in queries] == [1.0, 0.0, 0.0]
        elif each.function == RECOMMEND:
            known = [b.parent_asin for b in each.state.history]
            rank = [*shop.recommender.recommend(known, k=10), each.task.target].index(each.task.target)
            worth = carry_out(each, call_of(RECOMMEND, known), study.start)
            assert worth == pytest.approx(max(1 - rank / 10, 0))
        else:
            own, other = (call_of(REVIEW, text) for text in (each.task.review.text, "Blue."))
            assert carry_out(each, own, study.start) == pytest.approx(1.0, abs=1e-4)
            assert carry_out(each, other, study.start) < 0.9
    assert kinds == {SEARCH, RECOMMEND, REVIEW}


@pytest.mark.parametrize(
    ("scores", "chosen", "rejected", "outcome"),
    [
        ({"a": 0.2, "b": 0.9, "c": 0.1, "d": 0.9, "e": 0.1}, "b", "e", "differs"),
        ({"a": 0.5, "b": 0.5, "c": 0.5}, "a", "c", "tie"),
        ({"a": 0.7}, "a", "a", "one text"),
    ],
)
def test_every_task_pairs_the_first_of_the_best_with_the_last_of_the_worst(
    begun, scores, chosen, rejected, outcome
):
    pair = choose_pair(begun["query"], scores)
    assert (pair.chosen, pair.rejected, pair.outcome) == (chosen, rejected, outcome)
    assert (pair.best, pair.worst) == (max(scores.values()), min(scores.values()))


def test_all_settings_are_judged_by_the_same_held_out_pairs_that_differ(begun):
    pairs = [choose_pair(begun["query"], each) for each in [{"a": 1.0, "b": 0.0}, {"a": 0.5, "b": 0.5}] * 4]
    every, judges = part(pairs, PreferenceSettings(held_out=0.5))
    differing, same = part(pairs, PreferenceSettings(held_out=0.5, pairs="differing"))
    assert every == pairs[:4] and differing == pairs[:4:2] and judges == same == pairs[4::2]
    assert part(pairs, PreferenceSettings()) == (pairs, pairs[::2])  # none is held out


@pytest.fixture(scope="module")
def models(study):
    return PumaModels(study)


@pytest.fixture(scope="module")
def methods(study):
    return study.settings.methods()


@pytest.fixture(scope="module")
def writer(models, methods):
    return models.fine_tuned(methods[PUMA])


@pytest.fixture(scope="module")
def rows(models, methods):
    """Pairs of each search, all alike."""
    searches = [each for each in models.study.begun if each.function == SEARCH]
    pairs = [choose_pair(each, {"red mug": 1.0, "blue": 0.0}) for each in searches]
    return models.preference_rows(pairs, methods[PUMA])


@pytest.fixture(scope="module")
def improved(models, writer, rows):
    return models.preferred(writer, rows, models.study.settings.dpo)


def changed(models, **changes):
    """The same study with other settings."""
    study = copy(models.study)
    study.settings = replace(study.settings, **changes)
    return PumaModels(study)


def test_every_training_learns_and_dpo_begins_at_the_fine_tuned_model(models, writer, improved):
    logs = read_losses({"function": models.identifier(), "parameter": writer, "dpo": improved})
    for _, log in logs.groupby("training"):
        assert log["loss"].iloc[-1] < log["loss"].iloc[0]
    dpo = logs[logs["training"] == "dpo"]
    assert dpo["loss"].iloc[0] == pytest.approx(0.693, abs=1e-3)  # log 2: the reference is where it starts
    assert dpo["loss"].iloc[-1] < 0.5 and dpo["rewards/accuracies"].iloc[-1] == 1.0


def test_rows_are_prompts_in_plain_text_and_bare_parameters(models, methods):
    labels, rows = models.study.labels("leak_free")[0], models.rows(methods[PUMA])
    for (begun, parameter), row in zip(labels, rows, strict=True):
        assert begun.state.instruction in row["prompt"] and begun.function in row["prompt"]
        assert row["completion"] == as_text(parameter)
    # Without memory recommendations are trained all the same.
    bare = models.rows(methods[NO_MEMORY])
    assert [row["completion"] for row in bare] == [row["completion"] for row in rows]
    assert all("Memory: \n" in row["prompt"] for row in bare)
    # Numbers take the place of ids.
    numbered = [row for row in models.rows(methods[PLUS]) if RECOMMEND in row["prompt"]]
    assert numbered and all(n.strip().isdigit() for row in numbered for n in row["completion"].split(","))
    assert not any(asin in row["prompt"] for row in numbered for asin in models.study.memory.products)


def test_what_was_trained_is_found_again_and_nothing_else(models, methods, writer, rows, improved):
    trainer = models.study.settings.sft.trainer | {"save_steps": 7, "report_to": "tensorboard"}
    other = {"sft": replace(models.study.settings.sft, trainer=trainer), "stored_runs_only": True}
    stored = changed(models, **other)
    assert stored.fine_tuned(methods[PUMA]) == writer
    assert stored.preferred(writer, rows, models.study.settings.dpo) == improved
    with pytest.raises(DataError, match="stored_runs_only"):
        stored.fine_tuned(methods[NO_MEMORY])
    # Another seed changes trainings alone.
    study, seeded = models.study, models.study.settings.seeded(5)
    other = study.with_seed(seeded, writer)
    assert (other.seed, other.settings.sft.seed, other.base) == (study.seed, 5, writer)
    assert other.shops is study.shops and other.labels("published") == study.labels("published")


def test_without_sft_it_is_the_base_and_without_pairs_the_model_stays_what_it_is(models, methods, writer):
    base = models.study.base
    assert models.fine_tuned(methods[NO_SFT]) == base
    assert models.preferred(writer, [], models.study.settings.dpo) == writer
    assert models.train(methods[UNTUNED], "as set")[1:] == (base, base)
    assert models.train(methods[NO_DPO], "as set").writer == writer


def test_candidates_are_sampled_once_and_every_task_makes_a_pair(models, methods, writer):
    config = models.study.settings.dpo
    pairs = models.pairs(writer, methods[PUMA], config)
    assert len(pairs) == config.train_tasks
    assert changed(models, stored_runs_only=True).pairs(writer, methods[PUMA], config) == pairs


def test_preferences_are_chosen_on_held_out_train_pairs(models, methods, monkeypatch):
    stiff = {"name": "stiff", "trainer": {"beta": 0.5}}
    tried = changed(models, dpo=replace(models.study.settings.dpo, held_out=0.5, variants=(stiff,)))
    pairs = [choose_pair(each, {"red": 1.0, "blue": 0.0}) for each in models.study.begun[:8]]
    monkeypatch.setattr(PumaModels, "pairs", lambda *_: pairs)
    name, table = tried.choose_preferences(methods[PUMA])
    assert list(table["preferences"]) == ["as set", "stiff"]
    assert list(table["pairs trained on"]) == list(table["pairs judged"]) == [4, 4]
    assert name == table.loc[table["accuracy"].idxmax(), "preferences"] and table["margin"].notna().all()
