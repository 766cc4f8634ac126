"""What a simulator decides about memory, in order: the only thing the device is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allocators.base import Extent


@dataclass(frozen=True)
class Admit:
    """A request gets its extents, in token order, and writes ``written_tokens`` at once (P, or P + produced)."""

    request_id: int
    extents: Sequence[Extent]
    written_tokens: int


@dataclass(frozen=True)
class Grow:
    """A request's extents after growing: all of them, those it had first."""

    request_id: int
    extents: Sequence[Extent]


@dataclass(frozen=True)
class Write:
    """A request writes ``tokens`` more token states."""

    request_id: int
    tokens: int = 1


@dataclass(frozen=True)
class Release:
    """A request gives back all its memory: finished, or preempted."""

    request_id: int


@dataclass(frozen=True)
class Sample:
    """The ledger of an iteration, after its writes: slots used and held by all, and each running request's tokens."""

    time_s: float
    used: int
    held: int
    written: Mapping[int, int]


Decision = Admit | Grow | Write | Release | Sample
