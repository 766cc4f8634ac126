"""What the loop asks a pool. ``seat``: the place of a request among those that hold memory, from 0."""

from typing import Any

from simulator.core.seam import question


@question
def asked_slots(pool: Any, prompt: int, output: int) -> int:
    """Slots that the reservation rule wants for a request, before any rounding."""


@question
def fits_empty(pool: Any, prompt: int, output: int) -> bool:
    """Whether an empty pool can hold the request, at admission and at every later length."""


@question
def allocate(pool: Any, seat: int, request: int, prompt: int, output: int, alone: bool) -> int:
    """Place a request that writes ``prompt`` tokens now; the slots held, 0 for no room."""


@question
def extend(pool: Any, seat: int) -> int:
    """Room for at least one more token; the slots added, 0 for no room."""


@question
def free(pool: Any, seat: int) -> int:
    """Give back all memory of a request; its slots."""


@question
def free_slots(pool: Any) -> int:
    """Capacity minus the slots held, the tail included."""


@question
def largest_free_slots(pool: Any) -> int:
    """The longest run that could be handed out now."""


@question
def copy_extents(pool: Any, seat: int, extents: Any, at: int) -> int:
    """Write start and slots of each extent of a request into ``extents[at:]``; how many there are."""
