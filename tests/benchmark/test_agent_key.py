"""The key of an agent: each kind of change gives another, the same source the same in any process."""

import json
import os
import subprocess
import sys

import pytest

# Kind of change -> what is defined first, and what a call of the class A then returns (empty: A is defined
# already). "?" is what changes, from 1 to 2 or from one of the values that stand there to the other.
KINDS = {
    "constant": ("N = ?", "N", "1", "2"),
    "class attribute": ("class A:\n    n = ?\n    $ self.n", ""),
    "base's method": ("class B:\n    def f(self): return ?\nclass A(B):\n    $ self.f()", ""),
    "super": ("class B:\n    def f(self): return ?\nclass A(B):\n    $ super().f()", ""),
    "metaclass": ("class M(type):\n    def f(c): return ?\nclass A(metaclass=M):\n    $ 1", ""),
    "property": ("class A:\n    @property\n    def p(self): return ?\n    $ self.p", ""),
    "slots": (
        "class C:\n    __slots__ = ('n',)\n    def __init__(self): self.n = ?\n"
        "    $ self.n\nA = C()", "",
    ),
    "docstring as a prompt": ("class A:\n    '''?'''\n    $ self.__doc__", ""),
    "dataclass factory": (
        "from dataclasses import dataclass, field\n@dataclass\nclass A:\n"
        "    n: list = field(default_factory=lambda: [?])\n    $ 1", "",
    ),
    "enum": ("from enum import Enum\nclass E(Enum):\n    X = ?", "E.X"),
    "named tuple": ("from collections import namedtuple\np = namedtuple('P', 'x')(?)", "p.x"),
    "helper's helper": ("def g(): return ?\ndef f(): return g()", "f()"),
    "function in a function": ("N = ?\ndef f():\n    def g(): return N\n    return g()", "f()"),
    "lambda": ("f = lambda: ?", "f()"),
    "decorated": (
        "from functools import wraps\ndef d(f):\n    @wraps(f)\n    def w(): return f() + ?\n    return w\n"
        "@d\ndef g(): return 1", "g()",
    ),
    "function in a dict": ("def f(): return ?\nD = {'f': f}", "D['f']()"),
    "function's attribute": ("def A(state): return A.k\nA.k = ?", ""),
    "default": ("def A(state, k=?): return k", ""),
    "closure": ("def make(k):\n    def agent(state): return k\n    return agent\nA = make(?)", ""),
    "partial": ("from functools import partial\ndef f(state, k): return k\nA = partial(f, k=?)", ""),
    "bound method": (
        "class B:\n    def __init__(t, k): t.k = k\n    def act(t, s): return t.k\nA = B(?).act", "",
    ),
    "code": ("", "3 ? 2", "+", "-"),
    "held dict": ("D = {'a': {'b': [?]}}", "D"),
    "order of a dict": ("D = dict(?)", "list(D)", "a=1, b=2", "b=2, a=1"),
    "set": ("S = {'alpha', 'beta', 'gamma', '?'}", "sorted(S)"),
    "array": ("import numpy as np\nW = np.array([1.0, ?])", "W"),
    "weights": ("import torch\nW = torch.nn.Linear(1, 1)\ntorch.nn.init.constant_(W.weight, ?)\n"
                "torch.nn.init.zeros_(W.bias)", "W"),
    "expression": ("import re\nR = re.compile('?')", "R"),
    "random numbers": ("import random\nR = random.Random(?)", "R.random()"),
    "beside a lock": ("import threading\nL = threading.Lock(), threading.RLock(), ?", "L"),
    "strategy object": ("class S:\n    def __init__(self, k): self.k = k\ns = S(?)", "s.k"),
    "module beside it": ("import beside", "beside.f()"),
    "import in the call": ("def f():\n    from beside import f\n    return f()", "f()"),
}  # fmt: skip

PROGRAM = """
import json, os, sys
from pwagents_old.benchmark.agent_key import agent_key
folder, __name__ = sys.argv[1:]
__file__, kinds, keys = f"{folder}/{__name__}.py", json.load(sys.stdin), {}
sys.path.insert(0, folder)
sys.modules[__name__] = sys.modules["__main__"]
for kind, values in kinds.items():
    for which, source in values.items():
        sys.modules.pop("beside", None)
        with open(f"{folder}/beside.py", "w") as file:
            file.write(f"N = {1 + (which == 'changed')}\\ndef g(): return N\\ndef f(): return g()\\n")
        exec(compile(source, f"/tmp/ipykernel_{os.getpid()}/{hash(source)}.py", "exec"), globals())
        keys[f"{kind}, {which}"] = agent_key(A)
print(json.dumps(keys))
"""


def sources():
    """Kind -> its source as it is, changed, and moved down a cell that holds more."""
    written = {}
    for kind, (source, returned, *values) in KINDS.items():
        if returned:
            source += f"\nclass A:\n    $ {returned}\n"
        source = source.replace("$", "def __call__(self, state): return")
        first, second = (source.replace("?", value) for value in values or ("1", "2"))
        written[kind] = {"first": first, "changed": second, "moved": f"# more\n\nmore = 1\n{first}"}
    return written


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The keys of a script and, in another process, which orders sets differently, of a module."""
    made = []
    for name, seed in (("__main__", "1"), ("my_agent", "2")):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("beside")), name]
        done = subprocess.run(command, input=json.dumps(sources()), env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        made.append(json.loads(done.stdout))
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_seen_and_the_same_source_is_the_same_agent_elsewhere(keys, kind):
    here, there = keys
    assert here[f"{kind}, first"] == there[f"{kind}, first"] == here[f"{kind}, moved"]
    assert here[f"{kind}, first"] != here[f"{kind}, changed"]
