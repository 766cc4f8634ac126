"""What the command line prints and writes: tables for people, JSON for programs, each file whole or not at all."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.table import Table

from allocators.base import InputError
from simulator.run import Run
from simulator.views import VIEWS, view_shares

MEANINGS = {
    "used": "written keys and values",
    "token states": "written keys and values",
    "reservation": "held now, written later",
    "internal": "held, never written",
    "overprovision": "asked for, never written",
    "rounding": "the allocator's rounding up, never written",
    "external": "free, and enough for the request that was refused, but not in one piece",
    "residual": "free, less than the refused request asked for",
    "idle": "free, and nobody was refused",
    "free": "free for any other reason",
    "external & others": "rounding, external and everything else that is free",
}
"""One line for each column of a table."""


def console() -> Console:
    """Standard output; wide enough for any table when it is a file or a pipe."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def table(title: str, first: str, *columns: str) -> Table:
    """A table whose first column is words and whose others are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column(first, overflow="fold")
    for column in columns:
        made.add_column(column, justify="right")
    return made


def run_tables(runs: Sequence[Run], view: str) -> list[Table]:
    """Where the memory was, over the whole time and while somebody was refused memory; and how the requests fared."""
    parts = list(VIEWS[view])
    whole = table("Where the memory was: % of the pool, over the whole time", "allocator", *parts)
    refused = table("The same, only while the next request was refused memory", "allocator", *parts)
    served = table(
        "How the requests fared",
        "allocator",
        *("time (s)", "refused (%)", "running", "at most", "finished", "preempted", "rejected"),
    )
    for run in runs:
        figures = run.summary()
        whole.add_row(run.name, *_percents(figures["share"], view))
        if figures["share_saturated"] is not None:
            refused.add_row(run.name, *_percents(figures["share_saturated"], view))
        served.add_row(
            run.name,
            f"{figures['duration_s']:,.1f}",
            f"{100 * figures['saturated_s'] / figures['duration_s']:.1f}" if figures["duration_s"] else "-",
            "-" if figures["mean_batch"] is None else f"{figures['mean_batch']:.1f}",
            *(f"{figures[key]:,}" for key in ("peak_batch", "finished", "preemptions")),
            f"{sum(figures['rejected'].values()):,}",
        )
    return [whole, *([refused] if refused.row_count else []), served]


def legend(view: str) -> str:
    """What the columns of the tables mean, a line each."""
    meanings = {part: MEANINGS[part] for part in VIEWS[view]} | {
        "refused (%)": "of the time: the next request waited for memory",
        "running": "requests at once, mean over iterations; at most: the most at once",
        "rejected": "longer than max-model-len, or than the pool can ever hold",
    }
    return "\n".join(f"  {part:<17} {meaning}" for part, meaning in meanings.items())


def _percents(share: dict[str, float] | None, view: str) -> list[str]:
    if share is None:
        return ["-"] * len(VIEWS[view])
    return [f"{100 * part:.1f}" for part in view_shares(share, view).values()]


def as_json(runs: Sequence[Run]) -> dict[str, Any]:
    """The runs of one trace with the same settings, as ``--json`` writes them: no clock and no path in it."""
    return {
        "trace": asdict(runs[0].trace),
        "settings": runs[0].settings.to_dict(),
        "runs": [run.summary() for run in runs],
    }


def check_writable(path: Path) -> None:
    """Raise InputError unless a file can be written there. Nothing is left behind."""
    if path.is_dir():
        raise InputError(f"{path} cannot be written: it is a directory")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file all at once: what was there before stays until the new one is complete."""
    scratch = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
            scratch = Path(file.name)
            write(file)
        scratch.chmod(0o666 & ~_umask())
        scratch.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        if scratch is not None:
            scratch.unlink(missing_ok=True)


def write_json(target: str, content: dict[str, Any]) -> None:
    """Write JSON to a file, or to standard output for ``-``."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        write_whole(Path(target), lambda file: file.write(text.encode()))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
