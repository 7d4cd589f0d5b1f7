"""The vocabulary of the project as types: what a benchmark holds and what an agent does.

Records are immutable and validated once, when they are made.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    StringConstraints,
)

from pwagents.errors import DataError, SettingsError

TaskType = Literal["search", "recommend", "review"]
Split = Literal["train", "test"]
Protocol = Literal["leak_free", "published"]
Outcome = Literal["scored", "infrastructure_error", "not_evaluable"]
# Why a reply of a model could not be carried out; empty where it could.
ProblemKind = Literal["", "malformed_json", "unknown_function", "wrong_arguments", "empty", "cut_off"]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Verbatim = Annotated[str, StringConstraints(pattern=r"\S")]  # not blank, with the white space at its ends

# Why an episode ended: the agent called stop; the one call of the single-turn track; the limit of steps, or
# of tokens; whoever drove it broke off; the policy's model refused to act; the agent raised an error.
End = Literal["stop", "call", "steps", "tokens", "cut_off", "refused", "error"]

TASK_TYPES: tuple[TaskType, ...] = get_args(TaskType)
# The function that each task asks for; only its well-formed calls are attempts at the task.
FUNCTION_OF: dict[TaskType, str] = {
    "search": "search_product_by_query",
    "recommend": "get_recommendations_by_history",
    "review": "add_product_review",
}


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise a SettingsError for a value that is none of a Literal's: a misspelt one must not pass."""
    if value not in get_args(choices):
        raise SettingsError(f"{name} is {value!r}; expected one of {', '.join(get_args(choices))}")


class Record(BaseModel):
    """Immutable and validated; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def join_values(value: Any) -> str:
    """Make one text of a JSON value: ``[1, "b"]`` is "1, b", ``{"a": 1}`` is "a: 1", null is empty."""
    if isinstance(value, list):
        return ", ".join(map(join_values, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {join_values(part)}" for key, part in value.items())
    return "" if value is None else str(value)


class Product(Record):
    """One item of the shop. ``category`` is what PersonalWAB's files call ``main_category``.

    Numbers and details are what the source has: an integer stays one, and details may be nested.
    """

    parent_asin: Text
    title: Verbatim
    category: Text
    price: Annotated[int | float, Field(ge=0)] | None = None  # US dollars
    store: str | None = None
    average_rating: Annotated[float, Field(ge=0, le=5)] | None = None
    rating_number: Annotated[int, Field(ge=0)] | None = None
    features: tuple[str, ...] = ()
    description: tuple[str, ...] = ()
    details: dict[str, JsonValue] = {}

    @property
    def flat_details(self) -> dict[str, str]:
        """Return the details with each value as one text."""
        return {name: join_values(value) for name, value in self.details.items()}


class Review(Record):
    """What a user said about a product: 1 to 5 stars, a title and a text (either may be empty)."""

    rating: Annotated[float, Field(ge=1, le=5)]
    title: str = ""
    text: str = ""


class Behavior(Record):
    """One entry of a user's history: a purchase and the review that came with it."""

    parent_asin: Text
    timestamp: Annotated[int, Field(gt=0)]  # milliseconds since 1970
    review: Review


class UserProfile(Record):
    """The profile that PersonalWAB publishes for a user, in its own words (Figures 10 and 11).

    Written by a language model; some values stray from the options of its prompt and are kept as they are. It
    knows the whole history, test purchases too: only as-published rows and simulated users may look at it.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    gender: str = Field(alias="Gender")
    age: str = Field(alias="Age")
    occupation: str = Field(alias="Occupation")
    price_sensitivity: str = Field(alias="Price Sensitivity")
    shopping_interest: str = Field(alias="Shopping Interest")
    brand_preference: str = Field(alias="Brand Preference")
    diversity_preference: str = Field(alias="Diversity Preference")
    interaction_complexity: str = Field(alias="Interaction Complexity")
    tone_and_style: str = Field(alias="Tone and Style")
    item_reference: str = Field(alias="Item Reference")
    focus_aspect: str = Field(alias="Focus Aspect")


class Task(Record):
    """One instruction of one user, with the truth it is graded against.

    ``target`` is the product the user really bought at ``timestamp`` and ``review`` what they really
    wrote about it. Agents never see a Task.
    """

    task_id: Text
    user_id: Text
    type: TaskType
    timestamp: Annotated[int, Field(gt=0)]
    instruction: Verbatim
    target: Text
    review: Review


@dataclass(frozen=True)
class Benchmark:
    """Products, users' behaviors in time order, and tasks by split.

    Args:
        name: the source, for tables ("synthetic", "amazon", "personalwab").
        products: by parent_asin.
        behaviors: user_id -> all behaviors of the user, the tasks' own purchases included, oldest first.
        profiles: user_id -> the profile published with the data (``personalwab`` alone).
        repairs: what was mended while reading, as "description" -> count.
        population: stranger's id -> (milliseconds, parent_asin) of what they bought, oldest first. Strangers
            have no task; the recommender learns from them.
        as_published: histories are in the order of the files, which need not be that of time.

    Raises:
        DataError: a behavior or task names an unknown product or user, a history is not in time
            order (unless ``as_published``), two tasks share an id, or a stranger is a user, bought nothing or
            an unknown product.
    """

    name: str
    products: Mapping[str, Product]
    behaviors: Mapping[str, tuple[Behavior, ...]]
    tasks: Mapping[Split, tuple[Task, ...]]
    profiles: Mapping[str, UserProfile] = field(default_factory=dict)
    repairs: Mapping[str, int] = field(default_factory=dict)
    population: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    as_published: bool = False

    def __post_init__(self):
        def require(is_so: bool, record: str, field: str, value: Any, expected: str) -> None:
            if not is_so:
                raise DataError(self.name, record, field, value, expected)

        known = "the id of a known product"
        for user, behaviors in self.behaviors.items():
            latest = 0
            for i, behavior in enumerate(behaviors):
                asin, time, where = behavior.parent_asin, behavior.timestamp, f"user {user}, behaviour {i}"
                require(asin in self.products, where, "parent_asin", asin, known)
                is_so = self.as_published or latest <= time
                require(is_so, where, "timestamp", time, "behaviours oldest first")
                latest = time
        times = Counter(task.task_id for task in self.all_tasks())
        for task in self.all_tasks():
            where = f"task {task.task_id}"
            require(task.user_id in self.behaviors, where, "user_id", task.user_id, "a user with a history")
            require(task.target in self.products, where, "target", task.target, known)
            require(times[task.task_id] == 1, where, "task_id", "the same id twice", "unique ids")
        for stranger, purchases in self.population.items():
            where = f"stranger {stranger}"
            require(stranger not in self.behaviors, where, "user_id", stranger, "no user of the benchmark")
            require(bool(purchases), where, "purchases", "none", "one at least")
            for _, asin in purchases:
                require(asin in self.products, where, "parent_asin", asin, known)

    def all_tasks(self) -> Iterator[Task]:
        for tasks in self.tasks.values():
            yield from tasks

    @cached_property
    def _first_task(self) -> dict[tuple[Split, str], int]:
        times = [((split, t.user_id), t.timestamp) for split, tasks in self.tasks.items() for t in tasks]
        return dict(sorted(times, key=itemgetter(1), reverse=True))  # the earliest one stays

    def first_task(self, user_id: str, split: Split = "test") -> int:
        """When the user's first task of the split begins (milliseconds); what lies before it may be known."""
        return self._first_task[split, user_id]

    def before(self, user_id: str, timestamp: float) -> tuple[Behavior, ...]:
        """The user's behaviors strictly before ``timestamp``, oldest first."""
        return tuple(b for b in self.behaviors[user_id] if b.timestamp < timestamp)

    def history(self, task: Task, split: Split, protocol: Protocol = "leak_free") -> tuple[Behavior, ...]:
        """What an agent may know of the user's past when it works on ``task``, oldest first.

        ``leak_free``: only what lies before the user's first task of the split, so that no answer to one task
        is seen in another. ``published``: all before the task itself, as PersonalWAB's code does.
        """
        is_leak_free = protocol == "leak_free"
        end = self._first_task[split, task.user_id] if is_leak_free else task.timestamp
        return self.before(task.user_id, end)

    def train_period(self, user_id: str) -> tuple[Behavior, ...]:
        """What lies before the user's first test task: all a model may be trained on."""
        return self.before(user_id, self._first_task.get(("test", user_id), math.inf))

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (16 hex digits) over all but name and repairs, for journals and keys."""
        digest = hashlib.sha256()
        groups = [
            ("products", [self.products[asin] for asin in sorted(self.products)]),
            *((f"user {user}", self.behaviors[user]) for user in sorted(self.behaviors)),
            *((f"split {split}", tasks) for split, tasks in sorted(self.tasks.items())),
            *((f"profile {user}", [self.profiles[user]]) for user in sorted(self.profiles)),
        ]
        for name, records in groups:
            digest.update(f"\n{name}, {len(records)}\n".encode())
            for record in records:
                digest.update(record.model_dump_json().encode())
        digest.update(repr(sorted(self.population.items())).encode())
        return digest.hexdigest()[:16]


class Usage(Record):
    """What calls of a language model cost: how many, tokens, US dollars (0 where no price is known).

    Args:
        parted: replies of a server that sent thought or calls as text, which were parted here.
    """

    calls: NonNegativeInt = 0
    prompt_tokens: NonNegativeInt = 0
    completion_tokens: NonNegativeInt = 0
    usd: NonNegativeFloat = 0.0
    parted: NonNegativeInt = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Action(Record):
    """One call of a web function, and what a language model said beside it.

    Args:
        thought: what the model wrote beside the call.
        notes: what the agent keeps for its later steps, by name. It is stored, and no model is told it.
        extras: of the model's reply (:class:`pwagents.llm.chat.Reply`), for its server alone.
        problem: why the reply holds no call (no JSON, empty, cut off), in one line for the model; else empty.
        usage: what the model's calls for this step cost; None without a model.
    """

    name: str = ""
    arguments: dict[str, Any] = {}
    thought: str = ""
    notes: dict[str, str] = {}
    extras: str = ""
    problem: str = ""
    problem_kind: ProblemKind = ""
    usage: Usage | None = None


class Observation(Record):
    """What the environment answers: a text, and the products it shows, best first.

    Args:
        verbatim: the text is what the published function returns.
    """

    text: str
    products: tuple[str, ...] = ()
    verbatim: bool = False


class Step(Record):
    """One action and what came of it, as agents see it: no grade is in it, nor anything that tells one.

    Args:
        observation: the answer; of a malformed call, its error.
        error: why the call was malformed, in one line; empty for a valid one.
        user_usage, update_usage: what the simulated user and the profile's update cost.
        user_extras: the same of the simulated user's reply. It is stored, and no agent sees it.
        profile: the contextual profile as text where this step changed it (Orion, 4.2); it is told with the
            observation.
    """

    action: Action
    observation: Observation
    error: str = ""
    error_kind: ProblemKind = ""
    user_usage: Usage | None = None
    user_extras: str = ""
    profile: str = ""
    update_usage: Usage | None = None

    @property
    def is_talk(self) -> bool:
        return self.action.name == "respond" and not self.error


class Trajectory(Record):
    """One episode on one task, with all that its grade is computed from.

    Args:
        target: the product that the user really bought.
        similarities: of each review published in a review task, in order, the cosine with the real one. It
            needs the embedding model, so it is measured when it happens.
        message: what the policy's model or the agent said where the end is "refused" or "error".
    """

    task_id: str
    user_id: str
    type: TaskType
    target: str
    steps: tuple[Step, ...]
    similarities: tuple[float, ...] = ()
    end: End = "cut_off"
    message: str = ""

    def is_attempt(self, step: Step) -> bool:
        """Whether ``step`` is a well-formed call of the function that the task asks for."""
        return step.action.name == FUNCTION_OF[self.type] and not step.error

    @property
    def usage(self) -> Usage:
        """What the agent's calls of a language model cost, without the user's and the profile's."""
        return sum((step.action.usage or Usage() for step in self.steps), Usage())
