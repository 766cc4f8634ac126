"""A model of torch's own CUDA caching allocator, for a KV cache that grows by allocate, copy, free.

That is how a cache without a pool grows: every new token state means a new tensor, one token longer. What it costs
depends on the rules of the allocator behind ``torch.empty``, which are few::

    size     rounded up to 512 bytes
    segment  <= 1 MiB: a piece of a 2 MiB segment; < 10 MiB: of a 20 MiB one; else a segment of its own, in 2 MiB
    choice   the smallest free block that is large enough, ties to the lowest address; small and large are kept apart
    split    small: when 512 bytes or more are left over; large: when more than 1 MiB is
    free     a block merges with its free neighbours; segments are kept until memory runs out

Source: PyTorch, ``c10/cuda/CUDACachingAllocator.cpp`` (round_size, get_allocation_size, get_free_block, should_split,
try_merge_blocks, release_cached_blocks), with its default settings and one stream. Here addresses of segments only
rise; a driver may order them otherwise, which matters only between equally large blocks.

``python -m gpu.caching`` replays events from standard input on CUDA memory, in a process where nothing else allocates.
"""

import json
import os
import subprocess
import sys
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allocators.base import InputError, MisuseError, whole
from gpu.decisions import Admit, Decision, Release, Write

KIB, MIB = 2**10, 2**20
MIN_BLOCK, SMALL = 512, MIB
SMALL_SEGMENT, LARGE_SEGMENT, MIN_LARGE, ROUND_LARGE = 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB
COUNTS = ("requested", "allocated", "active", "reserved", "inactive_split")
Event = tuple[str, int, int]
"""("allocate", key of a tensor, bytes), ("copy", key, key of the tensor it begins with) or ("free", key, bytes)."""


@dataclass(eq=False)
class Block:
    """A run of bytes in a segment; ``before`` and ``after`` are its neighbours there."""

    address: int
    size: int
    small: bool
    before: "Block | None" = None
    after: "Block | None" = None
    requested: int = 0  # 0: free


class CachingAllocator:
    """``limit_bytes`` is what the driver can give (None: no end). All sizes are bytes."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}
        self._blocks: dict[int, Block] = {}
        self._next_address = 0
        self._reserved = 0

    def allocate(self, size_bytes: int) -> int | None:
        """The address of a new block, or None when the driver has no memory left, even after unused segments went back.

        Raises InputError for a size below 1.
        """
        size = rounded(whole("size_bytes", size_bytes))
        block = self._find(size) or self._new_segment(size)
        if block is None:
            self.empty_cache()
            block = self._new_segment(size)
        if block is None:
            return None
        left = block.size - size
        if left >= MIN_BLOCK if block.small else left > SMALL:
            rest = Block(block.address + size, left, block.small, block, block.after)
            if block.after:
                block.after.before = rest
            block.after, block.size = rest, size
            self._keep(rest)
        block.requested = size_bytes
        self._blocks[block.address] = block
        return block.address

    def free(self, address: int) -> None:
        """Give a block back. Raises MisuseError for an address at which none is allocated."""
        block = self._blocks.pop(address, None)
        if block is None:
            raise MisuseError(f"no block is allocated at address {address}")
        block.requested = 0
        if (before := block.before) and not before.requested:
            self._take(before)
            before.size, before.after = before.size + block.size, block.after
            block = before
        if (after := block.after) and not after.requested:
            self._take(after)
            block.size, block.after = block.size + after.size, after.after
        if block.after:
            block.after.before = block
        self._keep(block)

    def empty_cache(self) -> None:
        """Give segments in which nothing is allocated back to the driver."""
        for kept in self._free.values():
            whole_segments = [entry for entry in kept if not (entry[2].before or entry[2].after)]
            self._reserved -= sum(size for size, _, _ in whole_segments)
            kept[:] = [entry for entry in kept if entry[2].before or entry[2].after]

    def stats(self) -> dict[str, int]:
        """Bytes as ``torch.cuda.memory_stats`` counts them, by the names in COUNTS.

        Rounding is lost in ``active - requested``, splitting in ``inactive_split``: free, in a segment that is in use.
        """
        requested = sum(block.requested for block in self._blocks.values())
        active = sum(block.size for block in self._blocks.values())
        split = sum(size for kept in self._free.values() for size, _, b in kept if b.before or b.after)
        return dict(zip(COUNTS, (requested, active, active, self._reserved, split), strict=True))

    def _find(self, size: int) -> Block | None:
        kept = self._free[size <= SMALL]
        at = bisect_left(kept, (size, -1), key=lambda entry: entry[:2])
        return kept.pop(at)[2] if at < len(kept) else None

    def _new_segment(self, size: int) -> Block | None:
        segment = segment_size(size)
        if self.limit_bytes is not None and self._reserved + segment > self.limit_bytes:
            return None
        block = Block(self._next_address, segment, size <= SMALL)
        self._next_address += -(-segment // ROUND_LARGE) * ROUND_LARGE
        self._reserved += segment
        return block

    def _keep(self, block: Block) -> None:
        insort(self._free[block.small], (block.size, block.address, block), key=lambda entry: entry[:2])

    def _take(self, block: Block) -> None:
        kept = self._free[block.small]
        del kept[bisect_left(kept, (block.size, block.address), key=lambda entry: entry[:2])]


def rounded(size_bytes: int) -> int:
    """Bytes a block takes: a multiple of 512."""
    return -(-size_bytes // MIN_BLOCK) * MIN_BLOCK


def segment_size(size: int) -> int:
    """Bytes asked of the driver when no free block serves a rounded size."""
    if size <= SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < MIN_LARGE else -(-size // ROUND_LARGE) * ROUND_LARGE


def events_of(decisions: Iterable[Decision], bytes_per_token: int) -> Iterator[Event]:
    """The tensors of the same requests without a pool: one each, replaced by a longer one with every token written."""
    whole("bytes_per_token", bytes_per_token)
    held: dict[int, tuple[int, int]] = {}
    key = 0
    for decision in decisions:
        match decision:
            case Admit(request_id, _, tokens) | Write(request_id, tokens):
                old = held.pop(request_id, None)
                length = tokens + (old[1] if old else 0)
                yield "allocate", key, length * bytes_per_token
                if old:
                    yield "copy", key, old[0]
                    yield "free", old[0], old[1] * bytes_per_token
                held[request_id] = (key, length)
                key += 1
            case Release(request_id):
                old = held.pop(request_id)
                yield "free", old[0], old[1] * bytes_per_token


def model(events: Iterable[Event], every: int) -> list[dict[str, int]]:
    """The model's counts after each ``every`` events and after the last."""
    allocator, addresses, counts = CachingAllocator(), dict[int, int](), []
    for number, (what, key, size) in enumerate(events, 1):
        if what == "allocate":
            address = allocator.allocate(size)
            assert address is not None  # there is no limit
            addresses[key] = address
        elif what == "free":
            allocator.free(addresses.pop(key))
        if number % every == 0:
            counts.append(allocator.stats())
    return [*counts, allocator.stats()]


def measure(events: Iterable[Event], every: int) -> list[dict[str, int]]:
    """The same on CUDA memory, ``torch.cuda.memory_stats``, in this process; nothing else may allocate in it."""
    import torch

    if not torch.cuda.is_available():
        raise InputError("torch's caching allocator can be measured on a CUDA device only, and torch sees none")

    def stats() -> dict[str, int]:
        every_count = torch.cuda.memory_stats()
        return {name: int(every_count.get(f"{name}_bytes.all.current", 0)) for name in COUNTS}

    tensors, counts = dict[int, torch.Tensor](), []
    for number, (what, key, size) in enumerate(events, 1):
        if what == "allocate":
            tensors[key] = torch.empty(size, dtype=torch.uint8, device="cuda")
        elif what == "copy":
            tensors[key][: tensors[size].nbytes].copy_(tensors[size])
        else:
            del tensors[key]
        if number % every == 0:
            counts.append(stats())
    return [*counts, stats()]


def measure_in_fresh_process(events: Sequence[Event], every: int, timeout_s: float = 60) -> list[dict[str, int]]:
    """:func:`measure` where nothing else has allocated and torch's allocator has its default settings.

    Raises InputError with the process's last line when it fails.
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
    done = subprocess.run(
        [sys.executable, "-m", "gpu.caching"], input=json.dumps([every, list(events)]), env=environment,
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False, timeout=timeout_s,
    )  # fmt: skip
    if done.returncode:
        raise InputError((done.stderr.strip().splitlines() or ["python -m gpu.caching failed"])[-1])
    counts: list[dict[str, int]] = json.loads(done.stdout)
    return counts


if __name__ == "__main__":
    step, given = json.load(sys.stdin)
    try:
        print(json.dumps(measure([(what, key, size) for what, key, size in given], step)))
    except InputError as error:
        sys.exit(str(error))
