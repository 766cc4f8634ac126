"""The conformance kit of schedulers: drive one through random cases and raise on the first broken promise."""

from collections.abc import Callable, Iterator
from itertools import groupby
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.random import Generator, default_rng

from allocators import make_allocator
from allocators.base import InputError, whole
from allocators.seam import ANSWERS
from allocators.twins import BrokenPromiseError
from simulator.engine.schedulers import ONE, Scheduler, State
from simulator.engine.schedulers.named import name_of, scheduler_of
from simulator.engine.schedulers.seam import schedule
from simulator.replay import simulate
from simulator.results.run import Run
from simulator.results.waits import CAUSES
from simulator.server.cost import StepCost
from simulator.server.settings import Settings, SettingsFields
from simulator.traces.trace import Trace

_MOST_DECISIONS = 50  # for each token that is to be produced


class _Case(NamedTuple):
    trace: Trace
    spec: str
    capacity: int
    settings: dict[str, Any]

    def run(self, scheduler: "str | Callable[[State], int]") -> Run:
        """One run, all that it decides written down."""
        allocator = make_allocator(self.spec, self.capacity, self.settings["max_model_len"])
        settings = SettingsFields(scheduler=scheduler, **self.settings)  # type: ignore[typeddict-item]
        return simulate(self.trace, allocator, timeline_bins=0, decisions=True, progress=False, **settings)


class _Watched:
    """A scheduler as plain Python, its decisions counted; ``stepping``: it is asked in each iteration."""

    def __init__(self, function: Scheduler, most: int, stepping: bool) -> None:
        self.function, self.left, self.stepping = function, most, stepping
        self.__module__, self.__qualname__ = name_of(function).split(":", 1)

    def __call__(self, state: State) -> int:
        """Decide one iteration."""
        self.left -= 1
        if self.left < 0:
            running, waits = int(state.batch.now.count), len(state.queue.line) - int(state.queue.now.first)
            raise BrokenPromiseError(
                f"it does not come to an end: {running} requests run, {waits} do not, and it was asked "
                f"{_MOST_DECISIONS} times for each token"
            )
        why = self.function(state)
        if self.stepping:
            state.clock.alike = ONE
        return why


def check_scheduler(scheduler: "str | Callable[[State], int]", cases: int = 100, seed: int = 0) -> None:
    """Drive a scheduler through random ``cases``: traces, pools of every allocator, limits, costs, swap; and check it.

    ``scheduler``: a name, a path ``package.module:function``, or the function. Checked: what is checked of each
    decision whenever it runs; that every request which fits is served to its end, once, and not before it arrives; that
    ``max_batch`` and ``max_batch_tokens`` are kept; that causes of waiting are not negative and add up; that the same
    case comes out again; that skipping ahead, where ``clock.alike`` allows it, gives what asking in each iteration
    gives, to the last integer; and that it does the same compiled as in plain Python, if numba understands it.

    Raises BrokenPromiseError, an AssertionError, which says how to see the case again. A scheduler that never returns
    is not caught.
    """
    cases = whole("cases", cases)
    found = scheduler_of(scheduler)
    function = ANSWERS[schedule, found] if isinstance(found, type) else found
    for number in range(seed, seed + cases):
        case = _random_case(default_rng(number))
        try:
            _check_case(case, scheduler, function)
        except InputError:
            raise
        except Exception as error:
            told = (
                str(error) if isinstance(error, AssertionError | RuntimeError) else f"{type(error).__name__}: {error}"
            )
            name = name_of(scheduler)
            shown = repr(scheduler) if isinstance(scheduler, str) else name.rpartition(":")[2]
            again = f"check_scheduler({shown}, cases=1, seed={number}) shows it again"
            raise BrokenPromiseError(
                f"{name}: {told} ({case.spec}, {case.capacity} slots, {len(case.trace)} requests, "
                f"{_set(case.settings)}; {again})"
            ) from error


def _set(settings: dict[str, Any]) -> str:
    """The settings that are not their defaults."""
    defaults = vars(Settings())
    return ", ".join(f"{name}={value}" for name, value in settings.items() if value != defaults[name])


def _check_case(case: _Case, scheduler: "str | Scheduler", function: Scheduler) -> None:
    most = _MOST_DECISIONS * int(case.trace.output_tokens.sum() + len(case.trace)) + 1000
    skipped = case.run(_Watched(function, most, stepping=False))
    _expect_served(skipped)
    again = case.run(_Watched(function, most, stepping=False))
    _expect_equal(skipped, again, "the same case came out otherwise when it was run again")
    stepped = case.run(_Watched(function, most, stepping=True))
    _expect_equal(skipped, stepped, "skipping ahead, as clock.alike allows, came out otherwise than asking each time")
    # Compiling takes seconds for each kind of allocator: one of them shows what numba makes of the function.
    if case.spec.startswith("paged") and isinstance(function, FunctionType):
        _expect_equal(skipped, case.run(scheduler), "compiled it came out otherwise than in plain Python")


def _expect(kept: bool, broken: str) -> None:
    if not kept:
        raise BrokenPromiseError(broken)


def _expect_equal(first: Run, second: Run, broken: str) -> None:
    """Two runs are the same, to the last integer."""
    figures, others = ({"duration_ps": run.duration_ps, **run.counts, **run.integrals} for run in (first, second))
    for name, figure in figures.items():
        _expect(figure == others[name], f"{broken}: {name} {figure} and {others[name]}")
    assert first.decisions is not None and second.decisions is not None
    _expect(first.requests.equals(second.requests), f"{broken}: the requests differ")
    _expect(first.decisions.equals(second.decisions), f"{broken}: the decisions differ")


def _expect_served(run: Run) -> None:
    """Everyone is served to the end, within the limits, and every wait adds up."""
    served = ~run.requests["status"].isin(["too_long", "never_fits"])
    left = run.requests.index[served & (run.requests["status"] != "finished")]
    _expect(len(left) == 0, f"{len(left)} requests are not served to their end, row {min(left, default=0)} among them")
    waits = {cause: run.requests[f"wait_{cause}_ps"].to_numpy() for cause in CAUSES}
    for cause, values in waits.items():
        rows = np.flatnonzero(values < 0)
        _expect(len(rows) == 0, f"row {min(rows, default=0)} waits {min(values)} ps for {cause}")
    total = np.sum(list(waits.values()), axis=0)
    _expect(
        bool(np.all(total == run.requests["wait_ps"].to_numpy())), "the causes of waiting do not add up to the wait"
    )
    assert run.decisions is not None
    _expect_log(run.decisions, run)


def _expect_log(decisions: pd.DataFrame, run: Run) -> None:
    """What was written down: who runs, once each, after arriving; as many as the limits allow."""
    limits, running, done = run.settings, set[int](), set[int]()
    arrival_s = run.requests["arrival_s"].tolist()
    for iteration, events in groupby(_events(decisions), key=lambda event: event[0]):
        prefilled: list[int] = []
        ended: list[int] = []
        for _, time_s, kind, row, tokens in events:
            if kind == "admit":
                _expect(row not in running | done, f"row {row} is admitted, and runs or has been served already")
                _expect(arrival_s[row] <= time_s, f"row {row} is admitted before it arrives")
                running.add(row)
                prefilled.append(tokens)
            elif kind == "preempt":
                running.remove(row)
            elif kind == "finish":
                ended.append(row)
        most = limits.max_batch
        _expect(most is None or len(running) <= most, f"iteration {iteration}: {len(running)} run, max_batch is {most}")
        tokens = len(running) - len(prefilled) + sum(prefilled)
        within = not prefilled or len(running) == 1 or tokens <= (limits.max_batch_tokens or tokens)
        _expect(
            within, f"iteration {iteration}: {tokens} new tokens, and max_batch_tokens is {limits.max_batch_tokens}"
        )
        running.difference_update(ended)
        done.update(ended)
    _expect(not running, f"rows {sorted(running)} never finish")


def _events(decisions: pd.DataFrame) -> Iterator[tuple[int, float, str, int, int]]:
    """The log, a row an event and not a row an extent; who finishes does so as the iteration before the next ends."""
    first = decisions[decisions["index"] <= 0]
    columns = (first[name].tolist() for name in ("iteration", "time_s", "kind", "request", "tokens"))
    for iteration, time_s, kind, row, tokens in zip(*columns, strict=True):
        yield iteration - (kind == "finish"), time_s, kind, row, tokens


def _random_case(rng: Generator) -> _Case:
    """A small pool and short requests, so that refusals, preemptions and ties are common."""

    def one(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    capacity = one(30, 64, 100, 200)
    longest = max(2, capacity // one(1, 2, 3, 5))
    count, base = one(1, 5, 20, 40), one(0, 10**6, 25 * 10**9)
    span_ns = one(0, 10, 50, 1000) * (base + 10**5) // 1000
    arrival = rng.integers(0, span_ns + 1, count)
    prompt, output = (rng.integers(1, one(3, longest), count) for _ in range(2))
    spec = one(
        f"paged:block_size={one(1, 3, 4, 16)},watermark={one(0, 0.01, 0.1)}",
        f"paged:block_size={one(1, 2, 7)}",
        f"contiguous:reserve={one('oracle', 'pow2')},fit={one('first', 'best', 'worst', 'next')}",
        f"buddy:reserve={one('oracle', 'pow2')},min_block={one(1, 4)},split={one('smallest', 'largest')}",
    )
    settings = {
        "cost": StepCost(base, one(0, 13, 10**5), one(0, 11, 10**7), one(0, 0, 1, 5, 10**5), one(0, 3, 10**6)),
        "max_model_len": one(None, None, 40, 80),
        "max_batch": one(None, None, 1, 2, 5),
        "max_batch_tokens": one(None, None, 20, 60),
        "preemption": one("recompute", "swap"),
        "swap_slots": one(0, 50, 1000),
    }
    return _Case(Trace.from_columns(arrival.tolist(), prompt.tolist(), output.tolist()), spec, capacity, settings)
