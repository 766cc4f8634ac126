"""Where every slot was, integrated over time exactly, bin by bin of the timeline."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators.seam import record, rule
from simulator.engine.batch import Batch
from simulator.engine.wide import add, add_product

SUMS = ("used", "covered", "overprovision", "rounding", "free", "running", "largest", "time", "iteration", "returning")
"""What is summed up, each times time. ``covered``: used, or written later; ``iteration``: time within iterations;
``returning``: requests that were preempted and wait."""

GROUPS = ("unrefused", "residual", "external")
"""Sums are kept apart by what stopped the head of the queue: nothing to do with memory; too little free; pieces."""


class Bins(NamedTuple):
    """Bin k lies between edge k and edge k + 1, in picoseconds."""

    now: Any
    """``bin``: that in which the clock is; -1 before the first."""
    edges: NDArray[np.int64]
    sums: NDArray[np.int64]
    """[bin, group, sum, word], see ``wide.add_product``."""
    preemptions: NDArray[np.int64]


def new_bins(edges: NDArray[np.int64]) -> Bins:
    """Empty bins."""
    count = len(edges) - 1
    sums = np.zeros((count, len(GROUPS), len(SUMS), 2), np.int64)
    return Bins(record(bin=-1), edges, sums, np.zeros(count, np.int64))


@rule
def move_to_bin(bins: Bins, now: int) -> None:
    """Move on to the bin in which ``now`` lies."""
    while bins.now.bin < len(bins.preemptions) and bins.edges[bins.now.bin + 1] <= now:
        bins.now.bin += 1


@rule
def is_measured(bins: Bins) -> bool:
    """Whether the clock is in one of the bins."""
    return 0 <= bins.now.bin < len(bins.preemptions)


@rule
def next_edge(bins: Bins, otherwise: int) -> int:
    """The edge at which the bin ends; ``otherwise`` behind the last."""
    return bins.edges[bins.now.bin + 1] if bins.now.bin < len(bins.preemptions) else otherwise


@rule
def add_time(bins: Bins, batch: Batch, group: int, time: int, returning: int, iterating: int) -> None:
    """Add a time in which everything was as it is now. ``iterating``: 1 within iterations, 0 in a gap between them."""
    if not is_measured(bins):
        return
    now, sums = batch.now, bins.sums[bins.now.bin, group]
    add_product(sums[0], now.used, time)
    add_product(sums[1], now.covered, time)
    add_product(sums[2], now.overprovision, time)
    add_product(sums[3], now.rounding, time)
    add_product(sums[4], now.free, time)
    add_product(sums[5], now.count, time)
    add_product(sums[6], now.largest, time)
    add_product(sums[7], 1, time)
    add_product(sums[8], iterating, time)
    if returning:
        add_product(sums[9], returning, time)


def add_idle(bins: Bins, batch: Batch, edges_ps: Sequence[int], start_ps: int, end_ps: int) -> None:
    """Add a time of any length, in Python, in which nobody runs; ``edges_ps``: those of the bins, where 64 bits end."""
    for number in range(max(int(bins.now.bin), 0), len(bins.preemptions)):
        time_ps = min(end_ps, edges_ps[number + 1]) - max(start_ps, edges_ps[number])
        if time_ps > 0:
            for name, level in (("free", batch.now.free), ("largest", batch.now.largest), ("time", 1)):
                add(bins.sums[number, 0, SUMS.index(name)], int(level) * time_ps)


@rule
def add_growth(bins: Bins, batch: Batch, group: int, first_ps: int, step_ps: int, count: int) -> None:
    """Add what ``count`` iterations have more than the first: in the i-th each sequence has written i more."""
    if is_measured(bins):
        ones, squares = count * (count - 1) // 2, (count - 1) * count * (2 * count - 1) // 6
        add_product(bins.sums[bins.now.bin, group, 0], batch.now.count, first_ps * ones + step_ps * squares)


@rule
def add_preemptions(bins: Bins, now: int, count: int) -> None:
    """Count preemptions in the bin of ``now``; in the last one too at its very end, as iterations may take no time."""
    if is_measured(bins):
        bins.preemptions[bins.now.bin] += count
    elif bins.now.bin == len(bins.preemptions) and now == bins.edges[-1]:
        bins.preemptions[-1] += count
