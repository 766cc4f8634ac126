"""What a simulator decides about memory, in order: the only thing the device is told.

A log of decisions can be kept in a file, a JSON array a line, so that a machine without the simulator can replay it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocators import ALLOCATORS, make_allocator, parse_spec
from allocators.base import Extent, InputError
from simulator.files.writing import write_whole

if TYPE_CHECKING:
    from simulator.engine.layout import Layout as MemoryMap
    from simulator.results.run import Run

FORMAT = "kvfrag decisions 1"
MAX_ID = 2**63 - 1
MOST_SLOTS = 10**9  # as many as a simulated pool may have


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
        """Write the log to a file, whole or not at all. Raises InputError when it cannot be written."""
        lines: list[Any] = [[FORMAT, self.spec, self.capacity]]
        lines += [_row(decision) for decision in self.decisions]
        lines.append(_footer(self.decisions))
        write_whole(path, "".join(json.dumps(line) + "\n" for line in lines).encode())

    @staticmethod
    def read(path: Path) -> "Log":
        """Read a log. Raises InputError that names the file, and the row which is not one.

        The last row says how many decisions and samples there are: a log that was cut off would else pass a check
        with the samples that are left.
        """
        row, decisions = 1, []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            spec, capacity = _header(lines[0])
            footer: Any = None
            for row, line in enumerate(lines[1:], 2):  # noqa: B007  (the row is for the error)
                if footer is not None:
                    raise InputError("there is a row behind the end")
                fields = json.loads(line)
                if isinstance(fields, list) and fields[:1] == ["end"]:
                    footer = fields
                else:
                    decisions.append(_decision(fields, capacity))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        except InputError as error:
            raise InputError(f"{path}, row {row}: {error}") from error
        except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
            raise InputError(f"{path}, row {row}: not a row of a decision log") from error
        if footer != (want := _footer(decisions)):
            found = "there is none" if footer is None else f"it is {json.dumps(footer)[:80]}"
            raise InputError(f"{path}, row {row}: the log must end with the row {json.dumps(want)}, {found}: cut off?")
        return Log(spec, capacity, decisions)


def _footer(decisions: Sequence[Decision]) -> list[Any]:
    return ["end", len(decisions), sum(isinstance(decision, Sample) for decision in decisions)]


def _header(line: str) -> tuple[str, int]:
    """(spec, capacity) of the first line. The allocator itself says whether its spec's options can be."""
    form, spec, capacity = json.loads(line)
    if form != FORMAT or not isinstance(spec, str):
        raise ValueError(line)
    capacity = _whole("capacity", capacity, 1, MOST_SLOTS)
    name, _ = parse_spec(spec)
    if name in ALLOCATORS:
        make_allocator(spec, capacity, capacity)  # the log keeps no max_model_len; any will do to read the options
    elif "." not in name:  # one's own class is named by its path; it need not be on this machine
        raise InputError(f"unknown allocator {name!r}; choose from {', '.join(sorted(ALLOCATORS))}")
    return spec, capacity


def _whole(name: str, value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"{name}(={str(value)[:40]}) must be a whole number in {least} .. {most}")
    return value


def _id(value: object) -> int:
    return _whole("request id", value, 0, MAX_ID)


def _tokens(value: object, capacity: int) -> int:
    return _whole("tokens", value, 0, capacity)


def _extents(rows: Sequence[Any], capacity: int) -> list[Extent]:
    extents = []
    for start, slots in rows:
        start = _whole("extent's start", start, 0, capacity - 1)
        extents.append(Extent(start, _whole("extent's slots", slots, 1, capacity - start)))
    return extents


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


def _decision(row: list[Any], capacity: int) -> Decision:
    match row:
        case ["admit", request_id, tokens, *extents]:
            return Admit(_id(request_id), _extents(extents, capacity), _tokens(tokens, capacity))
        case ["grow", request_id, *extents]:
            return Grow(_id(request_id), _extents(extents, capacity))
        case ["write", request_id, tokens]:
            return Write(_id(request_id), _tokens(tokens, capacity))
        case ["release", request_id]:
            return Release(_id(request_id))
        case ["sample", int() | float() as time_s, used, held, *written] if math.isfinite(time_s):
            counts = {_id(request_id): _tokens(tokens, capacity) for request_id, tokens in written}
            return Sample(float(time_s), _tokens(used, capacity), _tokens(held, capacity), counts)
    raise ValueError(row)


def log_of(run: "Run") -> Log:
    """The log of a run that was simulated with ``decisions=True`` and ``layout_times_s``: each memory map is a sample.

    Between two decisions every running request writes a token an iteration; those writes are told when they matter, at
    a sample or before the memory is given back. Raises InputError for a run that kept no decisions or no memory map.
    """
    layouts = [(layout.iteration, layout) for layout in run.layouts if layout.iteration is not None]
    if run.decisions is None or not layouts:
        raise InputError(
            f"run {run.name!r} has no decisions or no memory maps: kvfrag run --decisions --save FOLDER keeps both, or "
            "simulate with decisions and layout_times_s"
        )
    extents: dict[int, list[Extent]] = {}
    written: dict[int, int] = {}  # tokens of each request that the log has told
    first: dict[int, int] = {}  # its tokens before iteration 0, if it had run from then on
    decisions: list[Decision] = []

    def write_up_to(iteration: int, request: int) -> None:
        missing = first[request] + iteration - written[request]
        if missing:
            decisions.append(Write(request, missing))
            written[request] += missing

    def sample(iteration: int, layout: "MemoryMap") -> None:
        for request in written:
            write_up_to(iteration, request)
        tokens = {held.request: held.written_tokens for held in layout.allocations}
        decisions.append(Sample(layout.time_s, layout.used_slots, layout.held_slots, tokens))

    names = ("iteration", "kind", "request", "index", "start", "slots", "tokens")
    columns = (run.decisions[name].tolist() for name in names)
    for (iteration, kind, request), group in groupby(zip(*columns, strict=True), key=lambda row: row[:3]):
        while layouts and layouts[0][0] < iteration:
            sample(*layouts.pop(0))
        if kind in ("finish", "preempt"):
            write_up_to(iteration - 1, request)
            decisions.append(Release(request))
            del extents[request], written[request], first[request]
            continue
        rows = list(group)
        for _, _, _, index, start, slots, _ in rows:
            extents.setdefault(request, [])[index:] = [Extent(start, slots)]
        if kind == "admit":
            tokens = rows[0][-1]
            written[request], first[request] = tokens, tokens - iteration
            decisions.append(Admit(request, tuple(extents[request]), tokens))
        else:
            decisions.append(Grow(request, tuple(extents[request])))
    for at, layout in layouts:
        sample(at, layout)
    return Log(run.allocator, run.capacity, decisions)
