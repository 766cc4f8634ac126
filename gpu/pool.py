"""Device memory behind the extents that an allocator hands out: admit, append, write, attend, read, release.

An allocator (:mod:`allocators`) decides which slots a request gets; the pool holds their bytes and the block tables
that the kernels read::

    allocator                     host                          device, for each layer
    extents (16,16) (64,16)  ->   pages [1, 4], written 21  ->  [pages, 2, page_slots, kv_heads, head_dim]

A page is the run of slots a table entry names: a block of ``allocators.Paged``, or one slot (``page_slots=1``) for
Contiguous and Buddy, whose extents begin anywhere. The tail of the capacity that fills no page is never handed out and
has no memory here.

All checks are on the host, before a kernel runs: the kernels trust tables, lengths and slots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from allocators.base import Extent, InputError, MisuseError, holds_already, holds_none, whole
from gpu import kernels
from gpu.decisions import MAX_ID
from gpu.shapes import Layout, as_whole, expect_device

BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
POISON = {torch.float32: 0xFFA5A5A5 - 2**32, torch.float16: 0xFDA5 - 2**16, torch.bfloat16: 0xFFA5 - 2**16}
"""Signalling NaNs with a payload, as integers: arithmetic yields only quiet ones, so no result looks like poison."""
SCAN_ELEMENTS = 2**27


@dataclass(frozen=True)
class Batch:
    """Requests that decode together, on the device: tables int32 ``[requests, columns]``, lengths int32
    ``[requests]`` in tokens, and on the host the longest of them. Good until one of them grows or is released."""

    tables: torch.Tensor
    lengths: torch.Tensor
    max_length: int


class DevicePool:
    """``capacity`` slots of keys and values on a device, in pages of ``page_slots``.

    With ``poisoned`` every slot holds a NaN pattern until it is written and again once it is released, so that
    :meth:`scan` can tell what was written; without it memory is left as it is. Raises InputError for sizes below 1 and
    MisuseError, as an allocator does, for an id that is unknown or admitted twice and for a page that has an owner.
    """

    def __init__(
        self, capacity: int, layout: Layout, page_slots: int = 1, device: torch.device | str = "cuda",
        poisoned: bool = False,
    ) -> None:  # fmt: skip
        self.layout = layout
        self.page_slots = whole("page_slots", page_slots)
        self.pages = whole("capacity", capacity) // page_slots
        if self.pages == 0:
            raise InputError(f"capacity(={capacity}) must be >= page_slots(={page_slots})")
        self.device = torch.device(device)
        expect_device(self.device, kernels.INTERPRETED)
        self.poisoned = poisoned
        shape = (self.pages, 2, self.page_slots, layout.kv_heads, layout.head_dim)
        try:
            self.layers = [torch.empty(shape, dtype=layout.dtype, device=self.device) for _ in range(layout.layers)]
        except RuntimeError as error:  # of memory: torch's own message has several lines
            raise InputError(f"capacity(={capacity}) is more than fits the memory of {self.device}") from error
        self._owner = np.full(self.pages, -1, dtype=np.int64)
        self._tables: dict[int, list[int]] = {}
        self._written: dict[int, int] = {}
        if poisoned:
            for layer in self.layers:
                layer.view(BITS[layout.dtype]).fill_(POISON[layout.dtype])

    def admit(self, request_id: int, extents: Sequence[Extent]) -> None:
        """Give a new request its memory; nothing is written yet."""
        # Below 0 stands for no owner, and what is larger does not fit the array of owners.
        request_id = as_whole("request_id", request_id)
        if request_id > MAX_ID:
            raise InputError(f"request_id(={request_id}) must be in 0 .. {MAX_ID}")
        if request_id in self._tables:
            raise holds_already(request_id)
        pages = self._pages_of(request_id, extents)
        self._own(request_id, pages)
        self._tables[request_id] = pages
        self._written[request_id] = 0

    def grow(self, request_id: int, extents: Sequence[Extent]) -> None:
        """Take over a request's extents after it grew: those it had, in the same order, and new ones behind them."""
        table = self.table(request_id)
        pages = self._pages_of(request_id, extents)
        if tuple(pages[: len(table)]) != table:
            raise InputError(f"request {request_id} grows from pages {list(table)}, its new extents begin otherwise")
        self._own(request_id, pages[len(table) :])
        self._tables[request_id] = pages

    def append(self, request_ids: Sequence[int], tokens: Sequence[int] | int = 1) -> torch.Tensor:
        """Count ``tokens`` more of each request as written and return their slots, int64 ``[tokens in all]``.

        The slots are on the device, request after request, for a :meth:`write` in every layer. Raises InputError, and
        changes nothing, when a request holds too few slots.
        """
        each = list(tokens) if isinstance(tokens, Iterable) else [tokens] * len(request_ids)
        counts = [as_whole("tokens", count) for count in each]
        if len(counts) != len(request_ids) or len(set(request_ids)) != len(request_ids):
            raise InputError(f"request_ids(={list(request_ids)}) must be distinct, with one count of tokens for each")
        slots = []
        for request_id, count in zip(request_ids, counts, strict=True):
            table, first = np.array(self.table(request_id), dtype=np.int64), self._written[request_id]
            held = len(table) * self.page_slots
            if first + count > held:
                raise InputError(f"request {request_id} cannot write {count} tokens: {first} of {held} slots are taken")
            at = np.arange(first, first + count)
            slots.append(table[at // self.page_slots] * self.page_slots + at % self.page_slots)
        for request_id, count in zip(request_ids, counts, strict=True):
            self._written[request_id] += count
        return torch.from_numpy(np.concatenate(slots or [np.empty(0, np.int64)])).to(self.device)

    def write(self, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, layer: int = 0) -> None:
        """Copy keys and values ``[tokens, kv_heads, head_dim]`` of the pool's dtype to the slots of :meth:`append`."""
        kernels.write_kv(self.layers[layer], slots, keys, values)

    def batch(self, request_ids: Sequence[int]) -> Batch:
        """The tables and lengths of running requests, on the device."""
        return self.batch_of([self.table(r) for r in request_ids], [self._written[r] for r in request_ids])

    def batch_of(self, tables: Sequence[Sequence[int]], lengths: Sequence[int]) -> Batch:
        """A batch of the caller's own tables, page ids in logical order, and lengths in tokens.

        Raises InputError for a page outside the pool or a length beyond its table.
        """
        if len(tables) != len(lengths):
            raise InputError(f"tables(={len(tables)} of them) and lengths(={len(lengths)}) must be equally many")
        columns = max(map(len, tables), default=0)
        rows = np.zeros((len(tables), columns), dtype=np.int32)
        lengths = [as_whole("length", length, f" of request {row} of the batch") for row, length in enumerate(lengths)]
        for row, (table, length) in enumerate(zip(tables, lengths, strict=True)):
            table = [as_whole("page", page, f" of request {row} of the batch") for page in table]
            self._expect_pages(f"request {row} of the batch", table)
            if length > len(table) * self.page_slots:
                raise InputError(
                    f"length(={length}) of request {row} of the batch must be in 0 .. {len(table) * self.page_slots},"
                    f" what its {len(table)} pages hold"
                )
            rows[row, : len(table)] = table
        lengths_array = np.array(lengths, dtype=np.int32)
        return Batch(
            torch.from_numpy(rows).to(self.device),
            torch.from_numpy(lengths_array).to(self.device),
            max(lengths, default=0),
        )

    def attend(self, query: torch.Tensor, batch: Batch, layer: int = 0, scale: float | None = None) -> torch.Tensor:
        """Attention of one token a request, ``[requests, query_heads, head_dim]``: gpu.kernels.paged_attention."""
        return kernels.paged_attention(query, self.layers[layer], batch.tables, batch.lengths, scale, batch.max_length)

    def read(self, request_id: int, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """A request's keys and values as they are on the device, each ``[written tokens, kv_heads, head_dim]``."""
        pages = torch.tensor(self.table(request_id), dtype=torch.int64, device=self.device)
        held = self.layers[layer][pages]  # [pages, 2, page_slots, kv_heads, head_dim]
        both = held.transpose(0, 1).reshape(2, -1, self.layout.kv_heads, self.layout.head_dim)
        written = self._written[request_id]
        return both[0, :written], both[1, :written]

    def release(self, request_id: int) -> None:
        """Give up a request's memory; a poisoned pool poisons it again."""
        pages = list(self.table(request_id))
        del self._tables[request_id], self._written[request_id]
        self._owner[pages] = -1
        if self.poisoned:
            self.poison(pages)

    def poison(self, pages: Sequence[int]) -> None:
        """Make pages read as never written."""
        at = torch.tensor(pages, dtype=torch.int64, device=self.device)
        for layer in self.layers:
            layer.view(BITS[self.layout.dtype])[at] = POISON[self.layout.dtype]

    def table(self, request_id: int) -> tuple[int, ...]:
        """The pages of a request in logical order. Raises MisuseError when the id holds none."""
        if request_id not in self._tables:
            raise holds_none(request_id)
        return tuple(self._tables[request_id])

    def written(self, request_id: int) -> int:
        """Tokens of a request that count as written. Raises MisuseError when the id holds no memory."""
        self.table(request_id)
        return self._written[request_id]

    def scan(self, layer: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Look at every byte of a layer: (written, torn), bool ``[pages, page_slots]`` on the device.

        A slot is written when no element of its keys and values is poison, torn when some are and some are not.
        Raises InputError when the pool is not poisoned: then nothing tells written from unwritten.
        """
        if not self.poisoned:
            raise InputError("scan needs a poisoned pool: DevicePool(..., poisoned=True)")
        bits, poison = self.layers[layer].view(BITS[self.layout.dtype]), POISON[self.layout.dtype]
        written, torn = [], []
        step = max(1, SCAN_ELEMENTS // bits[0].numel())
        for first in range(0, self.pages, step):
            poisoned = bits[first : first + step] == poison
            any_poisoned = poisoned.any(-1).any(-1).any(1)
            written.append(~any_poisoned)
            torn.append(any_poisoned & ~poisoned.all(-1).all(-1).all(1))
        return torch.cat(written), torch.cat(torn)

    def _pages_of(self, request_id: int, extents: Iterable[Extent]) -> list[int]:
        pages: list[int] = []
        for extent in extents:
            start, slots = (as_whole("extent", number, f" of request {request_id}") for number in extent)
            if start % self.page_slots or slots % self.page_slots or slots < 1:
                raise InputError(
                    f"extent({start}, {slots}) of request {request_id} must be whole pages of {self.page_slots} slots"
                )
            first, end = start // self.page_slots, (start + slots) // self.page_slots
            self._expect_pages(f"request {request_id}", (first, end - 1))  # before a huge one fills the memory
            pages += range(first, end)
        return pages

    def _expect_pages(self, whose: str, pages: Sequence[int]) -> None:
        for page in pages:
            if not 0 <= page < self.pages:
                raise InputError(f"page(={page}) of {whose} must be in 0 .. {self.pages - 1}")

    def _own(self, request_id: int, pages: list[int]) -> None:
        """Enter a request as the owner of pages that must have none."""
        if len(set(pages)) != len(pages):
            raise MisuseError(f"request {request_id} was given a page twice: {pages}")
        owners = self._owner[pages]
        if (owners >= 0).any():
            page = pages[int((owners >= 0).argmax())]
            raise MisuseError(f"page {page} was given to request {request_id} but belongs to {self._owner[page]}")
        self._owner[pages] = request_id


def device_memory(pool: DevicePool) -> dict[str, int] | None:
    """Bytes: the pool's own, what torch has allocated and reserved, what the driver says is free. None without CUDA."""
    if pool.device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(pool.device)
    return {
        "pool_bytes": sum(layer.nbytes for layer in pool.layers),
        "torch_allocated_bytes": torch.cuda.memory_allocated(pool.device),
        "torch_reserved_bytes": torch.cuda.memory_reserved(pool.device),
        "driver_free_bytes": free,
        "driver_total_bytes": total,
    }
