"""The running requests and the preempted ones, and the steps that are rare: growing without room, preemption, return.

What is common lives in the loop of ``simulator/engine.py``, which reads and writes the same collections.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from allocators.base import Allocator
from simulator.agenda import Agenda, Ring
from simulator.decisions import DecisionLog
from simulator.run import Allocation
from simulator.settings import Settings

Running = tuple[int, int, int, int]
"""A running request as it was last admitted: its first iteration, the tokens prefilled in it, the tokens produced
from then on, and its overprovision in slots."""


_LONGEST_PERIOD = 1 << 10
"""In iterations: with larger blocks grows are rare, and better found by iteration."""


@dataclass
class Change:
    """What growing did to the batch: slots by what they hold (``ledger.COLUMNS``), token states moved to the host."""

    covered: int = 0
    rounding: int = 0
    overprovision: int = 0
    used: int = 0
    swapped_tokens: int = 0
    preempted: int = 0
    """Requests."""


def broken_promise(allocator: Allocator, what: str) -> RuntimeError:
    """The error for an allocator that does not keep its protocol."""
    return RuntimeError(f"{allocator.spec} broke a promise: {what}; allocators.check_allocator tells more")


class Batch:
    """Who runs and who was preempted, with what each has and needs. Iterations and times are handed in."""

    def __init__(self, allocator: Allocator, settings: Settings, log: DecisionLog | None) -> None:
        self.allocator, self.settings, self.log = allocator, settings, log
        self.running: dict[int, Running] = {}  # in admission order
        self.ends = Agenda()  # by the iteration in which a request produces its last token
        # Who next needs memory: by phase where grows are all of a size and need no run, else by iteration.
        slots = allocator.grow_slots or 0
        self.paging = 0 < slots <= _LONGEST_PERIOD and not allocator.contiguous
        self.ring = Ring(slots if self.paging else 1)
        self.grows = Agenda()
        # When paging, a heap: iterations in which someone grows for the last time, and what he is then given past his
        # end. For one who was preempted before, that is entered once more, as a negative number.
        self.last_grows: list[tuple[int, int]] = []
        # Preempted requests go before the trace: what each has to prefill and to produce, since when it waits, and
        # the token states it has on the host.
        self.returning: deque[int] = deque()
        self.left: dict[int, tuple[int, int]] = {}
        self.since_ps: dict[int, int] = {}
        self.on_host: dict[int, int] = {}
        self.host_slots = 0
        self.preemptions: dict[int, int] = {}  # how often, by request
        self.requeued_ps: list[tuple[int, int, int]] = []  # waits after a preemption that ended: who, from, to

    def grow(self, iteration: int, now_ps: int) -> Change | None:
        """Serve those who are due by iteration; when paging, they are due by phase from now on."""
        growing = self.grows.take(iteration)
        if not self.paging:
            return self._grow_one_by_one(growing, iteration, now_ps)
        for request in growing:
            self.ring.enter(iteration, request)
        self.ring[iteration % self.ring.period].sort()
        return None

    def without_room(self, coming: list[list[int]], served: int) -> tuple[int, int]:
        """When only the first ``served`` of all that were coming could grow, iteration by iteration: in how many
        iterations all of them did, and how many did in the next one."""
        left = served
        for number, growing in enumerate(coming):
            if 0 <= left < len(growing):
                return number, left
            left -= len(growing)
        raise broken_promise(self.allocator, f"grow served {served} of {sum(map(len, coming))} requests")

    def last_rounding(self, behind: int) -> list[tuple[int, int]]:
        """Take out the last grows before the iteration ``behind``: when, and the slots past the end."""
        taken = []
        while self.last_grows and self.last_grows[0][0] < behind:
            taken.append(heappop(self.last_grows))
        return taken

    def grow_or_preempt(self, growing: list[int], count: int, iteration: int, now_ps: int) -> Change:
        """Serve those behind the first ``count`` too; whenever there is no room, preempt the newest running request.

        ``growing`` is a list of the ring: a victim is taken from it.
        """
        change, logged = Change(), 0
        while True:
            if self.log is not None:
                self.log.grow(iteration, now_ps, growing[logged:count])
            if not 0 <= count <= len(growing):
                raise broken_promise(self.allocator, f"grow served {count} of {len(growing)} requests")
            if count == len(growing):
                break
            logged = count
            self._preempt_newest(iteration, now_ps, change)
            count += self.allocator.grow(growing[count:])
        rounding = sum(slots for _, slots in self.last_rounding(iteration + 1))
        change.rounding += rounding
        change.covered += self.ring.period * count - rounding
        return change

    def _grow_one_by_one(self, growing: list[int], iteration: int, now_ps: int) -> Change:
        """Serve them whatever each grow adds; whenever there is no room, preempt the newest running request."""
        change = Change()
        while growing:
            request = growing[0]
            before = self.allocator.held_slots(request)
            if not self.allocator.grow([request]):
                victim = self._preempt_newest(iteration, now_ps, change)
                if victim in growing:
                    growing.remove(victim)
                continue
            del growing[0]
            first, prompt, output, _ = self.running[request]
            final = prompt + output - 1
            after = self.allocator.held_slots(request)
            change.covered += min(after, final) - before
            change.rounding += max(after - final, 0)
            if self.log is not None:
                self.log.grow(iteration, now_ps, [request])
            if after < final:
                self.grows.enter(first + after - prompt + 1, request)
        return change

    def _preempt_newest(self, iteration: int, now_ps: int, change: Change) -> int:
        """Take all memory from the newest running request and put it at the head of the queue."""
        request, (first, prompt, output, overprovision) = self.running.popitem()
        final = prompt + output - 1
        produced = iteration - first
        states = prompt + produced - 1  # its write of this iteration has not happened
        held = self.allocator.release(request)
        if self.log is not None:
            self.log.release("preempt", iteration, now_ps, request, states)
        change.preempted += 1
        change.used -= states
        change.covered -= min(held, final)
        change.overprovision -= overprovision
        self.ends.discard(first + output - 1, request)
        next_grow = first + held - prompt + 1
        self.grows.discard(next_grow, request)
        self.ring.discard(next_grow, request)
        if held >= final:
            change.rounding -= held - final - overprovision
        else:
            self._forget_last_grow(next_grow, final - held)
        self.returning.appendleft(request)
        self.left[request] = prompt + produced, output - produced
        self.since_ps[request] = now_ps
        if self.settings.preemption == "swap" and self.host_slots + states <= self.settings.swap_slots:
            self.on_host[request] = states
            self.host_slots += states
            change.swapped_tokens += states
        self.preemptions[request] = self.preemptions.get(request, 0) + 1
        return request

    def _forget_last_grow(self, next_grow: int, missing: int) -> None:
        """A request that still lacks ``missing`` slots will not grow for the last time."""
        if self.paging:
            more = -(-missing // self.ring.period)
            if rounding := more * self.ring.period - missing:
                heappush(self.last_grows, (next_grow + (more - 1) * self.ring.period, -rounding))

    def come_back(self, request: int, now_ps: int) -> int:
        """A preempted request runs again; returns the token states it has swapped in, 0 when it prefills anew."""
        del self.left[request]
        self.requeued_ps.append((request, self.since_ps.pop(request), now_ps))
        states = self.on_host.pop(request, 0)
        self.host_slots -= states
        return states

    def allocations(self, iteration: int) -> tuple[Allocation, ...]:
        """What every running request holds in an iteration, its writes included, in admission order."""
        return tuple(
            Allocation(
                request,
                self.allocator.extents(request),
                written_tokens=prompt + iteration - first,
                final_tokens=prompt + output - 1,
                overprovision_slots=overprovision,
            )
            for request, (first, prompt, output, overprovision) in self.running.items()
        )
