"""Paging: fixed blocks, a block table for each request, any free block serves anyone.

    request A, 10 tokens, block_size 4         request B, 3 tokens
    logical block   0     1     2              logical block   0
                  |####||####||##..|                         |###.|
    block table   [ 7  ,  1  ,  3  ]           block table   [ 2 ]
                          |            pool: blocks 0 .. N-1, then the tail (capacity mod block_size)
                          `- token 5 is in slot 1 x 4 + 5 mod 4 = 5

No run of memory is ever too short, so nothing is lost between requests, and within a request at most
``block_size - 1`` slots: those of its last block. Free blocks are a queue whose order is part of the promise:
taken from the head, initially 0, 1, 2, ...; a released request's blocks return to the head, its last block
foremost. So the same calls give the same block ids, here and on a GPU.

Source: PagedAttention (Kwon et al., SOSP 2023), section 4; vLLM, ``v1/core/block_pool.py`` for the order.
"""

from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocators import pool as ask
from allocators.base import InputError, in_short, whole
from allocators.pooled import Pooled, longer
from allocators.seam import answer, record, rule

_MOST_DIGITS = 100  # of a watermark
_MOST_BLOCKS = np.iinfo(np.int32).max


class PagedPool(NamedTuple):
    """Chains of blocks: each block table from its last block to its first, the free ones from the head of the queue."""

    now: Any
    """``free_blocks``, how many there are, and the ``head`` of their queue."""
    link: NDArray[np.int32]
    """Block -> the block before it in its table; of a free block, the next one in the queue."""
    first: NDArray[np.int32]
    """Seat -> the first block of its table,"""
    last: NDArray[np.int32]
    """its last block,"""
    length: NDArray[np.int32]
    """and how many blocks it has."""
    block_size: int
    watermark_blocks: int
    tail_slots: int


@rule
def _blocks_for(pool: PagedPool, tokens: int) -> int:
    return -(-tokens // pool.block_size)


@rule
def _take_blocks(pool: PagedPool, seat: int, wanted: int) -> None:
    """Move blocks from the head of the queue to the end of a block table."""
    head, last = pool.now.head, pool.last[seat]
    for _ in range(wanted):
        next_free = pool.link[head]
        pool.link[head] = last
        last, head = head, next_free
    pool.now.head, pool.last[seat] = head, last
    pool.now.free_blocks -= wanted
    pool.length[seat] += wanted


@answer(ask.allocate, PagedPool)
def _allocate(
    pool: PagedPool,
    seat: int,
    request: int,
    prompt_tokens: int,
    output_tokens: int,
    alone: bool,
) -> int:
    wanted = _blocks_for(pool, prompt_tokens)
    if wanted + (0 if alone else pool.watermark_blocks) > pool.now.free_blocks:
        return 0
    pool.first[seat], pool.length[seat] = pool.now.head, 0
    _take_blocks(pool, seat, wanted)
    return wanted * pool.block_size


@answer(ask.extend, PagedPool)
def _extend(pool: PagedPool, seat: int) -> int:
    if pool.now.free_blocks == 0:
        return 0
    _take_blocks(pool, seat, 1)
    return pool.block_size


@answer(ask.free, PagedPool)
def _free(pool: PagedPool, seat: int) -> int:
    pool.link[pool.first[seat]] = pool.now.head
    pool.now.head = pool.last[seat]
    pool.now.free_blocks += pool.length[seat]
    return _held_slots(pool, seat)


@answer(ask.asked_slots, PagedPool)
def _asked_slots(pool: PagedPool, prompt_tokens: int, output_tokens: int) -> int:
    return prompt_tokens  # what must be written now: paging reserves nothing


@answer(ask.fits_empty, PagedPool)
def _fits_empty(pool: PagedPool, prompt_tokens: int, output_tokens: int) -> bool:
    return _blocks_for(pool, prompt_tokens + output_tokens - 1) <= len(pool.link)


@answer(ask.free_slots, PagedPool)
def _free_slots(pool: PagedPool) -> int:
    return pool.now.free_blocks * pool.block_size + pool.tail_slots


@answer(ask.largest_free_slots, PagedPool)
def _largest_free_slots(pool: PagedPool) -> int:
    return pool.now.free_blocks * pool.block_size


@rule
@answer(ask.held_slots, PagedPool)
def _held_slots(pool: PagedPool, seat: int) -> int:
    return pool.length[seat] * pool.block_size


@answer(ask.copy_extents, PagedPool)
def _copy_extents(pool: PagedPool, seat: int, extents: NDArray[np.int64], at: int) -> int:
    block, count = pool.last[seat], pool.length[seat]
    for place in range(at + count - 1, at - 1, -1):
        extents[place, 0] = block * pool.block_size
        extents[place, 1] = pool.block_size
        block = pool.link[block]
    return count


class Paged(Pooled):
    """floor(``capacity`` / ``block_size``) blocks of ``block_size`` slots.

    ``watermark`` w (0 <= w < 1, read as the decimal it is written as): an admission must leave
    floor(w x blocks) blocks free, unless the request would be the only one running. Growing may use them.
    Raises InputError for values outside that, or when the pool is smaller than one block.
    """

    contiguous = False

    def __init__(self, capacity: int, block_size: int = 16, watermark: float | str = 0) -> None:
        super().__init__(capacity)
        self.block_size = self.grow_slots = whole("block_size", block_size)
        if self.capacity < self.block_size:
            raise InputError(f"capacity(={capacity}) must be >= block_size(={block_size})")
        self.watermark = _fraction(watermark)
        numerator, denominator = self.watermark.as_integer_ratio()
        blocks, tail = divmod(self.capacity, self.block_size)
        if blocks > _MOST_BLOCKS:
            raise InputError(
                f"capacity(={capacity}) must be at most {_MOST_BLOCKS:,} blocks of block_size(={block_size})"
            )
        self.watermark_blocks = numerator * blocks // denominator
        nobody = np.zeros(0, np.int32)
        self.pool = PagedPool(
            record(free_blocks=blocks, head=0),
            np.arange(1, blocks + 1, dtype=np.int32),
            *(nobody, nobody, nobody),
            self.block_size,
            self.watermark_blocks,
            tail,
        )

    def seated(self, seats: int) -> PagedPool:
        by_seat = {name: longer(getattr(self.pool, name), seats) for name in ("first", "last", "length")}
        self.pool = self.pool._replace(**by_seat)
        return self.pool

    @property
    def spec(self) -> str:
        watermark = f"{self.watermark.copy_abs():f}"
        return f"paged:block_size={self.block_size},watermark={watermark.rstrip('0').rstrip('.') or '0'}"

    @property
    def blocks(self) -> int:
        """Number of blocks in the pool."""
        return self.capacity // self.block_size

    @property
    def tail_slots(self) -> int:
        return self.capacity % self.block_size

    def block_table(self, request_id: int) -> tuple[int, ...]:
        """Physical block ids by logical block. Raises MisuseError when the id holds none."""
        return tuple(extent.start // self.block_size for extent in self.extents(request_id))


def _fraction(watermark: float | str) -> Decimal:
    """A watermark as the decimal it is written as, or an InputError."""
    try:
        fraction = Decimal(str(watermark))
    except InvalidOperation:
        fraction = Decimal("NaN")
    if not (fraction.is_finite() and 0 <= fraction < 1):
        raise InputError(f"watermark(={in_short(watermark)}) must be a number >= 0 and < 1")
    if fraction and fraction.adjusted() < -_MOST_DIGITS:
        raise InputError(f"watermark(={in_short(watermark)}) must be 0, or at least 1e-{_MOST_DIGITS}")
    return fraction
