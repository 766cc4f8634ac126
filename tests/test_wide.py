"""Sums of products beyond 64 bits are exact."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.wide import add_product, integers

SLOTS = st.integers(0, 2**40) | st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**40])
TIMES = st.integers(0, 2**62 - 1) | st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**62 - 1])


@given(st.lists(st.tuples(SLOTS, TIMES) | st.tuples(TIMES, SLOTS), max_size=20))
def test_products_are_added_exactly(pairs: list[tuple[int, int]]) -> None:
    total = np.zeros(2, np.int64)
    for a, b in pairs:
        add_product(total, a, b)
    assert integers(total) == sum(a * b for a, b in pairs)
    assert 0 <= total[0] < 2**62 and total[1] >= 0


def test_the_largest_product_fits() -> None:
    total = np.zeros(2, np.int64)
    add_product(total, 2**62 - 1, 2**62 - 1)
    assert integers(total) == (2**62 - 1) ** 2


def test_integers_keep_the_shape() -> None:
    totals = np.arange(12).reshape(2, 3, 2)
    assert integers(totals).tolist() == [[1 << 62, 2 + (3 << 62), 4 + (5 << 62)]] + [
        [6 + (7 << 62), 8 + (9 << 62), 10 + (11 << 62)]
    ]
