"""What a simulator decides about memory, in order: the only thing the device is told.

A log of decisions can be kept in a file, a JSON array a line, so that a machine without the simulator can replay it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allocators.base import Extent, InputError

FORMAT = "kvfrag decisions 1"


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


@dataclass(frozen=True)
class Log:
    """All decisions of one run: the allocator's spec, the pool's capacity in slots, and what was decided."""

    spec: str
    capacity: int
    decisions: Sequence[Decision] = field(repr=False)

    def lengths(self, most: int = 128) -> tuple[int, ...]:
        """Tokens of the requests that ran in the fullest sample, at most so many of them. Empty without a sample."""
        samples = [decision for decision in self.decisions if isinstance(decision, Sample)]
        fullest = max(samples, key=lambda sample: len(sample.written), default=None)
        return tuple(fullest.written.values())[:most] if fullest else ()

    def write(self, path: Path) -> None:
        """Write the log to a file."""
        lines: list[Any] = [[FORMAT, self.spec, self.capacity]]
        lines += [_row(decision) for decision in self.decisions]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> "Log":
        """Read a log. Raises InputError that names the line which is not one."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        row, decisions = 1, []
        try:
            form, spec, capacity = json.loads(lines[0])
            if form != FORMAT:
                raise ValueError(form)
            for row, line in enumerate(lines[1:], 2):  # noqa: B007  (the row is for the error)
                decisions.append(_decision(json.loads(line)))
        except (ValueError, TypeError, IndexError) as error:
            raise InputError(f"{path}, row {row}: not a row of a decision log") from error
        return Log(str(spec), int(capacity), decisions)


def _row(decision: Decision) -> list[Any]:
    match decision:
        case Admit(request_id, extents, tokens):
            return ["admit", request_id, tokens, *extents]
        case Grow(request_id, extents):
            return ["grow", request_id, *extents]
        case Write(request_id, tokens):
            return ["write", request_id, tokens]
        case Release(request_id):
            return ["release", request_id]
        case Sample(time_s, used, held, written):
            return ["sample", time_s, used, held, *written.items()]


def _decision(row: list[Any]) -> Decision:
    match row:
        case ["admit", int(request_id), int(tokens), *extents]:
            return Admit(request_id, [Extent(int(start), int(slots)) for start, slots in extents], tokens)
        case ["grow", int(request_id), *extents]:
            return Grow(request_id, [Extent(int(start), int(slots)) for start, slots in extents])
        case ["write", int(request_id), int(tokens)]:
            return Write(request_id, tokens)
        case ["release", int(request_id)]:
            return Release(request_id)
        case ["sample", time_s, int(used), int(held), *written]:
            return Sample(float(time_s), used, held, {int(i): int(tokens) for i, tokens in written})
    raise ValueError(row)
