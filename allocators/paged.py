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


class PagedPool(NamedTuple):
    """The queue of free blocks, and the block tables: chains from the last block of a request to its first."""

    now: Any
    """``free_blocks``: how many there are."""
    queue: NDArray[np.int32]
    """Free blocks, the first ``free_blocks`` entries. The head of the queue is the last of them."""
    before: NDArray[np.int32]
    """Block -> the block before it in its table."""
    last: NDArray[np.int32]
    """Seat -> the last block of its table."""
    count: NDArray[np.int32]
    """Seat -> the number of blocks in its table."""
    block_size: int
    watermark_blocks: int
    tail_slots: int


@rule
def _blocks_for(pool: PagedPool, tokens: int) -> int:
    return -(-tokens // pool.block_size)


@rule
def _take_block(pool: PagedPool, seat: int) -> None:
    """Move the head of the queue to the end of a block table."""
    pool.now.free_blocks -= 1
    block = pool.queue[pool.now.free_blocks]
    pool.before[block] = pool.last[seat]
    pool.last[seat] = block
    pool.count[seat] += 1


@answer(ask.allocate, PagedPool)
def _allocate(
    pool: PagedPool,
    seat: int,
    request: int,
    prompt_tokens: int,
    output_tokens: int,
    alone: bool,  # noqa: ARG001
) -> int:
    wanted = _blocks_for(pool, prompt_tokens)
    if wanted + (0 if alone else pool.watermark_blocks) > pool.now.free_blocks:
        return 0
    pool.count[seat] = 0
    for _ in range(wanted):
        _take_block(pool, seat)
    return wanted * pool.block_size


@answer(ask.extend, PagedPool)
def _extend(pool: PagedPool, seat: int) -> int:
    if pool.now.free_blocks == 0:
        return 0
    _take_block(pool, seat)
    return pool.block_size


@answer(ask.free, PagedPool)
def _free(pool: PagedPool, seat: int) -> int:
    slots = _held_slots(pool, seat)
    block = pool.last[seat]
    end = pool.now.free_blocks + pool.count[seat]
    for place in range(end - 1, pool.now.free_blocks - 1, -1):
        pool.queue[place] = block
        block = pool.before[block]
    pool.now.free_blocks = end
    return slots


@answer(ask.asked_slots, PagedPool)
def _asked_slots(pool: PagedPool, prompt_tokens: int, output_tokens: int) -> int:  # noqa: ARG001
    return prompt_tokens  # what must be written now: paging reserves nothing


@answer(ask.fits_empty, PagedPool)
def _fits_empty(pool: PagedPool, prompt_tokens: int, output_tokens: int) -> bool:
    return _blocks_for(pool, prompt_tokens + output_tokens - 1) <= len(pool.queue)


@answer(ask.free_slots, PagedPool)
def _free_slots(pool: PagedPool) -> int:
    return pool.now.free_blocks * pool.block_size + pool.tail_slots


@answer(ask.largest_free_slots, PagedPool)
def _largest_free_slots(pool: PagedPool) -> int:
    return pool.now.free_blocks * pool.block_size


@rule
@answer(ask.held_slots, PagedPool)
def _held_slots(pool: PagedPool, seat: int) -> int:
    return pool.count[seat] * pool.block_size


@answer(ask.copy_extents, PagedPool)
def _copy_extents(pool: PagedPool, seat: int, extents: NDArray[np.int64], at: int) -> int:
    block, count = pool.last[seat], pool.count[seat]
    for place in range(at + count - 1, at - 1, -1):
        extents[place, 0] = block * pool.block_size
        extents[place, 1] = pool.block_size
        block = pool.before[block]
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
        self.watermark_blocks = numerator * blocks // denominator
        self.pool = PagedPool(
            record(free_blocks=blocks),
            np.arange(blocks - 1, -1, -1, np.int32),
            np.zeros(blocks, np.int32),
            np.zeros(0, np.int32),
            np.zeros(0, np.int32),
            self.block_size,
            self.watermark_blocks,
            tail,
        )

    def seated(self, seats: int) -> PagedPool:
        self.pool = self.pool._replace(last=longer(self.pool.last, seats), count=longer(self.pool.count, seats))
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
