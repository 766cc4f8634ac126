"""The buddy allocator: blocks of ``min_block`` x 2^k slots, split in halves and merged with their twins.

A request gets the smallest block that holds what it asks for; a larger block is split in two **buddies**
until it fits. A freed block whose buddy is free merges with it, again and again::

    128 free     A = 32                 B = 16                      C = 7
    |  128  |    |A 32| 32 |   64   |   |A 32| 32 |B16|16| 32  |    |A 32|C8|8|16|B16|16| 32  |
                 0    32   64           0    32   64  80 96         0    32 40 48 64 80 96   128

(With ``split=largest``, the lesson's example: 72 slots are free, and a request for 64 fails.) The name of a
buddy is arithmetic: in units of ``min_block``, a block of 2^k units at address u has its buddy at u XOR 2^k.

Source: Knuth, The Art of Computer Programming vol. 1, section 2.5, "buddy system"; Orca (OSDI 2022) as
modelled in PagedAttention (SOSP 2023), section 6.1.
"""

from bisect import bisect_left, insort

from allocators.base import Extent, InputError, one_of, whole
from allocators.reservation import Reserving

SPLIT = ("smallest", "largest")


class Buddy(Reserving):
    """Power-of-two blocks over ``capacity`` slots.

    The pool is carved greedily from address 0 into arenas, each the largest size ``min_block`` x 2^k that
    still fits and is at most ``max_block`` (default: no limit). ``split``: which free block serves a request,
    the ``smallest`` that is large enough or the ``largest`` there is; the lowest address among equals, and the
    low half is kept. ``reserve`` as for Contiguous. Raises InputError for values outside that.
    """

    def __init__(
        self,
        capacity: int,
        reserve: str = "max",
        min_block: int = 1,
        max_block: int | None = None,
        split: str = "smallest",
        max_model_len: int | None = None,
    ) -> None:
        super().__init__(capacity, reserve, max_model_len)
        self.min_block = whole("min_block", min_block)
        self.max_block = None if max_block is None else whole("max_block", max_block)
        self.split = one_of("split", split, SPLIT)
        if capacity < min_block:
            raise InputError(f"capacity(={capacity}) must be >= min_block(={min_block})")
        if max_block is not None and (max_block % min_block or (max_block // min_block).bit_count() != 1):
            raise InputError(f"max_block(={max_block}) must be min_block(={min_block}) times a power of two")
        units = self.capacity // self.min_block
        self._top = units.bit_length() - 1  # level of the largest arena; a block of level k has 2^k units
        if self.max_block is not None:
            self._top = min(self._top, (self.max_block // self.min_block).bit_length() - 1)
        self._place_at_most(self.min_block << self._top)
        self.tail_slots = self.capacity % self.min_block
        # The addresses of the free blocks of each level, in order and in units.
        self._free: list[list[int]] = [[] for _ in range(self._top + 1)]
        self._levels = 0  # which levels have a free block, as a bit mask
        address = 0
        for level in range(self._top, -1, -1):
            while units - address >= 1 << level:
                self._add(address, level)
                address += 1 << level

    @property
    def spec(self) -> str:
        limit = "none" if self.max_block is None else self.max_block
        return f"buddy:reserve={self.reserve},min_block={self.min_block},max_block={limit},split={self.split}"

    @property
    def largest_free_slots(self) -> int:
        return self.min_block << (self._levels.bit_length() - 1) if self._levels else 0

    def free_blocks(self) -> list[Extent]:
        """The free blocks in address order. Two free neighbours are listed apart unless they are buddies."""
        blocks = ((address, level) for level, addresses in enumerate(self._free) for address in addresses)
        return [Extent(address * self.min_block, self.min_block << level) for address, level in sorted(blocks)]

    def _place(self, slots: int) -> tuple[int, int] | None:
        wanted = (-(-slots // self.min_block) - 1).bit_length()  # level of the smallest block that holds it
        enough = self._levels >> wanted
        if not enough:
            return None
        if self.split == "smallest":
            level = wanted + (enough & -enough).bit_length() - 1
        else:
            level = self._levels.bit_length() - 1
        address = self._take(level, 0)
        while level > wanted:
            level -= 1
            self._add(address + (1 << level), level)
        return address * self.min_block, self.min_block << level

    def _give_back(self, start: int, slots: int) -> None:
        address = start // self.min_block
        level = (slots // self.min_block).bit_length() - 1
        # No arena needs to be looked up: carving goes from large to small, so the buddy of a whole arena below
        # the top level lies in smaller arenas, and those never hold a free block of its size.
        while level < self._top:
            addresses, buddy = self._free[level], address ^ (1 << level)
            at = bisect_left(addresses, buddy)
            if at == len(addresses) or addresses[at] != buddy:
                break
            self._take(level, at)
            address = min(address, buddy)
            level += 1
        self._add(address, level)

    def _add(self, address: int, level: int) -> None:
        insort(self._free[level], address)
        self._levels |= 1 << level

    def _take(self, level: int, at: int) -> int:
        """Remove the free block number ``at`` of a level; returns its address."""
        addresses = self._free[level]
        address = addresses.pop(at)
        if not addresses:
            self._levels ^= 1 << level
        return address
