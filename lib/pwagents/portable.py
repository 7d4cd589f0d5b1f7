"""Compute with AVX2 on one thread, so that the same settings give the same numbers on other x86-64 machines.

Left alone, torch, numpy and faiss use the widest vector units of a CPU, and each width sums in another order.
Libraries read these variables when they are loaded: import this package before torch and numpy.
"""

import os
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

_before: dict[str, str | None] = {}


def set_variables() -> None:
    """Fix the instruction set, unless the switch is off, the CPU has no AVX2, or it is too late."""
    if os.environ.get(SWITCH) == "0" or not _has_avx2():
        return
    is_set = VARIABLES.items() <= os.environ.items()  # by the process that started this one
    if early := [name for name in ("numpy", "torch") if name in sys.modules and not is_set]:
        print(
            f"Not portable: imported before pwagents: {', '.join(early)}. Restart, and import pwagents first."
        )
        return
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
    return bool(_before)


def _has_avx2() -> bool:
    with suppress(OSError):
        return " avx2 " in Path("/proc/cpuinfo").read_text("utf-8")
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
