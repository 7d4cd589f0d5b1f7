"""PersonalWAB's own code, run from a clone (PWAB_CLONE), with stand-ins for models, engines and endpoint."""

import ast
import json
import os
import sys
import types
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CLONE = os.environ.get("PWAB_CLONE", "")
needs_clone = pytest.mark.skipif(not CLONE, reason="PWAB_CLONE names no clone of HongruCai/PersonalWAB")


def canonical(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request says: without ids of calls, default values, and the spelling of arguments."""
    messages = []
    for message in request["messages"]:
        message = message if isinstance(message, dict) else message.model_dump()
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        said = {"role": message["role"], "content": message["content"] or ""}
        said["calls"] = [(call["name"], json.loads(call["arguments"])) for call in calls]
        messages.append(said | ({"name": message["name"]} if message.get("name") else {}))
    sampling = {name: request[name] for name in ("temperature", "max_tokens") if name in request}
    return {"messages": messages, "tools": list(request.get("tools") or ()), **sampling}


class Endpoint:
    """In the place of openai.OpenAI: answers with what ``reply`` makes of a request, and notes it."""

    def __init__(self, reply: Callable[[Mapping[str, Any]], Any]):
        def create(**request: Any) -> Any:
            from openai.types.chat import ChatCompletionMessage

            self.requests.append(canonical(request))
            message = ChatCompletionMessage.model_validate({"role": "assistant", **reply(self.requests[-1])})
            usage = {"completion_tokens": 1, "prompt_tokens": 1, "total_tokens": 2}
            choice = types.SimpleNamespace(message=message)
            return types.SimpleNamespace(choices=[choice], usage=_Usage(usage))

        self.requests: list[dict[str, Any]] = []
        self.chat = types.SimpleNamespace(completions=types.SimpleNamespace(create=create))


class _Usage(dict):
    __getattr__ = dict.__getitem__


@contextmanager
def published_code(endpoint: Endpoint | None, embed: Callable[[list[str]], np.ndarray]):
    """Give a function that imports modules of the clone, whose calls go to ``endpoint`` and ``embed``."""
    import torch

    class Silent:
        from_pretrained = classmethod(lambda cls, *_, **__: cls())
        eval = to = lambda self, *_: self

    names = ("AutoTokenizer", "AutoModel", "LlamaTokenizer", "LlamaForCausalLM", "GenerationConfig")
    stand_ins = {
        "transformers": types.SimpleNamespace(**dict.fromkeys(names, Silent)),
        "peft": types.SimpleNamespace(PeftModel=Silent),
        "termcolor": types.SimpleNamespace(colored=str),
    }
    loaded = {}

    def load(name: str) -> Any:
        module = loaded[name] = __import__(name, fromlist=["x"])
        if hasattr(module, "encode_texts"):
            module.encode_texts = lambda texts, *_: torch.tensor(embed(texts))
        return module

    with pytest.MonkeyPatch.context() as patch:
        for name, module in stand_ins.items():
            patch.setitem(sys.modules, name, module)
        patch.syspath_prepend(CLONE)
        patch.setenv("OPENAI_API_KEY", "none")
        patch.setattr("openai.OpenAI", lambda **_: endpoint)
        yield load
    for name in [name for name in sys.modules if name.split(".")[0] in ("PersonalWAB", "run", "scripts")]:
        del sys.modules[name]


def official_contents(info: Mapping[str, Any]) -> str:
    """A product's record as the published index holds it: labels, and values as its code prints them."""
    text = "- Title: {title}\n- Parent Asin: {parent_asin}\n- Main Category: {main_category}\n"
    text += "- Average Rating: {average_rating}\n- Rating Number: {rating_number}\n- Price: {price}\n"
    text += "- Store: {store}\n- Details: {nested}\n- Description: {description}\n- Features: {features}"
    return text.format(**info, nested=json.dumps(info["details"]))


def published_functions(search: Callable, recommend: Callable, products: Mapping[str, Any]) -> list[Callable]:
    """The web functions of the clone, with engines of a test's own: a query or known ids -> ids."""
    numbers = {asin: i for i, asin in enumerate(products)}
    asins = list(numbers)
    contents = {asin: json.dumps({"contents": official_contents(info)}) for asin, info in products.items()}
    searcher = types.SimpleNamespace(
        search=lambda query: [types.SimpleNamespace(docid=asin) for asin in search(query)],
        doc=lambda asin: types.SimpleNamespace(raw=lambda: contents[asin]),
    )

    def predict(model: Any, sequence: list[int], *_: Any, **__: Any) -> list[int]:
        return [numbers[asin] for asin in recommend([asins[i] for i in sequence])]

    made = []
    for file in sorted(Path(CLONE, "PersonalWAB/envs/pwab/functions").glob("*.py")):
        nodes = ast.parse(file.read_text()).body
        texts = [node for node in nodes if isinstance(node, ast.Assign)]
        texts = [n for n in texts if ast.unparse(n.targets[0]).endswith(("__info__", "Product_Prompt"))]
        kept = [node for node in nodes if isinstance(node, ast.FunctionDef) or node in texts]
        scope: dict[str, Any] = {"Any": Any, "Dict": dict, "List": list, "json": json, "model": None}
        scope |= {"device": "cpu", "maxlen": 30, "itemnum": 0, "bm25_searcher": searcher}
        exec(compile(ast.Module(kept, []), str(file), "exec"), scope)
        scope |= {"product_id_map": numbers, "predict_next_item": predict}
        made += [scope[file.stem]] if file.stem in scope else []
    order = ("search", "get_rec", "add", "get_pro", "stop")
    return sorted(made, key=lambda f: [not f.__name__.startswith(start) for start in order])
