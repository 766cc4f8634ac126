"""``size``: the smallest pool with which a trace is served well enough.

A pool of so many slots meets a target or fails it, and a simulation says which. The answer is a boundary: it meets, and
the next smaller pool fails. It is found by bisection between a pool that cannot hold the largest request and one that
never refuses. But more memory is not always better (holes lie elsewhere, another request is preempted), so smaller and
larger pools are tried too, and what they say is part of the answer.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Unpack

import numpy as np

from allocators.base import whole
from simulator.answers.pools import Pools
from simulator.answers.target import Target, Trial
from simulator.inputs import AnyAllocator, AnyTrace, spec_of, trace_of, with_own_block_size, with_own_limit
from simulator.messages.showing import Facts, Shown
from simulator.messages.words import counted
from simulator.server.hardware import server_of
from simulator.server.keywords import ServerFields

CHECKS = 6
"""How many pools smaller than the answer, and how many larger ones, are tried besides."""


@dataclass(frozen=True, repr=False)
class Size(Shown):
    """The answer for one allocator: the smallest pool found that meets the target."""

    allocator: str
    """The spec, defaults filled in."""
    target: Target
    answer: Trial
    least: int
    """Slots of the smallest pool that can hold each request alone; no smaller one can meet any target."""
    trials: tuple[Trial, ...]
    """All pools that were tried, in order of capacity."""
    warnings: tuple[str, ...] = ()
    """What is worth a word about the answer, a sentence each."""

    @property
    def capacity(self) -> int:
        """Slots."""
        return self.answer.capacity

    @property
    def below(self) -> Trial | None:
        """The next smaller pool, which fails; None: it cannot hold the largest request."""
        return max((t for t in self.trials if t.capacity < self.capacity), key=lambda t: t.capacity, default=None)

    @property
    def fails_above(self) -> tuple[int, ...]:
        """Larger pools that were tried and fail; empty: all agree that more is better."""
        return tuple(t.capacity for t in self.trials if t.capacity > self.capacity and not t.meets)

    @property
    def safe(self) -> int:
        """The smallest pool that was tried than which all larger ones meet the target too."""
        fails = max((t.capacity for t in self.trials if not t.meets), default=0)
        return min(t.capacity for t in self.trials if t.capacity > fails)

    def told(self) -> tuple[str, Facts]:
        """The answer in a few lines."""
        wait_s, fails = self.answer.wait_p99_s, self.fails_above
        below = "cannot hold the largest request" if self.below is None else f"{self.below.capacity:,} slots, fails"
        above = f"{len(fails):,} fail, the largest of {fails[-1]:,} slots" if fails else "all that were tried meet it"
        return f"Size for {self.allocator}: {counted(self.capacity, 'slot')}", {
            "target": str(self.target),
            "refused": f"in {100 * self.answer.refused:.3f} % of the time",
            "p99 wait": "nobody came" if wait_s is None else f"{wait_s:,.3f} s",
            "next smaller": below,
            "larger pools": above,
            "least": f"{self.least:,} slots hold any request alone",
            "tried": counted(len(self.trials), "pool"),
        }

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON holds it: its figures, those of the next smaller pool, and all that were tried."""
        return {
            "allocator": self.allocator,
            **asdict(self.answer),
            "least": self.least,
            "below": None if self.below is None else asdict(self.below),
            "monotone": not self.fails_above,
            "safe": self.safe,
            "trials": [asdict(trial) for trial in self.trials],
            "warnings": list(self.warnings),
        }


def size(
    trace: AnyTrace,
    allocator: AnyAllocator,
    *,
    max_refused: float | str | None = None,
    max_wait_p99: str | None = None,
    checks: int = CHECKS,
    block_size: int | None = None,
    on_run: Callable[[], object] = lambda: None,
    **settings: Unpack[ServerFields],
) -> Size:
    """The smallest pool with which the allocator, or that of a spec, meets the target on the trace.

    Of an allocator its spec is used (and its ``max_model_len``): its own capacity says nothing here.
    ``block_size``: of a ``paged`` spec that names none.

    ``max_refused``: of the time covered, in how much the head of the queue may have been refused memory (0.01 or
    ``"1%"``). ``max_wait_p99``: how long 99 % of the requests that arrive in that time may wait to be admitted
    (``"2s"``); who still waits when a window ends has waited until then. ``settings`` are those of
    :func:`~simulator.replay.simulate`; with a ``model`` and a ``gpu``, ``warnings`` says when the answer is more than
    the GPU has left. A pool that a request (not too long for max_model_len) can never fit fails.

    Pools that differ in their tail only are one. The answer meets the target and the next smaller pool fails; besides
    ``checks`` smaller pools and as many larger ones are tried, near and far. When a smaller one meets the target, the
    search goes on below it; with as many checks as there are pools all are tried. ``on_run`` is called whenever a run
    ends.

    Raises InputError for what is not allowed, and for a target that is missed with a pool that never refuses.
    """
    target, checks = Target.of(max_refused, max_wait_p99), whole("checks", checks, at_least=0)
    allocator = with_own_block_size(allocator, block_size)
    server = server_of(with_own_limit(allocator, settings), "sought")
    pools = Pools(trace_of(trace), spec_of(allocator), target, server, on_run)
    unlimited = pools.unlimited()
    least = pools.least(unlimited)
    high = min(trial.capacity for trial in pools.trials if trial.meets)
    while True:
        low = max((trial.capacity for trial in pools.trials if trial.capacity < high and not trial.meets), default=0)
        high = pools.boundary(max(low, least - 1), high)
        step = pools.step(high)
        checked = [pools.trial(high - step * distance) for distance in _spread((high - least) // step, checks)]
        if not (smaller := [trial.capacity for trial in checked if trial.meets]):
            break
        high = min(smaller)
    for distance in _spread((unlimited - high) // step, checks):
        pools.trial(high + step * distance)
    answer, trials = pools.trial(high), tuple(sorted(pools.trials, key=lambda t: t.capacity))
    warnings = [*server.warnings, *pools.warnings(answer.capacity), *server.too_small_for(answer.capacity)]
    return Size(pools.spec, target, answer, least, trials, tuple(warnings))


def _spread(most: int, count: int) -> list[int]:
    """At most ``count`` whole numbers from 1 to ``most``, close to each other near 1; all of them, if they are few."""
    if most <= count:
        return list(range(1, most + 1))
    return sorted(set(np.geomspace(1, most, count).round().astype(np.int64).tolist()))
