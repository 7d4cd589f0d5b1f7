"""The same bits whatever the CPU's vector units and the number of threads; one line where that cannot be."""

import os
import re
import subprocess
import sys

import pytest

from pwagents import portable

needs_avx2 = pytest.mark.skipif(not portable.has_avx2(), reason="this CPU has no AVX2")

# Embeds texts, trains a recommender and a small language model; prints a hash of all that came out.
WORK = """
from hashlib import sha256
import pwagents
import numpy as np
import torch
from pwagents.embedding import Embedder
from pwagents.llm.folder import read_model
from pwagents.lm.base import SHIPPED
from pwagents.shop.sasrec import SasRecSettings, train_sasrec

digest = sha256(Embedder().encode(["red tea", "a green bicycle for children", "salt"]).tobytes())
digest.update(np.exp(np.linspace(-3, 3, 1001)).tobytes())
settings = SasRecSettings(epochs=2, loss="cross_entropy", learning_rate=0.003, dropout=0.5)
sequences = [[1 + (i * j) % 200 for j in range(1, 20)] for i in range(1, 40)]
recommender = train_sasrec(sequences, 200, settings, seed=1)
model = read_model(SHIPPED / "orion", "float32", trainable=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.arange(8 * 64).reshape(8, 64) % 100
for _ in range(3):
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
for each in (recommender, model):
    for weight in each.state_dict().values():
        digest.update(weight.contiguous().numpy().tobytes())
print(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), digest.hexdigest())
"""


def python(code, **variables):
    """What a fresh process prints last; of its variables, none of ours."""
    ours = {*portable.VARIABLES, portable.SWITCH}
    environment = {name: value for name, value in os.environ.items() if name not in ours} | variables
    command, options = [sys.executable, "-c", code], {"capture_output": True, "text": True, "check": True}
    done = subprocess.run(command, env=environment, **options)
    return done.stdout.splitlines()[-1]


@needs_avx2
@pytest.mark.slow
def test_trainings_give_the_same_bits_on_an_older_cpu_and_with_two_threads(capsys):
    if portable.shortfall():  # the process of these tests was told to use all that the CPU has
        here = python(WORK)
    else:
        exec(WORK, {})
        here = capsys.readouterr().out.splitlines()[-1]
    assert here.startswith("AVX2 1 ")
    older = {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL"}
    assert python(WORK, OMP_NUM_THREADS="2", **older) == here


SHOW = "import os, pwagents; print(os.environ.get('MKL_CBWR'), os.environ.get('OMP_NUM_THREADS'))"
LATER = f"""
import subprocess, sys
from pwagents import portable
portable.switch_off()
print(subprocess.run([sys.executable, "-c", {SHOW!r}], capture_output=True, text=True).stdout.strip())
"""


TOLD = "from pwagents import portable; print(portable.shortfall())"


@needs_avx2
@pytest.mark.parametrize(
    ("code", "variables", "expected"),
    [
        (SHOW, {}, "AVX2 1"),
        (SHOW, {"PWAGENTS_PORTABLE": "0", "OMP_NUM_THREADS": "3"}, "None 3"),
        (LATER, {"OMP_NUM_THREADS": "3"}, "None 3"),  # processes started later know it
        (TOLD, {}, "^$"),
        (f"import torch; {TOLD}", {}, "instruction set: torch, numpy. Restart"),
        (TOLD, {"PWAGENTS_PORTABLE": "0"}, "PWAGENTS_PORTABLE=0 leaves the instruction set to the CPU"),
    ],
)
def test_switched_off_the_cpu_decides_and_what_stands_in_the_way_is_told_in_a_line(code, variables, expected):
    assert re.search(expected, python(code, **variables))


def test_without_avx2_nothing_is_set_and_a_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(portable, "CPU_INFO", tmp_path / "cpuinfo")
    for flags in (None, "flags\t\t: fpu sse4_2 avx\n"):
        if flags:
            portable.CPU_INFO.write_text(flags)
        monkeypatch.setattr(os, "environ", {})
        portable.set_variables()
        assert os.environ == {} and "no AVX2" in portable.shortfall()
