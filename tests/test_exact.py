"""Whole numbers of any size stay whole; seconds are the nearest floats; sums and columns do not wrap at 64 bits."""

from fractions import Fraction
from math import isnan

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.results.exact import added, exact_sum, seconds_of, whole_numbers

SIZES = st.sampled_from([0, 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30])
NUMBERS = st.builds(lambda size, more: max(size + more, 0), SIZES, st.integers(-3, 3))
COLUMNS = st.lists(NUMBERS, max_size=9)


@given(COLUMNS)
def test_a_column_keeps_every_number(numbers: list[int]) -> None:
    column = whole_numbers(numbers)
    assert column.tolist() == numbers
    assert column.dtype == (object if max(numbers, default=0) >= 2**63 else np.int64)


@given(COLUMNS)
def test_sums_are_exact(numbers: list[int]) -> None:
    assert exact_sum(whole_numbers(numbers)) == sum(numbers)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=9))
def test_columns_are_added_exactly(rows: list[tuple[int, int, int]]) -> None:
    total = added([whole_numbers(column) for column in zip(*rows, strict=True)])
    assert total.tolist() == [sum(row) for row in rows]
    if max(sum(max(column) for column in zip(*rows, strict=True)), 0) < 2**63:
        assert total.dtype == np.int64


@given(COLUMNS)
def test_seconds_are_rounded_once(numbers: list[int]) -> None:
    expected = [float(Fraction(number, 10**12)) for number in numbers]
    assert seconds_of(whole_numbers(numbers)).tolist() == seconds_of(numbers).tolist() == expected


def test_seconds_that_would_be_rounded_twice() -> None:
    # 64-bit numbers whose float is on the other side of a half of what their seconds are rounded to.
    numbers = np.random.default_rng(0).integers(2**53, 2**63, 5000)
    assert seconds_of(numbers).tolist() == [float(Fraction(number, 10**12)) for number in numbers.tolist()]
    assert (seconds_of(numbers) != numbers / 10**12).any()


def test_what_did_not_happen_has_no_time() -> None:
    first, second = seconds_of([None, 5 * 10**11]).tolist()
    assert isnan(first) and second == 0.5


def test_seconds_halfway_between_two_floats_are_rounded_once() -> None:
    random = np.random.default_rng(0)
    halves = [
        Fraction(2 * int(bits) + 1, 2) * Fraction(2) ** (power - 53)
        for power in range(14, 23)
        for bits in random.integers(2**52, 2**53, 200)
    ]
    numbers = [
        int(half * 10**12) + more
        for half in [*halves, *(Fraction(2) ** power for power in range(14, 23))]
        for more in (-1, 0, 1)
    ]
    assert seconds_of(np.array(numbers)).tolist() == [float(Fraction(number, 10**12)) for number in numbers]
