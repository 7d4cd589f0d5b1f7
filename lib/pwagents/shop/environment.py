"""One task in the shop: what an agent knows, what a call does to it, and the loop from instruction to end.

:class:`BeliefState` is all that an agent sees. The task, its target and what is measured stay in
:class:`Environment`; grades are computed from its trajectory (:mod:`pwagents.shop.score`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import ConfigDict, ValidationError, validate_call

from pwagents.embedding import Embedder
from pwagents.errors import InfrastructureError, NotEvaluableError, describe
from pwagents.profiles.contextual import Context, ContextualProfile, Updater
from pwagents.schema import (
    FUNCTION_OF,
    Action,
    Behavior,
    Benchmark,
    End,
    Observation,
    Product,
    Protocol,
    Split,
    Step,
    Task,
    Text,
    Trajectory,
    Usage,
    check_choice,
)
from pwagents.settings import DataSettings, ShopSettings
from pwagents.shop.search import (
    RESULTS,
    PublishedIndex,
    SearchEngine,
    build_search_engine,
    find_index,
    published_results,
    published_text,
)

if TYPE_CHECKING:  # importing it loads torch
    from pwagents.shop.sasrec import NoRecommender, Recommender, RecommendersByTime

Track = Literal["single_turn", "multi_turn"]
MAX_STEPS = 10  # of the multi-turn track
DETAILS_FUNCTION = "get_product_details_by_asin"  # RecMind's extra function (PersonalWAB, A.2)
EMPTY_PROFILE = "Wants: nothing."  # of a contextual profile that has lost its last line
# The modules that decide an episode whoever acts, for the keys of stored ones.
CODE = ("schema", "seeds", "embedding", "portable", "profiles.contextual")
CODE += ("llm.prompts", "shop.search", "shop.sasrec", "shop.environment")


@dataclass(frozen=True)
class Shop:
    """What the functions run on. All episodes and threads share it; nothing in it changes.

    Args:
        recommenders: by date; a user gets the latest that knows nothing from their first test task on.
        observation: what a result shows of a product: "full", all fields as PersonalWAB does (ten products
            are about 6,700 tokens), or "compact", one line.
        published: the recommender published with PersonalWAB, if its files are there: it was trained on the
            benchmark itself, so only the published protocol uses it.
        searched: what the search looks through, where it is as published: then it shows what the published
            function returns. Empty: texts without labels, shown as ``observation`` says.
    """

    benchmark: Benchmark
    search_engine: SearchEngine
    recommenders: "RecommendersByTime"
    embedder: Embedder
    observation: Literal["full", "compact"] = "full"
    published: "Recommender | None" = None
    searched: str = ""

    @classmethod
    def open(
        cls,
        benchmark: Benchmark,
        settings: ShopSettings,
        seed: int,
        cache: Path,
        data: DataSettings | None = None,
        protocol: Protocol = "leak_free",
    ) -> "Shop":
        """Index the products and train the recommenders, or load them from ``cache``.

        Args:
            data: where the benchmark comes from; PersonalWAB's folder may hold the published recommender and
                the published index.
            protocol: published searches that index, or one that is built here from the same text.

        Raises:
            DataError: the files of the published recommender or index are not what they should be.
        """
        from pwagents.shop.sasrec import RecommendersByTime, find_published, load_published

        engine, searched = open_search(benchmark.products, settings.search_engine, cache, data, protocol)
        dates = RecommendersByTime.fit(benchmark, settings.recommender, seed, settings.rec_dates, cache)
        files = find_published(data.folder) if data and data.source == "personalwab" else None
        published = load_published(*files, benchmark.products) if files else None
        # As many tokens as the published scorer reads of a review.
        embedder = Embedder(cache, max_tokens=512)
        return cls(benchmark, engine, dates, embedder, settings.observation, published, searched)

    def recommender(
        self, task: Task, protocol: Protocol = "leak_free", split: Split = "test"
    ) -> "Recommender | NoRecommender":
        """Return the recommender that the task's user may be given in their tasks of ``split``."""
        if protocol == "published" and self.published:
            return self.published
        return self.recommenders.at(self.benchmark.first_task(task.user_id, split))

    def facts(self, protocol: Protocol) -> dict[str, Any]:
        """Return what decides an episode besides settings and data, for the keys of stored ones."""
        published = [self.published] if protocol == "published" and self.published else []
        facts = {"recommenders": [each.name for each in published or self.recommenders.recommenders]}
        return facts | ({"searched": self.searched.partition(" (")[0]} if self.searched else {})

    def show(self, asins: Sequence[str]) -> Observation:
        """Return the observation of products, in the given order."""
        if not asins:
            return Observation(text="No product was found.")
        form = full_text if self.observation == "full" else compact_text
        lines = [f"{i}. {form(self.benchmark.products[asin])}" for i, asin in enumerate(asins, start=1)]
        return Observation(text="\n".join(lines), products=tuple(asins))

    def show_contents(self, asins: Sequence[str]) -> Observation:
        """Return the observation of a published search: the texts as they were indexed."""
        if isinstance(self.search_engine, PublishedIndex):
            texts = [self.search_engine.contents(asin) for asin in asins]
        else:
            texts = [published_text(self.benchmark.products[asin]) for asin in asins]
        return Observation(text=published_results(texts), products=tuple(asins), verbatim=True)


def open_search(
    products: Mapping[str, Product],
    engine: Literal["bm25", "pyserini"],
    cache: Path,
    data: DataSettings | None = None,
    protocol: Protocol = "leak_free",
) -> tuple[SearchEngine, str]:
    """Open the search of a protocol; return it, and :attr:`Shop.searched`.

    Published, it is PersonalWAB's index, if its files and Java are there and ``products`` are all of its own.
    """
    if protocol == "leak_free":
        return build_search_engine(products, engine, cache), ""
    folder, why = find_index(data.folder) if data and data.source == "personalwab" else None, "there is none"
    if folder is not None:
        try:
            index = PublishedIndex(folder)
            if index.size <= len(products):
                return index, f"the published index of {index.size:,} products"
            why = f"it has {index.size:,} products, and here are {len(products):,}"
        except InfrastructureError as error:
            why = str(error)
    built = build_search_engine(products, engine, cache, published_text)
    return built, f"an index built here from the published text, labels included (the published one: {why})"


def compact_text(product: Product) -> str:
    """Return a product in one line."""
    price = "no price" if product.price is None else f"${product.price:.2f}"
    rating = "unrated" if product.average_rating is None else f"{product.average_rating:g} stars"
    return f"{product.parent_asin} {product.title} ({price}, {rating})"


def full_text(product: Product) -> str:
    """Return all fields of a product, one a line."""
    shown = {
        "Title": product.title,
        "Id": product.parent_asin,
        "Average rating": product.average_rating,
        "Ratings": product.rating_number,
        "Price": None if product.price is None else f"${product.price:.2f}",
        "Store": product.store,
        "Features": " ".join(product.features),
        "Description": " ".join(product.description),
        "Details": json.dumps(product.flat_details, ensure_ascii=False) if product.details else None,
        "Category": product.category,
    }
    return "\n".join(f"{name}: {value}" for name, value in shown.items() if value not in (None, ""))


class UserReply(NamedTuple):
    """What the user says, what a language model that plays them cost, and what its server put beside it."""

    text: str
    usage: Usage | None = None
    extras: str = ""


# (the task, the session so far, what the agent says now) -> the answer. One serves all episodes and threads.
UserSimulator = Callable[[Task, tuple[Step, ...], str], UserReply]


@dataclass(frozen=True)
class BeliefState:
    """All that an agent knows at one step: the instruction, the user's past, and the session so far.

    Args:
        observation: the first words: user and instruction and, for a review, the product.
        product: the product to review; None for other tasks.
        history: the past behaviors that the protocol lets an agent see, oldest first.
        profile: the contextual profile as it is now (Orion's P_ctx,t); None for agents without one.
        context: what retrieval found before the first step, for agents with a contextual profile.
    """

    user_id: str
    instruction: str
    observation: str
    product: Product | None
    history: tuple[Behavior, ...]
    session: tuple[Step, ...] = ()
    profile: ContextualProfile | None = None
    context: Context | None = None

    @property
    def user_texts(self) -> list[str]:
        """Return what the user has said so far: the instruction and the answers."""
        return [self.instruction, *(step.observation.text for step in self.session if step.is_talk)]


Agent = Callable[[BeliefState], Action]


class Environment:
    """One agent's session on one task.

    Single-turn track: the first call ends the task (a look-up of a product's details excepted). Multi-turn
    track: up to ``MAX_STEPS`` calls; ``respond`` reaches the user and ``stop`` ends the task.

    Args:
        protocol: what the agent and its recommender may know (:meth:`Benchmark.history`).
        user: answers ``respond``; without one nobody answers.
        details: offer RecMind's look-up of a product's details, too.
        split: that the task is of, which decides what may be known.
        history: what the agent may know of the user's past, if it differs from the protocol's.
        context: what retrieval found, for agents with a contextual profile.
        update: follows the contextual profile from step to step (Orion's DPU); None keeps it as it was.

    Attributes:
        state: what the agent knows now.
        end: why the task has ended; None while it is under way.

    Raises:
        NotEvaluableError: a review task without a real review to compare with.
    """

    def __init__(
        self,
        shop: Shop,
        task: Task,
        track: Track = "single_turn",
        protocol: Protocol = "leak_free",
        user: UserSimulator | None = None,
        details: bool = False,
        *,
        split: Split = "test",
        history: Sequence[Behavior] | None = None,
        context: Context | None = None,
        update: Updater | None = None,
    ):
        check_choice("track", track, Track)
        if task.type == "review" and not task.review.text.strip():
            raise NotEvaluableError(f"task {task.task_id} has no real review to compare with")
        self.shop, self.task, self.track, self.protocol, self.user = shop, task, track, protocol, user
        self.split, self.update = split, update
        self.allowed = (*FUNCTION_OF.values(), "respond", "stop") + ((DETAILS_FUNCTION,) if details else ())
        self.end: End | None = None
        self.similarities: list[float] = []  # of published reviews with the real one
        self.user_usage: Usage | None = None
        self.user_extras: dict[int, str] = {}  # by the step: no agent may read a user's thoughts
        # The agent is given user and instruction, and what a review is to be about (PersonalWAB).
        text, product = f"User {task.user_id}: {task.instruction}", None
        if task.type == "review":
            product = shop.benchmark.products[task.target]
            text = f"{text}\n\nThe product:\n{full_text(product)}"
        if history is None:
            history = shop.benchmark.history(task, split, protocol)
        profile = context.profile if context else None
        start = (task.user_id, task.instruction, text, product, tuple(history))
        self.state = BeliefState(*start, profile=profile, context=context)

    @property
    def recommender(self) -> "Recommender | NoRecommender":
        """Return the recommender that the task's user may be given."""
        return self.shop.recommender(self.task, self.protocol, self.split)

    def step(self, action: Action) -> Step:
        """Carry out one call; a malformed one has its error as observation, which an agent can learn from.

        Raises:
            RuntimeError: the task has ended.
            Exception: what goes wrong inside the shop, as it is.
        """
        if self.end is not None:
            raise RuntimeError(f"task {self.task.task_id} has ended; begin another one")
        name, error, kind = action.name, "", ""
        self.user_usage = None
        if action.problem:
            error, kind = action.problem, action.problem_kind
        elif name not in self.allowed:
            error = f"unknown function {name!r}; the functions are {', '.join(self.allowed)}"
            kind = "unknown_function"
        else:
            try:
                observation = FUNCTIONS[name](self, **action.arguments)
            except MalformedCallError as problem:
                error, kind = str(problem), "wrong_arguments"
            except ValidationError as problem:
                if problem.title != name:  # not of the arguments: something inside the shop
                    raise
                first = problem.errors(include_url=False)[0]
                where = ".".join(map(str, first["loc"])) or "arguments"
                error, kind = " ".join(f"{name}: {where}: {first['msg']}".split()), "wrong_arguments"
        observation = Observation(text=f"Error: {error}") if error else observation
        answer = {"error": error, "error_kind": kind, "user_usage": self.user_usage}
        step = Step(action=action, observation=observation, **answer)

        # The contextual profile follows the step; if it changes, the agent reads it with the observation.
        # That nobody answered is no answer.
        before = self.state
        profile = before.profile
        if profile is not None and self.update is not None and (self.user or not step.is_talk):
            updated = self.update(profile, before.instruction, (*before.session, step))
            news = (updated.profile.describe() or EMPTY_PROFILE) if updated.profile != profile else ""
            step = step.model_copy(update={"profile": news, "update_usage": updated.usage})
            profile = updated.profile
        self.state = replace(before, session=(*before.session, step), profile=profile)

        # Looking a product up does not use up the one call of the single-turn track.
        looked_up = name == DETAILS_FUNCTION and not error
        if self.end is None and self.track == "single_turn" and not looked_up:
            self.end = "call"
        elif self.end is None and len(self.state.session) >= MAX_STEPS:
            self.end = "steps"
        return step

    def play(self, agent: Agent) -> Trajectory:
        """Let ``agent`` work on the task to the end.

        If the policy's model refuses to act, the episode ends there, with the reason.

        Raises:
            NotEvaluableError: the user or the profile's update cannot be evaluated.
        """
        while self.end is None:
            try:
                action = agent(self.state)
            except NotEvaluableError as refusal:
                return self.trajectory.model_copy(update={"end": "refused", "message": describe(refusal)})
            self.step(action)
        return self.trajectory

    @property
    def trajectory(self) -> Trajectory:
        """The episode so far; one that has not ended counts as cut off."""
        task = self.task.model_dump(include={"task_id", "user_id", "type", "target"})
        ending = {"similarities": tuple(self.similarities), "end": self.end or "cut_off"}
        steps = enumerate(self.state.session)
        steps = (s.model_copy(update={"user_extras": self.user_extras.get(i, "")}) for i, s in steps)
        return Trajectory(**task, **ending, steps=tuple(steps))


def run_episode(
    shop: Shop,
    task: Task,
    agent: Agent,
    track: Track = "single_turn",
    protocol: Protocol = "leak_free",
    user: UserSimulator | None = None,
) -> Trajectory:
    """Let ``agent`` work on ``task`` to the end; for arguments and errors see :class:`Environment`."""
    details = DETAILS_FUNCTION in getattr(agent, "functions", ())
    return Environment(shop, task, track, protocol, user, details).play(agent)


class MalformedCallError(ValueError):
    """Arguments that fit no call, by the agent's fault; its one line is for the agent."""


FUNCTIONS: dict[str, Callable[..., Observation]] = {}  # by name


def web_function(function: Callable[..., Observation]) -> Callable[..., Observation]:
    """Let agents call ``function``, with arguments of exactly the types that it names.

    Its first argument is the :class:`Environment`, the others are the agent's.
    """
    FUNCTIONS[function.__name__] = validate_call(config=ConfigDict(strict=True))(function)
    return FUNCTIONS[function.__name__]


@web_function
def search_product_by_query(environment, query: Text) -> Observation:
    """Search all products of the shop. Shows the ten that match best.

    Args:
        query: What to search for, such as "wireless headphones navy".
    """
    shop = environment.shop
    found = [asin for asin, _ in shop.search_engine.search(query, RESULTS)]
    return shop.show_contents(found) if shop.searched else shop.show(found)


@web_function
def get_recommendations_by_history(environment, product_sequence: list[str]) -> Observation:
    """Recommend ten products to somebody who bought the given ones.

    Args:
        product_sequence: Product ids, oldest first, at most 30; of more, the last 30 count.
    """
    return environment.shop.show(environment.recommender.recommend(product_sequence, RESULTS))


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
    reply = environment.user(environment.task, environment.trajectory.steps, content)
    environment.user_usage = reply.usage
    environment.user_extras[len(environment.state.session)] = reply.extras
    return Observation(text=reply.text)


@web_function
def stop(environment) -> Observation:
    """End the task."""
    environment.end = "stop"
    return Observation(text="The task has ended.")


def tool_schemas(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return functions as OpenAI tools: JSON schemas made from their signatures and docstrings."""
    from transformers.utils import get_json_schema

    # Bound to anything, a function has the signature that agents see: without the environment.
    schemas = [get_json_schema(FUNCTIONS[name].raw_function.__get__(object())) for name in names]
    for tool in schemas:
        tool["function"].pop("return", None)  # not part of OpenAI's format
    return schemas
