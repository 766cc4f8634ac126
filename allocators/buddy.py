"""The buddy allocator: blocks of ``min_block`` x 2^level slots, split in halves and merged with their twins.

A request gets the smallest block that holds what it asks for; a larger block is split in two **buddies**
until it fits. A freed block whose buddy is free merges with it, again and again::

    128 free     A = 32                 B = 16                      C = 7
    |  128  |    |A 32| 32 |   64   |   |A 32| 32 |B16|16| 32  |    |A 32|C8|8|16|B16|16| 32  |
                 0    32   64           0    32   64  80 96         0    32 40 48 64 80 96   128

(With ``split=largest``, the lesson's example: 72 slots are free, and a request for 64 fails.) The name of a
buddy is arithmetic: in units of ``min_block``, a block of 2^level units at address u has its buddy at u XOR 2^level.

Source: Knuth, The Art of Computer Programming vol. 1, section 2.5, "buddy system"; Orca (OSDI 2022) as
modelled in PagedAttention (SOSP 2023), section 6.1.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.base import Extent, InputError, one_of, whole
from allocators.pooled import Pooled, longer
from allocators.reservation import RESERVE, check_reserve, reserved_slots
from allocators.seam import answer, record, rule

SPLIT = ("smallest", "largest")
LARGEST = 1

# A free block is one number, level x 2^40 + address. In ascending order, the first that is not below w x 2^40 is the
# smallest free block of level w or more, and of those the one at the lowest address.
_LEVEL_BITS = 40


class BuddyPool(NamedTuple):
    """The free blocks, and who holds which."""

    now: Any
    """``blocks``, how many are free; ``free_slots``."""
    blocks: NDArray[np.int64]
    """Free blocks in ascending order: by level, then by address in units of ``min_block``."""
    address: NDArray[np.int64]
    """Seat -> the address of its block,"""
    level: NDArray[np.int64]
    """and its level."""
    reserve: int
    max_model_len: int
    min_block: int
    top: int
    """The level of the largest arena."""
    split: int


@answer(ask.allocate, BuddyPool)
def _allocate(pool: BuddyPool, seat: int, request: int, prompt_tokens: int, output_tokens: int, alone: bool) -> int:
    wanted = _level_for(pool, _asked_slots(pool, prompt_tokens, output_tokens))
    at_least = wanted
    if pool.split == LARGEST and pool.now.blocks:
        at_least = max(wanted, pool.blocks[pool.now.blocks - 1] >> _LEVEL_BITS)
    place = _place(pool, at_least, 0)
    if place == pool.now.blocks:
        return 0
    level, address = pool.blocks[place] >> _LEVEL_BITS, pool.blocks[place] & ((1 << _LEVEL_BITS) - 1)
    _remove(pool, place)
    while level > wanted:
        level -= 1
        _add(pool, level, address + (1 << level))
    pool.address[seat], pool.level[seat] = address, level
    pool.now.free_slots -= pool.min_block << level
    return pool.min_block << level


@answer(ask.free, BuddyPool)
def _free(pool: BuddyPool, seat: int) -> int:
    address, level = pool.address[seat], pool.level[seat]
    slots = pool.min_block << level
    pool.now.free_slots += slots
    # No arena needs to be looked up: carving goes from large to small, so the buddy of a whole arena below
    # the top level lies in smaller arenas, and those never hold a free block of its size.
    while level < pool.top:
        buddy = address ^ (1 << level)
        place = _place(pool, level, buddy)
        if place == pool.now.blocks or pool.blocks[place] != (level << _LEVEL_BITS) + buddy:
            break
        _remove(pool, place)
        address = min(address, buddy)
        level += 1
    _add(pool, level, address)
    return slots


@rule
def _level_for(pool: BuddyPool, slots: int) -> int:
    """The level of the smallest block that holds so many slots."""
    level = 0
    while pool.min_block << level < slots:
        level += 1
    return level


@rule
def _place(pool: BuddyPool, level: int, address: int) -> int:
    """The place of the first free block that is not below this one, by bisection."""
    block = (level << _LEVEL_BITS) + address
    low, high = 0, pool.now.blocks
    while low < high:
        middle = (low + high) // 2
        if pool.blocks[middle] < block:
            low = middle + 1
        else:
            high = middle
    return low


@rule
def _add(pool: BuddyPool, level: int, address: int) -> None:
    place = _place(pool, level, address)
    for at in range(pool.now.blocks, place, -1):
        pool.blocks[at] = pool.blocks[at - 1]
    pool.blocks[place] = (level << _LEVEL_BITS) + address
    pool.now.blocks += 1


@rule
def _remove(pool: BuddyPool, place: int) -> None:
    pool.now.blocks -= 1
    for at in range(place, pool.now.blocks):
        pool.blocks[at] = pool.blocks[at + 1]


@answer(ask.extend, BuddyPool)
def _extend(pool: BuddyPool, seat: int) -> int:
    return 0  # nobody grows: all was reserved at once


@rule
@answer(ask.asked_slots, BuddyPool)
def _asked_slots(pool: BuddyPool, prompt_tokens: int, output_tokens: int) -> int:
    return reserved_slots(pool.reserve, pool.max_model_len, prompt_tokens, output_tokens)


@answer(ask.fits_empty, BuddyPool)
def _fits_empty(pool: BuddyPool, prompt_tokens: int, output_tokens: int) -> bool:
    return _asked_slots(pool, prompt_tokens, output_tokens) <= pool.min_block << pool.top


@answer(ask.free_slots, BuddyPool)
def _free_slots(pool: BuddyPool) -> int:
    return pool.now.free_slots


@answer(ask.largest_free_slots, BuddyPool)
def _largest_free_slots(pool: BuddyPool) -> int:
    if pool.now.blocks == 0:
        return 0
    return pool.min_block << (pool.blocks[pool.now.blocks - 1] >> _LEVEL_BITS)


@answer(ask.held_slots, BuddyPool)
def _held_slots(pool: BuddyPool, seat: int) -> int:
    return pool.min_block << pool.level[seat]


@answer(ask.copy_extents, BuddyPool)
def _copy_extents(pool: BuddyPool, seat: int, extents: NDArray[np.int64], at: int) -> int:
    extents[at, 0] = pool.address[seat] * pool.min_block
    extents[at, 1] = pool.min_block << pool.level[seat]
    return 1


class Buddy(Pooled):
    """Power-of-two blocks over ``capacity`` slots.

    The pool is carved greedily from address 0 into arenas, each the largest size ``min_block`` x 2^k that
    still fits and is at most ``max_block`` (default: no limit). ``split``: which free block serves a request,
    the ``smallest`` that is large enough or the ``largest`` there is; the lowest address among equals, and the
    low half is kept. ``reserve`` as for Contiguous. Raises InputError for values outside that.
    """

    contiguous = True
    grow_slots = 0

    def __init__(
        self,
        capacity: int,
        reserve: str = "max",
        min_block: int = 1,
        max_block: int | None = None,
        split: str = "smallest",
        max_model_len: int | None = None,
    ) -> None:
        super().__init__(capacity)
        self.reserve = reserve
        self.min_block = whole("min_block", min_block)
        self.max_block = None if max_block is None else whole("max_block", max_block)
        self.split = one_of("split", split, SPLIT)
        if capacity < min_block:
            raise InputError(f"capacity(={capacity}) must be >= min_block(={min_block})")
        if max_block is not None and (max_block % min_block or (max_block // min_block).bit_count() != 1):
            raise InputError(f"max_block(={max_block}) must be min_block(={min_block}) times a power of two")
        units = self.capacity // self.min_block
        top = units.bit_length() - 1
        if self.max_block is not None:
            top = min(top, (self.max_block // self.min_block).bit_length() - 1)
        self.max_model_len = check_reserve(reserve, max_model_len, self.min_block << top)
        arenas = _carved(units, top)
        nobody = np.zeros(0, np.int64)
        self.pool = BuddyPool(
            *(record(blocks=len(arenas), free_slots=self.capacity), np.sort(arenas), nobody, nobody),
            *(RESERVE.index(reserve), self.max_model_len or 0, self.min_block, top, SPLIT.index(split)),
        )
        self._arenas = len(arenas)

    def seated(self, seats: int) -> BuddyPool:
        # A block that is held has split one arena at most, into one free block for each level.
        room = self._arenas + seats * (self.pool.top + 1)
        seat = [longer(column, seats) for column in (self.pool.address, self.pool.level)]
        self.pool = self.pool._replace(blocks=longer(self.pool.blocks, room), address=seat[0], level=seat[1])
        return self.pool

    @property
    def tail_slots(self) -> int:
        return self.capacity % self.min_block

    @property
    def spec(self) -> str:
        limit = "none" if self.max_block is None else self.max_block
        return f"buddy:reserve={self.reserve},min_block={self.min_block},max_block={limit},split={self.split}"

    def free_blocks(self) -> list[Extent]:
        """The free blocks in address order. Two free neighbours are listed apart unless they are buddies."""
        blocks = self.pool.blocks[: self.pool.now.blocks]
        starts = (blocks & ((1 << _LEVEL_BITS) - 1)) * self.min_block
        slots = self.min_block << (blocks >> _LEVEL_BITS)
        return sorted(Extent(*block) for block in zip(starts.tolist(), slots.tolist(), strict=True))


def _carved(units: int, top: int) -> NDArray[np.int64]:
    """The arenas, from address 0 on: as many of the largest size as there is room for, then of each smaller one."""
    whole_arenas, rest = divmod(units, 1 << top)
    arenas = [(np.arange(whole_arenas) << top) + (top << _LEVEL_BITS)]
    address = whole_arenas << top
    for level in range(top - 1, -1, -1):
        if rest >> level & 1:
            arenas.append(np.array([(level << _LEVEL_BITS) + address]))
            address += 1 << level
    return np.concatenate(arenas)
