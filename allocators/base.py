"""What every allocator promises, and the words for it.

A **token slot** is room for the keys and values of one token in all layers: the unit of every size
here. An allocator manages a **pool** of ``capacity`` slots, addresses ``0 .. capacity - 1``::

    pool      |#######.....|            |####........oooo|      |..|
               written  held               held              free  tail
               `-- extent --'            `---- extent ---'

    extent    a contiguous run of slots held for one request
    held      the slots of all extents of a request
    asked     what the reservation rule wants for a request, before any rounding (0: reserves nothing)
    free      capacity minus what is held, the tail included
    tail      slots that can never be handed out (capacity mod block_size, or what buddy carving leaves)

Invariants, checked for any allocator by :func:`allocators.check_allocator`:

1. Extents are inside the pool, disjoint, non-empty; they add up to ``held_slots``.
2. ``free_slots + sum(held) == capacity``, always.
3. ``largest_free_slots <= free_slots - tail_slots``, and a request that asks for no more than that is placed. The two
   are equal in an allocator that is not ``contiguous``: any free slot serves anyone.
4. No room is a value (0), never an exception, and changes nothing; it stays so until something is released.
5. Misuse (unknown id, double admit, double release) raises a :class:`MisuseError` that names the id.
6. After every request is released the pool is as empty as it was when new.
7. What was written stays where it is: growing lengthens the last extent of a request or appends others.

An allocator knows nothing of time, traces or plots.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class InputError(ValueError):
    """What a user handed in is wrong. One line: the name, the value, what is allowed."""


class MisuseError(Exception):
    """A caller broke the protocol (unknown id, double admit, double release): a bug, not a shortage."""


class Extent(NamedTuple):
    """A contiguous run of token slots: addresses ``start .. start + slots - 1``."""

    start: int
    slots: int

    @property
    def end(self) -> int:
        """The first address behind the run."""
        return self.start + self.slots


@runtime_checkable
class Allocator(Protocol):
    """The protocol. Any object with these names is an allocator; there is nothing to inherit from.

    A request is described by two numbers of tokens: ``prompt_tokens`` P >= 1, written at once when it is
    admitted, and ``output_tokens`` G >= 1. It ends holding ``final = P + G - 1`` token states. One that
    comes back after a preemption is described by what is left: P + produced and G - produced.
    """

    @property
    def contiguous(self) -> bool:
        """Whether a request must lie in one run. Only then can free memory be refused (external fragmentation)."""

    @property
    def grow_slots(self) -> int | None:
        """What each successful grow adds, in slots; 0: requests never grow; None: it differs from call to call."""

    @property
    def capacity(self) -> int:
        """Size of the pool, in slots."""

    @property
    def tail_slots(self) -> int:
        """Slots that can never be handed out; part of ``free_slots``."""

    @property
    def free_slots(self) -> int:
        """``capacity`` minus the slots held by all requests."""

    @property
    def largest_free_slots(self) -> int:
        """The longest run that could be handed out now (paged: free blocks x block_size)."""

    @property
    def spec(self) -> str:
        """The allocator in the command line's mini-language, defaults filled in: ``paged:block_size=16``."""

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        """Slots the reservation rule wants for the request; an allocator that grows may return ``prompt_tokens``."""

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Whether an empty pool can hold the request, at admission and at every later length."""

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        """Place a request that writes ``prompt_tokens`` now.

        ``alone`` says that nothing else would be running (a watermark does not apply then). Returns the
        slots now held, at least ``prompt_tokens``; or 0 when there is no room, and nothing has changed.
        Raises MisuseError when the id already holds memory.
        """

    def grow(self, request_ids: Sequence[int]) -> int:
        """Give each request, in order, room for at least one more token; stop at the first without room. A request
        may be named several times, and then grows as often.

        Returns how many got it: ``len(request_ids)`` when all did. Those behind that prefix are unchanged.
        Raises MisuseError, before anything changes, when an id holds no memory.
        """

    def release(self, request_id: int) -> int:
        """Give back all memory of a request; returns its slots. Raises MisuseError when the id holds none."""

    def held_slots(self, request_id: int) -> int:
        """Slots held by a request. Raises MisuseError when the id holds none."""

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        """The extents of a request in the order of its tokens. Raises MisuseError when the id holds none."""


def holds_none(request_id: int) -> MisuseError:
    """The error for an id that holds no memory."""
    return MisuseError(f"request {request_id} holds no memory")


def holds_already(request_id: int) -> MisuseError:
    """The error for a second admit of the same id."""
    return MisuseError(f"request {request_id} already holds memory")


def in_short(value: object, most: int = 100) -> str:
    """A value as an error names it: its repr, cut to ``most`` characters; its class where that has several lines."""
    try:
        text = repr(value)
    except Exception:  # a user's own class
        text = "\n"
    if "\n" in text:
        return f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def whole(name: str, value: object, at_least: int = 1) -> int:
    """``value`` as an int, or an InputError that names it and what is allowed."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < at_least:
        raise InputError(f"{name}(={in_short(value)}) must be a whole number >= {at_least}")
    return int(value.__index__())


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """``value``, or an InputError that lists what is allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name}(={in_short(value)}) must be one of {', '.join(allowed)}")
    return value
