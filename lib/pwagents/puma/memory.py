"""PUMA's memory and prompts (PersonalWAB, 5.1): what its two steps read.

A memory is one line of plain text. The paper ranks all of the past by MiniLM cosine with the instruction
(equation 2), takes the first hundred, tells of each the fields that the function needs, and cuts the text to
a number of tokens. So do the published ``PUMA/utils.py`` and ``PUMA/prepare_param_data.py``.

Prompts are plain text without a chat template, in our words or in those of a clone of the official
repository, with the placeholders of ``PUMA/utils.py``. Each ends with a line end; the completion is the bare
parameter or name, and the end token.

Departure: equal cosines are ordered by time, the later first (the code's order is undefined).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from pwagents.agents import published
from pwagents.agents.memory import closest_first
from pwagents.agents.messages import HISTORY, TASK_SPECIFIC
from pwagents.agents.offline import words
from pwagents.embedding import Embedder
from pwagents.llm.prompts import MARK, fill, official_prompts, published_category, write_product
from pwagents.profiles.clusters import section
from pwagents.schema import FUNCTION_OF, Behavior, Product
from pwagents.settings import Group, LabelKind
from pwagents.shop.environment import BeliefState
from pwagents.words import word_list

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEARCH, RECOMMEND, REVIEW = FUNCTION_OF["search"], FUNCTION_OF["recommend"], FUNCTION_OF["review"]
RETRIEVED = 100  # behaviours of the past, at most (the script's --mem_length)
# A word recurs that stands in so many purchases of a section, and in such a share of them.
RECURRING, RECURRING_SHARE = 2, 0.4


class Method(Group):
    """A variant of PUMA: what step 2 reads and how it learns. Without changes it is the paper's."""

    # paper: the closest of all purchases; interest (ours): of them, those of the closest one's section, the
    # finest category that pages name.
    memory: Literal["paper", "interest", "none"] = "paper"
    memory_tokens: int = 768  # that a memory is cut to
    # What a recommendation calls products by: their ids, or numbers (ours) in the order of the memory.
    ids: Literal["asin", "number"] = "asin"
    # recurring (ours): a search is told the word that recurs in the closest purchase's section.
    hint: Literal["none", "recurring"] = "none"
    labels: LabelKind = "published"  # those that know the target's category, or none of it
    # Whether labels are filled up to the greatest length, and the padding learned; the script does both.
    pad_counts: bool = False
    sft: bool = True  # whether step 2 is fine-tuned on labels
    dpo: bool = True  # whether step 2 learns from preferences


class Recall(NamedTuple):
    """What is remembered for a task.

    Args:
        text: the items, joined by "|" and cut.
        ids: of a recommendation: the products of the items that the cut left whole, in their order.
        hint: the word that recurs; empty where there is none, or the method gives no hint.
    """

    text: str
    ids: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class TaskMemory:
    """Retrieves a user's past for an instruction and tells it as text.

    Args:
        tokenizer: of the model that reads the text; it must be a fast one.
        texts: forms of a record and of an item, by the names of the published constants.
    """

    products: Mapping[str, Product]
    embedder: Embedder
    tokenizer: "PreTrainedTokenizerBase"
    texts: Mapping[str, str]
    _closest: dict[tuple[str, int, str], list[Behavior]] = field(default_factory=dict, compare=False)

    def prepare(self, states: Sequence[BeliefState]) -> None:
        """Embed instructions and records in one go, so that no :meth:`retrieve` has to wait for the model."""
        longest = {state.user_id: state.history for state in sorted(states, key=lambda s: len(s.history))}
        texts = {record for history in longest.values() for record in self._records(history)}
        self.embedder.encode(sorted(texts | {state.instruction for state in states}), show_progress=True)

    def retrieve(self, state: BeliefState) -> list[Behavior]:
        """Rank the past by closeness of the whole record to the instruction; the first hundred."""
        history = state.history
        if not history:
            return []
        # Every variant asks for the same: a user's history is known by its length.
        key = state.user_id, len(history), state.instruction
        if key not in self._closest:
            order = closest_first(state.instruction, self._records(history), self.embedder)
            self._closest[key] = [history[i] for i in order[:RETRIEVED]]
        return self._closest[key]

    def items(self, behaviors: Sequence[Behavior], function: str) -> list[str]:
        """Tell behaviours by the fields that matter to the function; uncut."""
        return [self._tell(published.TASK_SPECIFIC[function], behavior) for behavior in behaviors]

    def recall(self, state: BeliefState, function: str, method: Method) -> Recall:
        """Remember for a task what ``method`` remembers."""
        if method.memory == "none" or not state.history:
            return Recall("")
        chosen = self.retrieve(state)
        hint = self.recurring(state) if method.hint == "recurring" and function == SEARCH else ""
        if method.memory == "interest" and function != REVIEW:
            chosen = self._interest(chosen)
        if function == RECOMMEND:
            chosen = sorted(chosen, key=lambda behavior: behavior.timestamp, reverse=True)
        items = self.items(chosen, function)
        ids = [behavior.parent_asin for behavior in chosen]
        if function == RECOMMEND and method.ids == "number":
            # Each product once, called by its place.
            first = {asin: place for place, asin in reversed(list(enumerate(ids)))}
            ids = list(dict.fromkeys(ids))
            items = [items[first[asin]].replace(asin, str(n)) for n, asin in enumerate(ids, start=1)]
        # Joined and cut as published: tokenise, truncate, decode. An item is whole up to white space at its
        # end, which the last token need not cover.
        read = self.tokenizer(
            "|".join(items), truncation=True, max_length=method.memory_tokens, return_offsets_mapping=True
        )
        text = self.tokenizer.decode(read["input_ids"], skip_special_tokens=True)
        end = max((end for _, end in read["offset_mapping"]), default=0)
        n_whole = sum(len("|".join(items[: i + 1]).rstrip()) <= end for i in range(len(items)))
        return Recall(text, tuple(ids[:n_whole]) if function == RECOMMEND else (), hint)

    def recurring(self, state: BeliefState) -> str:
        """Find the word that recurs in the section of the closest purchase."""
        bought = [self.products[b.parent_asin] for b in self._interest(self.retrieve(state))]
        return recurring_word(state.instruction, bought)

    def _interest(self, retrieved: Sequence[Behavior]) -> list[Behavior]:
        """Keep those of the first one's section."""
        sections = [section(self.products[behavior.parent_asin]) for behavior in retrieved]
        return [b for b, own in zip(retrieved, sections, strict=True) if own == sections[0]]

    def _records(self, history: Sequence[Behavior]) -> list[str]:
        """Tell all of each behaviour, with its place: what the instruction is compared with."""
        texts = [self._tell("HISTORY_PROMPT", behavior, place) for place, behavior in enumerate(history)]
        # MiniLM reads as many tokens, and a word has one at least: texts that it reads alike become equal.
        return [" ".join(text.split()[: self.embedder.max_tokens]) for text in texts]

    def _tell(self, form: str, behavior: Behavior, place: int = 0) -> str:
        review = {"RATING": str(behavior.review.rating), "TEXT": behavior.review.text}
        product, time = self.products[behavior.parent_asin], str(behavior.timestamp)
        return write_product(self.texts[form], product, place, **review, TIMESTAMP=time)


def recurring_word(instruction: str, bought: Sequence[Product]) -> str:
    """Find the word that recurs the most in titles and stores, and that the instruction does not say.

    Stop words do not count; what was bought twice counts twice. Of equally frequent words it is the first.

    Returns:
        The word as it is first written there, since a model copies what it reads; empty where none recurs.
    """
    ignored = {*words(instruction), *word_list("stop_words")}
    texts = [f"{product.title} {product.store or ''}" for product in bought]
    counts = Counter(word for text in texts for word in dict.fromkeys(words(text)) if word not in ignored)
    enough = max(RECURRING, RECURRING_SHARE * len(bought))
    recurring = next((word for word, n in counts.most_common(1) if n >= enough), "")
    written = re.findall(r"[^\W\d_]+", " ".join(texts))
    return next((word for word in written if word.lower() == recurring), "")


JOB = "The instruction below asks for something in an online shop."
PARAMETER = "Write the parameter with which the tool does it."
FUNCTION = "Name the tool that does it."


def parameter_prompt(instruction: str, memory: str, tool: str) -> str:
    """Return the prompt of step 2, which the tool's parameter completes.

    Args:
        instruction: of a review, with the product's title, price, store and category behind it.
        memory: what is remembered, items joined by ``|``.
        tool: the function's name.
    """
    return (
        f"{JOB} {PARAMETER}\n### Instruction:{instruction}\n\nMemory: {memory}\n\nTool: {tool}\n\n"
        "### Tool Parameter:\n"
    )


# By the name of the published constant; the last one stands in its function generate_search_query.
OURS = {
    "HISTORY_PROMPT": HISTORY,
    **{name: TASK_SPECIFIC[function] for function, name in published.TASK_SPECIFIC.items()},
    "PRODUCT_INFO_PROMPT": """
The review is of this product.
Title: <Title>
Price: <Price>
Store: <Store>
Main Category: <Main Category>
""",
    "PARAM_PROMPT": parameter_prompt("<Instruction>", "<Memory>", "<Tool>"),
    "FUNCTION_PROMPT": f"{JOB} {FUNCTION}\n### Instruction: <Instruction>\n\n### Tool:\n",
    "QUERY": """\
A customer's assistant looks for a product in an online shop. Write what it types into the search field: what
the customer asks for, and of what they leave open what their past purchases make most likely. Reply with the
query alone.

Instruction: <Instruction>

Past purchases: <Memory>
""",
}


class Prompts(NamedTuple):
    """The forms of all texts.

    Args:
        texts: name of the published constant -> form.
        origin: what tables say of the prompts.
    """

    texts: Mapping[str, str]
    origin: str

    def identify(self, instruction: str) -> str:
        """Fill the prompt of step 1."""
        return fill(self.texts["FUNCTION_PROMPT"], {"<Instruction>": instruction})

    def parameter(
        self, state: BeliefState, function: str, recall: Recall, *, with_product: bool = True
    ) -> str:
        """Fill the prompt of step 2.

        Args:
            with_product: tell a review's product behind the instruction. The published code does so where it
                trains and in its live agent, and leaves it out in ``PUMA/test_llama.py``.
        """
        instruction, product = state.instruction, state.product
        if function == REVIEW and with_product and product is not None:
            values = {"<Title>": product.title, "<Price>": str(product.price)}
            values |= {"<Store>": str(product.store), "<Main Category>": published_category(product)}
            instruction += fill(self.texts["PRODUCT_INFO_PROMPT"], values)
        memory = f"{recall.text}\nOften: {recall.hint}" if recall.hint else recall.text
        values = {"<Instruction>": instruction, "<Memory>": memory, "<Tool>": function}
        return fill(self.texts["PARAM_PROMPT"], values)

    def write_query(self, instruction: str, memory: str) -> str:
        """Fill the prompt of the language model that writes queries to learn from."""
        values = {"<Instruction>": instruction, "<Memory>": memory}
        return fill(self.texts["QUERY"], values)


def load_prompts(repo: str = "") -> Prompts:
    """Read the words of the prompts (:func:`pwagents.llm.prompts.official_prompts`).

    Args:
        repo: the folder of a clone, seen from the project's root; an empty text for our own words.
    """
    texts, origin = official_prompts(repo)
    # Where the published query's prompt puts its values in, the reading leaves marks.
    return Prompts({name: texts.get(f"PUMA {name}", own).strip(MARK) for name, own in OURS.items()}, origin)
