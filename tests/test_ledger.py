"""The ledger's integrals are whole numbers, equal to summing iteration by iteration, whatever the sizes."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.ledger import BATCH, CATEGORIES, EXTERNAL, INTEGRALS, NOBODY, PACK_ROWS, RESIDUAL, TOKENS, Ledger
from simulator.stretch import boundary, duration_ps

TAIL = 3


WHY = (NOBODY, RESIDUAL, EXTERNAL, BATCH, TOKENS)


GROW = 4


class Grow(NamedTuple):
    """Requests that grow in an iteration behind a row's first, and how much of it is past their end."""

    ahead: int
    requests: int
    rounding: int


class Row(NamedTuple):
    """A row in the order of ledger.COLUMNS, but for the last, which counts the grows."""

    iterations: int
    first_ps: int
    extra_ps: int
    running: int
    used: int
    covered: int
    overprovision: int
    rounding: int
    free: int
    largest: int
    why: int
    head: int = 0
    grows: tuple[Grow, ...] = ()

    def record(self, ledger: Ledger) -> None:
        """Tell the ledger."""
        told = max((grow.ahead for grow in self.grows), default=0)
        lasts = [number for grow in self.grows if grow.rounding for number in (grow.ahead, grow.rounding)]
        ledger.rows.append(ledger.row(*self[:-1], told, len(lasts) // 2))
        grown = {grow.ahead: grow.requests for grow in self.grows}
        ledger.grows.extend(grown.get(ahead, 0) for ahead in range(1, told + 1))
        ledger.last_grows.extend(lasts)


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[int, int, list[Row], list[int]]:
    """Capacity, kv_token cost, rows that add up to the capacity, and edges within them."""
    capacity = draw(st.sampled_from([1000, 10**8]))
    kv_token_ps = draw(st.sampled_from([0, 1, 10**6, 10**12]))
    most_ps = draw(st.sampled_from([10, 10**12, 10**18, 2**62]))
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        first_ps, extra_ps = draw(st.integers(0, most_ps)), draw(st.sampled_from([0, 1, most_ps // 3]))
        if draw(st.integers(0, 4)) == 0:
            rows.append(Row(0, 0, first_ps, 0, 0, 0, 0, 0, capacity, draw(st.integers(0, capacity - TAIL)), NOBODY))
            continue
        iterations, running, used = draw(st.integers(1, 12)), draw(st.integers(1, 12)), draw(st.integers(0, 200))
        covered = used + running * iterations + draw(st.integers(0, 100))
        over, rounding = draw(st.integers(0, 50)), draw(st.integers(0, 9))
        free = capacity - covered - over - rounding
        ahead = draw(st.sets(st.integers(1, iterations - 1))) if iterations > 1 else set()
        grows = tuple(
            Grow(at, count := draw(st.integers(1, 5)), draw(st.integers(0, count * (GROW - 1)))) for at in sorted(ahead)
        )
        largest = draw(st.integers(GROW * sum(grow.requests for grow in grows), free - TAIL))
        numbers = (first_ps, extra_ps, running, used, covered, over, rounding, free, largest)
        rows.append(Row(iterations, *numbers, draw(st.sampled_from(WHY)), grows=grows))
    end = sum(row.extra_ps + duration_ps(row.iterations, row.first_ps, kv_token_ps * row.running) for row in rows)
    edges = draw(st.lists(st.integers(0, end + 5), min_size=1, max_size=6))
    return capacity, kv_token_ps, rows, sorted([*edges, end])


def stepped(rows: list[Row], kv_token_ps: int, edges: list[int]) -> dict[str, list[int]]:
    """The same, an iteration at a time."""
    bins: list[dict[str, int]] = [dict.fromkeys(INTEGRALS, 0) for _ in edges[1:]]
    now = 0
    for row in rows:
        for j in range(max(row.iterations, 1)):
            first = row.extra_ps if j == 0 else 0
            end, used = now + first + row.first_ps + kv_token_ps * row.running * j, row.used + row.running * j
            grown = [grow for grow in row.grows if grow.ahead <= j]
            given, lost = GROW * sum(grow.requests for grow in grown), sum(grow.rounding for grow in grown)
            free = row.free - given
            refused = row.why in (RESIDUAL, EXTERNAL)
            slots = {
                "used": used,
                "reservation": row.covered + given - lost - used,
                "overprovision": row.overprovision,
                "rounding": row.rounding + lost,
                "external": free - TAIL if row.why == EXTERNAL else 0,
                "residual": {RESIDUAL: free, EXTERNAL: TAIL}.get(row.why, 0),
                "idle": 0 if refused else free,
            }
            for into, low, high in zip(bins, edges, edges[1:], strict=False):
                time = max(0, min(end, high) - max(now, low))
                for category, held in slots.items():
                    into[category] += held * time
                    into[f"saturated_{category}"] += held * time * refused
                into["iteration_ps"] += time * (row.iterations > 0)
                into["saturated_ps"] += time * refused
                into["external_ps"] += time * (row.why == EXTERNAL)
                into["running"] += row.running * time
                into["largest"] += (row.largest - given) * time
            now = end
    return {name: [one[name] for one in bins] for name in INTEGRALS}


@settings(max_examples=300, deadline=None)
@given(ledgers(), st.booleans())
def test_integrals_equal_stepping_through_every_iteration(
    case: tuple[int, int, list[Row], list[int]], pack_often: bool
) -> None:
    capacity, kv_token_ps, rows, edges = case
    ledger = Ledger(capacity, TAIL, kv_token_ps, GROW)
    for row in rows:
        row.record(ledger)
        if pack_often:
            ledger.pack()
    assert ledger.integrate(edges) == stepped(rows, kv_token_ps, edges)


class Queue(NamedTuple):
    """Who heads the queue during a row, and why."""

    head: int
    why: int
    length_ps: int


queues = st.lists(
    st.builds(Queue, st.integers(0, 2), st.sampled_from(WHY), st.sampled_from([0, 1, 5, 2**62])),
    min_size=1,
    max_size=12,
)


@given(queues, st.sets(st.integers(0, 12)))
def test_the_queue_is_told_where_its_head_or_the_reason_changes_wherever_rows_are_packed(
    rows: list[Queue], packed: set[int]
) -> None:
    ledger = Ledger(10, TAIL, 0)
    expected: list[tuple[int, int, int]] = []
    now = 0
    for number, (head, why, length_ps) in enumerate(rows):
        Row(1, length_ps, 0, 1, 1, 2, 0, 0, 8, 5, why, head).record(ledger)
        if number in packed:
            ledger.pack()
        if not expected or expected[-1][1:] != (head, why):
            expected.append((now, head, why))
        now += length_ps
    columns = ledger.queue(np.dtype(object))
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


def test_a_chunk_longer_than_64_bits_of_picoseconds_is_split() -> None:
    rows = [Row(0, 0, 2**62, 0, 0, 0, 0, 0, 10, 7, NOBODY)] * 9 + [Row(3, 2**62, 0, 2, 1, 9, 0, 0, 1, 0, EXTERNAL)]
    rows = [row._replace(free=TAIL, covered=10 - TAIL) if row.why == EXTERNAL else row for row in rows]
    ledger = Ledger(10, TAIL, kv_token_ps=5)
    for row in rows:
        row.record(ledger)
    edges = [0, 2**61, 2**64, 11 * 2**62 + 17, 12 * 2**62 + 30]
    assert ledger.integrate(edges) == stepped(rows, 5, edges)


def test_a_row_longer_than_64_bits_of_picoseconds_is_exact_wherever_it_is_cut() -> None:
    rows = [Row(20, 2**62, 2**61, 2, 1, 80, 0, 0, 20, 17, RESIDUAL, grows=(Grow(9, 1, 0), Grow(12, 2, 3)))]
    ledger = Ledger(100, TAIL, kv_token_ps=5, grow_slots=GROW)
    rows[0].record(ledger)
    end = 2**61 + duration_ps(20, 2**62, 10)
    edges = [0, 7, 2**63 + 1, 3 * 2**64 + 5, end - 1, end]
    assert ledger.integrate(edges) == stepped(rows, 5, edges)


def test_a_stretch_of_three_million_iterations_is_exact() -> None:
    count, first, running, used, kv = 3_000_000, 10**9, 7, 11, 13
    covered = used + running * count
    ledger = Ledger(covered, 0, kv)
    Row(count, first, 0, running, used, covered, 0, 0, 0, 0, RESIDUAL).record(ledger)
    whole = sum((first + kv * running * j) * (used + running * j) for j in range(count))
    assert ledger.integrate([0, duration_ps(count, first, kv * running)])["used"] == [whole]


@pytest.mark.parametrize(
    "wrong",
    [
        {"free": 4},  # does not add up
        {"used": 3},  # more written than held
        {"largest": 6},  # more than is free outside the tail
        {"overprovision": -1, "rounding": 1},
    ],
)
def test_a_row_that_breaks_conservation_is_refused(wrong: dict[str, int]) -> None:
    good = Row(2, 5, 0, 1, 1, 2, 0, 0, 8, 5, NOBODY)
    ledger = Ledger(10, TAIL, 0)
    good.record(ledger)
    ledger.pack()
    good._replace(**wrong).record(ledger)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="does not sum to the capacity 10"):
        ledger.pack()


def test_categories_sum_to_the_capacity_in_every_bin() -> None:
    ledger = Ledger(10, TAIL, 1)
    for why in WHY * PACK_ROWS:
        Row(2, 5, 0, 1, 1, 4, 1, 1, 4, 1, why).record(ledger)
    edges = list(range(0, 1000, 7))
    parts = ledger.integrate(edges)
    assert [sum(values) for values in zip(*(parts[name] for name in CATEGORIES), strict=True)] == [70] * 142


@given(st.integers(1, 10**30), st.integers(0, 10**18), st.integers(0, 10**12))
def test_boundary_is_the_first_that_reaches_the_time(time_ps: int, first_ps: int, step_ps: int) -> None:
    if step_ps == 0:
        first_ps = max(first_ps, 1)
    count = boundary(time_ps, first_ps, step_ps)
    assert duration_ps(count, first_ps, step_ps) >= time_ps > duration_ps(count - 1, first_ps, step_ps)


@given(st.integers(0, 50), st.integers(0, 9), st.integers(0, 9))
def test_duration_is_the_sum_of_the_iterations(count: int, first_ps: int, step_ps: int) -> None:
    assert duration_ps(count, first_ps, step_ps) == sum(first_ps + step_ps * j for j in range(count))
