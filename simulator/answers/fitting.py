"""``fit``: how many requests run at once in a pool that is never given a rest.

All requests are there from the beginning and nothing but memory keeps one waiting, so that the pool is always as full
as its allocator can make it, and the simulator says how many run: with every hole that comes and goes, every block that
is not full, every preemption. Each iteration takes the same time, since what counts is memory, not speed. The first
part, in which all are young, is left out, and so is the end, when nobody waits any more.
"""

import os
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from allocators import InputError, make_allocator
from allocators.base import Allocator, whole
from allocators.spec import parse_spec
from simulator.inputs import (
    AnyAllocator,
    AnyTrace,
    check_own_limit,
    check_trace,
    held_by,
    spec_of,
    with_own_block_size,
    with_own_limit,
)
from simulator.messages.showing import Facts, Shown, percents
from simulator.messages.words import counted
from simulator.replay import simulate
from simulator.results.ledger import CATEGORIES
from simulator.results.views import view_shares
from simulator.server.cost import StepCost
from simulator.server.hardware import server_of
from simulator.server.keywords import HardwareFields
from simulator.traces.trace import Trace
from simulator.traces.workload.workload import Workload, parse_workload, split_workload

FILLS = 30
"""How many times over the requests that are drawn would fill the pool."""

ALLOCATORS = ("contiguous:reserve=max", "buddy:reserve=pow2", "buddy:reserve=oracle", "paged:block_size=16")
"""What is compared unless asked otherwise."""

_YOUNG = 0.25
_LEAST_BINS = 100
_PILOT = 5000
ITERATION = StepCost("1s", "0", "0").with_of("every iteration takes the same time: what counts is memory, not speed")
"""What an iteration costs while requests are counted."""


@dataclass(frozen=True, repr=False)
class Fit(Shown):
    """How many requests run at once with one allocator in a pool of ``capacity`` slots."""

    allocator: str
    """The spec, defaults filled in."""
    capacity: int
    mean: float
    """Requests running, over time."""
    low: float
    """In 5 % of the time fewer run (means over some iterations each), and in 5 % more than ``high``."""
    high: float
    all_longest: int
    """How many fit when each has max_model_len tokens and is about to end."""
    held_slots: float
    """What a running request holds, in the mean."""
    written_slots: float
    """How much of that is token states."""
    share: dict[str, float]
    """Where the pool was, as fractions of it that sum to 1, by ``ledger.CATEGORIES``."""
    preemptions: float
    """Preemptions a request served."""
    never_fits: int
    """Requests that even the empty pool cannot hold; they are not among those that run."""
    warnings: tuple[str, ...] = ()
    """What is worth a word about it, a sentence each."""

    def told(self) -> tuple[str, Facts]:
        """The answer in a few lines."""
        never = {} if not self.never_fits else {"left out": f"{counted(self.never_fits, 'request')} that never fit"}
        return f"Fit of {self.allocator} in {counted(self.capacity, 'slot')}", {
            "at once": f"{self.mean:,.1f} requests on average, {self.low:,.0f} to {self.high:,.0f} in 90 % of the time",
            "all longest": f"{self.all_longest:,}",
            "a request": f"holds {self.held_slots:,.1f} slots, has written {self.written_slots:,.1f}",
            "pool": percents(view_shares(self.share, "textbook")),
            "preemptions": f"{self.preemptions:.2f} per request",
            **never,
        }


def fit(
    trace: AnyTrace,
    allocator: AnyAllocator,
    capacity: int | None = None,
    max_model_len: int | None = None,
    *,
    block_size: int | None = None,
    progress: bool | None = None,
    **hardware: Unpack[HardwareFields],
) -> Fit:
    """How many requests of the trace run at once, when all of them are there from the beginning.

    Measured is the time from a quarter of the way to the last admission up to it. ``trace``: a Trace, or as on the
    command line a workload's text, of which :func:`backlog` draws as many as it takes. ``allocator``, and how large
    its pool is, as for :func:`~simulator.replay.simulate`: an allocator's own ``capacity``; for a spec ``capacity``
    in slots, or ``hardware``: ``memory`` and ``model``, or ``model`` and ``gpu``. ``block_size`` as there.
    ``max_model_len``: None takes the longest request's. Requests beyond it, and arrivals, are left aside.
    ``progress`` as for :func:`~simulator.replay.simulate`. Raises InputError when the trace is too short: then
    hardly anyone waits.
    """
    check_trace(trace)
    allocator = with_own_block_size(allocator, block_size)
    spec = spec_of(allocator)
    given = with_own_limit(allocator, {"capacity": capacity, "max_model_len": max_model_len, **hardware})
    server = server_of(given, held=held_by(allocator), timed=False)
    check_own_limit(allocator, server.settings.max_model_len)
    assert server.slots is not None
    capacity, max_model_len = server.slots, server.settings.max_model_len
    if not isinstance(trace, Trace):
        if max_model_len is None:
            raise InputError("max_model_len(=None) must be given with a workload, as its longest prompt + output")
        trace = backlog(os.fspath(trace), capacity, max_model_len)
    longest = int((trace.prompt_tokens + trace.output_tokens).max())
    limit = longest if max_model_len is None else whole("max_model_len", max_model_len, at_least=2)
    waiting = Trace.from_columns(np.zeros(len(trace), np.int64), trace.prompt_tokens, trace.output_tokens)
    run = simulate(waiting, spec, capacity=capacity, progress=progress, max_model_len=limit, cost=ITERATION)
    if not run.counts["finished"]:
        counted = ", ".join(f"{run.counts[reason]:,} {reason}" for reason in ("too_long", "never_fits"))
        raise InputError(f"{trace.name}: no request fits in {capacity:,} slots at all ({counted})")
    last_s = float(run.requests["admitted_s"].max())
    bins = run.timeline[(run.timeline["start_s"] >= _YOUNG * last_s) & (run.timeline["end_s"] <= last_s)]
    if len(bins) < _LEAST_BINS:
        raise InputError(
            f"{trace.name}: too few requests ({run.counts['finished']:,} that fit) to keep {capacity:,} slots full; "
            f"up to {run.counts['peak_batch']:,} run at once"
        )
    share = {category: float(bins[category].mean()) / capacity for category in CATEGORIES}
    mean = float(bins["running"].mean())
    held = 1 - share["external"] - share["residual"] - share["idle"]
    low, high = np.percentile(bins["running"], [5, 95]).tolist()
    return Fit(
        *(run.allocator, capacity, mean, low, high),
        all_longest=count_longest(make_allocator(spec, capacity, limit), limit),
        held_slots=held * capacity / mean,
        written_slots=share["used"] * capacity / mean,
        share=share,
        preemptions=run.counts["preemptions"] / run.counts["finished"],
        never_fits=run.counts["never_fits"],
        warnings=(*server.warnings, *run.warnings),
    )


def count_longest(allocator: Allocator, max_model_len: int) -> int:
    """How many requests of max_model_len tokens an empty pool holds when each has written all that it will.

    They are admitted one by one until one is refused. One that reserves asks for a prompt of one token, which is the
    most that any rule asks for; one that grows has grown, as if it came back for its last token.
    """
    longest = (1, max_model_len - 1) if allocator.grow_slots == 0 else (max_model_len - 1, 1)
    count = 0
    while allocator.fits_empty(*longest) and allocator.admit(count, *longest, alone=count == 0):
        count += 1
    return count


def idle_options(workload: str) -> list[str]:
    """The options of a workload's text that say when requests arrive: for :func:`backlog` they count for nothing."""
    given = parse_spec(f"_:{split_workload(workload)[1]}")[1]
    return [name for name in given if name not in ("requests", "seed", "max_total")]


def backlog(workload: str, capacity: int, max_model_len: int) -> Trace:
    """Requests of a workload's lengths, enough to fill the pool FILLS times, all there from the beginning.

    ``workload``: as on the command line, ``sharegpt`` or ``mine.csv:seed=1,requests=5000``; what it says of arrivals
    counts for nothing. None is longer than max_model_len. Raises InputError for what is no workload.
    """
    whole("max_model_len", max_model_len, at_least=2)
    name, options = split_workload(workload)
    # Nobody's arrival matters, but a workload must have a rate.
    rate = [] if "rate" in parse_spec(f"_:{options}")[1] else ["rate=1"]
    given = parse_workload(f"{name}:{','.join([*filter(None, [options]), *rate])}")
    limit = min(max_model_len, given.limit_tokens or max_model_len)
    lengths = Workload(given.profile, rate=1.0, requests=given.requests or _PILOT, seed=given.seed, max_total=limit)
    if given.requests is None:
        first = Trace.of_workload(lengths)  # a longer trace begins with the shorter one
        final = float((first.prompt_tokens + first.output_tokens - 1).mean())
        lengths = replace(lengths, requests=max(_PILOT, int(FILLS * capacity / final)))
    drawn = Trace.of_workload(lengths)
    name = drawn.name.replace(":rate=1,", ":", 1)
    return Trace.from_columns(np.zeros(len(drawn), np.int64), drawn.prompt_tokens, drawn.output_tokens, name=name)
