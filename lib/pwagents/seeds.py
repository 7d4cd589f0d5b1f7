"""Seeds that depend on a seed and a name, the same on every machine and in every process."""

import hashlib

import numpy as np


def derive_seed(seed: int, *names: str) -> int:
    """A 63-bit seed from ``seed`` and ``names``; stable, unlike Python's ``hash``."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def rng(seed: int, *names: str) -> np.random.Generator:
    """A NumPy generator seeded by :func:`derive_seed`."""
    return np.random.default_rng(derive_seed(seed, *names))
