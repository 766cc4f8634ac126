"""Sums of slots x picoseconds need more than 64 bits: two words of 62 bits each, so that nothing ever overflows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocators.seam import rule

_WORD, _HALF = 62, 31
_LOW_WORD, _LOW_HALF = (1 << _WORD) - 1, (1 << _HALF) - 1


@rule
def add_product(total: NDArray[np.int64], a: int, b: int) -> None:
    """``total`` (low and high word) += a x b, each from 0 to 2^62 - 1; ``total`` must stay below 2^125."""
    a_low, a_high = a & _LOW_HALF, a >> _HALF
    b_low, b_high = b & _LOW_HALF, b >> _HALF
    middle = a_low * b_high + a_high * b_low
    low = a_low * b_low + ((middle & _LOW_HALF) << _HALF)
    total[1] += a_high * b_high + (middle >> _HALF) + (low >> _WORD)
    low = total[0] + (low & _LOW_WORD)
    total[1] += low >> _WORD
    total[0] = low & _LOW_WORD


def add(total: NDArray[np.int64], amount: int) -> None:
    """``total`` += a number of any size, in Python."""
    exact = (int(total[1]) << _WORD) + int(total[0]) + amount
    total[0], total[1] = exact & _LOW_WORD, exact >> _WORD


def integers(totals: NDArray[np.int64]) -> NDArray[Any]:
    """Totals, shape (..., 2), as Python's integers, shape (...)."""
    exact: NDArray[Any] = totals[..., 0].astype(object) + (totals[..., 1].astype(object) << _WORD)
    return exact
