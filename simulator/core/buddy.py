"""The buddy allocator: blocks of ``min_block`` x 2^level slots, split in halves and merged with their twins."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from simulator.core import pool as ask
from simulator.core.reserving import reserved
from simulator.core.seam import answers, record

SMALLEST, LARGEST = range(2)
_LEVEL = 40  # a free block is one number, level * 2^40 + address: sorted, the lowest address of each level comes first


class BuddyPool(NamedTuple):
    now: Any
    """``blocks`` (how many are free), ``free_slots``."""
    blocks: np.ndarray
    """Free blocks in ascending order, by level and then by address (in units of ``min_block``)."""
    extent: np.ndarray
    """Seat -> address and level."""
    reserve: int
    limit: int
    min_block: int
    top: int
    split: int


def buddy_pool(capacity: int, reserve: int, limit: int, min_block: int, top: int, split: int, seats: int) -> BuddyPool:
    units = capacity // min_block
    arenas, address = [], 0
    for level in range(top, -1, -1):
        while units - address >= 1 << level:
            arenas.append((level << _LEVEL) + address)
            address += 1 << level
    room = min(units, len(arenas) + seats * (top + 1)) + 1
    blocks = np.zeros(room, np.int64)
    blocks[: len(arenas)] = sorted(arenas)
    now = record(blocks=len(arenas), free_slots=capacity)
    return BuddyPool(now, blocks, np.zeros((seats, 2), np.int64), reserve, limit, min_block, top, split)


@answers(ask.asked_slots, BuddyPool)
def _asked_slots(pool, prompt, output):
    return reserved(pool.reserve, pool.limit, prompt, output)


@njit(_nrt=False, forceinline=True)
def _level_for(pool, slots):
    """The level of the smallest block that holds so many slots."""
    level, size = 0, pool.min_block
    while size < slots:
        level += 1
        size *= 2
    return level


@njit(_nrt=False, forceinline=True)
def _search(pool, block):
    """The place of the first free block that is not below ``block``."""
    low, high = 0, pool.now.blocks
    while low < high:
        middle = (low + high) // 2
        if pool.blocks[middle] < block:
            low = middle + 1
        else:
            high = middle
    return low


@njit(_nrt=False, forceinline=True)
def _add(pool, level, address):
    block = (level << _LEVEL) + address
    place = _search(pool, block)
    for at in range(pool.now.blocks, place, -1):
        pool.blocks[at] = pool.blocks[at - 1]
    pool.blocks[place] = block
    pool.now.blocks += 1


@njit(_nrt=False, forceinline=True)
def _remove(pool, place):
    pool.now.blocks -= 1
    for at in range(place, pool.now.blocks):
        pool.blocks[at] = pool.blocks[at + 1]


@answers(ask.fits_empty, BuddyPool)
def _fits_empty(pool, prompt, output):
    return reserved(pool.reserve, pool.limit, prompt, output) <= pool.min_block << pool.top


@answers(ask.allocate, BuddyPool)
def _allocate(pool, seat, request, prompt, output, alone):
    wanted = _level_for(pool, reserved(pool.reserve, pool.limit, prompt, output))
    at_least = wanted
    if pool.split == LARGEST and pool.now.blocks:
        at_least = max(wanted, pool.blocks[pool.now.blocks - 1] >> _LEVEL)
    place = _search(pool, at_least << _LEVEL)
    if place == pool.now.blocks:
        return 0
    level, address = pool.blocks[place] >> _LEVEL, pool.blocks[place] & ((1 << _LEVEL) - 1)
    _remove(pool, place)
    while level > wanted:
        level -= 1
        _add(pool, level, address + (1 << level))
    pool.extent[seat, 0] = address
    pool.extent[seat, 1] = level
    pool.now.free_slots -= pool.min_block << level
    return pool.min_block << level


@answers(ask.extend, BuddyPool)
def _extend(pool, seat):
    return 0


@answers(ask.free, BuddyPool)
def _free(pool, seat):
    address, level = pool.extent[seat, 0], pool.extent[seat, 1]
    slots = pool.min_block << level
    pool.now.free_slots += slots
    while level < pool.top:
        buddy = address ^ (1 << level)
        place = _search(pool, (level << _LEVEL) + buddy)
        if place == pool.now.blocks or pool.blocks[place] != (level << _LEVEL) + buddy:
            break
        _remove(pool, place)
        address = min(address, buddy)
        level += 1
    _add(pool, level, address)
    return slots


@answers(ask.free_slots, BuddyPool)
def _free_slots(pool):
    return pool.now.free_slots


@answers(ask.largest_free_slots, BuddyPool)
def _largest_free_slots(pool):
    if pool.now.blocks == 0:
        return 0
    return pool.min_block << (pool.blocks[pool.now.blocks - 1] >> _LEVEL)


@answers(ask.copy_extents, BuddyPool)
def _copy_extents(pool, seat, extents, at):
    extents[at, 0] = pool.extent[seat, 0] * pool.min_block
    extents[at, 1] = pool.min_block << pool.extent[seat, 1]
    return 1
