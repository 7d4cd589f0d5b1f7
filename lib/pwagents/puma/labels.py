"""What PUMA learns to write: a label for each train task (PersonalWAB, 5.2).

``published`` is what ``PUMA/prepare_param_data.py`` writes:

- search: a query that a language model (gpt-4o-mini) writes from instruction and memory, which is not cut;
- recommend: the last 30 earlier purchases, in time order, whose main category is the *target's*; where there
  are none, the target itself;
- review: what the user really wrote.

``leak_free`` is the same in kind, and knows nothing of the target: the category is that of the remembered
purchase which is closest to the instruction, and a task whose input or label tells the answer is left out.

Departure: where no language model is set, a rule writes the queries (:func:`write_queries`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pwagents.errors import NotEvaluableError
from pwagents.llm.chat import ChatModel, Request, ask_all
from pwagents.puma.memory import SEARCH, Method, Prompts, Recall, TaskMemory
from pwagents.schema import FUNCTION_OF, Product, Task
from pwagents.settings import LabelKind
from pwagents.shop.environment import BeliefState, Environment

MOST_RECOMMENDED = 30  # ids in a label, as many as the function reads


class Begun(NamedTuple):
    """A task and its belief state before the first step."""

    task: Task
    state: BeliefState

    @property
    def function(self) -> str:
        """Return the function that the task really asks for."""
        return FUNCTION_OF[self.task.type]


class Label(NamedTuple):
    """A task with the parameter to learn: a query, a review, or ids, oldest first."""

    begun: Begun
    parameter: str | tuple[str, ...]


def as_text(parameter: str | Sequence[str]) -> str:
    """Write a parameter as the paper's model does: a text, or ids joined by commas."""
    return parameter if isinstance(parameter, str) else ", ".join(parameter)


def completion_of(parameter: str | Sequence[str], recall: Recall, method: Method) -> str:
    """Write a parameter as the model of step 2 does.

    With numbers for ids, a product that the memory does not tell has none and is left out, and each product
    stands once. Empty where nothing is left.
    """
    if isinstance(parameter, str) or method.ids == "asin":
        return as_text(parameter)
    number_of = {asin: str(number) for number, asin in enumerate(recall.ids, start=1)}
    return ", ".join(number_of[asin] for asin in dict.fromkeys(parameter) if asin in number_of)


def begin_tasks(tasks: Sequence[Task], start: Callable[[Task], Environment]) -> list[Begun]:
    """Read each task's belief state before the first step; what cannot be evaluated is left out."""
    begun = []
    for task in tasks:
        try:
            begun.append(Begun(task, start(task).state))
        except NotEvaluableError:
            continue
    return begun


def make_labels(
    kind: LabelKind,
    tasks: Sequence[Begun],
    memory: TaskMemory,
    prompts: Prompts,
    model: ChatModel | None = None,
) -> tuple[list[Label], Counter]:
    """Label tasks, as published or leak-free; queries by ``model``, or by a rule.

    Returns:
        The labels, and counts by ``(type, outcome)``. The outcomes are "labelled"; "labelled, bought before":
        the target, or a product of its title, stands in the user's past, so that a label may name it; and
        where leak-free labels are left out "nothing to say", "target in the input", "target in the label".
    """
    products = memory.products
    searches = [begun.state for begun in tasks if begun.function == SEARCH]
    queries = iter(write_queries(searches, memory, prompts, model))
    labels, counts = [], Counter()
    for begun in tasks:
        task, state = begun
        if task.type == "search":
            parameter = next(queries)
        elif task.type == "recommend":
            # Published, the category is the target's; leak-free, that of the closest purchase.
            closest = [behavior.parent_asin for behavior in memory.retrieve(state)[:1]]
            known = [task.target] if kind == "published" else closest
            bought = [behavior.parent_asin for behavior in state.history]
            own = [
                asin for asin in bought for one in known if products[asin].category == products[one].category
            ]
            parameter = tuple(own[-MOST_RECOMMENDED:])
            if kind == "published":
                parameter = parameter or (task.target,)
        else:
            parameter = task.review.text
        leak = _leak(begun, parameter, products) if kind == "leak_free" else ""
        again = ", bought before" if task.type != "review" and bought_before(begun, products) else ""
        counts[task.type, leak or f"labelled{again}"] += 1
        if not leak:
            labels.append(Label(begun, parameter))
    return labels, counts


def bought_before(begun: Begun, products: Mapping[str, Product]) -> bool:
    """Return whether the target, or a product of its title, stands in the user's past."""
    names = _names(products[begun.task.target])
    return any(names & _names(products[behavior.parent_asin]) for behavior in begun.state.history)


def _leak(begun: Begun, parameter: str | tuple[str, ...], products: Mapping[str, Product]) -> str:
    """Say why a leak-free label is left out; empty where it is not."""
    task, state = begun
    if not parameter:
        return "nothing to say"
    if task.type == "review":
        # The same words may stand in an earlier review, which memory would show.
        earlier = {behavior.review.text.strip() for behavior in state.history}
        return "target in the input" * (task.review.text.strip() in earlier)
    names = _names(products[task.target])
    if any(name in state.instruction.casefold() for name in names):
        return "target in the input"
    tells = any(name in as_text(parameter).casefold() for name in names)
    return "target in the label" * (tells and not bought_before(begun, products))


def _names(product: Product) -> set[str]:
    return {product.parent_asin.casefold(), product.title.casefold()}


def write_queries(
    searches: Sequence[BeliefState], memory: TaskMemory, prompts: Prompts, model: ChatModel | None = None
) -> list[str]:
    """Return the queries to learn, as a language model writes them from instruction and memory.

    As published it gets one system message. Without a model, or where it refuses or says nothing, a rule
    writes: the word that recurs in the closest purchase's section, then the instruction. Content words of the
    instruction alone find less, and a small model copies a whole text better than chosen words of it.

    Raises:
        InfrastructureError: the model cannot be reached.
    """
    by_rule = [f"{memory.recurring(state)} {state.instruction}".strip() for state in searches]
    if model is None:
        return by_rule
    requests = []
    for state in searches:
        uncut = "|".join(memory.items(memory.retrieve(state), SEARCH))
        message = {"role": "system", "content": prompts.write_query(state.instruction, uncut)}
        requests.append(Request(messages=(message,), sampling={"temperature": 0.0}))
    replies = ask_all(model, requests, "write queries")
    written = [reply.text.strip() if reply and not reply.is_cut else "" for reply in replies]
    return [query or rule for query, rule in zip(written, by_rule, strict=True)]
