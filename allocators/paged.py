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

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from allocators.base import Extent, InputError, holds_already, holds_none, in_short, whole

_MOST_DIGITS = 100  # of a watermark


class Paged:
    """floor(``capacity`` / ``block_size``) blocks of ``block_size`` slots.

    ``watermark`` w (0 <= w < 1, read as the decimal it is written as): an admission must leave
    floor(w x blocks) blocks free, unless the request would be the only one running. Growing may use them.
    Raises InputError for values outside that, or when the pool is smaller than one block.
    """

    contiguous = False

    def __init__(self, capacity: int, block_size: int = 16, watermark: float | str = 0) -> None:
        self.capacity = whole("capacity", capacity)
        self.block_size = self.grow_slots = whole("block_size", block_size)
        if self.capacity < self.block_size:
            raise InputError(f"capacity(={capacity}) must be >= block_size(={block_size})")
        try:
            self.watermark = Decimal(str(watermark))
        except InvalidOperation:
            self.watermark = Decimal("NaN")
        if not (self.watermark.is_finite() and 0 <= self.watermark < 1):
            raise InputError(f"watermark(={in_short(watermark)}) must be a number >= 0 and < 1")
        if self.watermark and self.watermark.adjusted() < -_MOST_DIGITS:
            raise InputError(f"watermark(={in_short(watermark)}) must be 0, or at least 1e-{_MOST_DIGITS}")
        blocks = self.capacity // self.block_size
        numerator, denominator = self.watermark.as_integer_ratio()
        self.watermark_blocks = numerator * blocks // denominator
        self.tail_slots = self.capacity % self.block_size
        # The queue's head is the end of the list: popping and extending there costs nothing.
        self._free = list(range(blocks - 1, -1, -1))
        self._tables: dict[int, list[int]] = {}

    @property
    def spec(self) -> str:
        watermark = f"{self.watermark.copy_abs():f}"
        return f"paged:block_size={self.block_size},watermark={watermark.rstrip('0').rstrip('.') or '0'}"

    @property
    def blocks(self) -> int:
        """Number of blocks in the pool."""
        return self.capacity // self.block_size

    @property
    def free_slots(self) -> int:
        return len(self._free) * self.block_size + self.tail_slots

    @property
    def largest_free_slots(self) -> int:
        return len(self._free) * self.block_size

    def asked_slots(self, prompt_tokens: int, output_tokens: int) -> int:  # noqa: ARG002
        """What must be written now: paging reserves nothing."""
        return prompt_tokens

    def fits_empty(self, prompt_tokens: int, output_tokens: int) -> bool:
        return self._blocks_for(prompt_tokens + output_tokens - 1) <= self.blocks

    def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:  # noqa: ARG002
        if request_id in self._tables:
            raise holds_already(request_id)
        free = self._free
        wanted = self._blocks_for(prompt_tokens)
        if wanted + (0 if alone else self.watermark_blocks) > len(free):
            return 0
        self._tables[request_id] = free[: -wanted - 1 : -1]
        del free[-wanted:]
        return wanted * self.block_size

    def grow(self, request_ids: Sequence[int]) -> int:
        """One more block for each request, in order, until the pool is out of blocks; returns how many got one."""
        try:
            tables = [self._tables[request_id] for request_id in request_ids]
        except KeyError as unknown:
            raise holds_none(unknown.args[0]) from None
        free = self._free
        if len(tables) > len(free):
            tables = tables[: len(free)]
        take = free.pop
        for table in tables:
            table.append(take())
        return len(tables)

    def release(self, request_id: int) -> int:
        table = self._tables.pop(request_id, None)
        if table is None:
            raise holds_none(request_id)
        self._free.extend(table)
        return len(table) * self.block_size

    def held_slots(self, request_id: int) -> int:
        return len(self._table(request_id)) * self.block_size

    def extents(self, request_id: int) -> tuple[Extent, ...]:
        """One extent a block, in logical order; neighbours are not joined."""
        return tuple(Extent(block * self.block_size, self.block_size) for block in self._table(request_id))

    def block_table(self, request_id: int) -> tuple[int, ...]:
        """Physical block ids by logical block. Raises MisuseError when the id holds none."""
        return tuple(self._table(request_id))

    def _table(self, request_id: int) -> list[int]:
        table = self._tables.get(request_id)
        if table is None:
            raise holds_none(request_id)
        return table

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)
