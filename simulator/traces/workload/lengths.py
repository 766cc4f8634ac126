"""Prompt and output lengths drawn at random: from the quantiles of a profile, or from the requests of a file."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from allocators.base import InputError
from simulator.traces.text.fields import IntArray
from simulator.traces.workload.profile import Profile

CHUNK = 1 << 16
_DEALS = 64


@dataclass(frozen=True)
class Sample:
    """The lengths of a file's requests. ``rate``: its requests a second (None: it has no times)."""

    name: str
    prompt: IntArray
    output: IntArray
    rate: float | None
    max_total_tokens: int | None = None


def draw_lengths(source: Profile | Sample, count: int, limit: int | None, generator: Generator) -> IntArray:
    """Prompt and output tokens of ``count`` requests (shape 2, count), prompt + output at most ``limit`` (None: any).

    A pair beyond the limit is drawn again, from anywhere: the limit selects among the requests. But a profile's own
    limit held for the real requests already. Then only the outputs of its cell are dealt again, to other prompts of
    the cell, until all fit, and both lengths keep their distributions (drawn anew, the outputs of arxiv, whose prompts
    reach up to its limit, would be 2 % short).

    Raises InputError when the limit leaves next to no pairs.
    """
    most = math.inf if limit is None else limit
    selects = most < (source.max_total_tokens or math.inf)
    parts: list[IntArray] = []
    for _ in range(0, count, CHUNK):
        # Always whole chunks: a longer trace then begins with the shorter one.
        cells, pairs = _pairs(source, CHUNK, generator)
        if not selects:
            _deal_again(cells, pairs, most, generator)
        again = _beyond(pairs, most)
        while again.size:
            _, pairs[:, again] = _pairs(source, again.size, generator)
            tried = again.size
            again = again[pairs[:, again].sum(axis=0) > most]
            if tried == CHUNK and again.size > 0.99 * CHUNK:
                raise InputError(f"max_total(={limit}) must be larger: under 1 % of the pairs of {source.name} fit")
        parts.append(pairs)
    return np.concatenate(parts, axis=1)[:, :count]


def _pairs(source: Profile | Sample, count: int, generator: Generator) -> tuple[IntArray, IntArray]:
    """The cell each pair is drawn from, and the pairs."""
    if isinstance(source, Sample):
        rows = generator.integers(len(source.prompt), size=count)
        return np.zeros(count, np.int64), np.stack([source.prompt[rows], source.output[rows]])
    cells = generator.integers(len(source.prompt), size=count)
    both = (source.prompt, source.output)
    return cells, np.stack([_between(source, one, cells, generator.random(count)) for one in both])


def _between(
    profile: Profile, logarithms: NDArray[np.float64], cells: IntArray, points: NDArray[np.float64]
) -> IntArray:
    """Tokens at ``points`` (0 to 1) of the distributions of ``cells``: geometric between quantiles, whole.

    The k-th of n lengths is the quantile at k / (n - 1), but stands for the points from k / n to (k + 1) / n. Without
    the step from one to the other the largest would have half its weight: of azure-code's outputs, 2.5 % of the mean.
    """
    each = profile.rows / len(logarithms)
    places = np.clip((points * each - 0.5) / (each - 1), 0, 1) if each > 1 else points
    left = np.searchsorted(profile.probabilities, places, side="right") - 1
    left = np.minimum(left, len(profile.probabilities) - 2)
    below, above = profile.probabilities[left], profile.probabilities[left + 1]
    low, high = logarithms[cells, left], logarithms[cells, left + 1]
    return np.rint(np.exp(low + (places - below) / (above - below) * (high - low))).astype(np.int64)


def _beyond(pairs: IntArray, most: float) -> IntArray:
    return np.flatnonzero(pairs.sum(axis=0) > most)


def _deal_again(cells: IntArray, pairs: IntArray, most: float, generator: Generator) -> None:
    """Pairs beyond the limit swap outputs, in place, with others of their cell, where both fit then."""
    order = np.argsort(cells, kind="stable")
    first, sizes = np.searchsorted(cells[order], cells), np.bincount(cells)[cells]
    prompt, output = pairs
    for _ in range(_DEALS):
        beyond = _beyond(pairs, most)
        if not beyond.size:
            return
        other = order[first[beyond] + generator.integers(sizes[beyond])]
        fit = (prompt[beyond] + output[other] <= most) & (prompt[other] + output[beyond] <= most)
        fit &= prompt[other] + output[other] <= most  # else it asks somebody itself
        # Whoever is asked by several swaps with the first.
        other, asker = np.unique(other[fit], return_index=True)
        beyond = beyond[fit][asker]
        output[beyond], output[other] = output[other], output[beyond]
