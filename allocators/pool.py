"""What the simulator asks a pool. Each allocator answers for its own type of pool, in its own file.

``seat``: the place of a request among those that hold memory, a small number from 0. No room is a value, 0.
"""

from typing import Any

from allocators.seam import question


@question
def asked_slots(pool: Any, prompt_tokens: int, output_tokens: int) -> int:
    """Slots that the reservation rule wants for a request, before any rounding."""


@question
def fits_empty(pool: Any, prompt_tokens: int, output_tokens: int) -> bool:
    """Whether an empty pool can hold the request, at admission and at every later length."""


@question
def allocate(pool: Any, seat: int, request: int, prompt_tokens: int, output_tokens: int, alone: bool) -> int:
    """Place a request that writes ``prompt_tokens`` now; returns the slots held, 0 for no room."""


@question
def extend(pool: Any, seat: int) -> int:
    """Give a request room for at least one more token; returns the slots added, 0 for no room."""


@question
def free(pool: Any, seat: int) -> int:
    """Take back all memory of a request; returns its slots."""


@question
def free_slots(pool: Any) -> int:
    """Capacity minus the slots held, the tail included."""


@question
def largest_free_slots(pool: Any) -> int:
    """The longest run that could be handed out now."""


@question
def held_slots(pool: Any, seat: int) -> int:
    """Slots of all extents of a request."""


@question
def copy_extents(pool: Any, seat: int, extents: Any, at: int) -> int:
    """Write start and slots of each extent of a request into ``extents[at:]``; returns how many there are."""
