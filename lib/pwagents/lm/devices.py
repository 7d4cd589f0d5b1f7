"""What a training runs on: the memory of the GPU, or of the machine, and how fast the GPU is."""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pwagents.schema import check_choice

GIB = 2**30
Vllm = Literal["auto", "none", "colocate"]

# A part of the name that torch reports -> memory (GiB, as torch reports it, rounded down), dense bfloat16
# TFLOP/s, memory bandwidth (TB/s), both from the makers' data sheets. A name that holds another one stands
# before it.
_GPUS: dict[str, tuple[float, float, float]] = {
    "H100 PCIe": (79.1, 756.0, 2.0),
    "H100 NVL": (93.1, 835.0, 3.9),
    "H100": (79.1, 989.0, 3.35),
    "H200": (139.8, 989.0, 4.8),
    "A100-SXM4-40GB": (39.4, 312.0, 1.555),
    "A100-PCIE-40GB": (39.4, 312.0, 1.555),
    "A100": (79.1, 312.0, 1.935),
    "L40S": (44.4, 362.0, 0.864),
    "A6000": (47.4, 154.8, 0.768),
    "A5000": (23.5, 111.1, 0.768),
    "RTX 4090": (23.5, 165.2, 1.008),
    "RTX 3090": (23.5, 71.0, 0.936),
    "L4": (22.0, 121.0, 0.3),
}


@dataclass(frozen=True)
class Device:
    """One device.

    Args:
        kind: cuda or cpu.
        memory: bytes that a training may use in all.
        flops: bfloat16 operations a second at the peak; None where unknown.
        bandwidth: bytes a second; None where unknown.
        count: how many there are.
    """

    name: str
    kind: str
    memory: int
    flops: float | None = None
    bandwidth: float | None = None
    count: int = 1


def find_device() -> Device:
    """The first GPU with all of its memory, else this machine with the memory that is free now."""
    import torch

    if torch.cuda.is_available():
        found = torch.cuda.get_device_properties(0)
        _, flops, bandwidth = _known(found.name) or (None, None, None)
        return Device(found.name, "cuda", found.total_memory, flops, bandwidth, torch.cuda.device_count())
    return Device(f"CPU, {os.cpu_count()} cores", "cpu", _free_memory())


def named_device(name: str, count: int = 1) -> Device:
    """A GPU by its name, such as "H100": what would fit there.

    Raises:
        ValueError: the name is not known.
    """
    known = _known(name)
    if known is None:
        raise ValueError(f"GPU {name!r}; known are: {', '.join(_GPUS)}")
    gib, flops, bandwidth = known
    return Device(name, "cuda", int(gib * GIB), flops, bandwidth, count)


def use_vllm(choice: Vllm) -> bool:
    """Whether episodes are played with vLLM, colocated with the training.

    Args:
        choice: auto takes it where the package is installed and there is a GPU; colocate insists on it.

    Raises:
        ValueError: it is insisted on, but something is missing; the message says what.
    """
    import torch

    check_choice("vllm", choice, Vllm)
    missing = []
    if choice != "none":
        missing += [] if find_spec("vllm") else ["the package vllm is not installed (pip install vllm)"]
        missing += [] if torch.cuda.is_available() else ["there is no GPU"]
    if missing and choice == "colocate":
        raise ValueError(f"vllm: colocate, but {' and '.join(missing)}; vllm: auto goes without it")
    return choice != "none" and not missing


def _known(name: str) -> tuple[float, float, float] | None:
    """Memory (GiB), operations a second, bytes a second."""
    for known, (gib, tflops, terabytes) in _GPUS.items():
        if re.search(rf"\b{known}\b", name, re.IGNORECASE):
            return gib, tflops * 1e12, terabytes * 1e12
    return None


def _free_memory() -> int:
    """Bytes free on this machine, or in the container that this process is in."""
    import psutil

    free = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = re.search(r"^file (\d+)", (group / "memory.stat").read_text(), re.MULTILINE)
        free = min(free, limit - used + int(cached[1]))
    except (OSError, ValueError):  # no such file, or no limit ("max")
        pass
    return max(free, 0)
