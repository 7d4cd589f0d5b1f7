"""Who learns and who is tested under each protocol, and what labels are worth."""

from dataclasses import replace

import pytest

from pwagents.lm.small import make_small_model
from pwagents.puma.settings import PUMA
from pwagents.puma.study import PumaStudy
from pwagents.puma.worlds import load_worlds, purchases_to_learn_from

from .conftest import SIZE


@pytest.fixture(scope="module")
def worlds(tiny):
    return load_worlds(tiny)


@pytest.fixture(scope="module")
def study(tiny, worlds, tokenizer, tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    make_small_model(tokenizer, 0, SIZE).save_pretrained(base)
    tokenizer.save_pretrained(base)
    return PumaStudy(worlds, tiny, base)


def with_study(settings, **changes):
    return replace(settings, study=replace(settings.study, **changes))


def test_further_users_are_trained_on_and_none_of_them_is_tested(worlds):
    trained = {task.user_id for task in worlds.train_tasks}
    assert trained and not trained & worlds.tested.behaviors.keys()
    assert {task.user_id for task in worlds.tasks} <= worlds.tested.behaviors.keys()
    for user, behaviors in worlds.tested.behaviors.items():  # the same people in both
        assert worlds.learned.behaviors[user] == behaviors


def test_without_further_users_the_tested_ones_are_trained_on(tiny):
    own = load_worlds(with_study(tiny, training_users=0))
    assert own.learned is own.tested and own.train_tasks == list(own.tested.tasks["train"])
    assert str(own).startswith(f"{len(own.train_tasks):,} train tasks of")


def test_train_and_test_tasks_can_be_few(tiny):
    few = load_worlds(with_study(tiny, train_tasks=3, test_tasks=4))
    assert (len(few.train_tasks), len(few.tasks)) == (3, 4)


def test_published_all_tasks_stay_and_all_before_a_task_may_be_known(tiny, study):
    settings = with_study(tiny, protocol="published", test_tasks=0)
    worlds = load_worlds(settings)
    assert worlds.tasks == list(worlds.tested.tasks["test"]) and worlds.n_left_out == (0, 0)
    published = PumaStudy(worlds, settings, study.base)
    for each in published.begun:
        before = worlds.learned.before(each.task.user_id, each.task.timestamp)
        assert each.state.history == before
    longer = {each.task.task_id: len(each.state.history) for each in published.begun}
    assert any(longer[each.task.task_id] > len(each.state.history) for each in study.begun)


def test_the_shop_to_learn_in_knows_nothing_from_the_first_train_task_on(worlds, study):
    bought = purchases_to_learn_from(worlds)
    for user in {task.user_id for task in worlds.learned.tasks["train"]}:
        first = worlds.learned.first_task(user, "train")
        assert bought[user] == [b.parent_asin for b in worlds.learned.before(user, min(first, worlds.date))]
    known = {asin for own in bought.values() for asin in own}
    assert set(study.learning_shop.recommender.index) <= known


def test_labels_are_worth_what_they_reach_in_the_shop_to_learn_in(study):
    worth = study.worth_of_labels(["published", "leak_free"]).set_index(["task", "target"])
    assert list(worth.columns) == ["instruction alone", "published", "leak-free", "tasks"]
    review = worth.loc["review", "all"]
    assert review["published"] == pytest.approx(1, abs=1e-4) and review["tasks"] > 0
    search = worth.loc["search"]["tasks"]
    assert search["all"] == search.drop("all").sum()


def test_another_seed_changes_trainings_alone(study, tmp_path):
    seeded = study.settings.seeded(5)
    other = study.with_seed(seeded, tmp_path)
    assert (other.seed, other.settings.sft.seed, other.base) == (study.seed, 5, tmp_path)
    assert other.shops is study.shops and other.labels("published") == study.labels("published")
    assert study.settings.methods()[PUMA] == seeded.methods()[PUMA]
