"""Keys and values in pages of device memory: write them, and attend over them while decoding.

One layer's pool is one contiguous tensor ``[blocks, 2, block_size, kv_heads, head_dim]`` (0: keys, 1: values), so
that a block is one run of bytes; slot = block x block_size + offset::

    block   | K slot 0 | K slot 1 | ... | V slot 0 | V slot 1 | ... |
            each slot: kv_heads x head_dim elements

Sources: block tables and the kernel that gathers through them are those of PagedAttention (Kwon et al., SOSP 2023,
section 4.3); the online softmax that of FlashAttention (Dao et al., 2022); cutting the context among programs and
merging by softmax mass that of Flash-Decoding (Dao, Haziza, Massa, Sizov, 2023). The query heads of one kv head share
the rows of one matrix product, as in Flash-Decoding's packed grouped-query heads.

What lies behind a request's last token, in its table or in its last block, may be anything, NaN included: no such
element is loaded. (Masking the probabilities is not enough, 0 x NaN is NaN.)

Shapes are compile-time constants. A stride handed in at run time that is no multiple of 16 would break a 16-byte
copy into many of 2 bytes.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl

from allocators.base import InputError

LOG2_E = math.log2(math.e)
DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
MAX_HEAD_DIM = 256
MAX_GRID_YZ = 65_535  # CUDA's limit on the second and third grid dimensions
WRITE_LANES = 1024


@triton.jit
def write_kernel(
    keys, values, slots, pool,
    BLOCK_SIZE: tl.constexpr, SLOT_ELEMENTS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One program copies LANES elements of one token's keys and values to its slot; a slot below 0 is skipped."""
    token = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    slot = tl.load(slots + token)
    mask = (lane < SLOT_ELEMENTS) & (slot >= 0)
    row = (slot // BLOCK_SIZE) * (2 * BLOCK_SIZE) + slot % BLOCK_SIZE
    key = tl.load(keys + token * SLOT_ELEMENTS + lane, mask=mask)
    value = tl.load(values + token * SLOT_ELEMENTS + lane, mask=mask)
    tl.store(pool + row * SLOT_ELEMENTS + lane, key, mask=mask)
    tl.store(pool + (row + BLOCK_SIZE) * SLOT_ELEMENTS + lane, value, mask=mask)


@triton.jit(do_not_specialize=["columns", "chunks", "chunk_tokens"])
def decode_kernel(
    query, pool, tables, lengths, output, masses, scale_log2, columns, chunks, chunk_tokens,
    BLOCK_SIZE: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr, SPLIT: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """One program attends with the GROUP query heads of one kv head over one chunk of one request's context.

    It writes the chunk's own attention (already divided by its mass) and, if SPLIT, log2 of its softmax mass. UPCAST
    is for Triton's interpreter, whose product of bf16 matrices is wrong: they become fp32 as soon as they are loaded.
    """
    kv_head = tl.program_id(0)
    chunk = tl.program_id(1)
    request = tl.program_id(2).to(tl.int64)
    length = tl.load(lengths + request)
    begin = chunk * chunk_tokens
    end = tl.minimum(begin + chunk_tokens, length)
    if SPLIT:
        if begin >= length:
            return  # the merge does not look at chunks behind the length

    row = tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)
    is_lane = (lane < HEAD_DIM)[None, :]
    head = request * (KV_HEADS * GROUP) + kv_head * GROUP + row
    is_head = (row < GROUP)[:, None]
    q = tl.load(query + head[:, None] * HEAD_DIM + lane[None, :], mask=is_head & is_lane, other=0.0)
    if UPCAST:
        q = q.to(tl.float32)

    best = tl.full([ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, LANES], tl.float32)
    table = tables + request * columns
    for first in range(begin, end, TILE):
        position = first + tl.arange(0, TILE)
        is_token = position < end
        block = tl.load(table + position // BLOCK_SIZE, mask=is_token, other=0).to(tl.int64)
        slot_row = block * (2 * BLOCK_SIZE) + position % BLOCK_SIZE
        key_at = pool + (slot_row * KV_HEADS + kv_head)[:, None] * HEAD_DIM + lane[None, :]
        value_at = key_at + BLOCK_SIZE * KV_HEADS * HEAD_DIM
        k = tl.load(key_at, mask=is_token[:, None] & is_lane, other=0.0)
        v = tl.load(value_at, mask=is_token[:, None] & is_lane, other=0.0)
        if UPCAST:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        score = tl.where(is_token[None, :], score, float("-inf"))
        # Every tile begins inside the context, so `higher` is finite and no -inf is taken from another.
        higher = tl.maximum(best, tl.max(score, 1))
        keep = tl.exp2(best - higher)
        weight = tl.exp2(score - higher[:, None]).to(v.dtype)
        # The mass is that of the rounded weights: then they add up to 1, whatever the type.
        mass = mass * keep + tl.sum(weight.to(tl.float32), 1)
        acc = tl.dot(weight, v, acc * keep[:, None], input_precision="ieee")
        best = higher

    if not SPLIT:
        mass = tl.where(length > 0, mass, 1.0)  # no context: zeros
    acc = acc / mass[:, None]
    part = (request * chunks + chunk) * (KV_HEADS * GROUP) + kv_head * GROUP + row
    tl.store(
        output + part[:, None] * HEAD_DIM + lane[None, :], acc.to(output.dtype.element_ty), mask=is_head & is_lane
    )
    if SPLIT:
        tl.store(masses + part, best + tl.log2(mass), mask=row < GROUP)


@triton.jit(do_not_specialize=["chunks", "chunk_tokens"])
def merge_kernel(
    parts, masses, lengths, output, chunks, chunk_tokens,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One program adds up the chunks of one query head, each weighed by its softmax mass (given as log2)."""
    head = tl.program_id(0)
    request = tl.program_id(1).to(tl.int64)
    used = tl.cdiv(tl.load(lengths + request), chunk_tokens)
    lane = tl.arange(0, LANES)
    is_lane = lane < HEAD_DIM

    best = tl.full([TILE], float("-inf"), tl.float32)
    for first in range(0, used, TILE):
        chunk = first + tl.arange(0, TILE)
        part = (request * chunks + chunk) * HEADS + head
        best = tl.maximum(best, tl.load(masses + part, mask=chunk < used, other=float("-inf")))
    top = tl.max(best, 0)

    total = tl.zeros([TILE], tl.float32)
    acc = tl.zeros([LANES], tl.float32)
    for first in range(0, used, TILE):
        chunk = first + tl.arange(0, TILE)
        part = (request * chunks + chunk) * HEADS + head
        mass = tl.load(masses + part, mask=chunk < used, other=float("-inf"))
        weight = tl.exp2(mass - top)
        at = parts + part[:, None] * HEAD_DIM + lane[None, :]
        partial = tl.load(at, mask=(chunk < used)[:, None] & is_lane[None, :], other=0.0)
        total += weight
        acc += tl.sum(weight[:, None] * partial, 0)

    acc = acc / tl.where(used > 0, tl.sum(total, 0), 1.0)  # no context: zeros
    at = output + (request * HEADS + head) * HEAD_DIM + lane
    tl.store(at, acc.to(output.dtype.element_ty), mask=is_lane)


INTERPRETED = not isinstance(decode_kernel, triton.JITFunction)
"""Whether Triton's interpreter runs the kernels: TRITON_INTERPRET=1 was set when Triton was imported."""


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
            raise InputError(f"chunk_tokens(={self.chunk_tokens}) must be a multiple of {self.tile_tokens} tokens a tile")


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


def padded(size: int) -> int:
    """The power of two, at least 16, in which Triton holds ``size`` elements of a matrix product's side."""
    return max(16, triton.next_power_of_2(size))


def write_kv(pool: torch.Tensor, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Copy the keys and values of new tokens to their slots, bit for bit.

    pool ``[blocks, 2, block_size, kv_heads, head_dim]``; slots int64 ``[tokens]``, a slot below 0 is skipped; keys and
    values ``[tokens, kv_heads, head_dim]`` of the pool's dtype. Slots are not looked at here (that would wait for the
    device): :class:`gpu.pool.DevicePool` checks them. Raises InputError for shapes, dtypes or devices that do not fit.
    """
    _, block_size, kv_heads, head_dim = pool_shape(pool)
    tokens = len(slots)
    for name, tensor in (("keys", keys), ("values", values)):
        _expect_shape(name, tensor, (tokens, kv_heads, head_dim))
        _expect_like(name, tensor, pool, pool.dtype)
    _expect_like("slots", slots, pool, torch.int64)
    _expect_shape("slots", slots, (tokens,))
    if tokens == 0:
        return
    elements = kv_heads * head_dim
    lanes = min(WRITE_LANES, triton.next_power_of_2(elements))
    write_kernel[tokens, -(-elements // lanes)](
        keys.contiguous(), values.contiguous(), slots.contiguous(), pool,
        BLOCK_SIZE=block_size, SLOT_ELEMENTS=elements, LANES=lanes,
    )  # fmt: skip


def paged_attention(
    query: torch.Tensor,
    pool: torch.Tensor,
    tables: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
    max_length: int | None = None,
    plan: Plan | None = None,
) -> torch.Tensor:
    """Attention of one new token a request over the keys and values in the pool: softmax(scale q K^T) V.

    query ``[requests, query_heads, head_dim]``, query head h reads kv head h // (query_heads / kv_heads); pool
    ``[blocks, 2, block_size, kv_heads, head_dim]``, of query's dtype (fp32, fp16, bf16); tables int32 ``[requests,
    columns]``, block ids in logical order; lengths int32 ``[requests]``, tokens that are written, 0 gives zeros.
    ``scale`` defaults to 1 / sqrt(head_dim). ``max_length`` bounds the lengths (default: all that the table's columns
    hold). Returns ``[requests, query_heads, head_dim]`` of query's dtype; sums are kept in fp32.

    Table entries and lengths are not looked at here (that would wait for the device): :class:`gpu.pool.DevicePool`
    checks them. Raises InputError for shapes, dtypes or devices that do not fit.
    """
    _, block_size, kv_heads, head_dim = pool_shape(pool)
    if query.dim() != 3 or query.shape[2] != head_dim:
        raise InputError(f"query(={list(query.shape)}) must be [requests, query_heads, head_dim {head_dim}]")
    requests, heads, _ = query.shape
    group = group_size(heads, kv_heads)
    _expect_like("query", query, pool, pool.dtype)
    _expect_like("tables", tables, pool, torch.int32)
    _expect_like("lengths", lengths, pool, torch.int32)
    _expect_shape("lengths", lengths, (requests,))
    if tables.dim() != 2 or len(tables) != requests:
        raise InputError(f"tables(={list(tables.shape)}) must be [requests {requests}, columns]")
    columns = tables.shape[1]
    max_length = columns * block_size if max_length is None else min(max_length, columns * block_size)
    if plan is None:
        plan = plan_attention(requests, kv_heads, head_dim, pool.dtype, max_length, processors(pool.device))
    chunks = max(1, -(-max_length // plan.chunk_tokens))
    if max(requests, chunks) > MAX_GRID_YZ:
        raise InputError(f"requests(={requests}) and chunks(={chunks}) must be <= {MAX_GRID_YZ}, CUDA's limit on a grid")

    # The interpreter cuts fp32 to bf16 where a device rounds; there torch does the rounding.
    upcast = INTERPRETED and pool.dtype == torch.bfloat16
    output = torch.empty(query.shape, dtype=torch.float32 if upcast else query.dtype, device=query.device)
    if requests == 0:
        return output.to(query.dtype)
    split = chunks > 1
    parts, masses = output, output  # one chunk: the only part is the output, and nobody asks for its mass
    if split:
        parts = torch.empty((requests, chunks, heads, head_dim), dtype=torch.float32, device=query.device)
        masses = torch.empty((requests, chunks, heads), dtype=torch.float32, device=query.device)
    lanes = padded(head_dim)
    scale = head_dim**-0.5 if scale is None else scale
    decode_kernel[kv_heads, chunks, requests](
        query.contiguous(), pool, tables.contiguous(), lengths.contiguous(), parts, masses, scale * LOG2_E,
        columns, chunks, plan.chunk_tokens,
        BLOCK_SIZE=block_size, KV_HEADS=kv_heads, GROUP=group, HEAD_DIM=head_dim, ROWS=padded(group), LANES=lanes,
        TILE=plan.tile_tokens, SPLIT=split, UPCAST=upcast, num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip
    if split:
        merge_kernel[heads, requests](
            parts, masses, lengths.contiguous(), output, chunks, plan.chunk_tokens,
            HEADS=heads, HEAD_DIM=head_dim, LANES=lanes, TILE=16,
        )  # fmt: skip
    return output.to(query.dtype)


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
    if pool.device.type == "cpu" and not INTERPRETED:
        raise InputError("device(='cpu') needs Triton's interpreter: set TRITON_INTERPRET=1 before Triton is imported")
    return blocks, block_size, kv_heads, head_dim


def group_size(query_heads: int, kv_heads: int) -> int:
    """Query heads that share a kv head. Raises InputError when they do not divide."""
    if query_heads < 1 or query_heads % kv_heads:
        raise InputError(f"query_heads(={query_heads}) must be a multiple of kv_heads(={kv_heads})")
    return query_heads // kv_heads


@cache
def processors(device: torch.device) -> int:
    """Streaming multiprocessors of a CUDA device; 1 for the interpreter, which runs one program at a time."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _expect_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise InputError(f"{name}(={list(tensor.shape)}) must have the shape {list(shape)}")


def _expect_like(name: str, tensor: torch.Tensor, pool: torch.Tensor, dtype: torch.dtype) -> None:
    if tensor.device != pool.device:
        raise InputError(f"{name} is on {tensor.device}, it must be on the pool's device, {pool.device}")
    if tensor.dtype != dtype:
        raise InputError(f"{name} is {tensor.dtype}, it must be {dtype}")
