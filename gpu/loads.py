"""What ``gpu bench`` runs: decode batches of usual models, their tensors, and the bytes that must move for each."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from allocators.base import InputError
from gpu.plan import Plan
from gpu.reference import attend_contiguous, worst_error
from gpu.shapes import group_size


@dataclass(frozen=True)
class Load:
    """One token for each request of a batch: ``lengths`` in tokens, the model's heads, and the pool's block size."""

    name: str
    lengths: tuple[int, ...]
    query_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    block_size: int = 16
    dtype: torch.dtype = torch.float16

    def __post_init__(self) -> None:
        group_size(self.query_heads, self.kv_heads)
        if not self.lengths or min(self.lengths) < 1:
            raise InputError(f"lengths of {self.name} must be whole numbers >= 1, at least one")

    @property
    def bytes(self) -> int:
        """Bytes that must move: keys and values once, the queries, the outputs, the table entries and the lengths."""
        requests, tokens = len(self.lengths), sum(self.lengths)
        entries = sum(-(-length // self.block_size) for length in self.lengths) + requests
        elements = 2 * tokens * self.kv_heads + 2 * requests * self.query_heads
        return elements * self.head_dim * self.dtype.itemsize + 4 * entries


LLAMA_64 = Load("64 x 4096, 32/8 heads", (4096,) * 64)
LLAMA_8 = Load("8 x 32768, 32/8 heads", (32_768,) * 8)
OTHERS = (
    Load("1 x 131072, 32/8 heads", (131_072,)),
    Load("16 x 4096, 32/32 heads", (4096,) * 16, kv_heads=32),
    Load("256 x 4096, 8/1 heads", (4096,) * 256, query_heads=8, kv_heads=1),
)
BLOCK_SIZES = (1, 8, 32, 64, 128, 100)


class Problem:
    """A load's tensors on a device: random data, blocks scattered over the pool in random order."""

    def __init__(self, load: Load, device: torch.device, seed: int = 0) -> None:
        self.load = load
        random = torch.Generator(device).manual_seed(seed)
        columns = [-(-length // load.block_size) for length in load.lengths]
        shape = (sum(columns), 2, load.block_size, load.kv_heads, load.head_dim)
        self.pool = torch.empty(shape, dtype=load.dtype, device=device).normal_(generator=random)
        ids = torch.randperm(sum(columns), generator=random, device=device).to(torch.int32)
        self.tables = torch.zeros((len(columns), max(columns)), dtype=torch.int32, device=device)
        first = 0
        for row, count in enumerate(columns):
            self.tables[row, :count] = ids[first : first + count]
            first += count
        self.lengths = torch.tensor(load.lengths, dtype=torch.int32, device=device)
        query = (len(columns), load.query_heads, load.head_dim)
        self.query = torch.empty(query, dtype=load.dtype, device=device).normal_(generator=random)

    @property
    def max_length(self) -> int:
        """Tokens of the longest request."""
        return max(self.load.lengths)

    def contiguous(self, rows: Sequence[int] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of requests without pages, each ``[requests, kv_heads, tokens, head_dim]``, contiguous.

        Tokens are padded to the longest; what lies behind a length is some other request's data.
        """
        tables = self.tables if rows is None else self.tables[list(rows)]
        both = self.pool[tables.long()].transpose(1, 2).flatten(2, 3)  # [requests, 2, tokens, kv_heads, head_dim]
        keys, values = both[:, :, : self.max_length].transpose(2, 3).unbind(1)
        return keys.contiguous(), values.contiguous()

    def error(self, output: torch.Tensor) -> float:
        """Worst relative error of an output ``[requests, query_heads, head_dim]`` over the shortest, the longest and
        the last request, against float64."""
        by_length = sorted(range(len(self.load.lengths)), key=self.load.lengths.__getitem__)
        worst = 0.0
        for row in dict.fromkeys((by_length[0], by_length[-1], len(by_length) - 1)):
            keys, values = (part[0, :, : self.load.lengths[row]].transpose(0, 1) for part in self.contiguous([row]))
            want = attend_contiguous(self.query[row], keys, values)
            worst = max(worst, worst_error(output[row], want.cpu().numpy()))
        return worst


def plans_to_try(load: Load) -> list[Plan]:
    """Other cuts of the main load, for the record of what was tried."""
    tiles, chunks = (32, 64, 128), (512, 1024, 2048, 4096)
    return [
        Plan(tile, chunk, warps, stages)
        for tile in tiles
        for warps, stages in ((4, 3), (4, 5), (8, 5), (4, 7))
        for chunk in chunks
        if chunk <= max(load.lengths) and 2 * tile * load.head_dim * load.dtype.itemsize * (stages // 2) < 160_000
    ]
