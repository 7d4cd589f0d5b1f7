"""The shop, the web functions of PersonalWAB on it, and their JSON schemas made from their signatures.

A function's first argument is the :class:`pwagents_old.web.environment.WebEnvironment`, others are the agent's.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import ConfigDict, validate_call

from pwagents.schema import Benchmark, Observation, Product, Text, check_choice
from pwagents.embedding import Embedder
from pwagents.shop.search import SearchEngine

ObservationForm = Literal["full", "compact"]
RESULTS = 10  # products that a search or a recommendation shows

DETAILS_FUNCTION = "get_product_details_by_asin"  # RecMind's extra function (PersonalWAB, A.2)


class ProductRecommender(Protocol):
    def recommend(self, product_sequence: list[str], k: int = RESULTS) -> list[str]: ...


@dataclass(frozen=True)
class Shop:
    """What the web functions run on. Shared by all episodes and threads; nothing in it changes.

    Args:
        observation: what a result shows of a product: "full", all fields as PersonalWAB does (ten products
            are about 6,700 tokens), or "compact", one line.
    """

    benchmark: Benchmark
    search_engine: SearchEngine
    recommender: ProductRecommender
    embedder: Embedder
    observation: ObservationForm = "full"

    def __post_init__(self):
        check_choice("observation", self.observation, ObservationForm)

    def show(self, asins: list[str]) -> Observation:
        """Make an observation of products, in the given order."""
        if not asins:
            return Observation(text="No product was found.")
        form = full_text if self.observation == "full" else compact_text
        lines = [f"{i}. {form(self.benchmark.products[asin])}" for i, asin in enumerate(asins, start=1)]
        return Observation(text="\n".join(lines), products=tuple(asins))


def compact_text(product: Product) -> str:
    """Tell a product in one line."""
    price = "no price" if product.price is None else f"${product.price:.2f}"
    rating = "unrated" if product.average_rating is None else f"{product.average_rating:g} stars"
    return f"{product.parent_asin} {product.title} ({price}, {rating})"


def full_text(product: Product) -> str:
    """Tell all fields of a product, one a line."""
    shown = {
        "Title": product.title,
        "Id": product.parent_asin,
        "Average rating": product.average_rating,
        "Ratings": product.rating_number,
        "Price": None if product.price is None else f"${product.price:.2f}",
        "Store": product.store,
        "Features": " ".join(product.features),
        "Description": " ".join(product.description),
        "Details": json.dumps(product.details, ensure_ascii=False) if product.details else None,
        "Category": product.category,
    }
    return "\n".join(f"{name}: {value}" for name, value in shown.items() if value not in (None, ""))


class MalformedCallError(ValueError):
    """Arguments that fit no call, by the agent's fault; its one line is for the agent."""


FUNCTIONS: dict[str, Callable[..., Observation]] = {}  # by name


def web_function(function: Callable[..., Observation]) -> Callable[..., Observation]:
    """Let agents call ``function``, with arguments of just the types that it names."""
    FUNCTIONS[function.__name__] = validate_call(config=ConfigDict(strict=True))(function)
    return FUNCTIONS[function.__name__]


@web_function
def search_product_by_query(environment, query: Text) -> Observation:
    """Search all products of the shop. Shows the ten that match best.

    Args:
        query: What to search for, such as "wireless headphones navy".
    """
    shop = environment.shop
    return shop.show([asin for asin, _ in shop.search_engine.search(query, RESULTS)])


@web_function
def get_recommendations_by_history(environment, product_sequence: list[str]) -> Observation:
    """Recommend ten products to somebody who bought the given ones.

    Args:
        product_sequence: Product ids, oldest first, at most 30; of more, the last 30 count.
    """
    shop = environment.shop
    return shop.show(shop.recommender.recommend(product_sequence, RESULTS))


@web_function
def add_product_review(environment, review: Text) -> Observation:
    """Publish a review of the product that the user bought.

    Args:
        review: The text of the review.
    """
    # Only a review task has a real review to compare with.
    if environment.task.type == "review":
        similarity = environment.shop.embedder.cosine(review, environment.task.review.text)
        environment.similarities.append(similarity)
    return Observation(text="The review is published.")


@web_function
def get_product_details_by_asin(environment, product_asin: str) -> Observation:
    """Look up one product.

    Args:
        product_asin: The id of the product.
    """
    product = environment.shop.benchmark.products.get(product_asin)
    if product is None:
        raise MalformedCallError(f"no product has the id {product_asin!r}")
    return Observation(text=full_text(product), products=(product_asin,))


@web_function
def respond(environment, content: Text) -> Observation:
    """Say something to the user, for instance ask what is missing.

    Args:
        content: The message.
    """
    if environment.user is None:
        return Observation(text="Nobody answers.")
    reply = environment.user(environment.task, environment.state.session, content)
    environment.user_usage = reply.usage
    return Observation(text=reply.text)


@web_function
def stop(environment) -> Observation:
    """End the task."""
    environment.end = "stop"
    return Observation(text="The task has ended.")


def tool_schemas(names: tuple[str, ...]) -> list[dict]:
    """Describe functions as OpenAI tools: JSON schemas made from their signatures and docstrings."""
    from transformers.utils import get_json_schema

    # Bound to anything, a function has the signature that agents see: without the environment.
    schemas = [get_json_schema(FUNCTIONS[name].raw_function.__get__(object())) for name in names]
    for tool in schemas:
        tool["function"].pop("return", None)  # not part of OpenAI's format
    return schemas
