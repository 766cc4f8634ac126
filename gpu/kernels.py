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

# ruff: noqa: N803  (compile-time constants are written in capitals, as Triton's own kernels do)

import math

import torch
import triton
import triton.language as tl

from allocators.base import InputError
from gpu.plan import WRITE_WARPS, Plan, padded, plan_attention, processors, write_tile
from gpu.shapes import as_whole, expect_device, expect_like, expect_shape, group_size, pool_shape

LOG2_E = math.log2(math.e)
MAX_GRID_YZ = 65_535  # CUDA's limit on the second and third grid dimensions


@triton.jit(do_not_specialize=["tokens"])  # type: ignore[untyped-decorator]
def write_kernel(  # type: ignore[no-untyped-def]
    keys, values, slots, pool, tokens,
    BLOCK_SIZE: tl.constexpr, SLOT_ELEMENTS: tl.constexpr, TOKENS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One program copies LANES elements of the keys and values of TOKENS tokens to their slots; slots below 0 are
    skipped."""
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    slot = tl.load(slots + token, mask=token < tokens, other=-1)
    mask = (slot >= 0)[:, None] & (lane < SLOT_ELEMENTS)[None, :]
    row = (slot // BLOCK_SIZE) * (2 * BLOCK_SIZE) + slot % BLOCK_SIZE
    from_at = token[:, None] * SLOT_ELEMENTS + lane[None, :]
    key_at = pool + row[:, None] * SLOT_ELEMENTS + lane[None, :]
    value_at = key_at + BLOCK_SIZE * SLOT_ELEMENTS
    tl.store(key_at, tl.load(keys + from_at, mask=mask), mask=mask)
    tl.store(value_at, tl.load(values + from_at, mask=mask), mask=mask)


@triton.jit(do_not_specialize=["columns", "chunks", "chunk_tokens"])  # type: ignore[untyped-decorator]
def decode_kernel(  # type: ignore[no-untyped-def]
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
    # A length that its table cannot hold would read table entries of other requests, or none at all.
    length = tl.minimum(tl.load(lengths + request), columns * BLOCK_SIZE)
    begin = chunk * chunk_tokens
    end = tl.minimum(begin + chunk_tokens, length)
    if SPLIT:  # noqa: SIM102  (SPLIT is known when compiling, the length is not)
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
    mass = tl.full([ROWS], 0.0, tl.float32)
    acc = tl.full([ROWS, LANES], 0.0, tl.float32)
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
    tl.store(output + part[:, None] * HEAD_DIM + lane[None, :], acc.to(output.dtype.element_ty), mask=is_head & is_lane)
    if SPLIT:
        tl.store(masses + part, best + tl.log2(mass), mask=row < GROUP)


@triton.jit(do_not_specialize=["chunks", "chunk_tokens"])  # type: ignore[untyped-decorator]
def merge_kernel(  # type: ignore[no-untyped-def]
    parts, masses, lengths, output, chunks, chunk_tokens,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One program adds up the chunks of one query head, each weighed by its softmax mass (given as log2)."""
    head = tl.program_id(0)
    request = tl.program_id(1).to(tl.int64)
    used = (tl.load(lengths + request) + chunk_tokens - 1) // chunk_tokens
    used = tl.minimum(used, chunks)  # nobody wrote a part behind those
    lane = tl.arange(0, LANES)
    is_lane = lane < HEAD_DIM

    best = tl.full([TILE], float("-inf"), tl.float32)
    for first in range(0, used, TILE):
        chunk = first + tl.arange(0, TILE)
        part = (request * chunks + chunk) * HEADS + head
        best = tl.maximum(best, tl.load(masses + part, mask=chunk < used, other=float("-inf")))
    top = tl.max(best, 0)

    total = tl.full([TILE], 0.0, tl.float32)
    acc = tl.full([LANES], 0.0, tl.float32)
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


def write_kv(pool: torch.Tensor, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Copy the keys and values of new tokens to their slots, bit for bit.

    pool ``[blocks, 2, block_size, kv_heads, head_dim]``; slots int64 ``[tokens]``, a slot below 0 is skipped; keys and
    values ``[tokens, kv_heads, head_dim]`` of the pool's dtype. Slots are not looked at here (that would wait for the
    device): :class:`gpu.pool.DevicePool` checks them. Raises InputError for shapes, dtypes or devices that do not fit.
    """
    _, block_size, kv_heads, head_dim = pool_shape(pool)
    expect_device(pool.device, INTERPRETED)
    tokens = len(slots)
    for name, tensor in (("keys", keys), ("values", values)):
        expect_shape(name, tensor, (tokens, kv_heads, head_dim))
        expect_like(name, tensor, pool, pool.dtype)
    expect_like("slots", slots, pool, torch.int64)
    expect_shape("slots", slots, (tokens,))
    if tokens == 0:
        return
    elements = kv_heads * head_dim
    rows, lanes = write_tile(elements)
    write_kernel[-(-tokens // rows), -(-elements // lanes)](
        keys.contiguous(), values.contiguous(), slots.contiguous(), pool, tokens,
        BLOCK_SIZE=block_size, SLOT_ELEMENTS=elements, TOKENS=rows, LANES=lanes, num_warps=WRITE_WARPS,
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
    hold). Where it is too small, what lies behind the last chunk that it reaches is left out of the result; where a
    length is more than its table holds, what would lie behind the table. Neither reads memory out of bounds. Returns
    ``[requests, query_heads, head_dim]`` of query's dtype; sums are kept in fp32.

    Table entries and lengths are not looked at here (that would wait for the device): :class:`gpu.pool.DevicePool`
    checks them. Raises InputError for shapes, dtypes or devices that do not fit, and for a ``max_length`` below 0.
    """
    _, block_size, kv_heads, head_dim = pool_shape(pool)
    expect_device(pool.device, INTERPRETED)
    if query.dim() != 3 or query.shape[2] != head_dim:
        raise InputError(f"query(={list(query.shape)}) must be [requests, query_heads, head_dim {head_dim}]")
    requests, heads, _ = query.shape
    group = group_size(heads, kv_heads)
    expect_like("query", query, pool, pool.dtype)
    expect_like("tables", tables, pool, torch.int32)
    expect_like("lengths", lengths, pool, torch.int32)
    expect_shape("lengths", lengths, (requests,))
    if tables.dim() != 2 or len(tables) != requests:
        raise InputError(f"tables(={list(tables.shape)}) must be [requests {requests}, columns]")
    columns = tables.shape[1]
    bound = columns * block_size
    max_length = bound if max_length is None else min(as_whole("max_length", max_length), bound)
    if plan is None:
        plan = plan_attention(requests, kv_heads, head_dim, pool.dtype, max_length, processors(pool.device))
    chunks = max(1, -(-max_length // plan.chunk_tokens))
    if max(requests, chunks) > MAX_GRID_YZ:
        raise InputError(f"requests(={requests}) and chunks(={chunks}) must be <= {MAX_GRID_YZ}, CUDA's grid limit")

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
