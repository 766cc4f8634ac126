"""Paging: fixed blocks, a block table for each request, any free block serves anyone."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from simulator.core import pool as ask
from simulator.core.seam import answers, record


class PagedPool(NamedTuple):
    """The free queue, and the block tables as chains from the last block to the first."""

    now: Any
    """``free_blocks``: how many."""
    queue: np.ndarray
    """Free blocks; the head of the queue is the end of the first ``free_blocks``."""
    before: np.ndarray
    """Block -> the block before it in its table."""
    last: np.ndarray
    """Seat -> the last block of its table."""
    count: np.ndarray
    """Seat -> how many blocks its table has."""
    block_size: int
    blocks: int
    watermark_blocks: int
    tail_slots: int


def paged_pool(capacity: int, block_size: int, watermark_blocks: int, seats: int) -> PagedPool:
    """An empty pool: blocks are handed out as 0, 1, 2, ..."""
    blocks = capacity // block_size
    queue = np.arange(blocks - 1, -1, -1).astype(np.int32)
    before, last, count = np.full(blocks, -1, np.int32), np.full(seats, -1, np.int32), np.zeros(seats, np.int32)
    tail = capacity - blocks * block_size
    return PagedPool(record(free_blocks=blocks), queue, before, last, count, block_size, blocks, watermark_blocks, tail)


@njit(_nrt=False, forceinline=True)
def _take_block(pool, seat):
    """Move the head of the queue to the end of a table."""
    pool.now.free_blocks -= 1
    block = pool.queue[pool.now.free_blocks]
    pool.before[block] = pool.last[seat]
    pool.last[seat] = block
    pool.count[seat] += 1


@answers(ask.asked_slots, PagedPool)
def _asked_slots(pool, prompt, output):
    return prompt


@answers(ask.fits_empty, PagedPool)
def _fits_empty(pool, prompt, output):
    return -(-(prompt + output - 1) // pool.block_size) <= pool.blocks


@answers(ask.allocate, PagedPool)
def _allocate(pool, seat, request, prompt, output, alone):
    wanted = -(-prompt // pool.block_size)
    if wanted + (0 if alone else pool.watermark_blocks) > pool.now.free_blocks:
        return 0
    pool.last[seat] = -1
    pool.count[seat] = 0
    for _ in range(wanted):
        _take_block(pool, seat)
    return wanted * pool.block_size


@answers(ask.extend, PagedPool)
def _extend(pool, seat):
    if pool.now.free_blocks == 0:
        return 0
    _take_block(pool, seat)
    return pool.block_size


@answers(ask.free, PagedPool)
def _free(pool, seat):
    # From the first block to the last, so that the last is the head of the queue.
    count = pool.count[seat]
    end = pool.now.free_blocks + count
    block = pool.last[seat]
    for place in range(end - 1, end - 1 - count, -1):
        pool.queue[place] = block
        block = pool.before[block]
    pool.now.free_blocks = end
    return count * pool.block_size


@answers(ask.free_slots, PagedPool)
def _free_slots(pool):
    return pool.now.free_blocks * pool.block_size + pool.tail_slots


@answers(ask.largest_free_slots, PagedPool)
def _largest_free_slots(pool):
    return pool.now.free_blocks * pool.block_size


@answers(ask.copy_extents, PagedPool)
def _copy_extents(pool, seat, extents, at):
    count = pool.count[seat]
    block = pool.last[seat]
    for place in range(count - 1, -1, -1):
        extents[at + place, 0] = block * pool.block_size
        extents[at + place, 1] = pool.block_size
        block = pool.before[block]
    return count
