"""Pools as the loop sees them: those of the project themselves, and what an empty one can hold."""

from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.base import Allocator
from allocators.pooled import Pooled
from simulator.engine.compiled import compiled

Ints = NDArray[np.int64]


def is_ours(allocator: Allocator) -> TypeGuard[Pooled]:
    """Whether the loop may ask the pool itself; a class derived from one of ours may do something else."""
    return isinstance(allocator, Pooled) and type(allocator).__module__.startswith("allocators.")


@compiled
def _fits_empty(pool: Any, prompt: Ints, output: Ints, fits: NDArray[np.bool_]) -> None:
    for row in range(len(prompt)):
        fits[row] = ask.fits_empty(pool, prompt[row], output[row])


def fits_empty(allocator: Allocator, prompt: Ints, output: Ints) -> NDArray[np.bool_]:
    """Which of these requests an empty pool can hold."""
    if not is_ours(allocator):
        pairs = zip(prompt.tolist(), output.tolist(), strict=True)
        return np.array([bool(allocator.fits_empty(*pair)) for pair in pairs], np.bool_)
    fits = np.zeros(len(prompt), np.bool_)
    _fits_empty(allocator.pool, prompt, output, fits)
    return fits
