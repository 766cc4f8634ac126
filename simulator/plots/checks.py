"""What a picture is asked for, checked before anything is drawn. Each raises InputError: name, value, what is right."""

from collections.abc import Iterable
from numbers import Real
from typing import Any

from allocators.base import InputError, in_short, whole
from simulator.results.run import Run
from simulator.server.settings import MOST_SECONDS


def one_run(run: Any, needs: str = "decisions") -> None:
    """``run`` is a Run, or an object that can be drawn like one: it has the name ``needs``."""
    if not hasattr(run, needs):
        raise InputError(f"run(={_short(run)}) must be a Run, as simulate() makes it")


def several(runs: Any, needs: str) -> list[Any]:
    """The runs as a list; a single one counts as a list of it."""
    found: list[Any] = [runs] if isinstance(runs, Run) or not isinstance(runs, Iterable) else list(runs)
    for run in found:
        if not hasattr(run, needs):
            raise InputError(f"runs must hold runs, as simulate() makes them, and not {_short(run)}")
    return found


def _short(value: Any) -> str:
    """A value in a few words; runs and tables would fill pages."""
    return repr(value) if value is None or isinstance(value, str | Real) else f"a {type(value).__name__}"


def instant(at: Any) -> float:
    """A time in seconds."""
    if isinstance(at, bool) or not isinstance(at, Real) or not 0 <= float(at) <= MOST_SECONDS:
        raise InputError(f"at(={_short(at)}) must be a number of seconds >= 0, at most {MOST_SECONDS:g}")
    return float(at)


def covered_instant(at: Any, start: float, end: float) -> float:
    """A time in seconds that a run covers."""
    if not start <= instant(at) <= end:
        raise InputError(f"at(={in_short(at)}) must be in the time that the run covers, {start:g} to {end:g} s")
    return float(at)


def slot_bytes(bytes_per_slot: Any) -> None:
    """Bytes of a slot, or None where they are not known."""
    if bytes_per_slot is not None:
        whole("bytes_per_slot", bytes_per_slot)


def grid_cells(cells: Any) -> tuple[int, int]:
    """Addresses x instants of a map."""
    try:
        addresses, instants = cells
    except (TypeError, ValueError):
        raise InputError(f"cells(={in_short(cells)}) must be two whole numbers, addresses x instants") from None
    return whole("cells[0]", addresses), whole("cells[1]", instants)
