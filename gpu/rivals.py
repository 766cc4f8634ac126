"""The attention functions that are timed side by side. Each gets a problem and gives back a call to be timed.

A rival that does not accept a shape raises; its row in the table says so.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gpu import kernels
from gpu.loads import Problem
from gpu.plan import Plan

Call = Callable[[], torch.Tensor]
Make = Callable[[Problem], Call]
OURS = "kvfrag, paged"
FLEX_PAGE = 128  # FlexAttention masks by blocks of 128


def ours_with(plan: Plan | None) -> Make:
    """The kernel of this project over its block tables, cut as ``plan`` says (None: as it would itself)."""

    def make(problem: Problem) -> Call:
        return lambda: kernels.paged_attention(
            problem.query, problem.pool, problem.tables, problem.lengths, max_length=problem.max_length, plan=plan
        )

    return make


def sdpa(backend: SDPBackend) -> Make:
    """torch's scaled_dot_product_attention on contiguous keys and values, one backend of it.

    Lengths that differ need a mask over the padded batch; a backend that takes no mask refuses.
    """

    def make(problem: Problem) -> Call:
        keys, values = problem.contiguous()
        query, mask = problem.query[:, :, None], None
        if len(set(problem.load.lengths)) > 1:
            tokens = torch.arange(problem.max_length, device=query.device)
            mask = (tokens < problem.lengths[:, None])[:, None, None]

        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)[:, :, 0]

        return call

    return make


def flex(problem: Problem, compiled: bool = True) -> Call:
    """torch's FlexAttention over pages of its own (torch.nn.attention.experimental._paged_attention)."""
    from torch.nn.attention.experimental._paged_attention import PagedAttention
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    load, device, lengths = problem.load, problem.query.device, problem.lengths
    requests, columns = len(load.lengths), -(-problem.max_length // FLEX_PAGE)
    pages = sum(-(-length // FLEX_PAGE) for length in load.lengths)
    paged = PagedAttention(pages, FLEX_PAGE, requests, device=str(device))
    shape = (1, load.kv_heads, pages * FLEX_PAGE, load.head_dim)
    key_cache, value_cache = (torch.zeros(shape, dtype=load.dtype, device=device) for _ in range(2))
    for row, length in enumerate(load.lengths):
        one = torch.tensor([row], device=device)
        paged.reserve(one[0], torch.tensor(length, device=device))
        keys, values = (part[:, :, :length] for part in problem.contiguous([row]))
        paged.assign(one, torch.arange(length, device=device)[None], keys, values, key_cache, value_cache)

    def is_written(b: torch.Tensor, _head: torch.Tensor, _query: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        return token < lengths[b]

    mask = create_block_mask(
        is_written, requests, None, 1, columns * FLEX_PAGE, device=str(device), BLOCK_SIZE=FLEX_PAGE
    )
    physical = paged.convert_logical_block_mask(mask)
    attention: Any = torch.compile(flex_attention) if compiled else flex_attention
    query = problem.query[:, :, None]

    def call() -> torch.Tensor:
        output: torch.Tensor = attention(query, key_cache, value_cache, block_mask=physical, enable_gqa=True)
        return output[:, :, 0]

    return call


ours = ours_with(None)
SDPA: dict[str, Make] = {
    "torch SDPA, flash, contiguous": sdpa(SDPBackend.FLASH_ATTENTION),
    "torch SDPA, cuDNN, contiguous": sdpa(SDPBackend.CUDNN_ATTENTION),
    "torch SDPA, efficient, contiguous": sdpa(SDPBackend.EFFICIENT_ATTENTION),
    "torch SDPA, math, contiguous": sdpa(SDPBackend.MATH),
}
FLEX: dict[str, Make] = {f"torch FlexAttention, pages of {FLEX_PAGE}": flex}
