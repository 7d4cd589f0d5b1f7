"""The words of PUMA's prompts: ours, or the published ones of a clone of the official repository.

Both are plain text without a chat template, with the placeholders of the published ``PUMA/utils.py``. Each
ends with a line end; the completion is the bare parameter or name, and the end token.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pwagents.agents import published
from pwagents.agents.messages import HISTORY, TASK_SPECIFIC
from pwagents.llm.prompts import MARK, fill, official_prompts, published_category
from pwagents.puma.memory import REVIEW, Recall
from pwagents.shop.environment import BeliefState

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


def function_prompt(instruction: str) -> str:
    """Return the prompt of step 1, which the function's name completes."""
    return f"{JOB} {FUNCTION}\n### Instruction: {instruction}\n\n### Tool:\n"


OFTEN = "Often:"  # before the word of the hint
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
    "FUNCTION_PROMPT": function_prompt("<Instruction>"),
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
        memory = f"{recall.text}\n{OFTEN} {recall.hint}" if recall.hint else recall.text
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
