"""One server: its queue, batch and pool, and what has come of them. Between two calls nothing moves."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.base import Allocator, Extent
from allocators.pooled import Pooled
from simulator.engine import loop
from simulator.engine.batch import NEVER, new_batch
from simulator.engine.bins import move_to_bin, new_bins
from simulator.engine.compiled import compiled
from simulator.engine.foreign import AllocatorError, Foreign
from simulator.engine.layout import Allocation, Layout
from simulator.engine.log import Listener, new_log
from simulator.engine.queue import AGAIN, new_queue, returning
from simulator.engine.schedulers.asking import Asking
from simulator.engine.schedulers.seam import Limits, State
from simulator.engine.terms import Terms

Ints = NDArray[np.int64]
Exact = NDArray[Any]
"""Whole numbers: int64, or Python's where 64 bits are too few."""


class Server:
    """Serves requests with one allocator, whose pool is empty, from time 0 on.

    ``rows``: which rows of the trace they are, in order of (arrival, row), the rejected ones left out; ``arrival_ns``:
    of the trace; ``prompt`` and ``output``: of these rows, and the server's from now on. ``edges_ps``: of the bins in which the ledger is kept, ascending. ``log``:
    hears of every decision.
    """

    def __init__(
        self,
        allocator: Allocator,
        settings: Terms,
        rows: Ints,
        arrival_ns: Ints,
        prompt: Ints,
        output: Ints,
        edges_ps: Sequence[int],
        log: Listener | None = None,
    ) -> None:
        self.allocator, self.rows, self.log = allocator, rows, log
        self._arrival_ns, self._edges_ps = arrival_ns, edges_ps
        seats = min(len(rows), settings.max_batch or len(rows), allocator.capacity) + 1
        self._foreign: Foreign | None = None
        if _is_ours(allocator):
            self.pool = allocator.seated(seats)
        else:
            self._foreign = Foreign(allocator, rows, seats)
            self.pool = self._foreign.pool
        self.batch = new_batch(seats, self.pool)
        self.queue = new_queue(np.zeros(len(rows), np.int64), prompt, output)
        self.events = new_log(log is not None, seats, allocator.capacity)
        self.clock, self.bins = loop.new_clock(), new_bins(np.zeros(len(edges_ps), np.int64))
        cost = settings.cost
        self.cost = loop.Cost(cost.base, cost.prefill_token, cost.sequence, cost.kv_token, cost.swapped_token)
        limits = Limits(
            settings.max_batch or NEVER,
            settings.max_batch_tokens or NEVER,
            settings.swap_slots if settings.preemption == "swap" else -1,
            allocator.contiguous,
            int(allocator.tail_slots),
        )
        state = State(limits, self.batch, self.queue, self.pool, self.events, self.clock)
        self.asking = Asking(settings.scheduler, state, loop.advance)
        self.epoch_ps = 0
        """What the loop's clock counts from."""
        self._earlier: list[tuple[int, list[tuple[Ints, Ints]]]] = []
        self._waits: Exact | None = None
        self._count_from(0)
        move_to_bin(self.bins, 0)

    @property
    def now_ps(self) -> int:
        """Picoseconds from time 0."""
        return self.epoch_ps + int(self.clock.now)

    def advance(self, until_ps: int | None, look_ps: int | None) -> int:
        """Serve until an iteration reaches ``until_ps``, or those that are planned hold ``look_ps``; None: never.

        Returns why it stopped: ``loop.SERVED``, ``REACHED``, ``LOOK``; or ``PAUSE``, and it goes on when called again.
        Raises RuntimeError for an allocator that broke a promise, AssertionError for slots that do not sum up.
        """
        if self.clock.now >= loop.FARTHEST_PS:
            self._count_from(self.now_ps)
        until, look = (NEVER if time is None else min(time - self.epoch_ps, NEVER) for time in (until_ps, look_ps))
        try:
            why = self.asking.advance(
                *(self.batch, self.queue, self.pool, self.events, self.cost, self.bins, self.clock),
                *(min(until, loop.FARTHEST_PS), look, self.allocator.capacity),
            )
        except AllocatorError:
            raise self._raised() from None
        if why == loop.BROKEN:
            raise self.asking.broken_promise() or self._broken_promise()
        if why == loop.UNBALANCED:
            raise self._unbalanced()
        if why == loop.FULL:
            self._empty_log()
        if why == loop.FULL or (why == loop.REACHED and self.clock.now < until):
            return loop.PAUSE
        return int(why)

    def _raised(self) -> BaseException:
        """What a user's own allocator has raised."""
        assert self._foreign and self._foreign.error
        return self._foreign.error

    def layout(self, time_ps: int) -> Layout:
        """The memory map at a time that the planned iterations hold, their writes included; else nobody runs then."""
        batch, clock = self.batch, self.clock
        if not clock.planned:
            return Layout(time_ps, None, ())
        passed = self._passed(time_ps - self.now_ps - int(clock.extra_ps))
        at = int(clock.iteration) + passed
        allocations = tuple(self._allocation(seat, at) for seat in self._seats())
        used = int(batch.now.used) + passed * int(batch.now.count)
        return Layout(time_ps, at, allocations, used, int(self.allocator.capacity - batch.now.free))

    def _passed(self, left_ps: int) -> int:
        """Of the planned iterations, how many end within this time from the end of the prefill."""
        first_ps, step_ps = int(self.clock.first_ps), self.cost.kv_token * int(self.batch.now.count)
        low, high = 0, int(self.clock.count) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if loop.series(first_ps, step_ps, middle) <= left_ps else (low, middle - 1)
        return low

    def _allocation(self, seat: int, iteration: int) -> Allocation:
        batch = self.batch
        return Allocation(
            int(self.rows[batch.request[seat]]),
            self._extents(seat, int(batch.held[seat])),
            written_tokens=int(batch.offset[seat]) + iteration,
            final_tokens=int(batch.final[seat]),
            overprovision_slots=int(batch.over[seat]),
        )

    def _seats(self) -> list[int]:
        """Of those that run, in order of admission."""
        seats: list[int] = self.batch.order[: self.batch.now.count].tolist()
        return seats

    def _extents(self, seat: int, held: int) -> tuple[Extent, ...]:
        extents = np.zeros((held, 2), np.int64)
        try:
            count = ask.copy_extents(self.pool, seat, extents, 0)
        except AllocatorError:
            raise self._raised() from None
        return tuple(Extent(*extent) for extent in extents[:count].tolist())

    def close(self) -> None:
        """Nothing is served any more: the log and the allocator are brought up to date."""
        self._empty_log()
        held = [(int(self.batch.request[seat]), seat) for seat in self._seats()]
        if self.log is not None:
            for row, seat in held:
                extents = np.array(self._extents(seat, int(self.allocator.capacity)), np.int64).reshape(-1, 2)
                self.log.still_held(int(self.rows[row]), extents)
        waiting = returning(self.queue)
        self.queue.waits[waiting, AGAIN] += self.clock.now - self.queue.since[waiting]
        if isinstance(self.allocator, Pooled):
            self.allocator.seats = {int(self.rows[row]): seat for row, seat in held}

    def times_ps(self, column: Ints, place: int) -> Exact:
        """``queue.admitted`` (place 0) or ``queue.finished`` (1), counted from time 0; -1 for what did not happen."""
        if not self._earlier:
            return column
        times = column.astype(object)
        times[column >= 0] += self.epoch_ps
        for epoch_ps, kept in self._earlier:
            rows, values = kept[place]
            times[rows] = values.astype(object) + epoch_ps
        return times

    @property
    def waits_ps(self) -> Exact:
        """Picoseconds by row and cause, see ``queue.Queue.waits``."""
        return self.queue.waits if self._waits is None else self.queue.waits.astype(object) + self._waits

    def _count_from(self, epoch_ps: int) -> None:
        """Let the loop's clock count from this time, cut to whole nanoseconds as arrivals are."""
        self._empty_log()
        queue, epoch_ps = self.queue, epoch_ps - epoch_ps % 1000
        shift = epoch_ps - self.epoch_ps
        if shift:
            waiting = returning(queue)
            queue.waits[waiting, AGAIN] += self.clock.now - queue.since[waiting]
            queue.since[waiting] = self.clock.now - shift
            self._waits = self.waits_ps.astype(object)
            queue.waits[:] = 0
            kept = [(np.flatnonzero(column >= 0), column[column >= 0]) for column in (queue.admitted, queue.finished)]
            self._earlier.append((self.epoch_ps, kept))
            queue.admitted[:] = queue.finished[:] = -1
        self.clock.now -= shift
        self.epoch_ps = epoch_ps
        # What is too far off is never reached before the clock is set back again.
        epoch_ns = min(epoch_ps // 1000, int(self._arrival_ns[self.rows[-1]]) + 1) if len(self.rows) else 0
        queue.arrival[:] = np.clip(self._arrival_ns[self.rows] - epoch_ns, -(NEVER // 1000), NEVER // 1000) * 1000
        self.bins.edges[:] = [min(max(edge - epoch_ps, -NEVER), NEVER) for edge in self._edges_ps]

    def _empty_log(self) -> None:
        now = self.events.now
        if self.log is not None:
            self.log.add(self.events.events[: now.events], self.events.extents[: now.extents], self.rows, self.epoch_ps)
        now.events = now.extents = 0

    def _broken_promise(self) -> RuntimeError:
        row = int(self.clock.head)
        held, prompt = int(self.clock.broken) - 1, int(self.queue.prompt[row])
        did = f"gave {held} slots for" if held else "refused, in an empty pool,"
        what = f"admit {did} {prompt} tokens of request {int(self.rows[row])}"
        return RuntimeError(f"{self.allocator.spec} broke a promise: {what}; allocators.check_allocator tells more")

    def _unbalanced(self) -> AssertionError:
        figures = {name: int(self.batch.now[name]) for name in self.batch.now.dtype.names}
        return AssertionError(
            f"the slots do not sum to the capacity {self.allocator.capacity}: {figures}; "
            "if the allocator is your own, allocators.check_allocator tells what it breaks"
        )


@compiled
def _fits_empty(pool: Any, prompt: Ints, output: Ints, fits: NDArray[np.bool_]) -> None:
    for row in range(len(prompt)):
        fits[row] = ask.fits_empty(pool, prompt[row], output[row])


def fits_empty(allocator: Allocator, prompt: Ints, output: Ints) -> NDArray[np.bool_]:
    """Which of these requests an empty pool can hold."""
    if not _is_ours(allocator):
        pairs = zip(prompt.tolist(), output.tolist(), strict=True)
        return np.array([bool(allocator.fits_empty(*pair)) for pair in pairs], np.bool_)
    fits = np.zeros(len(prompt), np.bool_)
    _fits_empty(allocator.pool, prompt, output, fits)
    return fits


def _is_ours(allocator: Allocator) -> TypeGuard[Pooled]:
    """Whether the loop may ask the pool itself; a class derived from one of ours may do something else."""
    return isinstance(allocator, Pooled) and type(allocator).__module__.startswith("allocators.")
