"""Compute with AVX2 on one thread, so that the same settings give the same numbers on other x86-64 machines.

Left alone, torch, numpy and faiss use the widest vector units of a CPU. Each width sums in another order, the
last bits differ, and a training of some hundred steps turns them into other weights and other tables. So does
the number of threads. On a CPU with AVX-512, training takes about 40% more time this way.

Libraries read these variables when they are loaded: import this package before torch and numpy. Intel
promises equal results of ``MKL_CBWR=AVX2`` for its own CPUs; others' numbers may differ from these.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SWITCH = "PWAGENTS_PORTABLE"  # "0" leaves the instruction set to the CPU
VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels
    "MKL_CBWR": "AVX2",  # torch's matrix products
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",  # numpy's and scipy's matrix products
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",  # numpy's exp, log and the like
    "FAISS_SIMD_LEVEL": "AVX2",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
CPU_INFO = Path("/proc/cpuinfo")

_inherited = VARIABLES.items() <= os.environ.items()  # from the process that started this one
_early = [name for name in ("torch", "numpy") if name in sys.modules and not _inherited]
_before: dict[str, str | None] = {}


def set_variables() -> None:
    """Fix the instruction set for this process and its children, unless switched off or without AVX2."""
    if os.environ.get(SWITCH) != "0" and has_avx2():
        _before.update({name: os.environ.get(name) for name in VARIABLES})
        os.environ.update(VARIABLES)


def switch_off() -> None:
    """Restore the variables; torch uses them if it has not been loaded yet."""
    os.environ[SWITCH] = "0"
    for name, value in _before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value
    _before.clear()


def is_on() -> bool:
    """Return whether numbers of this process are those of other machines."""
    return not shortfall()


def shortfall() -> str:
    """Return in a line why numbers of this process are not portable; an empty text if they are."""
    if not has_avx2():
        return "This CPU has no AVX2 (or no Linux to tell): last digits may differ from other machines'."
    if not _before:
        return f"Not portable: {SWITCH}=0 leaves the instruction set to the CPU."
    if _early:
        early = f"imported before pwagents, with the CPU's own instruction set: {', '.join(_early)}"
        return f"Not portable: {early}. Restart the kernel and import pwagents first."
    return ""


def cpu_name() -> str:
    """Return what the CPU is called; "a CPU" where Linux does not say."""
    with suppress(OSError):
        if found := re.search(r"^model name\s*:\s*(.+)$", CPU_INFO.read_text("utf-8"), re.MULTILINE):
            return found[1]
    return "a CPU"


def has_avx2() -> bool:
    """Return whether Linux names this an x86-64 CPU with AVX2."""
    with suppress(OSError):
        return " avx2 " in CPU_INFO.read_text("utf-8")
    return False


@contextmanager
def one_core() -> Iterator[None]:
    """Compute on one core: sums over several cores depend on their number."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
