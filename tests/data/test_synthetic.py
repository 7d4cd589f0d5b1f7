"""The embedded world: its size, its language, its knobs, and that its truth stays apart."""

import re

import pytest

from pwagents.data.synthetic import make_population, make_world
from pwagents.data.synthetic.shop import domains
from pwagents.settings import WorldSettings

SMALL = WorldSettings(n_users=60, n_products=400)


@pytest.fixture(scope="module")
def world():
    return make_world(SMALL, seed=0)


@pytest.mark.parametrize(("seed", "content_hash"), [(0, "82a7d28dd500b4b8"), (1, "770b5f27c93594a8")])
def test_a_seed_makes_the_world_on_which_all_numbers_rest(seed, content_hash):
    """A draw more, less or moved changes it, and with it every table of the embedded world."""
    assert make_world(SMALL, seed).benchmark.content_hash == content_hash


def test_a_user_is_the_same_however_many_others_there_are(world):
    fewer = make_world(SMALL.model_copy(update={"n_users": 3}), seed=0)
    assert fewer.benchmark.behaviors["U0002"] == world.benchmark.behaviors["U0002"]


def test_strangers_buy_in_the_same_shop_before_anybody_has_a_task(world):
    strangers = make_population(SMALL, 40, seed=0)
    assert len(strangers) == 40 and not strangers.keys() & world.benchmark.behaviors.keys()
    first_task = min(task.timestamp for task in world.benchmark.all_tasks())
    for bought in strangers.values():
        assert list(bought) == sorted(bought) and max(time for time, _ in bought) < first_task
        assert {asin for _, asin in bought} <= world.benchmark.products.keys()
    two = dict(list(strangers.items())[:2])
    assert make_population(SMALL.model_copy(update={"n_users": 1}), 2, seed=0) == two
    assert make_population(SMALL, 2, seed=1) != two


@pytest.mark.parametrize(("repurchase", "least", "most"), [(0.0, 0.0, 0.0), (0.5, 0.3, 0.5)])
def test_a_dial_says_how_often_a_product_is_bought_again(repurchase, least, most):
    """At 0 nothing is bought twice, by users or strangers: the control in which memory can name no target."""
    config = WorldSettings(n_users=40, repurchase=repurchase)
    bought = [[b.parent_asin for b in own] for own in make_world(config, 0).benchmark.behaviors.values()]
    bought += [[asin for _, asin in own] for own in make_population(config, 20, seed=0).values()]
    again = sum(len(own) - len(set(own)) for own in bought) / sum(map(len, bought))
    assert least <= again <= most


def test_history_lies_strictly_before_tasks_and_nobodys_future_is_used(world):
    benchmark = world.benchmark
    first_test = min(task.timestamp for task in benchmark.tasks["test"])
    for task in benchmark.tasks["test"]:
        history = benchmark.history(task, "test")
        assert history and all(b.timestamp < first_test for b in history)
        assert benchmark.train_period(task.user_id) == history


def test_stated_values_occur_in_the_instruction_and_others_are_not_given_away(world):
    brands = {brand for domain in domains() for brand in domain.values["brand"]}
    for task in world.benchmark.all_tasks():
        truth = world.truth.tasks.get(task.task_id)
        if truth is None or task.type == "recommend":
            continue
        words = set(re.findall(r"\w+", task.instruction))
        for slot in truth.stated:
            assert set(truth.wants[slot].split()) <= words
        if "brand" not in truth.stated:
            assert not words & brands


@pytest.mark.parametrize(
    ("change", "message"),
    [({"interests": (2, 50)}, "interests goes to 50"), ({"n_products": 10_000_000}, "at most")],
)
def test_impossible_worlds_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        make_world(SMALL.model_copy(update=change), seed=0)
