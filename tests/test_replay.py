"""``simulate``: every mean of the timeline by hand, every status, memory maps at exact times, a user's allocators."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from allocators import Allocator, Buddy, Contiguous, Extent, InputError, Paged, check_allocator, make_allocator
from allocators.base import holds_already, holds_none
from simulator import Run, StepCost, Trace, simulate
from simulator.engine.layout import Allocation
from simulator.results.ledger import CATEGORIES
from simulator.results.record import STATUS
from simulator.results.waits import CAUSES

S = 10**12
LEVELS = (*CATEGORIES, "running", "waiting", "largest_free")
REFUSED = "refused_although_free"


def trace_of(*rows: tuple[float, int, int]) -> Trace:
    """Rows of arrival in seconds, prompt and output tokens."""
    arrivals = [round(arrival_s * 10**9) for arrival_s, _, _ in rows]
    return Trace.from_columns(arrivals, [prompt for _, prompt, _ in rows], [output for _, _, output in rows])


@dataclass(frozen=True)
class Example:
    """A small run, and what it looks like between each two instants: the levels by hand, in the order of LEVELS."""

    trace: Trace
    allocator: str
    capacity: int
    cost: StepCost
    times_s: Sequence[str]
    levels: Sequence[tuple[int, ...]]
    max_model_len: int | None = None

    def run(self, **options: Any) -> Run:
        allocator = make_allocator(self.allocator, self.capacity, self.max_model_len)
        return simulate(self.trace, allocator, cost=self.cost, max_model_len=self.max_model_len, **options)

    def mean(self, level: str, start_ps: int, end_ps: int) -> float:
        """Mean of a level between two times, in whole numbers up to the one division."""
        edges = [int(Fraction(time) * S) for time in self.times_s]
        column, total = LEVELS.index("external" if level == REFUSED else level), 0
        for (low, high), values in zip(pairwise(edges), self.levels, strict=True):
            value = values[column] > 0 if level == REFUSED else values[column]
            total += max(min(high, end_ps) - max(low, start_ps), 0) * value
        return total / (end_ps - start_ps)


# Blocks of 4 in 14 slots: three of them, and a tail of 2. An iteration takes 1 s and 0.1 s for each token it prefills.
PAGED = Example(
    trace_of(
        (0, 4, 4),
        (0.5, 3, 3),  # is preempted by the first at 3.7 s, before its last token
        (1, 5, 1),  # waits for two blocks until 6.2 s
        (2, 12, 5),  # would need 16 slots
        (2.5, 18, 5),  # 23 tokens
        (9, 1, 1),  # after a gap
    ),
    "paged:block_size=4",
    14,
    StepCost("1s", "100ms", "0", "0"),
    max_model_len=19,
    times_s=["0", "0.5", "1", "1.4", "2.7", "3.7", "4.7", "6.2", "7.7", "9", "10.1"],
    levels=[
        # used, reservation, overprovision, rounding, external, residual, idle, running, waiting, largest_free
        (4, 0, 0, 0, 0, 0, 10, 1, 0, 8),
        (4, 0, 0, 0, 0, 0, 10, 1, 1, 8),
        (4, 0, 0, 0, 0, 0, 10, 1, 2, 8),
        (8, 3, 0, 1, 0, 2, 0, 2, 1, 0),
        (10, 1, 0, 1, 0, 2, 0, 2, 1, 0),
        (7, 0, 0, 1, 0, 6, 0, 1, 2, 4),
        (5, 0, 0, 3, 0, 6, 0, 1, 1, 4),
        (5, 0, 0, 3, 0, 0, 6, 1, 0, 4),
        (0, 0, 0, 0, 0, 0, 14, 0, 0, 12),
        (1, 0, 0, 3, 0, 0, 10, 1, 0, 8),
    ],
)

# The last wants 40 slots, and from 4 s on 67 are free, in two holes of 31 and 36.
EXTERNAL = Example(
    trace_of((0, 30, 2), (0, 30, 4), (0, 30, 2), (0, 40, 1)),
    "contiguous:reserve=oracle",
    100,
    StepCost("2s", "0", "0", "0"),
    times_s=["0", "2", "4", "6", "8", "10"],
    levels=[
        (90, 5, 0, 0, 0, 5, 0, 3, 1, 5),
        (93, 2, 0, 0, 0, 5, 0, 3, 1, 5),
        (32, 1, 0, 0, 67, 0, 0, 1, 1, 36),
        (33, 0, 0, 0, 67, 0, 0, 1, 1, 36),
        (40, 0, 0, 0, 0, 0, 60, 1, 0, 60),
    ],
)

# 5 + 4 - 1 = 8 asked, a block of 8; and 5 + 8 - 1 = 12 asked, a block of 16. They will have written 7 and 9.
ROUNDED = Example(
    trace_of((0, 5, 3), (0, 5, 5)),
    "buddy:reserve=pow2",
    64,
    StepCost("1s", "0", "0", "0"),
    times_s=["0", "1", "2", "3", "4", "5"],
    levels=[
        (10, 6, 4, 4, 0, 0, 40, 2, 0, 32),
        (12, 4, 4, 4, 0, 0, 40, 2, 0, 32),
        (14, 2, 4, 4, 0, 0, 40, 2, 0, 32),
        (8, 1, 3, 4, 0, 0, 48, 1, 0, 32),
        (9, 0, 3, 4, 0, 0, 48, 1, 0, 32),
    ],
)

EXAMPLES = {"paged": PAGED, "external": EXTERNAL, "rounded": ROUNDED}


@pytest.mark.parametrize("window_s", [None, ("0.7", "3.1"), ("2.7", "6.2"), (4, 5), ("3.3", 2000)])
@pytest.mark.parametrize("bins", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_bin_has_the_exact_means(name: str, bins: int, window_s: Any) -> None:
    example = EXAMPLES[name]
    run = example.run(timeline_bins=bins, window_s=window_s)
    start, end = (0, 2000) if window_s is None else (Fraction(edge) for edge in window_s)
    start_ps, end_ps = int(start * S), int(min(Fraction(end), Fraction(example.times_s[-1])) * S)
    edges = [start_ps + (end_ps - start_ps) * k // bins for k in range(bins + 1)]
    assert list(run.timeline) == ["start_s", "end_s", *LEVELS, REFUSED, "preemptions"]
    assert run.timeline["start_s"].tolist() == [edge / S for edge in edges[:-1]]
    assert run.timeline["end_s"].tolist() == [edge / S for edge in edges[1:]]
    for level in (*LEVELS, REFUSED):
        assert run.timeline[level].tolist() == [example.mean(level, *edge) for edge in pairwise(edges)], level
    if window_s is None:
        assert run.timeline["preemptions"].sum() == run.counts["preemptions"]
    summary = run.summary()
    assert summary["duration_s"] == (end_ps - start_ps) / S
    assert summary["share"] == {
        category: pytest.approx(example.mean(category, start_ps, end_ps) / example.capacity, rel=1e-15)
        for category in CATEGORIES
    }
    assert summary["mean_largest_free"] == pytest.approx(example.mean("largest_free", start_ps, end_ps), rel=1e-15)


@pytest.mark.parametrize("name", EXAMPLES)
def test_saturated_time_is_that_of_the_iterations_with_a_refusal(name: str) -> None:
    example = EXAMPLES[name]
    lengths = [Fraction(high) - Fraction(low) for low, high in pairwise(example.times_s)]
    rows = list(zip(lengths, example.levels, strict=True))
    external, residual, running = (LEVELS.index(level) for level in ("external", "residual", "running"))
    refused = [(length, levels) for length, levels in rows if levels[external] or levels[residual]]
    saturated_s = sum(length for length, _ in refused)
    summary = example.run().summary()
    assert summary["saturated_s"] == float(saturated_s)
    assert summary["refused_although_free_s"] == float(sum(length for length, levels in rows if levels[external]))
    iterations_s = sum(length for length, levels in rows if levels[running])
    running_s = sum(length * levels[running] for length, levels in rows)
    assert summary["mean_batch"] == float(running_s / iterations_s)
    assert summary["peak_batch"] == max(levels[running] for levels in example.levels)
    if not refused:
        assert summary["share_saturated"] is None
        return
    assert summary["share_saturated"] == {
        category: float(sum(length * levels[k] for length, levels in refused) / saturated_s / example.capacity)
        for k, category in enumerate(CATEGORIES)
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_bins_sum_to_the_capacity_and_their_mean_is_the_share(name: str) -> None:
    run = EXAMPLES[name].run(timeline_bins=1000, window_s=(0.3, 3.77))
    slots = run.timeline[list(CATEGORIES)].to_numpy()
    assert slots.sum(axis=1) == pytest.approx(np.full(1000, run.capacity), rel=1e-12)
    share = dict(zip(CATEGORIES, slots.mean(axis=0) / run.capacity, strict=True))
    assert share == pytest.approx(run.summary()["share"], abs=1e-9)  # bins differ in length by a picosecond
    assert run.timeline["start_s"].iloc[0] == 0.3
    assert run.timeline["end_s"].iloc[-1] == 3.77
    assert (run.timeline["start_s"].iloc[1:].to_numpy() == run.timeline["end_s"].iloc[:-1].to_numpy()).all()


@pytest.mark.parametrize("options", [{"timeline_bins": 0}, {"window_s": (50, 60)}])
def test_a_timeline_of_nothing_has_its_columns_all_the_same(options: dict[str, Any]) -> None:
    run = PAGED.run(**options)
    assert len(run.timeline) == 0
    assert list(run.timeline) == ["start_s", "end_s", *LEVELS, REFUSED, "preemptions"]
    assert set(run.timeline.dtypes) == {np.dtype(np.float64)}
    assert run.integrals == PAGED.run(**{"timeline_bins": 7, **options}).integrals


def test_there_is_no_bin_shorter_than_a_picosecond() -> None:
    run = simulate(trace_of((0, 1, 3)), Paged(16), cost=StepCost("1ps", "0", "0", "0"))
    assert run.timeline["start_s"].tolist() == [0, 1e-12, 2e-12]
    assert run.timeline["used"].tolist() == [1, 2, 3]


def test_a_preemption_in_no_time_at_the_end_of_the_run_is_in_the_last_bin() -> None:
    # Only prefill takes time, and who comes back from the host does not prefill: it all ends at 6 ns.
    trace = Trace.from_columns([0, 0], [3, 3], [4, 4])
    run = simulate(
        trace, Paged(8, 1), cost=StepCost("0", "1ns", "0"), preemption="swap", swap_slots=99, timeline_bins=3
    )
    assert run.summary()["duration_s"] == 6e-9
    assert run.timeline["preemptions"].tolist() == [0, 0, 1]


# What became of the requests.


def test_requests_have_a_row_each() -> None:
    frame = PAGED.run().requests
    assert {name: str(frame[name].dtype) for name in frame.columns} == {
        "arrival_s": "float64",
        "prompt_tokens": "int64",
        "output_tokens": "int64",
        "admitted_s": "float64",
        "finished_s": "float64",
        "preemptions": "int64",
        "status": "category",
        "wait_s": "float64",
        **{f"wait_{cause}_s": "float64" for cause in CAUSES},
        "wait_ps": "int64",
        **{f"wait_{cause}_ps": "int64" for cause in CAUSES},
    }
    assert tuple(frame["status"].cat.categories) == STATUS
    own = frame.iloc[:, :7]
    assert own.astype(object).where(own.notna(), None).to_numpy().tolist() == [
        [0.0, 4, 4, 0.0, 4.7, 0, "finished"],
        [0.5, 3, 3, 1.4, 6.2, 1, "finished"],
        [1.0, 5, 1, 6.2, 7.7, 0, "finished"],
        [2.0, 12, 5, None, None, 0, "never_fits"],
        [2.5, 18, 5, None, None, 0, "too_long"],
        [9.0, 1, 1, 9.0, 10.1, 0, "finished"],
    ]


@pytest.mark.parametrize(
    ("end_s", "status"),
    [
        ("0.2", ["running", "not_arrived", "not_arrived"]),  # the iteration that reaches 0.2 s ends at 1.4 s
        ("1.4", ["running", "waiting", "waiting", "not_arrived", "not_arrived", "not_arrived"]),
        ("1.5", ["running", "running", "waiting", "never_fits", "too_long", "not_arrived"]),
        ("3.8", ["finished", "waiting", "waiting", "never_fits", "too_long", "not_arrived"]),  # preempted waits again
        ("5", ["finished", "finished", "waiting", "never_fits", "too_long", "not_arrived"]),
        ("8", ["finished", "finished", "finished", "never_fits", "too_long", "not_arrived"]),  # in the gap
        ("9", ["finished", "finished", "finished", "never_fits", "too_long", "waiting"]),
        ("9.5", ["finished", "finished", "finished", "never_fits", "too_long", "finished"]),
    ],
)
def test_statuses_are_those_when_the_run_stopped(end_s: str, status: list[str]) -> None:
    run = PAGED.run(window_s=("0", end_s))
    if end_s == "0.2":
        status = ["running", "waiting", "waiting", "not_arrived", "not_arrived", "not_arrived"]
    assert run.requests["status"].tolist() == status
    assert {reason: run.counts[reason] for reason in ("finished", "too_long", "never_fits")} == {
        reason: status.count(reason) for reason in ("finished", "too_long", "never_fits")
    }


def test_truncated_requests_show_the_tokens_they_got() -> None:
    trace = trace_of((0, 6, 9), (0, 10, 1), (0, 9, 5))
    frame = simulate(trace, Paged(64), max_model_len=10, too_long="truncate").requests
    assert frame["output_tokens"].tolist() == [4, 1, 1]
    assert frame["status"].tolist() == ["finished", "too_long", "finished"]
    assert trace.output_tokens.tolist() == [9, 1, 5]


def test_rejected_requests_lengthen_nothing() -> None:
    run = simulate(trace_of((0, 1, 1), (1000, 50, 50)), Paged(16), cost=StepCost("1s", "0", "0", "0"))
    assert run.summary()["duration_s"] == 1
    assert run.requests["status"].tolist() == ["finished", "never_fits"]


# Memory maps.

SECOND = StepCost("1s", "0", "0", "0")


def blocks(*ids: int) -> tuple[Extent, ...]:
    """Blocks of 4 slots."""
    return tuple(Extent(4 * block, 4) for block in ids)


def test_layouts_are_those_of_the_iteration_that_runs_then() -> None:
    times = [0, 1.399999999999, 1.4, 2.7, 3.7, 4.7, 6.2, 7.7, 8.9, 9, 10.1, 99]
    run = PAGED.run(layout_times_s=reversed(times))
    expected = [
        (0, [(0, blocks(0), 4, 7)]),
        (0, [(0, blocks(0), 4, 7)]),
        (1, [(0, blocks(0, 1), 5, 7), (1, blocks(2), 3, 5)]),
        (2, [(0, blocks(0, 1), 6, 7), (1, blocks(2), 4, 5)]),
        (3, [(0, blocks(0, 1), 7, 7)]),
        # Blocks 0 and 1 have come back: 1 is the first to be taken, then 0. And so on.
        (4, [(1, blocks(1, 0), 5, 5)]),
        (5, [(2, blocks(0, 1), 5, 5)]),
        (None, []),
        (None, []),
        (6, [(5, blocks(1), 1, 1)]),
        (None, []),
        (None, []),
    ]
    assert [layout.time_ps for layout in run.layouts] == [round(time * S) for time in times]
    for layout, (iteration, held) in zip(run.layouts, expected, strict=True):
        assert layout.iteration == iteration
        assert layout.allocations == tuple(Allocation(*allocation, overprovision_slots=0) for allocation in held)
        # What the ledger says, and what the map adds up to.
        assert layout.used_slots == sum(one.written_tokens for one in layout.allocations)
        assert layout.held_slots == sum(extent.slots for one in layout.allocations for extent in one.extents)


def test_figure_6_a_prompt_of_seven_in_blocks_of_four() -> None:
    """Of the PagedAttention paper: the first decode fills the second block, the second decode takes a new one."""
    run = simulate(trace_of((0, 7, 3)), Paged(32, block_size=4), cost=SECOND, layout_times_s=[0, 1, 2])
    held = [layout.allocations[0] for layout in run.layouts]
    assert [(one.extents, one.written_tokens) for one in held] == [
        (blocks(0, 1), 7),
        (blocks(0, 1), 8),
        (blocks(0, 1, 2), 9),
    ]
    filled = [[min(one.written_tokens - 4 * k, 4) for k in range(len(one.extents))] for one in held]
    assert filled == [[4, 3], [4, 4], [4, 4, 1]]


def test_figure_3_what_is_reserved_and_never_used_in_2048_slots() -> None:
    """Of the same paper: a prompt of 7 that is followed by 3 written tokens, after one of them; behind it a second."""
    run = simulate(
        trace_of((0, 7, 4), (0, 5, 2)),
        Contiguous(5000, "max", max_model_len=2048),
        cost=SECOND,
        layout_times_s=[1],
        timeline_bins=4,
        window_s=(0, 4),
    )
    (layout,) = run.layouts
    assert layout.allocations == (
        Allocation(0, (Extent(0, 2048),), written_tokens=8, final_tokens=10, overprovision_slots=2038),
        Allocation(1, (Extent(2048, 2048),), written_tokens=6, final_tokens=6, overprovision_slots=2042),
    )
    slots = run.timeline[list(CATEGORIES)].to_numpy().tolist()
    assert slots[1] == [8 + 6, 2, 2038 + 2042, 0, 0, 0, 5000 - 4096]
    assert slots[2] == [9, 1, 2038, 0, 0, 0, 5000 - 2048]


def test_layouts_of_a_buddy_keep_what_was_asked_for_apart_from_rounding() -> None:
    (layout,) = ROUNDED.run(layout_times_s=[2.5]).layouts
    assert layout.allocations == (
        Allocation(0, (Extent(0, 8),), written_tokens=7, final_tokens=7, overprovision_slots=1),
        Allocation(1, (Extent(16, 16),), written_tokens=7, final_tokens=9, overprovision_slots=3),
    )


# Allocators of one's own.


class Doubling(Paged):
    """Single slots; a request that is full gets as many more as it has, or all that are left."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, block_size=1)
        self.grow_slots = None  # type: ignore[assignment]

    @property
    def spec(self) -> str:
        return "mine.Doubling"

    def grow(self, request_ids: Sequence[int]) -> int:
        for request_id in request_ids:
            self.held_slots(request_id)
        for served, request_id in enumerate(request_ids):
            if not self.free_slots:
                return served
            super().grow([request_id] * min(self.held_slots(request_id), self.free_slots))
        return len(request_ids)


class Stretching:
    """One extent each at the lowest address that has room, two slots longer when it is full: if they are free."""

    contiguous, grow_slots, tail_slots, spec = True, 2, 0, "mine.Stretching"

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: dict[int, Extent] = {}

    def holes(self) -> list[Extent]:
        edges = [Extent(0, 0), *sorted(self.held.values()), Extent(self.capacity, 0)]
        return [Extent(low.end, high.start - low.end) for low, high in pairwise(edges)]

    @property
    def free_slots(self) -> int:
        return self.capacity - sum(extent.slots for extent in self.held.values())

    @property
    def largest_free_slots(self) -> int:
        return max(hole.slots for hole in self.holes())

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:
        return prompt_tokens + 0 * output_tokens

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        grows = -(-(output_tokens - 1) // 2)
        return prompt_tokens + 2 * grows <= self.capacity

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
        del output_tokens, alone
        if request_id in self.held:
            raise holds_already(request_id)
        hole = next((hole for hole in self.holes() if hole.slots >= prompt_tokens), None)
        if hole is None:
            return 0
        self.held[request_id] = Extent(hole.start, prompt_tokens)
        return prompt_tokens

    def grow(self, request_ids: Sequence[int]) -> int:
        for request_id in request_ids:
            self.held_slots(request_id)
        for served, request_id in enumerate(request_ids):
            start, slots = self.held[request_id]
            if not any(hole.start == start + slots and hole.slots >= 2 for hole in self.holes()):
                return served
            self.held[request_id] = Extent(start, slots + 2)
        return len(request_ids)

    def release(self, request_id: int) -> int:
        slots = self.held_slots(request_id)
        del self.held[request_id]
        return slots

    def held_slots(self, request_id: int) -> int:
        return self.extents(request_id)[0].slots

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        if request_id not in self.held:
            raise holds_none(request_id)
        return (self.held[request_id],)


@pytest.mark.parametrize("allocator", [Doubling, Stretching])
def test_these_are_allocators(allocator: type[Allocator]) -> None:
    check_allocator(lambda: allocator(50))  # type: ignore[call-arg]


def levels_of(run: Run) -> dict[str, list[float]]:
    return {level: values for level in LEVELS if any(values := run.timeline[level].tolist())}


def test_an_allocator_whose_grows_differ() -> None:
    """The older needs more at 3 s, takes it from the younger, and that one comes back at 8 s."""
    run = simulate(trace_of((0, 2, 8), (0, 3, 4)), Doubling(10), cost=SECOND, timeline_bins=9, layout_times_s=[1, 3])
    assert levels_of(run) == {
        "used": [5, 7, 9, 5, 6, 7, 8, 9, 6],
        "reservation": [0, 3, 1, 3, 2, 1, 0, 0, 0],
        "rounding": [0, 0, 0, 0, 0, 0, 0, 1, 0],
        "residual": [0, 0, 0, 2, 2, 2, 2, 0, 0],
        "idle": [5, 0, 0, 0, 0, 0, 0, 0, 4],
        "running": [2, 2, 2, 1, 1, 1, 1, 1, 1],
        "waiting": [0, 0, 0, 1, 1, 1, 1, 1, 0],
        "largest_free": [5, 0, 0, 2, 2, 2, 2, 0, 4],
    }
    assert run.requests["preemptions"].tolist() == [0, 1]
    assert [[len(held.extents) for held in layout.allocations] for layout in run.layouts] == [[4, 6], [8]]


def test_a_contiguous_allocator_that_grows() -> None:
    """The first cannot grow at 1 s for the second's sake, which is preempted and placed behind it."""
    run = simulate(
        trace_of((0, 3, 6), (0, 3, 2)), Stretching(12), cost=SECOND, timeline_bins=6, layout_times_s=[0, 1, 2, 5]
    )
    assert levels_of(run) == {
        "used": [6, 4, 9, 6, 7, 8],
        "reservation": [0, 1, 0, 1, 0, 0],
        "rounding": [0, 0, 0, 0, 0, 1],
        "residual": [0, 7, 0, 0, 0, 0],
        "idle": [6, 0, 3, 5, 5, 3],
        "running": [2, 1, 2, 1, 1, 1],
        "waiting": [0, 1, 0, 0, 0, 0],
        "largest_free": [6, 7, 3, 5, 5, 3],
    }
    assert [[held.extents for held in layout.allocations] for layout in run.layouts] == [
        [(Extent(0, 3),), (Extent(3, 3),)],
        [(Extent(0, 5),)],
        [(Extent(0, 5),), (Extent(5, 4),)],
        [(Extent(0, 9),)],
    ]


def test_a_contiguous_allocator_that_grows_can_fragment() -> None:
    """The third wants 5 of 7 free slots, in holes of 4 and 3, while the second still runs."""
    run = simulate(trace_of((0, 4, 1), (0, 5, 2), (1, 5, 1)), Stretching(14), cost=SECOND, timeline_bins=3)
    assert levels_of(run) == {
        "used": [9, 6, 5],
        "rounding": [0, 1, 0],
        "external": [0, 7, 0],
        "idle": [5, 0, 9],
        "running": [2, 1, 1],
        "waiting": [0, 1, 0],
        "largest_free": [5, 4, 9],
    }


class Leaking(Paged):
    """Forgets a block."""

    def release(self, request_id: int) -> int:
        super().release(request_id)
        self.pool.now.free_blocks -= 1
        return 16


class Lying(Paged):
    """Says it fits, and does not place it."""

    def admit(self, *_: Any) -> int:
        return 0


def test_an_allocator_that_breaks_its_promises_is_found_out() -> None:
    with pytest.raises(AssertionError, match="nothing runs any more, and 48 slots are free"):
        simulate(trace_of((0, 3, 3)), Leaking(64))
    with pytest.raises(RuntimeError, match=r"empty pool, 3 tokens of request 0"):
        simulate(trace_of((0, 3, 3)), Lying(64))


# Settings.

TINY = trace_of((0, 3, 3))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"max_batchs": 3},
            r"unknown setting 'max_batchs' \(did you mean max_batch\?\); choose from cost, .*, max_batch, .*, window_s",
        ),
        ({"max_batch": 0}, r"max_batch\(=0\) must be"),
        ({"timeline_bins": -1}, r"timeline_bins\(=-1\) must be a whole number >= 0"),
        ({"timeline_bins": 1.5}, r"timeline_bins\(=1.5\) must be a whole number >= 0"),
        *(
            ({"layout_times_s": [0, time]}, rf"layout_times_s\(={time!r}\) must be numbers of seconds from 0 to 1e\+10")
            for time in (-1, float("nan"), float("inf"), "soon", None, 2e10)
        ),
    ],
)
def test_what_is_not_allowed_is_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        simulate(TINY, Paged(64), **options)


def test_a_pool_or_cost_that_64_bits_cannot_hold_is_told() -> None:
    with pytest.raises(InputError, match=r"capacity\(=1000000001\) must be <= 1,000,000,000 slots"):
        simulate(TINY, Contiguous(10**9 + 1, "oracle"))
    told = "an iteration over all of 5,000,000 slots could take 5,000,000 s, and 4,611,686 s is the most"
    with pytest.raises(InputError, match=rf"cost\(=base=.*\) must be lower: {told}"):
        simulate(TINY, Contiguous(5 * 10**6, "oracle"), cost=StepCost("0", "0", "0", "1s"))
    # The largest of all, side by side.
    cost = StepCost("1000s", "1s", "1s", "1s", "1s")
    run = simulate(TINY, Contiguous(10**6, "oracle"), cost=cost)
    assert run.duration_ps == sum(1000 + 1 + used + prefilled for used, prefilled in ((3, 3), (4, 0), (5, 0))) * S
    assert simulate(TINY, Contiguous(10**9, "oracle"), cost=StepCost("1000s", "0", "0")).duration_ps == 3000 * S


def test_max_model_len_is_the_allocators_unless_they_differ() -> None:
    made: list[Allocator] = [Contiguous(64, max_model_len=20), Buddy(64, max_model_len=20)]
    for allocator in made:
        assert simulate(TINY, allocator).settings.max_model_len == 20
        assert simulate(TINY, allocator, max_model_len=20).settings.max_model_len == 20
        with pytest.raises(InputError, match=r"max_model_len\(=30\) must be the allocator's, which is 20"):
            simulate(TINY, allocator, max_model_len=30)
    assert simulate(TINY, Paged(64)).settings.max_model_len is None
    assert simulate(TINY, Contiguous(64, "oracle"), max_model_len=30).settings.max_model_len == 30


def test_truncation_may_take_the_length_from_the_allocator() -> None:
    run = simulate(trace_of((0, 3, 30)), Contiguous(64, max_model_len=20), too_long="truncate")
    assert run.requests["output_tokens"].tolist() == [17]


def test_an_allocator_that_holds_memory_is_refused() -> None:
    allocator = Paged(64)
    allocator.admit(7, 3, 3)
    with pytest.raises(InputError, match="paged:block_size=16,watermark=0 already holds memory: make a new one"):
        simulate(TINY, allocator)
    allocator.release(7)
    assert simulate(TINY, allocator).counts["finished"] == 1


def test_progress_counts_the_requests_that_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[Any] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            self.options, self.n = options, 0
            bars.append(self)

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, more: int) -> None:
            self.n += more

    monkeypatch.setattr("simulator.messages.progress.tqdm", Bar)
    for progress in (True, False):
        PAGED.run(progress=progress, window_s=("0", "5"))
    assert [bar.options["disable"] for bar in bars] == [False, True]
    assert [(bar.n, bar.options["total"], bar.options["delay"]) for bar in bars] == [(2, 4, 2.0)] * 2
