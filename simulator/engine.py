"""The simulator: a SimPy process that serves a trace, iteration by iteration, without stepping through all of them.

Between two **decisions** (an arrival that can be admitted, a finish, a grow that the pool cannot serve) nothing
happens but that every running request writes one more token state, so whole stretches have closed forms
(``simulator/stretch.py``). When a request will end is known when it is admitted, and so is when it will next need
memory (``simulator/agenda.py``): where any free slot serves anyone, all grows of a stretch are done at once, in the
order in which they would happen one by one. The clock is SimPy's, in whole picoseconds.

The four steps of an iteration (semantics.md section 3) are the four parts of the loop in :meth:`Server.serve`.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush
from itertools import chain

import simpy

from allocators.base import Allocator
from simulator.agenda import NEVER
from simulator.batch import Batch, broken_promise
from simulator.decisions import DecisionLog
from simulator.ledger import BATCH, EXTERNAL, NOBODY, PACK_ROWS, RESIDUAL, TOKENS, Ledger
from simulator.run import Layout
from simulator.served import Requests, Served
from simulator.settings import Settings
from simulator.stretch import boundary, duration_ps

_LONGEST_GAP_PS = 1 << 62  # of one row of the ledger
_MOST_AHEAD = 1 << 12  # iterations for which grows are looked up at once, a period more or less


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
        running, ends, grows, ring = members.running, members.ends.heap, members.grows, members.ring
        returning, left, last_grows = members.returning, members.left, members.last_grows
        arrivals_ps, prompts, outputs, _ = self.requests
        waiting = iter(self.requests.rows)
        admitted_ps, finished_ps = served.admitted_ps, served.finished_ps
        record, row, recorded = ledger.rows.append, ledger.row, ledger.rows
        record_grows, record_last = ledger.grows.extend, ledger.last_grows.extend
        allocate_more, period = allocator.grow, ring.period
        contiguous, tail_slots = allocator.contiguous, allocator.tail_slots
        may_grow, paging = allocator.grow_slots != 0, members.paging
        discard_grow = ring.discard if paging else grows.discard
        cost = settings.cost
        base_ps, sequence_ps, kv_token_ps = cost.base, cost.sequence, cost.kv_token
        prefill_token_ps, swapped_token_ps = cost.prefill_token, cost.swapped_token
        max_batch, max_batch_tokens = settings.max_batch or NEVER, settings.max_batch_tokens or NEVER
        window_end_ps = settings.window_ps[1] if settings.window_ps else NEVER
        next_layout_ps = self.layout_times_ps[0] if self.layout_times_ps else NEVER
        # When paging, who grows in a stretch is looked up for all of it; the log wants to see every grow by itself.
        longest = NEVER if not paging else period + (1 if log is not None else _MOST_AHEAD)

        timeout = env.timeout
        now_ps = clock_ps = iteration = finished = peak_batch = 0  # the clock is SimPy's, at the last decision
        batch = used = covered = overprovision = rounding = 0
        free, largest, moved = allocator.free_slots, allocator.largest_free_slots, False
        next_row = next(waiting, -1)  # the first row of the trace that was not admitted yet
        arrival_ps = arrivals_ps[next_row] if next_row >= 0 else NEVER
        next_end = next_grow = NEVER
        decide = True  # whether admission may have changed
        blocked = False  # someone waits, and only a finish or a preemption can change that
        retry = False  # someone waits, and the next iteration has new tokens for it
        why, head = NOBODY, -1  # what stopped the head of the queue, and who that is
        asking, asked = -1, 0  # the head of the queue, once it has asked, and how many slots
        grown = 0  # of those who are due in the next iteration, how many have grown already

        while now_ps < window_end_ps:
            if not batch and arrival_ps > now_ps and not returning:
                if arrival_ps == NEVER:
                    break
                until_ps = min(arrival_ps, window_end_ps)
                if next_layout_ps < until_ps:
                    next_layout_ps = self._keep_layouts(now_ps, until_ps, iteration)
                free, largest, moved = allocator.free_slots, allocator.largest_free_slots, False
                while now_ps < until_ps:
                    gap_ps = min(until_ps - now_ps, _LONGEST_GAP_PS)
                    record(row(0, 0, gap_ps, 0, 0, 0, 0, 0, free, largest, NOBODY, 0, 0, 0))
                    now_ps += gap_ps
                yield timeout(now_ps - clock_ps)
                clock_ps = now_ps
                continue

            # 1. Grow, oldest first: room for one more token state for those who have none left.
            prefill_tokens = swapped_tokens = 0
            preempted = False
            if may_grow:
                change = members.grow(iteration, now_ps) if next_grow == iteration else None
                if paging and (growing := ring[iteration % period]):
                    count = grown + allocate_more(growing[grown:] if grown else growing)
                    grown = 0
                    moved = True
                    if count == len(growing):
                        covered += period * count
                        while last_grows and last_grows[0][0] <= iteration:  # before: those that cancel out
                            slots = heappop(last_grows)[1]
                            covered -= slots
                            rounding += slots
                        if log is not None:
                            log.grow(iteration, now_ps, growing)
                    else:
                        change = members.grow_or_preempt(growing, count, iteration, now_ps)
                if change is not None:
                    covered += change.covered
                    rounding += change.rounding
                    moved = True
                    if change.preempted:
                        batch -= change.preempted
                        used += change.used
                        overprovision += change.overprovision
                        swapped_tokens = change.swapped_tokens
                        preempted = retry = True
                        why, head = RESIDUAL, returning[0]
                        next_end = ends[0][0] if ends else NEVER
                    elif why == EXTERNAL and asked > allocator.free_slots - tail_slots:
                        why = RESIDUAL  # less is free now than was refused

            # 2. Admit, first come, first served, until a check stops the head of the queue.
            used += batch
            if decide and not preempted:
                before, new_tokens = batch, batch
                retry, blocked = False, True
                while True:
                    if returning:
                        head = returning[0]
                        prompt, output = left[head]
                    elif arrival_ps <= now_ps:
                        head, prompt, output = next_row, prompts[next_row], outputs[next_row]
                    else:
                        blocked, why, head = False, NOBODY, -1
                        break
                    if batch >= max_batch:
                        why = BATCH
                        break
                    new_tokens += prompt
                    if new_tokens > max_batch_tokens and batch:
                        retry, why = batch > before, TOKENS
                        break
                    if head != asking:
                        asking, asked = head, asked_slots(prompt, output)
                    if batch and asked > allocator.largest_free_slots:
                        held = 0  # it need not be asked
                    else:
                        held = allocate(head, prompt, output, not batch)
                    if held < prompt:
                        if held or not batch:
                            did = f"gave {held} slots for" if held else "refused, in an empty pool,"
                            raise broken_promise(allocator, f"admit {did} {prompt} tokens of request {head}")
                        why = EXTERNAL if contiguous and asked <= allocator.free_slots - tail_slots else RESIDUAL
                        break
                    moved, asking = True, -1
                    final = prompt + output - 1
                    over = asked - final
                    if held < final:
                        covered += held
                        over = 0
                        due = iteration + held - prompt + 1
                        if paging and (past_end := (held - final) % period):
                            heappush(last_grows, (due + final - held + past_end - period, past_end))
                        if paging and due <= iteration + period:
                            ring.enter(due, head)
                        else:
                            grows.enter(due, head)
                    else:
                        if over < 0:
                            over = 0
                        covered += final
                        overprovision += over
                        rounding += held - final - over
                    running[head] = iteration, prompt, output, over
                    heappush(ends, (iteration + output - 1, head))
                    if log is not None:
                        log.admit(iteration, now_ps, head, prompt)
                    batch += 1
                    used += prompt
                    if returning:
                        returning.popleft()
                        states = members.come_back(head, now_ps)
                        swapped_tokens += states
                        prefill_tokens += 0 if states else prompt
                    else:
                        prefill_tokens += prompt
                        admitted_ps[head] = now_ps
                        next_row = next(waiting, -1)
                        arrival_ps = arrivals_ps[next_row] if next_row >= 0 else NEVER
                if batch > before:
                    next_end = ends[0][0] if ends else NEVER
                    if batch > peak_batch:
                        peak_batch = batch
            if may_grow:
                next_grow = grows.first()

            # 3. Run this iteration, and those that follow it alike: until an end, an arrival that matters, or a grow
            # that changes more than what is free.
            step_ps = kv_token_ps * batch
            first_ps = base_ps + sequence_ps * batch + kv_token_ps * used
            extra_ps = prefill_token_ps * prefill_tokens + swapped_token_ps * swapped_tokens
            count, length_ps = 1, extra_ps + first_ps
            if not retry:
                count = (next_end + 1 if next_end < next_grow else next_grow) - iteration
                if count > longest:
                    count = longest
                length_ps = extra_ps + count * first_ps + step_ps * (count * (count - 1) // 2)
                until_ps = window_end_ps
                if arrival_ps < until_ps and not blocked:
                    until_ps = arrival_ps
                if paging and next_layout_ps < until_ps:
                    until_ps = next_layout_ps + 1  # a memory map is drawn before anybody grows behind it
                if now_ps + length_ps >= until_ps:  # at equality too: iterations of no time may follow that moment
                    left_ps = until_ps - now_ps - extra_ps
                    count = boundary(left_ps, first_ps, step_ps) if left_ps > 0 else 1
                    length_ps = extra_ps + duration_ps(count, first_ps, step_ps)
            if moved:
                free, largest, moved = allocator.free_slots, allocator.largest_free_slots, False
            coming: list[list[int]] = []  # who grows in each of the iterations that follow this one
            lasts = slots_given = slots_past_end = 0
            if paging and count > 1:
                coming = ring.between(iteration + 1, iteration + count)
                if requests := list(chain.from_iterable(coming)):
                    could = allocate_more(requests)
                    if could != len(requests):
                        alike, grown = members.without_room(coming, could)
                        could -= grown
                        coming, count = coming[:alike], alike + 1
                        length_ps = extra_ps + duration_ps(count, first_ps, step_ps)
                    slots_given, moved = period * could, True
                    while last_grows and last_grows[0][0] < iteration + count:
                        at, slots = heappop(last_grows)
                        if at > iteration:  # before: those that cancel out
                            record_last((at - iteration, slots))
                            slots_past_end += slots
                            lasts += 1
            record(
                row(
                    count, first_ps, extra_ps, batch, used, covered, overprovision, rounding,
                    free, largest, why, head + 1, len(coming), lasts,
                )
            )  # fmt: skip
            if coming:
                record_grows(map(len, coming))
                covered += slots_given - slots_past_end
                rounding += slots_past_end
                if log is not None:
                    for ahead, growing in enumerate(coming, start=1):
                        at_ps = now_ps + extra_ps + duration_ps(ahead, first_ps, step_ps)
                        log.grow(iteration + ahead, at_ps, growing)
            if next_layout_ps < now_ps + length_ps:
                next_layout_ps = self._keep_layouts(
                    now_ps, now_ps + length_ps, iteration, extra_ps, first_ps, step_ps, used
                )
            if len(recorded) >= PACK_ROWS:
                ledger.pack()
                self.on_progress(finished)
            now_ps += length_ps
            iteration += count
            used += batch * (count - 1)

            # 4. Finish, in admission order.
            decide = retry
            if next_end < iteration:
                while ends and ends[0][0] < iteration:
                    request = heappop(ends)[1]
                    first, prompt, output, over = running.pop(request)
                    final = prompt + output - 1
                    if log is not None:
                        log.release("finish", iteration, now_ps, request, final)
                    held = release(request)
                    if may_grow:
                        discard_grow(first + held - prompt + 1, request)
                    batch -= 1
                    used -= final
                    covered -= final
                    overprovision -= over
                    rounding -= held - final - over
                    finished_ps[request] = now_ps
                    finished += 1
                next_end = ends[0][0] if ends else NEVER
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
        served.requeued_ps += [(request, since_ps, now_ps) for request, since_ps in members.since_ps.items()]
        served.layouts += [Layout(time_ps, None, ()) for time_ps in self.layout_times_ps]  # behind the end

    def _keep_layouts(
        self,
        now_ps: int,
        until_ps: int,
        iteration: int,
        extra_ps: int = 0,
        first_ps: int = 0,
        step_ps: int = 0,
        used: int = 0,
    ) -> int:
        """Keep the memory map at each asked time in the stretch or gap that begins now; returns the next such time."""
        running, held = self.batch.running, self.allocator.capacity - self.allocator.free_slots
        times = self.layout_times_ps
        while times and times[0] < until_ps:
            time_ps = times.popleft()
            if running:
                left_ps = time_ps - now_ps - extra_ps
                passed = boundary(left_ps + 1, first_ps, step_ps) - 1 if left_ps >= first_ps else 0
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
