"""One server: its queue, batch and pool, and what has come of them. Between two calls nothing moves."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.base import Allocator
from allocators.pooled import Pooled
from simulator.engine import loop
from simulator.engine.batch import NEVER, new_batch
from simulator.engine.bins import add_idle, move_to_bin, new_bins
from simulator.engine.callback import CalledError
from simulator.engine.foreign import Foreign, broke_promise
from simulator.engine.log import Listener, new_log
from simulator.engine.pools import is_ours
from simulator.engine.queue import AGAIN, new_queue, returning
from simulator.engine.schedulers.asking import Asking
from simulator.engine.schedulers.seam import Limits, State
from simulator.engine.terms import Terms

Ints = NDArray[np.int64]
Exact = NDArray[Any]
"""Whole numbers: int64, or Python's where 64 bits are too few."""


_LOW_BITS = 60  # of a wait that is kept in two words


class Times(NamedTuple):
    """When something happened to each row."""

    column: Ints
    """Picoseconds from the beginning of an epoch of the clock; -1: it did not happen."""
    epoch_of: NDArray[np.int32] | None
    """In which one; -1: in the last. None: there was no other."""
    bases: Exact
    """When each began."""

    def of(self, rows: slice) -> Exact:
        """Picoseconds from time 0, of some rows; -1: it did not happen."""
        column = self.column[rows]
        if self.epoch_of is None:
            return column
        times: Exact = self.bases[self.epoch_of[rows]] + column
        times[column < 0] = -1
        return times


class Server:
    """Serves requests with one allocator, whose pool is empty, from time 0 on.

    ``rows``: which rows of the trace they are, in order of (arrival, row), the rejected ones left out; ``arrival_ns``:
    of the trace; ``prompt`` and ``output``: of these rows, and the server's from now on. ``edges_ps``: of the bins in
    which the ledger is kept, ascending. ``log``: hears of every decision.
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
        if is_ours(allocator):
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
        self._epochs: list[int] = []
        """What it counted from before,"""
        self._epoch_of = [np.full(len(rows), -1, np.int32) for _ in range(2)]
        """and in which of them each row was admitted, and finished; -1: in none of them."""
        self._high: Ints | None = None
        """Of waits, in units of 2^60 ps."""
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
        self._pass_far_gap(until_ps, look_ps)
        if self.clock.now >= loop.FARTHEST_PS:
            self._count_from(self.now_ps)
        until, look = (NEVER if time is None else min(time - self.epoch_ps, NEVER) for time in (until_ps, look_ps))
        try:
            why = self.asking.advance(
                *(self.batch, self.queue, self.pool, self.events, self.cost, self.bins, self.clock),
                *(min(until, loop.FARTHEST_PS), look, self.allocator.capacity),
            )
        except CalledError:
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

    def _pass_far_gap(self, until_ps: int | None, look_ps: int | None) -> None:
        """Nobody is there, and nobody comes for longer than the loop's clock can say: that time passes at once."""
        queue, start_ps = self.queue, self.now_ps
        if self.clock.planned or self.batch.now.count or queue.now.back or queue.now.first == len(queue.line):
            return
        arrival_ps = int(self._arrival_ns[self.rows[queue.line[queue.now.first]]]) * 1000
        end_ps = min(time_ps for time_ps in (arrival_ps, until_ps, look_ps) if time_ps is not None)
        if end_ps - start_ps >= loop.FARTHEST_PS:
            add_idle(self.bins, self.batch, self._edges_ps, start_ps, end_ps)
            self._count_from(end_ps)
            move_to_bin(self.bins, self.clock.now)

    def _raised(self) -> BaseException:
        """What a user's own allocator has raised."""
        assert self._foreign
        return self._foreign.callbacks.raised()

    def seats(self) -> list[int]:
        """Of those that run, in order of admission."""
        seats: list[int] = self.batch.order[: self.batch.now.count].tolist()
        return seats

    def extents(self, seat: int, most: int) -> Ints:
        """Start and slots of what is held at a seat, of at most ``most`` extents."""
        extents = np.zeros((most, 2), np.int64)
        try:
            count = ask.copy_extents(self.pool, seat, extents, 0)
        except CalledError:
            raise self._raised() from None
        return extents[:count]

    def close(self) -> None:
        """Nothing is served any more: the log and the allocator are brought up to date."""
        self._empty_log()
        held = [(int(self.batch.request[seat]), seat) for seat in self.seats()]
        if self.log is not None:
            for row, seat in held:
                self.log.still_held(int(self.rows[row]), self.extents(seat, int(self.batch.held[seat])))
        waiting = returning(self.queue)
        self.queue.waits[AGAIN, waiting] += self.clock.now - self.queue.since[waiting]
        if isinstance(self.allocator, Pooled):
            self.allocator.seats = {int(self.rows[row]): seat for row, seat in held}

    def times(self, place: int) -> Times:
        """When each row was admitted (place 0), or finished (1)."""
        column = (self.queue.admitted, self.queue.finished)[place]
        bases = np.array([*self._epochs, self.epoch_ps], object if self.now_ps >> 63 else np.int64)
        return Times(column, self._epoch_of[place] if self._epochs else None, bases)

    @property
    def waits_ps(self) -> Exact:
        """Picoseconds by cause and row, see ``queue.Queue.waits``."""
        if self._high is None:
            return self.queue.waits
        kind = object if int(self._high.max(initial=0)) >> 2 else np.int64
        waits: Exact = (self._high.astype(kind) << _LOW_BITS) + self.queue.waits
        return waits

    def _count_from(self, now_ps: int) -> None:
        """Let the loop's clock count from now, cut to whole nanoseconds as arrivals are."""
        self._empty_log()
        queue, epoch_ps = self.queue, now_ps - now_ps % 1000
        if epoch_ps != self.epoch_ps:
            waiting = returning(queue)
            queue.waits[AGAIN, waiting] += self.clock.now - queue.since[waiting]
            queue.since[waiting] = now_ps - epoch_ps
            self._make_room_for_waits()
            for epoch_of, column in zip(self._epoch_of, (queue.admitted, queue.finished), strict=True):
                epoch_of[(epoch_of < 0) & (column >= 0)] = len(self._epochs)
            self._epochs.append(self.epoch_ps)
        self.epoch_ps, self.clock.now = epoch_ps, now_ps - epoch_ps
        # What is too far off is never reached before the clock is set back again.
        epoch_ns = min(epoch_ps // 1000, int(self._arrival_ns[self.rows[-1]]) + 1) if len(self.rows) else 0
        queue.arrival[:] = np.clip(self._arrival_ns[self.rows] - epoch_ns, -(NEVER // 1000), NEVER // 1000) * 1000
        self.bins.edges[:] = [min(max(edge - epoch_ps, -NEVER), NEVER) for edge in self._edges_ps]

    def _make_room_for_waits(self) -> None:
        """Carry the upper bits of long waits over, so that what is added until the next time fits 64 bits."""
        for cause, waits in enumerate(self.queue.waits):
            if int(waits.max(initial=0)) >> _LOW_BITS:
                if self._high is None:
                    self._high = np.zeros_like(self.queue.waits)
                self._high[cause] += waits >> _LOW_BITS
                waits &= (1 << _LOW_BITS) - 1

    def _empty_log(self) -> None:
        now = self.events.now
        if self.log is not None:
            self.log.add(self.events.events[: now.events], self.events.extents[: now.extents], self.rows, self.epoch_ps)
        now.events = now.extents = 0

    def _broken_promise(self) -> RuntimeError:
        row = int(self.clock.head)
        held, prompt = int(self.clock.broken) - 1, int(self.queue.prompt[row])
        did = f"gave {held} slots for" if held else "refused, in an empty pool,"
        return broke_promise(self.allocator, f"admit {did} {prompt} tokens of request {int(self.rows[row])}")

    def _unbalanced(self) -> AssertionError:
        figures = {name: int(self.batch.now[name]) for name in self.batch.now.dtype.names}
        return AssertionError(
            f"{self.allocator.spec}: the slots do not sum to the capacity {self.allocator.capacity}: {figures}; "
            "if the allocator is your own, allocators.check_allocator tells what it breaks"
        )
