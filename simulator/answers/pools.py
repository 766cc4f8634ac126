"""Pools of any size for one trace, allocator and target, each simulated once."""

from collections.abc import Callable, Sequence
from math import isqrt

import numpy as np

from allocators import Allocator, InputError, make_allocator
from simulator.answers.target import Target, Trial, judged
from simulator.replay import simulate
from simulator.server.cost import format_time_ps
from simulator.server.hardware import Server
from simulator.server.settings import MOST_SLOTS
from simulator.traces.trace import Trace

_FIRST = 64
"""The search begins with this part of what all requests together will ever write."""

_ROOM = 64
"""Whoever does not fit into a pool so many times as long as the longest request fits into none."""


class Pools:
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
