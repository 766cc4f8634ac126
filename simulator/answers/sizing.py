"""``size``: the smallest pool with which a trace is served well enough.

A pool of so many slots meets a target or fails it, and a simulation says which. The answer is a boundary: it meets, and
the next smaller pool fails. It is found by bisection between a pool that cannot hold the largest request and one that
never refuses. But more memory is not always better (holes lie elsewhere, another request is preempted), so smaller and
larger pools are tried too, and what they say is part of the answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isqrt
from typing import Any, Unpack

import numpy as np

from allocators import Allocator, InputError, make_allocator
from allocators.base import whole
from simulator.answers.target import Target, Trial, judged
from simulator.inputs import AnyAllocator, AnyTrace, spec_of, trace_of, with_own_block_size, with_own_limit
from simulator.messages.showing import Facts, Shown
from simulator.messages.words import counted
from simulator.replay import simulate
from simulator.server.cost import format_time_ps
from simulator.server.hardware import Server, ServerFields, server_of
from simulator.server.settings import MOST_SLOTS
from simulator.traces.trace import Trace

CHECKS = 6
"""How many pools smaller than the answer, and how many larger ones, are tried besides."""

_FIRST = 64
"""The search begins with this part of what all requests together will ever write."""

_ROOM = 64
"""Whoever does not fit into a pool so many times as long as the longest request fits into none."""


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
    pools = _Pools(trace_of(trace), spec_of(allocator), target, server, on_run)
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


class _Pools:
    """Pools of any size for one trace, allocator and target; each is simulated once."""

    def __init__(self, trace: Trace, spec: str, target: Target, server: Server, on_run: Callable[[], object]) -> None:
        self._trace, self._given, self._target, self._on_run = trace, spec, target, on_run
        self._settings = server.settings
        self._trials: dict[int, Trial] = {}
        self._warnings: dict[int, tuple[str, ...]] = {}
        total = trace.prompt_tokens + trace.output_tokens
        limit = self._settings.max_model_len
        fits = np.ones(len(trace), np.bool_) if limit is None else total <= limit
        if limit is not None and self._settings.too_long == "truncate":
            fits = trace.prompt_tokens < limit
            total = np.minimum(total, limit)
        if not fits.any():
            raise InputError(f"no request of {trace.name} is within max_model_len(={limit}): no pool can serve any")
        prompts = trace.prompt_tokens[fits]
        self._largest = _outermost(prompts.tolist(), (total[fits] - prompts).tolist())
        finals = np.sort(total[fits] - 1)[::-1]
        # What all that can run at once will ever write is, as a rule, far more than is ever needed.
        most = sum(finals[: self._settings.max_batch].tolist())
        self._longest = max(int(finals[0]), limit or 1)
        self._first = max(most // _FIRST, self._longest)

    @property
    def trials(self) -> list[Trial]:
        """One for each pool that was simulated."""
        return list(self._trials.values())

    def warnings(self, capacity: int) -> tuple[str, ...]:
        """What is to be said of the run with a pool that was tried."""
        return self._warnings[capacity]

    def unlimited(self) -> int:
        """A pool that never refuses. Raises InputError when there is none, or when even it misses the target."""
        capacity, problem = self._first, None
        while capacity <= MOST_SLOTS:
            try:
                made = self._make(capacity)
            except ValueError as error:  # the user's mistake, unless it is gone in a larger pool
                problem = problem or error
            else:
                self.spec, problem = made.spec, InputError(f"{made.spec}: even {capacity:,} slots refuse at times")
                if self._fits(made):
                    trial = self.trial(capacity)
                    if trial.refused == 0:
                        return self._checked(trial).capacity
                elif capacity > _ROOM * self._longest:
                    raise InputError(f"{made.spec}: some request fits in no pool, not in {capacity:,} slots either")
            capacity *= 2
        if isinstance(problem, InputError):
            raise problem
        raise InputError(f"{self._given}: {problem or f'{MOST_SLOTS:,} slots are the most'}")

    def _checked(self, trial: Trial) -> Trial:
        """A pool that never refuses, unless it misses the target."""
        if not trial.meets:
            limit = format_time_ps(self._target.max_wait_p99_ps or 0)
            raise InputError(
                f"that 99 % wait at most {limit} is out of reach for {self.spec}: with {trial.capacity:,} slots, which "
                f"never refuse, 99 % wait up to {trial.wait_p99_s:,.3f} s; it is not memory that they wait for"
            )
        return trial

    def least(self, enough: int) -> int:
        """The smallest pool that can hold each request alone, up to one that is known to."""
        low, high = 0, enough
        while high - low > 1:
            middle = (low + high) // 2
            try:
                made = self._make(middle)
            except ValueError:
                low = middle
            else:
                low, high = (low, middle) if self._fits(made) else (middle, high)
        return high

    def step(self, capacity: int) -> int:
        """How many slots less make another pool than this one."""
        if self._make(capacity + 1).tail_slots == 0:
            return 1
        try:
            return 1 + self._make(capacity - 1).tail_slots
        except ValueError:  # too small for any
            return capacity

    def boundary(self, low: int, high: int) -> int:
        """A pool that meets the target, the next smaller one failing. ``low`` is known to fail, ``high`` to meet."""
        while high - low > 1:
            # Halves in the logarithm: the answer may be a thousand times smaller than a pool that never refuses.
            middle = max(isqrt(low * high), low + 1)
            trial = self.trial(middle)
            low, high = (low, trial.capacity) if trial.meets else (middle, high)
        return high

    def trial(self, capacity: int) -> Trial:
        """How a pool does, its tail left out."""
        allocator = self._make(capacity)
        usable = capacity - allocator.tail_slots
        if usable not in self._trials:
            if usable != capacity:
                allocator = self._make(usable)
            run = simulate(self._trace, allocator, timeline_bins=0, progress=False, **vars(self._settings))
            self._trials[usable], self._warnings[usable] = judged(run, self._target), run.warnings
            self._on_run()
        return self._trials[usable]

    def _make(self, capacity: int) -> Allocator:
        return make_allocator(self._given, capacity, self._settings.max_model_len)

    def _fits(self, allocator: Allocator) -> bool:
        return all(allocator.fits_empty(prompt, output) for prompt, output in self._largest)


def _outermost(prompts: Sequence[int], outputs: Sequence[int]) -> list[tuple[int, int]]:
    """The requests than which no other has both as many prompt and as many output tokens: if these fit, all do."""
    outermost: list[tuple[int, int]] = []
    for prompt, output in sorted(set(zip(prompts, outputs, strict=True)), reverse=True):
        if not outermost or output > outermost[-1][1]:
            outermost.append((prompt, output))
    return outermost


def _spread(most: int, count: int) -> list[int]:
    """At most ``count`` whole numbers from 1 to ``most``, close to each other near 1; all of them, if they are few."""
    if most <= count:
        return list(range(1, most + 1))
    return sorted(set(np.geomspace(1, most, count).round().astype(np.int64).tolist()))
