"""The simulator: a SimPy process that serves a trace, iteration by iteration, without stepping through all of them.

Between two **decisions** (an arrival that can be admitted, a finish, a grow that the pool cannot serve) nothing
happens but that every running request writes one more token state, so whole stretches have closed forms
(``simulator/stretch.py``). When a request will end is known when it is admitted, and so is when it will next need
memory: both are kept by iteration number (``simulator/agenda.py``). The clock is SimPy's, in whole picoseconds.

The four steps of an iteration (semantics.md section 3) are the four parts of the loop in :meth:`Server.serve`.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field

import simpy

from allocators.base import Allocator
from simulator.agenda import NEVER, Agenda
from simulator.decisions import DecisionLog
from simulator.ledger import EXTERNAL, IDLE, PACK_VALUES, RESIDUAL, Ledger
from simulator.run import Allocation, Layout
from simulator.settings import Settings
from simulator.stretch import boundary, duration_ps

_LONGEST_GAP_PS = 1 << 62  # of one row of the ledger


@dataclass
class Served:
    """What happened, by row of the trace; times in picoseconds, None for what did not happen."""

    admitted_ps: list[int | None]
    finished_ps: list[int | None]
    preemptions: dict[int, int] = field(default_factory=dict)
    requeued_ps: list[tuple[int, int]] = field(default_factory=list)
    """Waits after a preemption: from, to; a wait that had not ended yet ends with the run."""
    layouts: list[Layout] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    """Rows still running when it stopped."""
    finished: int = 0
    iterations: int = 0
    peak_batch: int = 0
    end_ps: int = 0
    stopped: bool = False
    """Whether the window's end stopped it."""


Running = tuple[int, int, int, int, int]
"""A running request as it was last admitted: its first iteration, the tokens prefilled in it, the tokens produced
from then on, its overprovision in slots, and its rank in admission order."""


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


class Server:
    """Serves the ``rows`` of a trace, given in the order of arrival, with one allocator.

    ``arrivals_ps``, ``prompts`` and ``outputs`` have an entry for each row of the trace; layout times ascend.
    ``log`` is told of every decision.
    """

    def __init__(
        self,
        allocator: Allocator,
        settings: Settings,
        ledger: Ledger,
        arrivals_ps: Sequence[int],
        prompts: Sequence[int],
        outputs: Sequence[int],
        rows: Iterable[int],
        layout_times_ps: Sequence[int] = (),
        log: DecisionLog | None = None,
        on_progress: Callable[[int], object] = bool,
    ) -> None:
        self.allocator, self.settings, self.ledger = allocator, settings, ledger
        self.arrivals_ps, self.prompts, self.outputs, self.rows = arrivals_ps, prompts, outputs, rows
        self.log, self.on_progress = log, on_progress
        self.served = Served([None] * len(prompts), [None] * len(prompts))
        self.layout_times_ps = deque(layout_times_ps)
        self.running: dict[int, Running] = {}  # in admission order
        self.ends = Agenda(self._rank)  # by the iteration in which a request produces its last token
        self.grows = Agenda(self._rank)  # by the iteration in which a request next needs memory
        # What the last grows due in an iteration hold beyond what their requests will ever write.
        self.last_grow_rounding: defaultdict[int, int] = defaultdict(int)
        # Preempted requests go before the trace: what each has to prefill and to produce, since when it waits, and
        # the token states it has on the host.
        self.returning: deque[int] = deque()
        self.left: dict[int, tuple[int, int]] = {}
        self.since_ps: dict[int, int] = {}
        self.on_host: dict[int, int] = {}
        self.host_slots = 0

    def _rank(self, request: int) -> int:
        return self.running[request][4]

    def serve(self, env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        """The SimPy process. It ends when all are served, or with the iteration that reaches the window's end.

        One pass of the loop is one stretch: an iteration with its four steps, and those that follow it alike. State
        is kept in local variables because this loop is where the time goes.
        """
        allocator, served, ledger, settings = self.allocator, self.served, self.ledger, self.settings
        allocate, release, asked_slots = allocator.admit, allocator.release, allocator.asked_slots
        running, ends, grows, returning, left = self.running, self.ends, self.grows, self.returning, self.left
        arrivals_ps, prompts, outputs, rows = self.arrivals_ps, self.prompts, self.outputs, iter(self.rows)
        admitted_ps, finished_ps, record, buffer = served.admitted_ps, served.finished_ps, ledger.record, ledger.buffer
        allocate_more, grow_slots, last_grow_rounding = allocator.grow, allocator.grow_slots, self.last_grow_rounding
        cost, may_grow, tail_slots = settings.cost, grow_slots != 0, allocator.tail_slots
        base_ps, sequence_ps, kv_token_ps = cost.base, cost.sequence, cost.kv_token
        max_batch, max_batch_tokens = settings.max_batch or NEVER, settings.max_batch_tokens or NEVER
        window_end_ps = settings.window_ps[1] if settings.window_ps else NEVER
        next_layout_ps = self.layout_times_ps[0] if self.layout_times_ps else NEVER

        log = self.log
        now_ps = iteration = finished = peak_batch = rank = 0
        batch = used = covered = overprovision = rounding = 0
        free, largest, moved = allocator.free_slots, allocator.largest_free_slots, False
        head = next(rows, -1)  # the first row of the trace that was not admitted yet
        arrival_ps = arrivals_ps[head] if head >= 0 else NEVER
        next_end = next_grow = NEVER
        decide = True  # whether admission may have changed
        blocked = False  # someone waits, and only a finish or a preemption can change that
        retry = False  # someone waits, and the next iteration has new tokens for it
        why = IDLE
        asking, asked = -1, 0  # the head of the queue, once it has asked, and how many slots

        while now_ps < window_end_ps:
            if not batch and arrival_ps > now_ps and not returning:
                if arrival_ps == NEVER:
                    break
                until_ps = min(arrival_ps, window_end_ps)
                if next_layout_ps < until_ps:
                    next_layout_ps = self._keep_layouts(now_ps, until_ps, iteration, 0, 0)
                free, largest, moved = allocator.free_slots, allocator.largest_free_slots, False
                while now_ps < until_ps:
                    gap_ps = min(until_ps - now_ps, _LONGEST_GAP_PS)
                    record((0, gap_ps, 0, 0, 0, 0, 0, free, largest, IDLE))
                    now_ps += gap_ps
                yield env.timeout(now_ps - env.now)
                continue

            # 1. Grow, oldest first: room for one more token state for those who have none left.
            prefill_tokens = swapped_tokens = 0
            preempted = False
            if next_grow == iteration:
                growing = grows.take(iteration)
                count = allocate_more(growing) if grow_slots else 0
                moved = True
                if grow_slots and count == len(growing):
                    last_rounding = last_grow_rounding.pop(iteration, 0)
                    covered += grow_slots * count - last_rounding
                    rounding += last_rounding
                    grows.merge(iteration + grow_slots, growing)
                    if log is not None:
                        log.grow(iteration, now_ps, growing)
                else:
                    change = self._grow_or_preempt(growing, count, iteration, now_ps)
                    covered += change.covered
                    rounding += change.rounding
                    if change.preempted:
                        batch -= change.preempted
                        used += change.used
                        overprovision += change.overprovision
                        swapped_tokens = change.swapped_tokens
                        preempted = retry = True
                        why = RESIDUAL
                        next_end = ends.first()
                if why == EXTERNAL and asked > allocator.free_slots - tail_slots:
                    why = RESIDUAL  # less is free now than was refused

            # 2. Admit, first come, first served, until a check stops the head of the queue.
            used += batch
            if decide and not preempted:
                before, new_tokens = batch, batch
                why, retry, blocked = IDLE, False, True
                while True:
                    if returning:
                        request = returning[0]
                        prompt, output = left[request]
                    elif arrival_ps <= now_ps:
                        request, prompt, output = head, prompts[head], outputs[head]
                    else:
                        blocked = False
                        break
                    if batch >= max_batch:
                        break
                    new_tokens += prompt
                    if new_tokens > max_batch_tokens and batch:
                        retry = batch > before
                        break
                    if request != asking:
                        asking, asked = request, asked_slots(prompt, output)
                    held = allocate(request, prompt, output, not batch)
                    if not held:
                        if not batch:
                            raise RuntimeError(f"{allocator.spec} refuses request {request} although the pool is empty")
                        enough = asked <= allocator.free_slots - tail_slots
                        why = EXTERNAL if allocator.contiguous and enough else RESIDUAL
                        break
                    moved, asking = True, -1
                    final = prompt + output - 1
                    over = asked - final
                    if held < final:
                        covered += held
                        over = 0
                        self._plan_last_grow(iteration + held - prompt + 1, final - held, 1)
                        grows.append(iteration + held - prompt + 1, request)
                    else:
                        if over < 0:
                            over = 0
                        covered += final
                        overprovision += over
                        rounding += held - final - over
                    running[request] = iteration, prompt, output, over, rank
                    ends.append(iteration + output - 1, request)
                    if log is not None:
                        log.admit(iteration, now_ps, request, prompt)
                    rank += 1
                    batch += 1
                    used += prompt
                    if returning:
                        returning.popleft()
                        states = self._come_back(request, now_ps)
                        swapped_tokens += states
                        prefill_tokens += 0 if states else prompt
                    else:
                        prefill_tokens += prompt
                        admitted_ps[request] = now_ps
                        head = next(rows, -1)
                        arrival_ps = arrivals_ps[head] if head >= 0 else NEVER
                if batch > before:
                    next_end = ends.first()
                    if batch > peak_batch:
                        peak_batch = batch
            if may_grow:
                next_grow = grows.first()

            # 3. Run this iteration, and those that follow it alike: until an end, a grow, or an arrival that matters.
            step_ps = kv_token_ps * batch
            length_ps = first_ps = base_ps + sequence_ps * batch + kv_token_ps * used
            count = 1
            if prefill_tokens or swapped_tokens or preempted:
                first_ps += cost.prefill_token * prefill_tokens + cost.swapped_token * swapped_tokens
                length_ps = first_ps
            else:
                count = (next_end + 1 if next_end < next_grow else next_grow) - iteration
                length_ps = count * first_ps + step_ps * (count * (count - 1) // 2)
                until_ps = window_end_ps
                if arrival_ps < until_ps and not blocked and batch < max_batch:
                    until_ps = arrival_ps
                if now_ps + length_ps > until_ps:
                    count = boundary(until_ps - now_ps, first_ps, step_ps)
                    length_ps = duration_ps(count, first_ps, step_ps)
            if moved:
                free, largest, moved = allocator.free_slots, allocator.largest_free_slots, False
            record((count, first_ps, batch, used, covered, overprovision, rounding, free, largest, why))
            if next_layout_ps < now_ps + length_ps:
                next_layout_ps = self._keep_layouts(now_ps, now_ps + length_ps, iteration, first_ps, step_ps)
            if len(buffer) >= PACK_VALUES:
                ledger.pack()
                self.on_progress(finished)
            now_ps += length_ps
            iteration += count
            used += batch * (count - 1)

            # 4. Finish, in admission order.
            decide = retry
            if next_end < iteration:
                for request in ends.take(next_end):
                    first, prompt, output, over, _ = running.pop(request)
                    final = prompt + output - 1
                    held = release(request)
                    if may_grow:
                        grows.discard(first + held - prompt + 1, request)
                    batch -= 1
                    used -= final
                    covered -= final
                    overprovision -= over
                    rounding -= held - final - over
                    finished_ps[request] = now_ps
                    finished += 1
                    if log is not None:
                        log.release("finish", iteration, now_ps, request, final)
                next_end = ends.first()
                if may_grow:
                    next_grow = grows.first()
                decide = moved = True
            elif not blocked and arrival_ps <= now_ps:
                decide = True
            if decide:
                yield env.timeout(now_ps - env.now)

        served.finished, served.iterations, served.peak_batch = finished, iteration, peak_batch
        served.end_ps, served.stopped = now_ps, now_ps >= window_end_ps
        served.running = set(running)
        served.requeued_ps += [(since_ps, now_ps) for since_ps in self.since_ps.values()]
        served.layouts += [Layout(time_ps, None, ()) for time_ps in self.layout_times_ps]  # behind the end

    def _grow_or_preempt(self, growing: list[int], count: int, iteration: int, now_ps: int) -> Change:
        """Serve those behind the first ``count`` too; whenever there is no room, preempt the newest running request."""
        change, logged = Change(), 0
        step = self.allocator.grow_slots
        if step is None:
            self._grow_one_by_one(growing, iteration, now_ps, change)
            return change
        while True:
            if self.log is not None:
                self.log.grow(iteration, now_ps, growing[logged:count])
            if count == len(growing):
                break
            logged = count
            victim = self._preempt_newest(iteration, now_ps, change)
            if victim in growing:
                growing.remove(victim)
            count += self.allocator.grow(growing[count:])
        rounding = self.last_grow_rounding.pop(iteration, 0)
        change.rounding += rounding
        change.covered += step * count - rounding
        if growing:
            self.grows.merge(iteration + step, growing)
        return change

    def _grow_one_by_one(self, growing: list[int], iteration: int, now_ps: int, change: Change) -> None:
        """The same for an allocator whose grows differ in size."""
        while growing:
            request = growing[0]
            before = self.allocator.held_slots(request)
            if not self.allocator.grow([request]):
                victim = self._preempt_newest(iteration, now_ps, change)
                if victim in growing:
                    growing.remove(victim)
                continue
            del growing[0]
            first, prompt, output, _, _ = self.running[request]
            final = prompt + output - 1
            after = self.allocator.held_slots(request)
            change.covered += min(after, final) - before
            change.rounding += max(after - final, 0)
            if self.log is not None:
                self.log.grow(iteration, now_ps, [request])
            if after < final:
                self.grows.merge(first + after - prompt + 1, [request])

    def _preempt_newest(self, iteration: int, now_ps: int, change: Change) -> int:
        """Take all memory from the newest running request and put it at the head of the queue."""
        request, (first, prompt, output, overprovision, _) = self.running.popitem()
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
        if held >= final:
            change.rounding -= held - final - overprovision
        else:
            self._plan_last_grow(next_grow, final - held, -1)
        self.returning.appendleft(request)
        self.left[request] = prompt + produced, output - produced
        self.since_ps[request] = now_ps
        if self.settings.preemption == "swap" and self.host_slots + states <= self.settings.swap_slots:
            self.on_host[request] = states
            self.host_slots += states
            change.swapped_tokens += states
        self.served.preemptions[request] = self.served.preemptions.get(request, 0) + 1
        return request

    def _plan_last_grow(self, next_grow: int, missing: int, sign: int) -> None:
        """Enter (1) or take back (-1) the rounding that a request's last grow adds: what it is given past its end."""
        step = self.allocator.grow_slots
        if step:
            more = -(-missing // step)
            self.last_grow_rounding[next_grow + (more - 1) * step] += sign * (more * step - missing)

    def _come_back(self, request: int, now_ps: int) -> int:
        """A preempted request runs again; returns the token states it has swapped in, 0 when it prefills anew."""
        del self.left[request]
        self.served.requeued_ps.append((self.since_ps.pop(request), now_ps))
        states = self.on_host.pop(request, 0)
        self.host_slots -= states
        return states

    def _keep_layouts(self, now_ps: int, until_ps: int, iteration: int, first_ps: int, step_ps: int) -> int:
        """Keep the memory map at each asked time in the stretch or gap that begins now; returns the next such time."""
        times = self.layout_times_ps
        while times and times[0] < until_ps:
            time_ps = times.popleft()
            at = iteration
            if self.running:
                at += boundary(time_ps - now_ps + 1, first_ps, step_ps) - 1
            allocations = [
                Allocation(
                    request,
                    self.allocator.extents(request),
                    written_tokens=prompt + at - first,
                    final_tokens=prompt + output - 1,
                    overprovision_slots=overprovision,
                )
                for request, (first, prompt, output, overprovision, _) in self.running.items()
            ]
            self.served.layouts.append(Layout(time_ps, at if self.running else None, tuple(allocations)))
        return times[0] if times else NEVER


def serve(server: Server) -> Served:
    """Run a server to its end on a SimPy clock that counts picoseconds from 0."""
    env = simpy.Environment(initial_time=0)
    env.process(server.serve(env))
    env.run()
    return server.served
