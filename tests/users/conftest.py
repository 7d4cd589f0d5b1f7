"""Tasks of both sources, a shop to play in, and a judge of leaks that shares no code with the library."""

import html
import re
import unicodedata
from functools import cache

import pytest

from pwagents.data.amazon import load_amazon
from pwagents.data.synthetic import make_world
from pwagents.schema import Action, Observation, Product, Review, Step, Task
from pwagents.settings import WorldSettings
from pwagents.shop.environment import DETAILS_FUNCTION, Shop
from pwagents.shop.search import build_search_engine


@pytest.fixture(scope="session")
def world():
    return make_world(WorldSettings(n_users=30, n_products=240), seed=0)


@pytest.fixture(scope="session", params=["synthetic", "amazon"])
def source(request, project_root, benchmark):
    """A benchmark of each source; raw Amazon files are not part of the repository."""
    if request.param == "synthetic":
        return benchmark
    folder = project_root.parent / "shared" / "data" / "amazon_reviews_2023"
    if not folder.is_dir():
        pytest.skip("no raw Amazon Reviews 2023 files here")
    return load_amazon(folder, n_users=50, min_behaviors=5, max_products=100)


@pytest.fixture(scope="session")
def shop(benchmark):
    engine = build_search_engine(benchmark.products)
    return Shop(benchmark, engine, recommenders=None, embedder=None)


def is_leak(text: str, product: Product) -> bool:
    """Whether a text holds the target's id, or three consecutive words of its title or a shorter one."""
    words, title = plain_words(text), plain_words(product.title)
    n = min(3, len(title))
    runs = {tuple(title[i : i + n]) for i in range(len(title) - n + 1)} if n else set()
    has_id = product.parent_asin.lower() in "".join(words)
    return has_id or any(tuple(words[i : i + n]) in runs for i in range(len(words) - n + 1) if n)


@cache
def plain_words(text: str) -> list[str]:
    characters = unicodedata.normalize("NFKC", html.unescape(text))
    return re.findall(r"[^\W_]+", "".join(c for c in characters if unicodedata.category(c) != "Cf").lower())


def step(name: str, arguments: dict, text: str, products: tuple[str, ...] = ()) -> Step:
    action = Action(name=name, arguments=arguments)
    return Step(action=action, observation=Observation(text=text, products=products))


def talk(content: str, answer: str) -> Step:
    return step("respond", {"content": content}, answer)


def results(*asins: str) -> Step:
    return step("search_product_by_query", {"query": "lamp"}, "\n".join(asins) or "No product.", asins)


def look_up(asin: str) -> Step:
    return step(DETAILS_FUNCTION, {"product_asin": asin}, asin, (asin,))


def review(text: str) -> Step:
    return step("add_product_review", {"review": text}, "The review is published.")


LAMP = Product(
    parent_asin="B0LAMP0001",
    title="Larkspur Foldable Reading Lamp for Bed, Navy, with Clip",
    category="Home and Kitchen",
    price=37.49,
    store="Larkspur",
    features=("Bends in all directions.",),
    description=("A premium lamp for late readers.",),
    details={"Material": "Aluminum", "Item model number": "LX 20", "Light Source": "LED"},
)
PRAISE = Review(rating=4, text="Sturdy and bright, and the battery lasts. My husband sleeps on.")


def lamp_task(task_type="search", **changes):
    fields = {"instruction": "I need something for my bedroom.", "target": LAMP.parent_asin, "review": PRAISE}
    return Task(task_id="t1", user_id="ann", type=task_type, timestamp=1, **fields | changes)
