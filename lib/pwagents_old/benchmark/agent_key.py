"""Which agent is this? A key that changes with an agent of one's own, so that a changed one is played anew.

The agent is written by value, as cloudpickle would write it: code, class attributes and bases, what its
objects and closures hold, and the globals that its functions use, of the notebook, of the agent's file and of
the reader's other modules. Installed packages stand in by name. What is chance or place is left out (lines of
code, locks, the order of a set), so that a killed run goes on in another process.
"""

import dis
import hashlib
import importlib.util
import io
import pickle
import re
import sys
import sysconfig
import threading
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from pwagents.llm.chat import ChatModel
from pwagents.schema import Benchmark

_PLAIN = (str, int, float, bool, type(None), dict, list, tuple, bytes)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_CACHED = type(lru_cache(len))
_NOT_OWN = (Path(__file__).parents[2], sysconfig.get_path("stdlib"))
# Of a class, what Python and pydantic make of the rest of it.
_MADE = re.compile(
    "__(dict|weakref|module|firstlineno|static_attributes|signature|pydantic_(?!fields).*)__|_abc_impl"
)


def agent_key(agent: Any) -> str:
    """Return the SHA-256 (16 hex digits) of an agent by value.

    Raises:
        Exception: it holds what cannot be pickled, such as a generator or a client's socket.
    """
    return hashlib.sha256(_written(agent)).hexdigest()[:16]


def _written(value: Any) -> bytes:
    file = io.BytesIO()
    _Writer(file, protocol=4).dump(value)
    return file.getvalue()


class _Writer(pickle._Pickler):  # the one written in C lets nobody decide how a set is written
    """Writes what is compared and never read again."""

    dispatch_table = cloudpickle.Pickler.dispatch_table

    def memoize(self, obj: Any) -> None:
        """Leave out whether two equal texts are one object: that is chance."""
        if not isinstance(obj, str | bytes | tuple):
            super().memoize(obj)

    def reducer_override(self, value: Any) -> Any:
        """Return how a value is written: a tag and what follows it; NotImplemented for pickle's own way."""
        if type(value) in _PLAIN:
            return NotImplemented
        tag, state = "", None
        torch = sys.modules.get("torch")
        if isinstance(value, set | frozenset):
            tag, state = "set", sorted(map(_written, value))
        elif isinstance(value, Benchmark):
            tag, state = "benchmark", value.content_hash
        elif isinstance(value, ChatModel):
            tag, state = "model", [type(value), value.name]
        elif torch and isinstance(value, torch.Tensor):
            tag, state = str(value.dtype), value.detach().float().cpu().numpy()
        elif "_stop_words_id" in getattr(value, "__dict__", ()):  # scikit-learn keeps an address
            tag, state = type(value).__name__, vars(value) | {"_stop_words_id": 0}
        elif isinstance(value, _LOCKS):
            tag = "lock"
        elif isinstance(value, _CACHED):
            tag, state = "cached", value.__wrapped__
        elif isinstance(value, ModuleType) and _is_own(value.__name__):
            named = {name: held for name, held in vars(value).items() if not name.startswith("__")}
            tag, state = value.__name__, named
        elif isinstance(value, CodeType):
            tag = f"code {value.co_flags} {value.co_argcount} {value.co_posonlyargcount}"
            names = [value.co_names, value.co_varnames, value.co_freevars, value.co_kwonlyargcount]
            state = [value.co_code, value.co_exceptiontable, value.co_consts, names]
        elif isinstance(value, FunctionType) and _is_by_value(value):
            used = _used_names(value.__code__, value.__globals__) if _is_own(value.__module__) else {}
            defaults = [value.__defaults__, value.__kwdefaults__, value.__annotations__, vars(value)]
            cells = list(value.__closure__ or ())
            tag, state = value.__qualname__, [value.__code__, defaults, cells, used]
        elif isinstance(value, type) and value.__module__ == "builtins":
            tag = f"builtin {value.__name__}"  # not all of them can be found by their names
        elif isinstance(value, type) and _is_by_value(value):
            named = {name: held for name, held in vars(value).items() if not _MADE.fullmatch(name)}
            tag, state = value.__qualname__, [type(value), value.__bases__, named]
        return (repr, (tag,), state) if tag else NotImplemented  # repr: nobody will call it


def _is_by_value(value: Any) -> bool:
    """Whether a function or class is the reader's, or cannot be found by its name."""
    named: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        named = getattr(named, name, None)
    return named is not value or _is_own(value.__module__)


def _is_own(module: str | None) -> bool:
    """Whether a module is the reader's: a notebook, a script, a file that was not installed."""
    if module == "__main__" or module not in sys.modules:
        return True
    places = [getattr(sys.modules[module], "__file__", None), *getattr(sys.modules[module], "__path__", ())]
    file = next(filter(None, places), "")
    return bool(file) and is_own_file(file)


def is_own_file(file: str) -> bool:
    """Return whether code in a file is the reader's: neither this library's, nor Python's, nor installed."""
    if {"site-packages", "dist-packages"} & {*Path(file).parts} or file.startswith("<frozen"):
        return False
    return not any(Path(file).is_relative_to(folder) for folder in _NOT_OWN)


def _used_names(code: CodeType, own: dict[str, Any]) -> dict[str, Any]:
    """What code, and that of functions within it, uses of its globals and imports of the reader's modules."""
    used: dict[str, Any] = {}
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in own:
            used[name] = own[name]
        elif instruction.opname == "IMPORT_NAME":
            spec = importlib.util.find_spec(name.partition(".")[0])
            if spec and spec.has_location and is_own_file(spec.origin):
                used[f"import {name}"] = importlib.import_module(name)
    for held in code.co_consts:
        if isinstance(held, CodeType):
            used |= _used_names(held, own)
    return used
