"""One instruction set and one thread for all arithmetic: the same numbers on every x86-64 CPU with AVX2.

Left alone, torch, numpy and faiss take the widest vector units a CPU has. Each width sums in another order,
the last bits differ, and a training of some hundred steps turns them into other weights and other tables. So
does the number of threads. On a CPU with AVX-512, training takes about 40% more time so.

Libraries read these variables when they are loaded: import this package before torch and numpy. Intel
promises equal results of ``MKL_CBWR=AVX2`` for its own CPUs; others' numbers may differ from these.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SWITCH = "PWAGENTS_PORTABLE"  # "0" leaves all to the CPU, in this process and those it starts
VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels
    "MKL_CBWR": "AVX2",  # matrix products of torch
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",  # matrix products of numpy and scipy
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",  # numpy's exp, log and the like
    "FAISS_SIMD_LEVEL": "AVX2",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
CPU_INFO = Path("/proc/cpuinfo")

_before: dict[str, str | None] = {}  # the variables as the user had them
_set_before = VARIABLES.items() <= os.environ.items()  # by the process that started this one
_loaded_early = [name for name in ("torch", "numpy") if name in sys.modules and not _set_before]


def set_variables() -> None:
    """Fix the instruction set of what is loaded from now on, unless switched off or unknown to the CPU."""
    if os.environ.get(SWITCH) != "0" and has_avx2():
        _before.update({name: os.environ.get(name) for name in VARIABLES})
        os.environ.update(VARIABLES)


def switch_off() -> None:
    """Give torch all that the CPU has; no effect where it is loaded already. numpy, loaded, stays narrow."""
    os.environ[SWITCH] = "0"
    for name, value in _before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value
    _before.clear()


def shortfall() -> str:
    """Say in a line why numbers of this process are not portable; empty where they are."""
    if not has_avx2():
        return "This CPU has no AVX2 (or no Linux to tell): last digits may differ from other machines'."
    if not _before:
        return f"Not portable: {SWITCH}=0 leaves the instruction set to the CPU."
    if _loaded_early:
        early = f"imported before pwagents, with the CPU's own instruction set: {', '.join(_loaded_early)}"
        return f"Not portable: {early}. Restart the kernel and import pwagents first."
    return ""


def cpu_name() -> str:
    """Return what the CPU is called; "a CPU" where Linux does not tell."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", CPU_INFO.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "a CPU"


def has_avx2() -> bool:
    """Ask Linux whether this is an x86-64 CPU with AVX2."""
    try:
        return " avx2 " in CPU_INFO.read_text(encoding="utf-8")
    except OSError:
        return False


@contextmanager
def one_core() -> Iterator[None]:
    """Let torch compute on one core: sums over several depend on how many there are."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
