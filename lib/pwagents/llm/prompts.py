"""Prompts with places for values, and the prompts published with PersonalWAB, read from a clone of its code.

The published ones (HongruCai/PersonalWAB) are not part of this project. The clone's files are parsed, never
executed. Of a text that a function builds, its pieces are taken, with :data:`MARK` where a value goes.
Products and profiles are written as the published code writes them.
"""

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from pwagents.errors import DataError
from pwagents.schema import Product, UserProfile
from pwagents.settings import project_path

MARK = "\0"
_AGENTS, _ENVS = "PersonalWAB/agents", "PersonalWAB/envs"
_CALLS, _REACT = f"{_AGENTS}/gpt_function_calling_agent.py", f"{_AGENTS}/chat_react_agent.py"
_USER, _FUNCTIONS = f"{_ENVS}/user.py", f"{_ENVS}/pwab/functions"
# The published functions in their order; each has a description for OpenAI.
FUNCTIONS = (
    *("search_product_by_query", "get_recommendations_by_history", "add_product_review"),
    *("get_product_details_by_asin", "stop"),
)
# The fine-tuned PUMA has its own forms, called "PUMA ...".
PUMA = "PUMA/utils.py"
PUMA_FORMS = (
    *("HISTORY_PROMPT", "TS_SEARCH_PROMPT", "TS_REC_PROMPT", "TS_REV_PROMPT"),
    *("PRODUCT_INFO_PROMPT", "PARAM_PROMPT", "FUNCTION_PROMPT"),
)
CONSTANTS = {  # file -> its constants that are used; NAME=CONSTANT if the constant's own name is taken
    f"{_ENVS}/pwab/__init__.py": ("SYS_PROMPT_SINGLE", "SYS_PROMPT_MULTI"),
    f"{_AGENTS}/utils.py": (
        *("HISTORY_PROMPT", "MINI_HISTORY_PROMPT", "REACT_INST", "REFLECTION_INST"),
        *("RECMIND_ST_PROMPT", "RECMIND_MT_PROPMT"),  # misspelt there
        *("INTEREC_PROMPT", "INTEREC_MEMORY_PROMPT", "INTEREC_UPDATE_MEM_PROMPT"),
        *("TS_SEARCH_PROMPT", "TS_REC_PROMPT", "TS_REV_PROMPT", "TS_AGENT_PROMPT", "TS_AGENT_MT_PROMPT"),
    ),
    _USER: (
        *("USER_PROMPT", "USER_PROMPT_REVIEW", "PROFILE_PROMPT", "PRODUCT_PROMPT"),
        *("PRICE", "DIVERSITY", "INTERACTION"),
    ),
    PUMA: tuple(f"PUMA {name}={name}" for name in PUMA_FORMS),
    "scripts/tools/init_interecagent_memory.py": ("FIRST_HISTORY=PRODUCT_PROMPT", "USER_PROFILE_PROMPT"),
    **{f"{_FUNCTIONS}/{name}.py": (f"{name}.__info__",) for name in FUNCTIONS},
    f"{_FUNCTIONS}/get_recommendations_by_history.py": (
        *("RECOMMENDED=Product_Prompt", "get_recommendations_by_history.__info__"),
    ),
    f"{_FUNCTIONS}/get_product_details_by_asin.py": (
        *("DETAILS=Product_Prompt", "get_product_details_by_asin.__info__"),
    ),
}
MEMORIES = ("last", "relevant", "random")
BUILT = {  # name -> file, where in it a text is built, and in which variable
    **{
        name: (_CALLS, f"memory == '{name}'", "mem")
        for name in (*MEMORIES, "recmind", "interecagent", "taskspe")
    },
    **{f"react {name}": (_REACT, f"memory == '{name}'", "mem") for name in MEMORIES},
    "react": (_REACT, "__init__", "self.sys_prompt"),
    "react answer": (_REACT, "act", "obs"),
    "task": (_USER, "LLMUserSimulationEnv", "obs"),
    "PUMA QUERY": (PUMA, "generate_search_query", "prompt"),
    "greeting": (_USER, "LLMUserSimulationEnv", "self.messages"),
}

Prompts = Mapping[str, Any]  # texts, descriptions of functions, and words for values of profiles


class OfficialPrompts(NamedTuple):
    """The prompts of a clone, named as in :data:`CONSTANTS` and :data:`BUILT`; what tables say of it."""

    texts: Prompts
    origin: str


def official_prompts(repo: str | Path) -> OfficialPrompts:
    """Return the prompts of a clone in a folder of the project; none, as they are ours, for an empty text.

    Raises:
        DataError: a file or a text is missing, or a file is no Python.
    """
    if not str(repo):
        return OfficialPrompts({}, "prompts: our own")
    repo, modules, digest = project_path(repo), {}, hashlib.sha256()
    for name in dict.fromkeys([*CONSTANTS, *(file for file, _, _ in BUILT.values())]):
        try:
            content = (repo / name).read_bytes()
            modules[name] = ast.parse(content)
        except (OSError, SyntaxError, ValueError) as error:
            expected = "a clone of HongruCai/PersonalWAB (make data), or no folder"
            raise DataError(repo / name, "-", "(whole file)", error, expected) from None
        digest.update(content)

    # Constants are read as literals, and texts that code builds piece by piece: nothing is executed.
    texts: dict[str, Any] = {}
    for file, constants in CONSTANTS.items():
        statements = (each for each in modules[file].body if isinstance(each, ast.Assign))
        assigned = {ast.unparse(each.targets[0]): each.value for each in statements}
        for constant in constants:
            name, _, constant = constant.rpartition("=")
            try:
                texts[name or constant] = ast.literal_eval(assigned[constant])
            except (KeyError, ValueError):
                raise DataError(repo / file, "module", constant, "no such text", "a constant") from None
    for name, (file, scope, variable) in BUILT.items():
        texts[name] = _built(modules[file], scope, variable)
        if not texts[name]:
            raise DataError(repo / file, scope, variable, "no such text", "a text that is put together")
    return OfficialPrompts(texts, f"prompts: official repository ({digest.hexdigest()[:12]})")


def _built(module: ast.Module, scope: str, variable: str) -> str:
    """Return the text that ``scope`` (a function, class or branch of a condition) builds in ``variable``."""
    for node in ast.walk(module):
        name = ast.unparse(node.test) if isinstance(node, ast.If) else getattr(node, "name", "")
        if name != scope:
            continue
        text = ""
        for each in (inner for statement in node.body for inner in ast.walk(statement)):
            targets = [each.target] if isinstance(each, ast.AugAssign) else getattr(each, "targets", [])
            if [ast.unparse(target) for target in targets] == [variable]:
                text += _pieces(each.value, variable)
        if text.strip(MARK):
            return text
    return ""


def _pieces(node: ast.expr, variable: str) -> str:
    """Return the text that an expression makes; nothing for ``variable`` itself, which was read before."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts) | ast.List(elts=parts):
            return "".join(_pieces(part, variable) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _pieces(left, variable) + _pieces(right, variable)
        case ast.Dict(values=[ast.Constant(), ast.Constant(value=content)]):  # a message as it is
            return content
    return "" if ast.unparse(node) == variable else MARK


def fill_marks(text: str, *values: str) -> str:
    """Return a text with values in place of its marks, in their order."""
    return "".join(a + b for a, b in zip_longest(text.split(MARK), values, fillvalue=""))


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return ``template`` with ``values`` (placeholder -> text), in one pass: placeholders in values stay."""
    pattern = "|".join(map(re.escape, values))
    return re.sub(pattern, lambda match: values[match.group()], template)


def published_category(product: Product) -> str:
    """Return a category as the published files have it: one that they lack is read as "Other"."""
    return "None" if product.category == "Other" else product.category


def write_product(form: str, product: Product, number: int = 0, **values: str) -> str:
    """Return a published form of a product; ``values`` are further ones, by placeholder without brackets."""
    category = published_category(product)
    known = {
        "<NUM>": str(number),
        "<Num>": str(number),
        "<TITLE>": product.title,
        **dict.fromkeys(("<PARENT_ASIN>", "<ASIN>"), product.parent_asin),
        **dict.fromkeys(("<MAIN_CATEGORY>", "<CATEGORY>", "<CATEGORIES>"), category),
        "<AVERAGE_RATING>": str(product.average_rating),
        "<RATING_NUMBER>": str(product.rating_number),
        "<PRICE>": str(product.price),
        "<STORE>": str(product.store),
        "<FEATURES>": str(list(product.features)),
        "<DESCRIPTION>": str(list(product.description)),
        "<DETAILS>": json.dumps(product.details),
    }
    return fill(form, known | {f"<{name}>": value for name, value in values.items()})


def write_profile(prompts: Prompts, profile: UserProfile) -> str:
    """Return the published form of a user's profile; a value outside its options is written as it is."""
    options = {"price_sensitivity": "PRICE", "diversity_preference": "DIVERSITY"}
    options["interaction_complexity"] = "INTERACTION"
    # Two placeholders have names of their own; the others are called like their fields.
    own = {"interaction_complexity": "<INTERACTION_STYLE>", "focus_aspect": "<FOCUS>"}
    values = {}
    for field, value in profile:
        text = prompts[options[field]].get(value, value) if field in options else value
        values[own.get(field, f"<{field.upper()}>")] = text
    return fill(prompts["PROFILE_PROMPT"], values)
