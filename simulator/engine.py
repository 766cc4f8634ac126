"""The simulator: a SimPy process that serves a trace, iteration by iteration, without stepping through all of them.

Between two **decisions** (an arrival that can be admitted, a finish, a grow that the pool cannot serve) nothing
happens but that every running request writes one more token state, so whole stretches have closed forms
(``simulator/stretch.py``). When a request will end is known when it is admitted, and so is when it will next need
memory: both are kept by iteration number (``simulator/agenda.py``). The clock is SimPy's, in whole picoseconds.

The four steps of an iteration (semantics.md section 3) are the four parts of the loop in :meth:`Server.serve`.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import simpy

from allocators.base import Allocator
from simulator.agenda import NEVER
from simulator.batch import Batch, broken_promise
from simulator.decisions import DecisionLog
from simulator.ledger import EXTERNAL, IDLE, PACK_VALUES, RESIDUAL, Ledger
from simulator.run import Layout
from simulator.settings import Settings
from simulator.stretch import boundary, duration_ps

_LONGEST_GAP_PS = 1 << 62  # of one row of the ledger


@dataclass
class Served:
    """What happened, by row of the trace; times in picoseconds, None for what did not happen."""

    admitted_ps: list[int | None]
    finished_ps: list[int | None]
    preemptions: dict[int, int]
    requeued_ps: list[tuple[int, int]]
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


class Requests(NamedTuple):
    """What is served: the columns of a trace, and which rows of it are not rejected, in the order of arrival."""

    arrivals_ps: Sequence[int]
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    rows: Sequence[int]


class Server:
    """Serves requests with one allocator, whose pool is empty. Layout times ascend; ``log`` hears of every decision."""

    def __init__(
        self,
        allocator: Allocator,
        settings: Settings,
        ledger: Ledger,
        requests: Requests,
        layout_times_ps: Sequence[int] = (),
        log: DecisionLog | None = None,
        on_progress: Callable[[int], object] = bool,
    ) -> None:
        self.allocator, self.settings, self.ledger, self.requests = allocator, settings, ledger, requests
        self.log, self.on_progress = log, on_progress
        self.batch = Batch(allocator, settings, log)
        self.layout_times_ps = deque(layout_times_ps)
        count = len(requests.arrivals_ps)
        self.served = Served([None] * count, [None] * count, self.batch.preemptions, self.batch.requeued_ps)

    def serve(self, env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        """The SimPy process. It ends when all are served, or with the iteration that reaches the window's end.

        One pass of the loop is one stretch: an iteration with its four steps, and those that follow it alike. State
        is kept in local variables because this loop is where the time goes.
        """
        allocator, served, ledger, settings = self.allocator, self.served, self.ledger, self.settings
        members, log = self.batch, self.log
        allocate, release, asked_slots = allocator.admit, allocator.release, allocator.asked_slots
        running, ends, grows = members.running, members.ends, members.grows
        returning, left, last_grow_rounding = members.returning, members.left, members.last_grow_rounding
        arrivals_ps, prompts, outputs, _ = self.requests
        rows = iter(self.requests.rows)
        admitted_ps, finished_ps, record, buffer = served.admitted_ps, served.finished_ps, ledger.record, ledger.buffer
        allocate_more, grow_slots = allocator.grow, allocator.grow_slots
        cost, may_grow, tail_slots = settings.cost, grow_slots != 0, allocator.tail_slots
        base_ps, sequence_ps, kv_token_ps = cost.base, cost.sequence, cost.kv_token
        max_batch, max_batch_tokens = settings.max_batch or NEVER, settings.max_batch_tokens or NEVER
        window_end_ps = settings.window_ps[1] if settings.window_ps else NEVER
        next_layout_ps = self.layout_times_ps[0] if self.layout_times_ps else NEVER

        timeout = env.timeout
        now_ps = clock_ps = iteration = finished = peak_batch = rank = 0  # the clock is SimPy's, at the last decision
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
                    next_layout_ps = self._keep_layouts(now_ps, until_ps, iteration, 0, 0, 0)
                free, largest, moved = allocator.free_slots, allocator.largest_free_slots, False
                while now_ps < until_ps:
                    gap_ps = min(until_ps - now_ps, _LONGEST_GAP_PS)
                    record((0, gap_ps, 0, 0, 0, 0, 0, free, largest, IDLE))
                    now_ps += gap_ps
                yield timeout(now_ps - clock_ps)
                clock_ps = now_ps
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
                    change = members.grow_or_preempt(growing, count, iteration, now_ps)
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
                    elif batch and asked > allocator.largest_free_slots:
                        held = 0  # refused before, and still more than any run that could be handed out
                    else:
                        held = allocate(request, prompt, output, not batch)
                    if held < prompt:
                        if held or not batch:
                            did = f"gave {held} slots for" if held else "refused, in an empty pool,"
                            raise broken_promise(allocator, f"admit {did} {prompt} tokens of request {request}")
                        enough = asked <= allocator.free_slots - tail_slots
                        why = EXTERNAL if allocator.contiguous and enough else RESIDUAL
                        break
                    moved, asking = True, -1
                    final = prompt + output - 1
                    over = asked - final
                    if held < final:
                        covered += held
                        over = 0
                        members.plan_last_grow(iteration + held - prompt + 1, final - held, 1)
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
                        states = members.come_back(request, now_ps)
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
                next_layout_ps = self._keep_layouts(now_ps, now_ps + length_ps, iteration, first_ps, step_ps, used)
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
                yield timeout(now_ps - clock_ps)
                clock_ps = now_ps

        served.finished, served.iterations, served.peak_batch = finished, iteration, peak_batch
        served.end_ps, served.stopped = now_ps, now_ps >= window_end_ps
        served.running = set(running)
        served.requeued_ps += [(since_ps, now_ps) for since_ps in members.since_ps.values()]
        served.layouts += [Layout(time_ps, None, ()) for time_ps in self.layout_times_ps]  # behind the end

    def _keep_layouts(self, now_ps: int, until_ps: int, iteration: int, first_ps: int, step_ps: int, used: int) -> int:
        """Keep the memory map at each asked time in the stretch or gap that begins now; returns the next such time."""
        running, held = self.batch.running, self.allocator.capacity - self.allocator.free_slots
        times = self.layout_times_ps
        while times and times[0] < until_ps:
            time_ps = times.popleft()
            if running:
                passed = boundary(time_ps - now_ps + 1, first_ps, step_ps) - 1
                at, written = iteration + passed, used + len(running) * passed
                self.served.layouts.append(Layout(time_ps, at, self.batch.allocations(at), written, held))
            else:
                self.served.layouts.append(Layout(time_ps, None, ()))
        return times[0] if times else NEVER


def serve(server: Server) -> Served:
    """Run a server to its end on a SimPy clock that counts picoseconds from 0."""
    env = simpy.Environment(initial_time=0)
    env.process(server.serve(env))
    env.run()
    return server.served
