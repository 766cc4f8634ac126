"""The traces of a sweep or an answer, one per seed, and how the processes that replay them come by them.

A named workload is drawn from its text wherever it is needed. Anything else is read once, here, and its three columns
are written to a scratch file, which the processes of this machine map into their memory: one copy for all of them. A
process that does not see the file, on another machine, says so, and is sent the columns, once for many runs.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from allocators.base import InputError
from simulator.messages.words import short
from simulator.sweeps.grid import Several, seeds_of
from simulator.traces.public.catalogue import find_file
from simulator.traces.schema import NoArrivalsError
from simulator.traces.trace import Trace, open_trace
from simulator.traces.workload.profile import profiles
from simulator.traces.workload.workload import Workload, is_profile_file, parse_workload, split_workload

TraceReader = Callable[..., Trace]
"""Reads a file: (name, rate=None, seed=0) -> Trace."""

DRAWS = 5
"""How many seeds an answer on a random trace is the mean over, unless told otherwise."""

_NO_SEEDS = (
    "seeds are for workloads and files of lengths only: {} has arrivals of its own, and each seed would give the same "
    "run"
)
_MOST_KEPT = 4
_kept: dict[str, Trace] = {}
_keeping = Lock()


class UnseenError(Exception):
    """A process does not see the file of a trace."""


@dataclass(frozen=True)
class TraceSource:
    """A trace of a sweep, as it is handed to the processes that replay it."""

    identity: str
    """What tells it from all others: the text of a named workload, or ``sha256:`` and its digest."""
    rate: float | None
    """Requests a second, what is set or what the file has; None where all arrive at once."""
    seed: int | None
    """None where nothing is drawn."""
    name: str = ""
    path: Path | None = None
    """Arrivals, prompts and outputs as one int64 array of shape (3, requests)."""
    columns: bytes | None = None
    """The same, for those who do not see the path."""

    def trace(self) -> Trace:
        """The trace; kept, so that the next run of this process has it. Raises UnseenError."""
        with _keeping:
            if self.identity not in _kept:
                made = self._made()
                while len(_kept) >= _MOST_KEPT:
                    del _kept[next(iter(_kept))]
                _kept[self.identity] = made
            return _kept[self.identity]

    def _made(self) -> Trace:
        if self.path is None:
            return Trace.of_workload(parse_workload(self.identity))
        if self.columns is not None:
            return Trace(self.name, *np.frombuffer(self.columns, np.int64).reshape(3, -1))
        try:
            return Trace(self.name, *np.load(self.path, mmap_mode="r"))
        except FileNotFoundError:
            raise UnseenError(str(self.path)) from None

    def with_columns(self) -> "TraceSource":
        """The same with its columns in it, to be sent to another machine."""
        return self if self.path is None else replace(self, columns=np.load(self.path).tobytes())


def trace_sources(
    trace: "str | os.PathLike[str] | Trace",
    rates: Sequence[float],
    seeds: Sequence[int],
    folder: Path,
    read: TraceReader = open_trace,
) -> Iterator[TraceSource]:
    """The traces of a sweep: each rate with each seed; none given: the trace's own.

    A workload is drawn for each. A file of lengths gets Poisson arrivals of each rate and seed. A trace with arrivals
    is stretched in time to each rate (:meth:`Trace.scaled`), and has no seed. Scratch files go into ``folder``.
    Raises InputError for a rate or seed that the trace cannot have, or has already.
    """
    if isinstance(trace, Trace):
        yield from _stretched(trace, rates, seeds, folder)
        return
    text = os.fspath(trace)
    path = find_file(text)
    if path is not None and not is_profile_file(path):
        try:
            whole = read(text)
        except NoArrivalsError:
            if not rates:
                raise
            for rate in rates:
                for seed in seeds or [0]:
                    yield _written(read(text, rate=rate, seed=seed), rate, seed, folder)
            return
        yield from _stretched(whole, rates, seeds, folder)
        return
    for some in product([{"rate": rate} for rate in rates] or [{}], [{"seed": seed} for seed in seeds] or [{}]):
        workload = parse_workload(_with(text, **some[0], **some[1]))
        if workload.profile in profiles():
            yield TraceSource(str(workload), workload.rate_per_s, workload.seed)
        else:
            yield _written(Trace.of_workload(workload), workload.rate_per_s, workload.seed, folder)


def drawn_traces(
    trace: "str | os.PathLike[str] | Trace",
    seeds: Several | None = None,
    rate: float | None = None,
    read: TraceReader = open_trace,
) -> dict[int | None, Trace]:
    """The traces that one stands for, by their seeds: several where it is drawn at random, else itself, for None.

    A workload is drawn with each seed, and a file of lengths gets Poisson arrivals of ``rate`` and each seed.
    ``seeds``: N from the workload's own seed on, or which; None: DRAWS. Raises InputError for seeds that the trace
    cannot have, or has already.
    """
    text = "" if isinstance(trace, Trace) else os.fspath(trace)
    path = find_file(text) if text else None
    is_file = path is not None and not is_profile_file(path)
    if isinstance(trace, Trace) or (is_file and rate is None):
        whole = trace if isinstance(trace, Trace) else read(text)
        if seeds is not None:
            raise InputError(_NO_SEEDS.format(whole.name))
        return {None: whole}
    if is_file:
        return {seed: read(text, rate=rate, seed=seed) for seed in seeds_of("seeds", DRAWS if seeds is None else seeds)}
    first = read(text, rate=rate)
    workload = parse_workload(text) if path is None else Workload(text)
    numbers = _from(workload.seed, DRAWS if seeds is None else seeds, "seed=" in split_workload(text)[1], text)
    return {
        seed: first if seed == workload.seed else Trace.of_workload(replace(workload, seed=seed)) for seed in numbers
    }


def listed_seeds(traces: Mapping[int | None, Trace]) -> str:
    """The seeds of traces: ``0 to 4``, or ``3, 7``; "" for a trace that was not drawn."""
    seeds = [seed for seed in traces if seed is not None]
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _from(first: int, seeds: Several, is_given: bool, text: str) -> list[int]:
    """The seeds of a workload: so many from its own on, or those listed, if it has none of its own."""
    is_count = isinstance(seeds, int) or (isinstance(seeds, str) and seeds.strip().isdecimal())
    if is_given and not is_count:
        raise InputError(f"seed is given twice: in {short(text)}, and as seeds(={seeds})")
    return [first + seed if is_count else seed for seed in seeds_of("seeds", seeds)]


def _stretched(trace: Trace, rates: Sequence[float], seeds: Sequence[int], folder: Path) -> Iterator[TraceSource]:
    if seeds:
        raise InputError(_NO_SEEDS.format(trace.name))
    own = len(trace) / trace.duration_s if trace.duration_s else None
    if not rates:
        yield _written(trace, own, None, folder)
        return
    if own is None:
        raise InputError(
            f"rate(={rates[0]:g}): all requests of {trace.name} arrive at once: there is no rate to change"
        )
    for rate in rates:
        yield _written(trace.scaled(rate / own), rate, None, folder)


def _written(trace: Trace, rate: float | None, seed: int | None, folder: Path) -> TraceSource:
    path = folder / f"{trace.sha256}.npy"
    try:
        np.save(path, np.stack([trace.arrival_ns, trace.prompt_tokens, trace.output_tokens]))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}; TMPDIR names another folder") from None
    return TraceSource(f"sha256:{trace.sha256}", rate, seed, trace.name, path)


def _with(text: str, **options: Any) -> str:
    """A workload's text with these options in it."""
    added = [f"{key}={value}" for key, value in options.items()]
    if find_file(text) is not None:  # a profile of one's own, without options
        return f"{text}:{','.join(added)}"
    name, given = split_workload(text)
    for part in given.split(","):
        key = part.partition("=")[0].strip()
        if key in options:
            raise InputError(f"{key} is given twice: in {short(text)}, and to the sweep")
    return f"{name}:{','.join([*([given] if given else []), *added])}"
