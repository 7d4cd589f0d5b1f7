"""A small world with its catalogue; purchases, conversations and results by hand."""

import pytest

from pwagents.data.synthetic import make_world
from pwagents.schema import Action, Behavior, Observation, Product, Review, Step
from pwagents.settings import WorldSettings


@pytest.fixture(scope="session")
def world():
    return make_world(WorldSettings(n_users=30, n_products=240), seed=0)


@pytest.fixture(scope="session")
def histories(benchmark):
    """What lies before each user's first test task."""
    return {user: benchmark.train_period(user) for user in benchmark.behaviors}


def lamp(n, **changes):
    """A product of a shop of lamps, with changes."""
    fields = {
        "parent_asin": f"B{n:03}",
        "title": f"Lumo reading lamp {'navy' if n % 2 else 'white'}",
        "category": "Home and Kitchen",
        "store": "Lumo",
        "price": 10.0 + n,
        "details": {"Color": "navy" if n % 2 else "white"},
    }
    return Product(**(fields | changes))


def bought(product, rating=5, text="", day=1):
    """A behaviour."""
    review = Review(rating=rating, text=text)
    return Behavior(parent_asin=product.parent_asin, timestamp=day * 86_400_000, review=review)


def talk(question, answer, **fields):
    """A step of conversation."""
    action = Action(name="respond", arguments={"content": question})
    return Step(action=action, observation=Observation(text=answer), **fields)


def results(products):
    """A search and what it shows."""
    action = Action(name="search_product_by_query", arguments={"query": "lamp"})
    asins = tuple(product.parent_asin for product in products)
    return Step(action=action, observation=Observation(text="\n".join(asins), products=asins))
