"""The words of PUMA's prompts: ours, or the published ones, read from a clone of the official repository.

Both are plain text without a chat template, with the placeholders of the published ``PUMA/utils.py``.
"""

import ast
import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from pwagents.agents.conversation import HISTORY, TASK_SPECIFIC, fill
from pwagents.errors import DataError
from pwagents.lm.plain_text import function_prompt, parameter_prompt
from pwagents.project import project_path
from pwagents.puma.memory import REVIEW, Recall
from pwagents.web.environment import BeliefState

OFTEN = "Often:"  # before the word of the hint
PUBLISHED = "PUMA/utils.py"
# By the name of the published constant; the last one stands in the function of that name.
OURS = {
    **{form.name: form.text for form in (HISTORY, *TASK_SPECIFIC.values())},
    "PRODUCT_INFO_PROMPT": """
The review is of this product.
Title: <Title>
Price: <Price>
Store: <Store>
Main Category: <Main Category>
""",
    "PARAM_PROMPT": parameter_prompt("<Instruction>", "<Memory>", "<Tool>"),
    "FUNCTION_PROMPT": function_prompt("<Instruction>"),
    "generate_search_query": """\
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
                trains and leaves it out where it generates (``PUMA/test_llama.py``).
        """
        instruction, product = state.instruction, state.product
        if function == REVIEW and with_product and product is not None:
            values = {"<Title>": product.title, "<Price>": str(product.price)}
            values |= {"<Store>": str(product.store), "<Main Category>": product.category}
            instruction += fill(self.texts["PRODUCT_INFO_PROMPT"], values)
        memory = f"{recall.text}\n{OFTEN} {recall.hint}" if recall.hint else recall.text
        values = {"<Instruction>": instruction, "<Memory>": memory, "<Tool>": function}
        return fill(self.texts["PARAM_PROMPT"], values)

    def write_query(self, instruction: str, memory: str) -> str:
        """Fill the prompt of the language model that writes queries to learn from."""
        values = {"<Instruction>": instruction, "<Memory>": memory}
        return fill(self.texts["generate_search_query"], values)


def load_prompts(repo: str = "") -> Prompts:
    """Read the words of the prompts.

    Args:
        repo: the folder of a clone, seen from the project's root; an empty text for our own words.

    Raises:
        DataError: the clone's file or one of its texts is missing, or the file is no Python.
    """
    if not repo:
        return Prompts(OURS, "prompts: our own")
    file = project_path(repo) / PUBLISHED
    try:
        content = file.read_bytes()
        module = ast.parse(content)
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(file, "-", "(whole file)", error, "a clone of HongruCai/PersonalWAB") from None
    # NAME = "text" in the module; the query writer's text stands in its function.
    texts = {}
    for scope in [module, *(each for each in module.body if isinstance(each, ast.FunctionDef))]:
        for statement in scope.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
                name = ast.unparse(statement.targets[0])
                texts[name if scope is module else scope.name] = statement.value.value
    for name in OURS:
        if not isinstance(texts.get(name), str):
            raise DataError(file, "module", name, "no such text", "a string constant")
    return Prompts(texts, f"prompts: official repository ({hashlib.sha256(content).hexdigest()[:12]})")
