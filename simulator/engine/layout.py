"""A memory map at an instant: who holds which slots. Plain tuples, of nothing but the allocators' extents."""

from typing import NamedTuple

from allocators.base import Extent


class Allocation(NamedTuple):
    """What one request holds at an instant; sizes in slots."""

    request: int
    """Row of the trace."""
    extents: tuple[Extent, ...]
    """In the order of its tokens; paged: one a block."""
    written_tokens: int
    final_tokens: int
    """Token states it will have written when it ends."""
    overprovision_slots: int
    """Asked for behind those, and never written."""


class Layout(NamedTuple):
    """The memory map at an instant: who holds what, in admission order. Whatever is not held is free."""

    time_ps: int
    iteration: int | None
    """The iteration that runs then, its writes included, from 0; None in a gap and behind the end."""
    allocations: tuple[Allocation, ...]
    used_slots: int = 0
    """Token states, and below the slots held, as the ledger has them in that iteration."""
    held_slots: int = 0

    @property
    def time_s(self) -> float:
        """The instant, in seconds from the first arrival."""
        return self.time_ps / 10**12
