"""Progress on standard error: for people who watch, after two seconds, and never in a file or a pipe."""

import multiprocessing
import os
import sys
from typing import Any

from tqdm import tqdm

AFTER_S = 2.0


def is_watched() -> bool:
    """Whether someone sees standard error: a terminal or a notebook, and not from a worker process of many.

    TQDM_DISABLE=1 in the environment says that nobody wants to, as it does for tqdm's own bars.
    """
    if multiprocessing.parent_process() is not None or os.environ.get("TQDM_DISABLE"):
        return False
    return sys.stderr is not None and (sys.stderr.isatty() or _in_notebook())


def progress_bar(total: int, name: str, unit: str, shown: bool | None = None) -> "tqdm[Any]":
    """A bar of text, which needs no widgets, that appears when the work takes longer than two seconds.

    ``shown``: None for when it is watched.
    """
    disabled = not (is_watched() if shown is None else shown)
    return tqdm(total=total, desc=name, unit=unit, unit_scale=unit == "B", delay=AFTER_S, disable=disabled)


def _in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel, whose standard error is shown under the cell."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None
