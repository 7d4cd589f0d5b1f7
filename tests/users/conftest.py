"""Tasks of both sources, a shop to play in, and a judge of leaks that shares no code with the library."""

import html
import re
import unicodedata
from functools import cache
from pathlib import Path

import pytest

from pwagents.data.amazon import load_amazon
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.schema import Action, Observation, Product, Step
from pwagents.web.functions import DETAILS_FUNCTION, Shop
from pwagents.web.search import build_search_engine


@pytest.fixture(scope="session")
def world_benchmark():
    return make_world(WorldConfig(n_users=30, n_products=240), seed=0).benchmark


@pytest.fixture(scope="session", params=["synthetic", "amazon"])
def source(request, project_root, world_benchmark):
    """A benchmark of each source; raw Amazon files are not part of the repository."""
    if request.param == "synthetic":
        return world_benchmark
    folder = Path(project_root).parent / "shared" / "data" / "amazon_reviews_2023"
    if not folder.is_dir():
        pytest.skip("no raw Amazon Reviews 2023 files here")
    return load_amazon(folder, n_users=50, min_behaviors=5, max_products=100)


@pytest.fixture(scope="session")
def task_of(world_benchmark):
    """The first test task of each type."""
    return {t.type: t for t in reversed(world_benchmark.tasks["test"])}


@pytest.fixture(scope="session")
def shop(world_benchmark):
    engine = build_search_engine(world_benchmark.products)
    return Shop(world_benchmark, engine, recommender=None, embedder=None)


@pytest.fixture(scope="session")
def is_leak():
    """Whether a text holds the target's id, or three consecutive words of its title or a shorter one."""

    def judge(text: str, product: Product) -> bool:
        words, title = plain_words(text), plain_words(product.title)
        n = min(3, len(title))
        runs = {tuple(title[i : i + n]) for i in range(len(title) - n + 1)} if n else set()
        has_id = product.parent_asin.lower() in "".join(words)
        return has_id or any(tuple(words[i : i + n]) in runs for i in range(len(words) - n + 1) if n)

    return judge


@cache
def plain_words(text: str) -> list[str]:
    visible = "".join(
        c for c in unicodedata.normalize("NFKC", html.unescape(text)) if unicodedata.category(c) != "Cf"
    )
    return re.findall(r"[^\W_]+", visible.lower())


def said(content: str, answer: str) -> Step:
    return Step(
        action=Action(name="respond", arguments={"content": content}), observation=Observation(text=answer)
    )


def shown(*asins: str) -> Step:
    action = Action(name="search_product_by_query", arguments={"query": "lamp"})
    return Step(
        action=action,
        observation=Observation(text="\n".join(asins) or "No product was found.", products=asins),
    )


def looked_up(asin: str) -> Step:
    action = Action(name=DETAILS_FUNCTION, arguments={"asin": asin})
    return Step(action=action, observation=Observation(text=asin, products=(asin,)))


def published(review: str) -> Step:
    action = Action(name="add_product_review", arguments={"review": review})
    return Step(action=action, observation=Observation(text="The review is published."))


@pytest.fixture(scope="session")
def exchange():
    """Makers of exchanges, by name."""
    return {"said": said, "shown": shown, "looked_up": looked_up, "published": published}
