"""What the kernels must do, in plain loops over float64: the twin they are tested against.

No vector operation, no table gather, no online softmax: one token after the other, as the definition reads. Source:
scaled dot-product attention (Vaswani et al., 2017, section 3.2.1), with the heads grouped as in Ainslie et al., 2023.
"""

import math

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[np.float64]
BARS = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3}
"""The relative error (:func:`worst_error`) that a kernel of each type must stay below."""


def write_kv(pool: torch.Tensor, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Copy keys and values ``[tokens, kv_heads, head_dim]`` to slots ``[tokens]`` of the pool, one by one.

    pool ``[blocks, 2, block_size, kv_heads, head_dim]``. A slot below 0 is skipped.
    """
    block_size = pool.shape[2]
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            pool[slot // block_size, 0, slot % block_size] = keys[token]
            pool[slot // block_size, 1, slot % block_size] = values[token]


def gather(pool: torch.Tensor, table: list[int], length: int) -> tuple[Array, Array]:
    """Keys and values of one request, ``[length, kv_heads, head_dim]`` in float64, token by token through its table."""
    block_size, kv_heads, head_dim = pool.shape[2:]
    keys = np.empty((length, kv_heads, head_dim))
    values = np.empty((length, kv_heads, head_dim))
    for token in range(length):
        block, offset = table[token // block_size], token % block_size
        keys[token] = pool[block, 0, offset].double().cpu().numpy()
        values[token] = pool[block, 1, offset].double().cpu().numpy()
    return keys, values


def attend(query: Array, keys: Array, values: Array, scale: float | None = None) -> Array:
    """Attention of one token: query ``[query_heads, head_dim]``, keys and values ``[length, kv_heads, head_dim]``.

    Returns ``[query_heads, head_dim]``, all in float64; zeros for length 0. ``scale`` defaults to 1 / sqrt(head_dim).
    """
    heads, head_dim = query.shape
    length, kv_heads, _ = keys.shape
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    output = np.zeros((heads, head_dim))
    if length == 0:
        return output
    for head in range(heads):
        kv_head = head // (heads // kv_heads)
        scores = [scale * float(np.dot(query[head], keys[token, kv_head])) for token in range(length)]
        best = max(scores)
        weights = [math.exp(score - best) for score in scores]
        mass = math.fsum(weights)
        for token in range(length):
            output[head] += weights[token] / mass * values[token, kv_head]
    return output


def paged_attention(
    query: torch.Tensor, pool: torch.Tensor, tables: torch.Tensor, lengths: torch.Tensor, scale: float | None = None
) -> Array:
    """The twin of :func:`gpu.kernels.paged_attention`: ``[requests, query_heads, head_dim]`` back."""
    output = np.zeros(tuple(query.shape))
    for request, length in enumerate(lengths.tolist()):
        keys, values = gather(pool, tables[request].tolist(), length)
        output[request] = attend(query[request].double().cpu().numpy(), keys, values, scale)
    return output


def attend_contiguous(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """:func:`attend` in float64 tensor operations on the tensors' device, for contexts too long for loops.

    query ``[query_heads, head_dim]``, keys and values ``[length >= 0, kv_heads, head_dim]``, any dtype; returns float64
    ``[query_heads, head_dim]``.
    """
    heads, head_dim = query.shape
    length, kv_heads, _ = keys.shape
    if length == 0:
        return torch.zeros((heads, head_dim), dtype=torch.float64, device=query.device)
    grouped = query.double().reshape(kv_heads, heads // kv_heads, head_dim)
    scores = grouped @ keys.double().permute(1, 2, 0) * (head_dim**-0.5 if scale is None else scale)
    return (scores.softmax(-1) @ values.double().transpose(0, 1)).reshape(heads, head_dim)


def worst_error(got: torch.Tensor, want: Array) -> float:
    """The largest relative error of a head's output vector, ``|got - want| / |want|`` in the Euclidean norm.

    Both ``[requests, query_heads, head_dim]``. Where ``want`` is zero the norm of ``got`` itself counts; a NaN or an
    infinity in ``got`` gives infinity.
    """
    difference = got.double().cpu().numpy() - want
    if difference.size == 0:
        return 0.0
    if not np.isfinite(difference).all():
        return math.inf
    size = np.linalg.norm(want, axis=-1)
    return float((np.linalg.norm(difference, axis=-1) / np.where(size > 0, size, 1.0)).max())
