"""How large the pool of an LLM server is: what is left of its GPUs' memory for the KV cache.

Per GPU, as vLLM reckons it::

    pool = utilisation x total - weights - what the profile run finds

What vLLM's profile run finds is mostly its sampler's dummy run: seven logs of vLLM 0.10 and 0.11 give 38.4 to
39.8 bytes for each sequence and word of the vocabulary, the same for every size of model and for 1 and 2 GPUs.
It is an allowance here, not a law: ``activation_memory`` replaces it.
"""

import math
from dataclasses import dataclass
from typing import Any

from allocators.base import InputError, in_short, whole
from simulator.server.cache import (
    KV_CACHE_DTYPES,
    bytes_per_slot,
    check_tensor_parallel,
    kv_cache_dtype_of,
    slots_for,
)
from simulator.server.cost import parse_bytes
from simulator.server.gpus import Gpu, load_gpu
from simulator.server.models import Model, load_model

__all__ = [
    "DEFAULT_UTILIZATION",
    "KV_CACHE_DTYPES",
    "PoolEstimate",
    "bytes_per_slot",
    "check_fits",
    "default_max_num_seqs",
    "estimate_pool",
    "slots_for",
]

DEFAULT_UTILIZATION = 0.92
"""vLLM's default from 0.33 on; older versions have 0.90."""

SAMPLER_BYTES = 39
"""Bytes for each sequence and word of the vocabulary that the profile run of vLLM 0.10 and 0.11 takes."""

LEAST_PROFILED_BYTES = 2**28
"""What start-ups with little to sample logged as their peak: 0.19 to 0.24 GiB."""

NON_TORCH_BYTES = {False: round(0.13 * 2**30), True: round(0.55 * 2**30)}
"""Logged as "non-torch" by vLLM 0.11 on one GPU, and on several (NCCL's buffers)."""

_GIB = 2**30


def default_max_num_seqs(gpu: Gpu) -> int:
    """The most sequences that vLLM's server runs at once by default: 1024, but 256 on an A100 or below 70 GiB."""
    return 1024 if gpu.memory_bytes >= 70 * _GIB and "a100" not in gpu.name.lower() else 256


def gib(size: int) -> str:
    """Bytes as GiB with two decimals."""
    return f"{size / _GIB:,.2f} GiB"


@dataclass(frozen=True)
class PoolEstimate:
    """The sum that gives the pool: sizes in bytes, per GPU where the name does not say otherwise."""

    model: Model
    gpu: Gpu
    tensor_parallel_size: int
    gpu_memory_utilization: float
    kv_cache_dtype: str
    total_bytes: int
    """The memory of one GPU."""
    usable_bytes: int
    """Of that, what the utilisation allows."""
    weight_bytes: int
    """The weights on one GPU."""
    activation_bytes: int
    """The allowance for what the profile run finds on one GPU."""
    activation_source: str
    """Where the allowance comes from, a sentence."""
    pool_bytes: int
    """The KV cache on all GPUs together."""
    slots: int
    """The whole token slots in it."""

    def lines(self) -> list[str]:
        """The sum as people read it, a line each; all but the last two are per GPU."""
        gpus, slot = (
            self.tensor_parallel_size,
            bytes_per_slot(self.model, self.tensor_parallel_size, self.kv_cache_dtype),
        )
        each = "" if gpus == 1 else " on each GPU"
        return [
            f"{self.gpu.name}: {gib(self.total_bytes)} x {self.gpu_memory_utilization:g} = "
            f"{gib(self.usable_bytes)}{each}",
            f"- {gib(self.weight_bytes)} weights of {self.model.name}{each}",
            f"- {gib(self.activation_bytes)} for activations{each}: {self.activation_source}",
            f"= {gib(self.pool_bytes)} for the KV cache{'' if gpus == 1 else f' on {gpus} GPUs together'}",
            f"= {self.slots:,} token slots of {slot:,} bytes ({self.kv_cache_dtype})",
        ]

    def to_dict(self) -> dict[str, Any]:
        """The sum for JSON: names of model and GPU, sizes in bytes."""
        return {
            "model": self.model.name,
            "gpu": self.gpu.name,
            "tensor_parallel_size": self.tensor_parallel_size,
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "kv_cache_dtype": self.kv_cache_dtype,
            "total_bytes_per_gpu": self.total_bytes,
            "usable_bytes_per_gpu": self.usable_bytes,
            "weight_bytes_per_gpu": self.weight_bytes,
            "activation_bytes_per_gpu": self.activation_bytes,
            "activation_source": self.activation_source,
            "pool_bytes": self.pool_bytes,
            "bytes_per_slot": bytes_per_slot(self.model, self.tensor_parallel_size, self.kv_cache_dtype),
            "slots": self.slots,
        }


def estimate_pool(
    model: Model | str,
    gpu: Gpu | str,
    *,
    tensor_parallel_size: int = 1,
    gpu_memory_utilization: float = DEFAULT_UTILIZATION,
    kv_cache_dtype: str = "auto",
    activation_memory: int | str | None = None,
    max_num_seqs: int | None = None,
) -> PoolEstimate:
    """The pool that a server has with this model on N such GPUs, in bytes and token slots.

    ``activation_memory`` (bytes, or text such as ``"4GiB"``) is what to leave free per GPU besides the weights;
    None takes an allowance from ``max_num_seqs`` (None: vLLM's default for the card) and the vocabulary, which
    :attr:`PoolEstimate.activation_source` tells. Raises InputError for a value that is not allowed, a model whose
    weights are not known, and, with the whole sum in one line, a model that does not fit.
    """
    model = load_model(model) if isinstance(model, str) else model
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    gpus = check_tensor_parallel(model, tensor_parallel_size)
    dtype = kv_cache_dtype_of(kv_cache_dtype)
    usable = math.ceil(gpu.memory_bytes * _utilization(gpu_memory_utilization))
    weights = -(-_weights_of(model) // gpus)
    activation, source = _allowance(model, gpu, gpus, activation_memory, max_num_seqs)
    pool = gpus * (usable - weights - activation)
    slot = bytes_per_slot(model, gpus, dtype)
    estimate = PoolEstimate(
        model,
        gpu,
        gpus,
        gpu_memory_utilization,
        dtype,
        gpu.memory_bytes,
        usable,
        weights,
        activation,
        source,
        pool,
        pool // slot,
    )
    if estimate.slots < 1:
        raise InputError(_does_not_fit(estimate))
    return estimate


def _utilization(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InputError(f"gpu_memory_utilization(={in_short(value)}) must be above 0 and at most 1")
    return value


def _weights_of(model: Model) -> int:
    if model.weight_bytes is None:
        why = f" ({model.unknown})" if model.unknown else ""
        remedy = "give Model(..., weight_bytes=N), or the pool itself"
        raise InputError(f"the bytes of the weights of model {model.name!r} are not known{why}; {remedy}")
    return model.weight_bytes


def _allowance(model: Model, gpu: Gpu, gpus: int, given: int | str | None, max_num_seqs: int | None) -> tuple[int, str]:
    """Bytes per GPU besides weights and cache, and where the number comes from."""
    if given is not None:
        return (0 if str(given).strip() == "0" else parse_bytes(given, "activation_memory")), "as given"
    if model.vocab_size is None:
        raise InputError(f"the vocabulary of model {model.name!r} is not known; give activation_memory")
    sequences = default_max_num_seqs(gpu) if max_num_seqs is None else whole("max_num_seqs", max_num_seqs)
    sampled, other = SAMPLER_BYTES * sequences * model.vocab_size, NON_TORCH_BYTES[gpus > 1]
    assumed = f"max_num_seqs {sequences:,}" + (", vLLM's default on this card" if max_num_seqs is None else "")
    rule = f"{SAMPLER_BYTES} bytes x {assumed} x vocabulary {model.vocab_size:,}"
    if sampled < LEAST_PROFILED_BYTES:
        sampled = LEAST_PROFILED_BYTES
        rule = f"at least {gib(sampled)}, as start-ups with little to sample logged it"
    return sampled + other, f"{rule} + {gib(other)} outside torch, as start-ups of vLLM 0.11 logged it"


def _does_not_fit(estimate: PoolEstimate) -> str:
    """One line: the sum, and what is left."""
    gpus = estimate.tensor_parallel_size
    where = f"one {estimate.gpu.name}" if gpus == 1 else f"{gpus} x {estimate.gpu.name}"
    left = estimate.usable_bytes - estimate.weight_bytes - estimate.activation_bytes
    terms = (
        f"{gib(estimate.total_bytes)} x {estimate.gpu_memory_utilization:g} - {gib(estimate.weight_bytes)} weights "
        f"- {gib(estimate.activation_bytes)} activations = {gib(left)}{'' if gpus == 1 else ' on each GPU'}"
    )
    return f"{estimate.model.name} does not fit {where}: {terms} for the KV cache"


def check_fits(
    memory_bytes: int,
    model: Model | str,
    gpu: Gpu | str,
    *,
    tensor_parallel_size: int = 1,
    kv_cache_dtype: str = "auto",
) -> None:
    """Raise InputError, with the sum, if weights and a pool of ``memory_bytes`` exceed the memory of all GPUs.

    Weights that are not known count as none: the pool alone must fit too.
    """
    model = load_model(model) if isinstance(model, str) else model
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    gpus = check_tensor_parallel(model, tensor_parallel_size)
    kv_cache_dtype_of(kv_cache_dtype)
    whole("memory_bytes", memory_bytes)
    weights, total = model.weight_bytes or 0, gpus * gpu.memory_bytes
    if memory_bytes + weights > total:
        where = f"one {gpu.name} has" if gpus == 1 else f"{gpus} x {gpu.name} have"
        raise InputError(
            f"a pool of {gib(memory_bytes)} and the weights of {model.name}, {gib(weights)}, are "
            f"{gib(memory_bytes + weights)}; {where} {gib(total)}"
        )
