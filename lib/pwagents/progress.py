"""Progress bars, the same in scripts and in notebooks."""

import sys

from tqdm import tqdm


def progress(*arguments, **options) -> tqdm:
    """A tqdm bar as text on standard output, shown only once something takes more than a second.

    Text, because a stored notebook shows no widgets; standard output, because notebooks show standard error
    as if something were wrong.
    """
    return tqdm(*arguments, file=sys.stdout, delay=1, **options)
