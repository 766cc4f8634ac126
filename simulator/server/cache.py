"""What one token slot takes on all GPUs together, and how many slots a memory holds.

Tensor parallelism divides the KV heads over N GPUs. Where there are fewer heads than GPUs, each head is stored
N / heads times; a latent (multi-head latent attention) is one vector that every GPU keeps whole.
"""

from allocators.base import InputError, in_short, whole
from simulator.server.models import Model

KV_CACHE_DTYPES = ("auto", "bf16", "fp16", "fp8")
"""The data types of the cache; ``auto`` is the model's own."""

_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}
_ALIASES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
_MOST_GPUS = 1024


def kv_cache_dtype_of(name: str) -> str:
    """One of KV_CACHE_DTYPES for that name or vLLM's long one (``bfloat16``, ``fp8_e4m3``); else an InputError."""
    plain = str(name).strip().lower()
    plain = _ALIASES.get(plain, plain)
    if plain not in KV_CACHE_DTYPES:
        allowed = ", ".join([*KV_CACHE_DTYPES, *_ALIASES])
        raise InputError(f"kv_cache_dtype(={in_short(name)}) must be one of {allowed}")
    return plain


def check_tensor_parallel(model: Model, tensor_parallel_size: int) -> int:
    """The number of GPUs, if the model can be divided over so many as vLLM does it; else an InputError.

    Attention heads must divide evenly; so must KV heads, or, where they are fewer, the GPUs among them.
    """
    size = whole("tensor_parallel_size", tensor_parallel_size)
    allowed = [n for n in range(1, _MOST_GPUS + 1) if _divides(model, n)]
    if size in allowed:
        return size
    latent = model.latent_dim is not None
    heads = "" if model.heads is None else f"{model.heads} attention heads"
    keys = "" if latent else f"{model.kv_heads} KV heads"
    has = " and ".join(part for part in (heads, keys) if part)
    choices = ", ".join(map(str, allowed[:12])) + (", ..." if len(allowed) > 12 else "")
    raise InputError(f"tensor_parallel_size(={size}) must be one of {choices}: {model.name} has {has}")


def _divides(model: Model, gpus: int) -> bool:
    if model.heads is not None and model.heads % gpus:
        return False
    if model.latent_dim is not None:
        return True
    return model.kv_heads % gpus == 0 if gpus < model.kv_heads else gpus % model.kv_heads == 0


def bytes_per_slot(model: Model, tensor_parallel_size: int = 1, kv_cache_dtype: str = "auto") -> int:
    """Bytes of one token slot on all GPUs together, repeated heads counted as often as they are stored.

    Raises InputError for a number of GPUs or a data type that is not allowed.
    """
    gpus = check_tensor_parallel(model, tensor_parallel_size)
    element = _BYTES.get(kv_cache_dtype_of(kv_cache_dtype), model.bytes_per_element)
    if model.latent_dim is not None:
        return gpus * model.layers * model.latent_dim * element
    heads = gpus * max(1, model.kv_heads // gpus)
    return 2 * model.layers * heads * model.head_dim * element


def slots_for(memory_bytes: int, model: Model, tensor_parallel_size: int = 1, kv_cache_dtype: str = "auto") -> int:
    """floor(memory / bytes per slot): 12 GiB of OPT-13B are 15,728 slots.

    ``memory_bytes`` is the pool on all GPUs together. Raises InputError when not even one slot fits.
    """
    slot = bytes_per_slot(model, tensor_parallel_size, kv_cache_dtype)
    if whole("memory_bytes", memory_bytes) < slot:
        raise InputError(f"memory_bytes(={memory_bytes}) must hold a token slot of {model.name}: {slot} bytes")
    return memory_bytes // slot
