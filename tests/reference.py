"""The token-stepped simulator: the contract (docs/semantics.md) in its plainest executable form, and slow.

It shares no code with the engine: two independent programs must come to the same integers. Each iteration
steps every running request by one token and sums the ledger anew from the raw state. Times are picoseconds.

    iteration at time t:   grow  ->  admit  ->  run (writes; the ledger is taken here)  ->  finish

One request's slots, P = prompt_tokens, G = output_tokens, k tokens produced so far:

    |<- P + k - 1 token states ->|<- reservation ->|<- overprovision ->|<- rounding ->|
    0                            states            final = P + G - 1   asked          held
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple

Row = tuple[int, int, int]  # arrival in ns, prompt_tokens, output_tokens
Extent = tuple[int, int]  # start, slots
Layout = dict[int, tuple[list[Extent], int]]  # request id -> its extents in token order, token states written

CATEGORIES = ("used", "reservation", "overprovision", "rounding", "external", "residual", "idle")
CAUSES = ("external", "too_little_free", "max_batch", "max_batch_tokens", "behind", "iteration", "preempted")


def no_slots() -> dict[str, int]:
    return dict.fromkeys(CATEGORIES, 0)


def choose(name: str, value: str, *allowed: str) -> str:
    if value not in allowed:
        raise ValueError(f"unknown {name} {value!r}; choose from {', '.join(allowed)}")
    return value


@dataclass(frozen=True)
class Settings:
    capacity: int
    max_model_len: int | None = None
    max_batch: int | None = None
    max_batch_tokens: int | None = None
    too_long: str = "reject"  # or "truncate"
    preemption: str = "recompute"  # or "swap"
    swap_slots: int = 0
    scheduler: str = "fcfs"  # or "shortest prompt": the fewest tokens to prefill are next
    window_ps: tuple[int, int] | None = None
    base_ps: int = 0
    prefill_token_ps: int = 0
    sequence_ps: int = 0
    kv_token_ps: int = 0
    swapped_token_ps: int = 0


@dataclass(eq=False, slots=True)
class Request:
    id: int
    arrival_ps: int
    prompt_tokens: int
    output_tokens: int  # the truncated number, where it was truncated
    final: int = 0  # token states at its end: the last output token's state is never written
    asked: int = 0  # by the reservation rule; a paged allocator reserves nothing and asks 0
    status: str = "not_arrived"  # until its end, its rejection or the end of the run
    produced: int = 0
    host_slots: int = 0  # token states in the host pool; 0 when not swapped out
    admitted_ps: int | None = None  # start of the iteration that first admitted it
    finished_ps: int | None = None
    preemptions: int = 0
    waits_ps: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))


class Iteration(NamedTuple):
    start_ps: int
    duration_ps: int
    running: int
    refused: bool
    categories: dict[str, int]
    largest_free: int
    prefilled: int
    preempted: int  # requests, at its start


@dataclass
class Outcome:
    """Times and integrals are clipped to the window; the counts run from time 0 to the stop."""

    duration_ps: int = 0
    saturated_ps: int = 0
    iteration_ps: int = 0
    batch_ps: int = 0
    slot_ps: dict[str, int] = field(default_factory=no_slots)
    saturated_slot_ps: dict[str, int] = field(default_factory=no_slots)
    largest_free_slot_ps: int = 0
    external_ps: int = 0
    iterations: int = 0
    peak_batch: int = 0
    preemptions: int = 0
    finished: int = 0
    rejected: dict[str, int] = field(default_factory=lambda: {"too_long": 0, "never_fits": 0})
    requests: list[Request] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    log: list[Iteration] = field(default_factory=list)
    waiting: list[tuple[int, int, int]] = field(default_factory=list)  # from, to, and how many waited then


# Section 5: the allocators. Every one answers the same questions about a request; False means out of room.


class Reserving:
    """Contiguous and buddy: one extent a request, as large as its reservation rule asks; it never grows."""

    needs_one_run = True
    tail = 0

    def __init__(self, capacity: int, limit: int | None, reserve: str) -> None:
        if reserve == "max" and limit is None:
            raise ValueError("reserve='max' needs max_model_len")
        self.capacity = capacity
        self.limit = limit  # max_model_len
        self.reserve = choose("reserve", reserve, "max", "pow2", "oracle")
        self.free: list[Extent] = []  # holes, or free blocks, in address order; without the tail
        self.extent_of: dict[int, Extent] = {}

    def asked(self, request: Request) -> int:
        if self.reserve == "oracle":
            return request.final
        if self.reserve == "max" and self.limit is not None:
            return self.limit
        guess = 1  # the power of two at or above G
        while guess < request.output_tokens:
            guess *= 2
        asked = request.prompt_tokens + guess - 1
        # Reading: without a max_model_len there is nothing to cut pow2 at.
        return asked if self.limit is None else min(asked, self.limit)

    def admit(self, request: Request, _alone: bool) -> bool:
        extent = self.place(request.asked)
        if extent is None:
            return False
        self.extent_of[request.id] = extent
        return True

    def grow(self, _request: Request) -> bool:
        return True

    def release(self, request: Request) -> None:
        self.put_back(self.extent_of.pop(request.id))

    def held(self, request: Request) -> int:
        return self.extent_of[request.id][1]

    def extents(self, request: Request) -> list[Extent]:
        return [self.extent_of[request.id]]

    def free_slots(self) -> int:
        return sum(slots for _, slots in self.free)

    def largest_free(self) -> int:
        # One hole, or one block: two free neighbours that are not buddies are never handed out as one run.
        return max((slots for _, slots in self.free), default=0)

    def place(self, slots: int) -> Extent | None:
        raise NotImplementedError

    def put_back(self, extent: Extent) -> None:
        raise NotImplementedError


class Contiguous(Reserving):
    def __init__(self, capacity: int, limit: int | None, reserve: str = "max", fit: str = "first") -> None:
        super().__init__(capacity, limit, reserve)
        self.fit = choose("fit", fit, "first", "best", "worst", "next")
        self.free = [(0, capacity)]
        self.last_end = 0  # where the last placement ended

    def never_fits(self, request: Request) -> bool:
        return request.asked > self.capacity

    def place(self, slots: int) -> Extent | None:
        fitting = [hole for hole in self.free if hole[1] >= slots]
        if not fitting:
            return None
        hole = fitting[0]
        if self.fit == "best":
            hole = min(fitting, key=lambda hole: (hole[1], hole[0]))
        elif self.fit == "worst":
            hole = min(fitting, key=lambda hole: (-hole[1], hole[0]))
        elif self.fit == "next":
            past = [hole for hole in fitting if hole[0] + hole[1] > self.last_end]
            hole = past[0] if past else fitting[0]
        start, size = hole
        where = self.free.index(hole)
        # The low end, also with `next` in a hole that the last placement's end lies inside of.
        self.free[where : where + 1] = [(start + slots, size - slots)] if size > slots else []
        self.last_end = start + slots
        return start, slots

    def put_back(self, extent: Extent) -> None:
        merged: list[Extent] = []
        for start, slots in sorted([*self.free, extent]):
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + slots)
            else:
                merged.append((start, slots))
        self.free = merged


class Buddy(Reserving):
    def __init__(
        self,
        capacity: int,
        limit: int | None,
        reserve: str = "max",
        min_block: int = 1,
        max_block: int | None = None,
        split: str = "smallest",
    ) -> None:
        super().__init__(capacity, limit, reserve)
        self.split = choose("split", split, "smallest", "largest")
        self.min_block = min_block
        if max_block is not None and self.rounded(max_block) != max_block:
            raise ValueError(f"max_block(={max_block}) must be min_block(={min_block}) times a power of two")
        self.arenas: list[Extent] = []
        carved = 0
        while capacity - carved >= min_block:
            size = min_block
            while size * 2 <= capacity - carved and (max_block is None or size * 2 <= max_block):
                size *= 2
            self.arenas.append((carved, size))
            carved += size
        self.tail = capacity - carved
        self.free = list(self.arenas)

    def rounded(self, asked: int) -> int:
        size = self.min_block
        while size < asked:
            size *= 2
        return size

    def never_fits(self, request: Request) -> bool:
        return self.rounded(request.asked) > max((size for _, size in self.arenas), default=0)

    def place(self, slots: int) -> Extent | None:
        wanted = self.rounded(slots)
        fitting = [block for block in self.free if block[1] >= wanted]
        if not fitting:
            return None
        sign = 1 if self.split == "smallest" else -1
        block = min(fitting, key=lambda block: (sign * block[1], block[0]))
        self.free.remove(block)
        start, size = block
        while size > wanted:
            size //= 2
            self.free.append((start + size, size))
        self.free.sort()
        return start, size

    def put_back(self, extent: Extent) -> None:
        start, size = extent
        arena_start, arena_size = next(arena for arena in self.arenas if arena[0] <= start < sum(arena))
        while size < arena_size:
            is_low_half = (start - arena_start) // size % 2 == 0
            buddy = (start + size if is_low_half else start - size, size)
            if buddy not in self.free:
                break
            self.free.remove(buddy)
            start, size = min(start, buddy[0]), 2 * size
        self.free.append((start, size))
        self.free.sort()


class Paged:
    needs_one_run = False

    def __init__(
        self,
        capacity: int,
        _limit: int | None,
        block_size: int = 16,
        watermark: str | float = 0,
    ) -> None:
        self.block_size = block_size
        self.blocks = capacity // block_size
        self.tail = capacity % block_size
        # A Fraction of the decimal digits: 0.29 x 100 is 29, where floats have 28.999...
        self.watermark_blocks = floor(Fraction(str(watermark)) * self.blocks)
        self.free_block_ids = deque(range(self.blocks))
        self.table_of: dict[int, list[int]] = {}  # logical block i -> physical block

    def blocks_for(self, tokens: int) -> int:
        return (tokens + self.block_size - 1) // self.block_size

    def asked(self, _request: Request) -> int:
        return 0

    def never_fits(self, request: Request) -> bool:
        return self.blocks_for(request.final) > self.blocks

    def admit(self, request: Request, alone: bool) -> bool:
        wanted = self.blocks_for(request.prompt_tokens + request.produced)
        kept = 0 if alone else self.watermark_blocks
        if len(self.free_block_ids) - wanted < kept:
            return False
        self.table_of[request.id] = [self.free_block_ids.popleft() for _ in range(wanted)]
        return True

    def grow(self, request: Request) -> bool:
        table = self.table_of[request.id]
        if len(table) * self.block_size >= request.prompt_tokens + request.produced:
            return True
        if not self.free_block_ids:
            return False
        table.append(self.free_block_ids.popleft())
        return True

    def release(self, request: Request) -> None:
        for block in self.table_of.pop(request.id):  # [4, 9, 2]: the queue then begins 2, 9, 4
            self.free_block_ids.appendleft(block)

    def held(self, request: Request) -> int:
        return len(self.table_of[request.id]) * self.block_size

    def extents(self, request: Request) -> list[Extent]:
        return [(block * self.block_size, self.block_size) for block in self.table_of[request.id]]

    @property
    def free(self) -> list[Extent]:
        return [(block * self.block_size, self.block_size) for block in self.free_block_ids]

    def free_slots(self) -> int:
        return len(self.free_block_ids) * self.block_size

    largest_free = free_slots  # any free blocks make a run: it is logical


Allocator = Contiguous | Buddy | Paged
ALLOCATORS: dict[str, type[Allocator]] = {"contiguous": Contiguous, "buddy": Buddy, "paged": Paged}


class Server:
    """Sections 3 and 4: the steps of an iteration, and the ledger.

    Every need is for P + produced token states: a running request has P + produced - 1 and writes one, a new
    one writes its P, one that comes back has what it had written and the state of its latest output token.
    """

    def __init__(self, memory: Allocator, settings: Settings) -> None:
        self.memory = memory
        self.settings = settings
        self.running: list[Request] = []  # in admission order
        self.waiting: deque[Request] = deque()
        self.next: Request | None = None  # of those that wait, after the admissions of this iteration
        self.stopped_by = ""  # what kept it from being admitted

    def grow(self) -> tuple[int, int]:
        """Step 1. Returns the number of preemptions, and the token states moved out to the host pool."""
        preemptions = moved_out = grown = 0
        self.next = None
        while grown < len(self.running):
            if self.memory.grow(self.running[grown]):
                grown += 1
                continue
            victim = self.running.pop()  # perhaps the one that wants to grow, which ends the loop
            self.memory.release(victim)
            preemptions += 1
            victim.preemptions += 1
            if self.settings.preemption == "swap":
                states = victim.prompt_tokens + victim.produced - 1
                if sum(other.host_slots for other in self.waiting) + states <= self.settings.swap_slots:
                    victim.host_slots = states
                    moved_out += states
            self.waiting.appendleft(victim)
        return preemptions, moved_out

    def choose_next(self) -> Request | None:
        if self.settings.scheduler == "fcfs" or not self.waiting:
            return self.waiting[0] if self.waiting else None
        # Of several as short, min gives the first in the queue.
        return min(self.waiting, key=lambda request: request.prompt_tokens + request.produced)

    def admit(self, t: int) -> tuple[int, int, Request | None]:
        """Step 2. Returns the tokens prefilled, those moved in from the host, and the request refused."""
        prefilled = moved_in = 0
        new_tokens = len(self.running)
        max_batch, max_batch_tokens = self.settings.max_batch, self.settings.max_batch_tokens
        while (head := self.choose_next()) is not None:
            self.next = head
            alone = not self.running
            # Ruling: one that comes back by swap prefills nothing, and counts here as if it did.
            tokens = head.prompt_tokens + head.produced
            if max_batch is not None and len(self.running) >= max_batch:
                self.stopped_by = "max_batch"
                break
            if max_batch_tokens is not None and new_tokens + tokens > max_batch_tokens and not alone:
                self.stopped_by = "max_batch_tokens"
                break
            if not self.memory.admit(head, alone):
                enough = self.memory.needs_one_run and self.memory.free_slots() >= self.memory.asked(head)
                self.stopped_by = "external" if enough else "too_little_free"
                return prefilled, moved_in, head
            self.waiting.remove(head)
            self.running.append(head)
            new_tokens += tokens
            if head.host_slots:
                moved_in += head.host_slots  # what went out: the state it writes now is computed
                head.host_slots = 0
            else:
                prefilled += tokens
            if head.admitted_ps is None:
                head.admitted_ps = t
        return prefilled, moved_in, None

    def wait(self, t: int, end: int, coming: Sequence[Request]) -> list[tuple[int, int, int]]:
        """Why everyone in the queue waits through an iteration, and those who come in the midst of it.

        Returns since when they wait in it, until when, and how many.
        """
        for request in self.waiting:
            cause = "preempted" if request.preemptions else self.stopped_by if request is self.next else "behind"
            request.waits_ps[cause] += end - t
        waiting = [(t, end, len(self.waiting))]
        for request in coming:
            if request.arrival_ps >= end:
                break
            request.waits_ps["behind" if self.waiting else "iteration"] += end - request.arrival_ps
            waiting.append((request.arrival_ps, end, 1))
        return waiting

    def ledger(self, refused: bool, refused_request: Request | None) -> dict[str, int]:
        """Where every slot is while the iteration runs, its writes included."""
        slots = no_slots()
        for request in self.running:
            states = request.prompt_tokens + request.produced - 1
            held = self.memory.held(request)
            slots["used"] += states
            slots["reservation"] += min(request.final, held) - states
            slots["overprovision"] += max(request.asked - request.final, 0)
            slots["rounding"] += max(held - max(request.asked, request.final), 0)
        free, tail = self.memory.free_slots(), self.memory.tail
        if not refused:
            slots["idle"] = free + tail
        # Reading: what it asked for is the size before rounding, for buddy too (the table of words).
        elif self.memory.needs_one_run and refused_request and free >= self.memory.asked(refused_request):
            slots["external"], slots["residual"] = free, tail
        else:  # too little is free, the watermark keeps it, or a preemption kept the head from asking
            slots["residual"] = free + tail
        assert min(slots.values()) >= 0 and sum(slots.values()) == self.settings.capacity, slots
        return slots

    def memory_map(self) -> Layout:
        layout = {r.id: (self.memory.extents(r), r.prompt_tokens + r.produced - 1) for r in self.running}
        held = [extent for extents, _ in layout.values() for extent in extents]
        address = 0
        for start, slots in sorted(self.memory.free + held):
            assert start == address, f"slots between {start} and {address} are held twice or lost"
            address += slots
        assert address + self.memory.tail == self.settings.capacity
        return layout


def requests_of(rows: Sequence[Row], memory: Allocator, settings: Settings) -> list[Request]:
    """Section 2: in order of (arrival, row), the first at time 0; the fate of each at its arrival is set."""
    limit = settings.max_model_len
    ordered = sorted(rows, key=lambda row: row[0])
    requests = []
    for i, (arrival_ns, prompt_tokens, output_tokens) in enumerate(ordered):
        request = Request(i, (arrival_ns - ordered[0][0]) * 1000, prompt_tokens, output_tokens)
        requests.append(request)
        if limit is not None and prompt_tokens + output_tokens > limit:
            if settings.too_long == "reject" or prompt_tokens >= limit:
                request.status = "too_long"
                continue
            request.output_tokens = limit - prompt_tokens
        request.final = prompt_tokens + request.output_tokens - 1
        request.asked = memory.asked(request)
        if memory.never_fits(request):
            request.status = "never_fits"
    return requests


def replay(
    rows: Sequence[Row],
    allocator: str,
    options: dict[str, Any],
    settings: Settings,
    layout_times_ps: Sequence[int] = (),
    log: bool = False,
    waits: bool = False,
) -> Outcome:
    """Replay rows of (arrival in ns from any origin, prompt tokens, output tokens), in any order.

    ``waits``: tell why each request waited; it looks at the whole queue in every iteration.
    """
    choose("too_long", settings.too_long, "reject", "truncate")
    choose("preemption", settings.preemption, "recompute", "swap")
    choose("scheduler", settings.scheduler, "fcfs", "shortest prompt")
    maker = ALLOCATORS[choose("allocator", allocator, *ALLOCATORS)]
    memory: Allocator = maker(settings.capacity, settings.max_model_len, **options)
    requests = requests_of(rows, memory, settings)
    # A rejected request starts no iteration and lengthens nothing: the loop never sees it.
    coming = deque(request for request in requests if request.status == "not_arrived")
    server = Server(memory, settings)
    outcome = Outcome(requests=requests, layouts=[{} for _ in layout_times_ps])
    window_start, window_end = settings.window_ps or (0, None)

    def inside(start: int, end: int) -> int:
        """How much of [start, end) lies in the window."""
        return max(0, (end if window_end is None else min(end, window_end)) - max(start, window_start))

    t = 0
    stopped = False  # by the window
    while True:
        if window_end is not None and t >= window_end:
            stopped = True
            break
        while coming and coming[0].arrival_ps <= t:
            server.waiting.append(coming.popleft())
        if not server.running and not server.waiting:
            if not coming:
                break
            # Reading: a gap before the first iteration (the first arrivals rejected) is part of the run too.
            gap_end = coming[0].arrival_ps
            if window_end is not None:
                gap_end = min(gap_end, window_end)
            outcome.slot_ps["idle"] += settings.capacity * inside(t, gap_end)
            outcome.largest_free_slot_ps += memory.largest_free() * inside(t, gap_end)
            t = gap_end
            continue

        preemptions, moved_out = server.grow()
        prefilled = moved_in = 0
        refused_request = None
        if preemptions == 0:
            prefilled, moved_in, refused_request = server.admit(t)
        refused = preemptions > 0 or refused_request is not None
        batch = len(server.running)
        assert batch > 0 or preemptions > 0  # one that runs alone may be its own victim

        for request in server.running:
            request.produced += 1
        categories = server.ledger(refused, refused_request)
        duration = (
            settings.base_ps
            + settings.prefill_token_ps * prefilled
            + settings.sequence_ps * batch
            + settings.kv_token_ps * categories["used"]
            + settings.swapped_token_ps * (moved_out + moved_in)
        )
        end = t + duration

        if waits:
            outcome.waiting += server.wait(t, end, coming)
        covered = inside(t, end)
        largest_free = memory.largest_free()
        for category, slots in categories.items():
            outcome.slot_ps[category] += slots * covered
            if refused:
                outcome.saturated_slot_ps[category] += slots * covered
        outcome.saturated_ps += covered if refused else 0
        outcome.external_ps += covered if categories["external"] else 0
        outcome.iteration_ps += covered
        outcome.batch_ps += batch * covered
        outcome.largest_free_slot_ps += largest_free * covered
        outcome.iterations += 1
        outcome.peak_batch = max(outcome.peak_batch, batch)
        outcome.preemptions += preemptions
        for i, asked_ps in enumerate(layout_times_ps):
            if t <= asked_ps < end:  # its very end belongs to the next iteration or gap
                outcome.layouts[i] = server.memory_map()
        if log:
            outcome.log.append(Iteration(t, duration, batch, refused, categories, largest_free, prefilled, preemptions))

        still_running = []
        for request in server.running:
            if request.produced < request.output_tokens:
                still_running.append(request)
                continue
            memory.release(request)
            request.status = "finished"
            request.finished_ps = end
            outcome.finished += 1
        server.running = still_running
        t = end

    for request in requests:
        if stopped and request.arrival_ps > t:
            request.status = "not_arrived"
        elif request.status in outcome.rejected:
            outcome.rejected[request.status] += 1
        elif request.status == "not_arrived":
            request.status = "running" if request in server.running else "waiting"
    outcome.duration_ps = inside(0, t)
    assert sum(outcome.slot_ps.values()) == settings.capacity * outcome.duration_ps
    return outcome
