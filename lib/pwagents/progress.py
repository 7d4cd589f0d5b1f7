"""Progress bars, the same in scripts and in notebooks, and counts of what this process did."""

import sys
import threading
from collections import Counter

from tqdm import tqdm

counts: Counter[str] = Counter()  # "episodes stored", "episodes played", "replies stored", ...
_lock = threading.Lock()


def count(what: str, n: int = 1) -> None:
    """Add to :data:`counts`, from any thread."""
    with _lock:
        counts[what] += n


def progress(*arguments, **options) -> tqdm:
    """Make a tqdm bar, shown once something takes more than a second.

    Text, as stored notebooks show no widgets; on standard output, as notebooks show standard error in red.
    """
    return tqdm(*arguments, file=sys.stdout, delay=1, **options)
