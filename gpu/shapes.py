"""Which tensors the kernels can work with; every mismatch is one InputError, told before a kernel runs."""

import torch

from allocators.base import InputError

DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
MAX_HEAD_DIM = 256


def pool_shape(pool: torch.Tensor) -> tuple[int, int, int, int]:
    """(blocks, block_size, kv_heads, head_dim) of a pool. Raises InputError for what the kernels cannot address."""
    if pool.dim() != 5 or pool.shape[1] != 2 or 0 in pool.shape[2:] or not pool.is_contiguous():
        raise InputError(
            f"pool(={list(pool.shape)}) must be contiguous, [blocks, 2, block_size, kv_heads, head_dim], sizes >= 1"
        )
    blocks, _, block_size, kv_heads, head_dim = pool.shape
    if head_dim > MAX_HEAD_DIM:
        raise InputError(f"head_dim(={head_dim}) must be <= {MAX_HEAD_DIM}")
    if pool.dtype not in DTYPES:
        raise InputError(f"dtype(={pool.dtype}) must be one of {', '.join(map(str, DTYPES))}")
    return blocks, block_size, kv_heads, head_dim


def expect_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise InputError when the tensor has another shape."""
    if tuple(tensor.shape) != shape:
        raise InputError(f"{name}(={list(tensor.shape)}) must have the shape {list(shape)}")


def expect_like(name: str, tensor: torch.Tensor, pool: torch.Tensor, dtype: torch.dtype) -> None:
    """Raise InputError when the tensor is on another device than the pool, or of another dtype than said."""
    if tensor.device != pool.device:
        raise InputError(f"{name} is on {tensor.device}, it must be on the pool's device, {pool.device}")
    if tensor.dtype != dtype:
        raise InputError(f"{name} is {tensor.dtype}, it must be {dtype}")


def group_size(query_heads: int, kv_heads: int) -> int:
    """Query heads that share a kv head. Raises InputError when they do not divide."""
    if query_heads < 1 or query_heads % kv_heads:
        raise InputError(f"query_heads(={query_heads}) must be a multiple of kv_heads(={kv_heads})")
    return query_heads // kv_heads
