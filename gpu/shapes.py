"""Which tensors the kernels can work with; every mismatch is one InputError, told before a kernel runs."""

import operator
from dataclasses import dataclass

import torch

from allocators.base import InputError, whole

DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
MAX_HEAD_DIM = 256


@dataclass(frozen=True)
class Layout:
    """What one layer keeps of a token: ``kv_heads x head_dim`` elements of ``dtype`` each of keys and values."""

    kv_heads: int
    head_dim: int
    dtype: torch.dtype = torch.float16
    layers: int = 1

    def __post_init__(self) -> None:
        for name in ("kv_heads", "head_dim", "layers"):
            whole(name, getattr(self, name))
        if self.head_dim > MAX_HEAD_DIM:
            raise InputError(f"head_dim(={self.head_dim}) must be <= {MAX_HEAD_DIM}")
        if self.dtype not in DTYPES:
            raise InputError(f"dtype(={self.dtype}) must be one of {', '.join(map(str, DTYPES))}")


def as_whole(name: str, value: object, whose: str = "") -> int:
    """A count, id or address >= 0 as Python's int, NumPy's integers included: those would overflow in silence, and a
    kernel's launch does not know them. Raises InputError for anything else, floats too."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(f"{name}(={value}){whose} must be a whole number >= 0")
    return number


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


def expect_device(device: torch.device, interpreted: bool) -> None:
    """Raise InputError when the kernels, imported as ``interpreted`` says, cannot run on the device."""
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device(={str(device)!r}) is not there: torch sees no CUDA device; choose cpu")
    if device.type == "cpu" and not interpreted:
        raise InputError("device(='cpu') needs Triton's interpreter: set TRITON_INTERPRET=1 before Triton is imported")
