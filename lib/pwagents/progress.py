"""Progress bars, the same in scripts and in notebooks."""

import sys

from tqdm import tqdm


def progress(*arguments, **options) -> tqdm:
    """Make a tqdm bar, shown once something takes more than a second.

    Text, as stored notebooks show no widgets; on standard output, as notebooks show standard error in red.
    """
    return tqdm(*arguments, file=sys.stdout, delay=1, **options)
