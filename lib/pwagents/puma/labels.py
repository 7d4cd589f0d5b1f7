"""Pseudo-labels for PUMA's supervised fine-tuning (PersonalWAB, 5.2): an answer to each train task.

- search: a query made of instruction and memory. The paper and its script (``PUMA/prepare_param_data.py``)
  have gpt-4o-mini write it (:class:`LlmQueryWriter`); :func:`offline_queries` does it by a rule.
- recommend: what is remembered, which is of the interest held to be asked for. The script takes the user's
  last 30 purchases of the target's main category, and the target where there are none.
- review: what the user really wrote, as in the script.

These labels follow from instruction and past alone; the script's recommendations know the target's category.
Where the target was bought before a label may name it, as an agent may that knows the past; such tasks are
counted apart. Left out is a task whose input tells what nobody can know: an instruction that names the
target, a past review that is word for word the one to write.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pwagents.agents.memory import Entry
from pwagents.errors import NotEvaluableError
from pwagents.llm.chat import ChatModel, Message, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE
from pwagents.llm.make import Models
from pwagents.progress import progress
from pwagents.puma.agent import (
    RECOMMEND,
    SEARCH,
    TaskMemory,
    call_message,
    numbers_for_ids,
    parameter_messages,
)
from pwagents.puma.recurring import recurring_word
from pwagents.puma.settings import PumaPlayers
from pwagents.rl.rollout import StartEpisode
from pwagents.schema import FUNCTION_OF, Product, Task
from pwagents.web.environment import BeliefState

Remembered = tuple[BeliefState, Sequence[Entry]]
QueryWriter = Callable[[Sequence[Remembered]], list[str]]


@dataclass(frozen=True)
class PumaTask:
    """A task as PUMA meets it: the belief state before the first step, and what is remembered for it."""

    task: Task
    state: BeliefState
    entries: tuple[Entry, ...]

    @property
    def function(self) -> str:
        return FUNCTION_OF[self.task.type]

    @property
    def messages(self) -> list[Message]:
        """The input of step 2, with the function that the task really asks for."""
        return parameter_messages(self.state, self.function, self.entries)


class Example(NamedTuple):
    """A task with the arguments it is labelled with."""

    item: PumaTask
    arguments: dict[str, Any]

    @property
    def conversation(self) -> list[Message]:
        """What the model of step 2 is fine-tuned on."""
        told = numbers_for_ids(self.arguments, self.item.entries)
        return [*self.item.messages, call_message(self.item.function, told)]


def first_states(tasks: Sequence[Task], start: StartEpisode) -> list[tuple[Task, BeliefState]]:
    """Each task with its belief state before the first step; tasks that cannot be evaluated are left out."""
    states = []
    for task in tasks:
        try:
            states.append((task, start(task).state))
        except NotEvaluableError:
            continue
    return states


def remember(tasks: Sequence[Task], start: StartEpisode, memory: TaskMemory) -> list[PumaTask]:
    """The tasks with what ``memory`` recalls for them; all texts are embedded in one go."""
    states = first_states(tasks, start)
    memory.prepare([state for _, state in states])
    bar = progress(states, desc="remember", unit="task")
    return [PumaTask(task, state, tuple(memory.recall(state, FUNCTION_OF[task.type]))) for task, state in bar]


def leak_free_labels(
    items: Sequence[PumaTask], products: Mapping[str, Product], write_queries: QueryWriter
) -> tuple[list[Example], Counter]:
    """The labels that are trained on, and what became of the tasks of each type.

    Returns:
        The examples, and counts by ``(type, outcome)``. The outcomes are "labelled"; "labelled, bought
        before": the target, or a product of its title, stands in the user's past; and of what is left out:
        "target in the input"; "target in the label", where a writer of queries knows what it cannot know;
        "nothing to say" (nothing remembered to recommend from, or an empty query).
    """
    searches = [item for item in items if item.function == SEARCH]
    queries = write_queries([(item.state, item.entries) for item in searches])
    query_of = {item.task.task_id: query for item, query in zip(searches, queries, strict=True)}
    examples, counts = [], Counter()
    for item in items:
        example = Example(item, _leak_free_arguments(item, query_of))
        outcome = _outcome(example, products)
        counts[item.task.type, outcome] += 1
        if outcome.startswith("labelled"):
            examples.append(example)
    return examples, counts


def bought_before(item: PumaTask, products: Mapping[str, Product]) -> bool:
    """Whether the target, or a product of its title, stands in the user's past."""
    names = _names(products[item.task.target])
    return any(names & _names(products[behavior.parent_asin]) for behavior in item.state.history)


def _leak_free_arguments(item: PumaTask, query_of: Mapping[str, str]) -> dict[str, Any]:
    if item.function == SEARCH:
        return {"query": query_of[item.task.task_id].strip()}
    if item.function == RECOMMEND:
        return {"product_sequence": [entry["parent_asin"] for entry in item.entries]}
    return {"review": item.task.review.text.strip()}


def _outcome(example: Example, products: Mapping[str, Product]) -> str:
    """What becomes of a task (:func:`leak_free_labels`)."""
    (value,) = example.arguments.values()
    task, state = example.item.task, example.item.state
    if not value:
        return "nothing to say"
    if task.type == "review":
        told = str(example.item.messages[-1]["content"])
        return "target in the input" if task.review.text.strip() in told else "labelled"
    names = _names(products[task.target])
    if any(name in state.instruction.casefold() for name in names):
        return "target in the input"
    if bought_before(example.item, products):
        return "labelled, bought before"
    written = value if isinstance(value, str) else " ".join(value)
    return "target in the label" if any(name in written.casefold() for name in names) else "labelled"


def _names(product: Product) -> set[str]:
    return {product.parent_asin.casefold(), product.title.casefold()}


def offline_queries(items: Sequence[Remembered]) -> list[str]:
    """Queries by a rule: the word that recurs in the memory, if any, and the instruction as it is.

    The content words of the instruction alone find less (.497 in place of .512 on the train tasks of the
    preset laptop), and a small model copies a whole text better than chosen words of it.
    """
    return [offline_query(state.instruction, entries) for state, entries in items]


def offline_query(instruction: str, entries: Sequence[Entry]) -> str:
    """The query of :func:`offline_queries`."""
    return f"{recurring_word(instruction, entries)} {instruction}".strip()


def query_writer(players: PumaPlayers, store: Path) -> QueryWriter:
    """Who writes the queries of the labels: the rule, or the model of the settings.

    Args:
        store: the file of language models' replies.
    """
    if players.label_writer == "offline":
        return offline_queries
    return LlmQueryWriter(Models(players, store)(players.label_writer))


QUERY_PROMPT = f"""\
Write the query that a customer's assistant types into the search field of an online shop: a few words, no
sentence, no punctuation. It holds what the customer asks for, and of what they leave open what their past
purchases make most likely. Reply with the query alone.

{FENCE_NOTE}"""
_QUERY_SAMPLING = {"temperature": 0.0, "max_tokens": 60}


class LlmQueryWriter:
    """Lets a language model write the queries (PersonalWAB, 5.2: ChatGPT; A.3: gpt-4o-mini-2024-07-18).

    It knows instruction and memory, as the policy will. Where it refuses or says nothing, the rule of
    :func:`offline_queries` writes the query.
    """

    def __init__(self, model: ChatModel):
        self.model = model

    def __call__(self, items: Sequence[Remembered]) -> list[str]:
        """A query for each state and its memory, in order.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        replies = ask_all(self.model, [self._request(*item) for item in items], "write queries")
        written = ["" if reply is None else " ".join(reply.text.split()).strip("\"'") for reply in replies]
        return [query or offline_queries([item])[0] for query, item in zip(written, items, strict=True)]

    def _request(self, state: BeliefState, entries: Sequence[Entry]) -> Request:
        asked = parameter_messages(state, SEARCH, entries)[-1]
        return Request(
            messages=({"role": "system", "content": QUERY_PROMPT}, asked), sampling=_QUERY_SAMPLING
        )
