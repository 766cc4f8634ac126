"""How one call is cut into programs: what depends on shapes and on the device's size, and on nothing in memory."""

from dataclasses import dataclass
from functools import cache

import torch

from allocators.base import InputError

WRITE_WARPS = 4
WRITE_ELEMENTS = 1024  # a program's: 16 bytes of fp16 for each thread of four warps


@dataclass(frozen=True)
class Plan:
    """How one attention call is cut: tokens a tile, tokens a program (its chunk), warps, pipeline stages."""

    tile_tokens: int
    chunk_tokens: int
    warps: int = 4
    stages: int = 5  # the table's load takes two of them; from 5 on the K/V tiles are double-buffered

    def __post_init__(self) -> None:
        if self.tile_tokens < 16 or self.tile_tokens & (self.tile_tokens - 1):
            raise InputError(f"tile_tokens(={self.tile_tokens}) must be a power of two >= 16")
        if self.chunk_tokens < 1 or self.chunk_tokens % self.tile_tokens:
            raise InputError(
                f"chunk_tokens(={self.chunk_tokens}) must be a multiple of tile_tokens(={self.tile_tokens})"
            )


def tile_tokens(head_dim: int, dtype: torch.dtype) -> int:
    """Tokens a tile: as many as are double-buffered in some 72 KiB of shared memory, three programs to an SM."""
    lanes = padded(head_dim)
    if dtype == torch.float32:  # exact fp32 products run on the plain cores, out of registers
        return 32 if lanes <= 64 else 16
    return 64 if lanes <= 128 else 32


def plan_attention(
    requests: int, kv_heads: int, head_dim: int, dtype: torch.dtype, max_length: int, processors: int
) -> Plan:
    """Cut the context so that there are some 16 programs for each of the device's ``processors``.

    A chunk below 512 tokens would spend more on merging than it gains in balance.
    """
    tile = tile_tokens(head_dim, dtype)
    chunks = max(1, 16 * processors // max(1, requests * kv_heads))
    chunk = max(-(-max_length // chunks), min(512, max_length), 1)
    return Plan(tile, -(-chunk // tile) * tile)


def write_tile(slot_elements: int) -> tuple[int, int]:
    """(tokens, lanes) of one program that writes: few elements a slot leave room for several tokens."""
    lanes = min(WRITE_ELEMENTS, power_of_two(slot_elements))
    return WRITE_ELEMENTS // lanes, lanes


def power_of_two(size: int) -> int:
    """The least power of two that is at least ``size``."""
    return 1 << (size - 1).bit_length()


def padded(size: int) -> int:
    """The power of two, at least 16, in which Triton holds ``size`` elements of a matrix product's side."""
    return max(16, power_of_two(size))


@cache
def processors(device: torch.device) -> int:
    """Streaming multiprocessors of a CUDA device; 1 for the interpreter, which runs one program at a time."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
