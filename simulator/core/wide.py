"""Sums of slots x picoseconds, which need 128 bits: two 64-bit words and a carry."""

import numpy as np
from numba import njit, uint64

_LOW = uint64(0xFFFFFFFF)
_HALF = uint64(32)


@njit(inline="always")
def add_product(total, a, b):
    """total (low and high word) += a x b, both from 0 to 2^63."""
    al, ah = uint64(a) & _LOW, uint64(a) >> _HALF
    bl, bh = uint64(b) & _LOW, uint64(b) >> _HALF
    ll, lh, hl, hh = al * bl, al * bh, ah * bl, ah * bh
    middle = (ll >> _HALF) + (lh & _LOW) + (hl & _LOW)
    low = (ll & _LOW) | (middle << _HALF)
    high = hh + (lh >> _HALF) + (hl >> _HALF) + (middle >> _HALF)
    summed = uint64(total[0]) + low
    total[1] += high + (uint64(1) if summed < low else uint64(0))
    total[0] = summed


def integers(totals: np.ndarray) -> np.ndarray:
    """Totals (..., 2) as Python's integers."""
    return totals[..., 0].astype(object) + (totals[..., 1].astype(object) << 64)
