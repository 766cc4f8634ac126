"""Models and GPUs: how many bytes a token slot takes, and how many slots a memory holds.

Bytes per slot = 2 (a key and a value) x layers x kv_heads x head_dim x bytes per element
(OPT-13B in fp16: 2 x 40 x 40 x 128 x 2 = 819,200).

A preset is an excerpt of the model's own Hugging Face ``config.json`` and is read by the code that
reads such a file. GPU figures are the vendor's: peak rates, decimal units.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocators.base import InputError, whole

_BYTES_PER_ELEMENT = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True)
class Model:
    """What of a transformer decides the size of its KV cache and the least time of a step.

    ``bytes_per_element`` holds for weights and cache alike (2 for fp16 and bf16). ``parameters`` is None
    where the architecture's count is not known here; only :meth:`StepCost.from_hardware` needs it.
    """

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    bytes_per_element: int = 2
    parameters: int | None = None

    def __post_init__(self) -> None:
        """Raise InputError unless every number is whole and >= 1."""
        for field in ("layers", "kv_heads", "head_dim", "bytes_per_element"):
            whole(f"{self.name}: {field}", getattr(self, field))
        if self.parameters is not None:
            whole(f"{self.name}: parameters", self.parameters)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of the keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_element


@dataclass(frozen=True)
class Gpu:
    """A GPU's memory and peak rates: HBM, dense fp16/bf16 tensor cores, host link in one direction."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: int
    flops_per_s: int
    host_link_bytes_per_s: int


# NVIDIA A100 Tensor Core GPU datasheet (SXM: 40 GB 1,555 GB/s, 80 GB 2,039 GB/s, 312 TFLOPS dense, PCIe Gen4
# 64 GB/s), H100 datasheet (SXM: 80 GB, 3.35 TB/s, 1,979 TFLOPS with sparsity, PCIe Gen5 128 GB/s) and H200
# datasheet (SXM: 141 GB, 4.8 TB/s, the same rates). Sparse rates and both-ways link rates are halved here.
_G, _T = 10**9, 10**12
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("A100-40GB", 40 * _G, 1_555 * _G, 312 * _T, 32 * _G),
        Gpu("A100-80GB", 80 * _G, 2_039 * _G, 312 * _T, 32 * _G),
        Gpu("H100", 80 * _G, 3_350 * _G, 1_979 * _T // 2, 64 * _G),
        Gpu("H200", 141 * _G, 4_800 * _G, 1_979 * _T // 2, 64 * _G),
    )
}


def load_gpu(name: str) -> Gpu:
    """The GPU preset of that name, in any case. Raises InputError that lists the presets."""
    for gpu in GPUS.values():
        if gpu.name.lower() == name.strip().lower():
            return gpu
    raise InputError(f"unknown GPU {name!r}; choose from {', '.join(GPUS)}")


class _Config:
    """A Hugging Face configuration, read key by key; errors name the file and the key."""

    def __init__(self, source: str, content: Mapping[str, Any]) -> None:
        # A multimodal model keeps its language model in a part of the file.
        text_part = content.get("text_config")
        self.source = source
        self.content = {**content, **(text_part if isinstance(text_part, dict) else {})}

    def count(self, *keys: str, default: int | None = None) -> int:
        """The first of ``keys`` that is there and not null, a whole number >= 1; else ``default``."""
        for key in keys:
            if self.content.get(key) is not None:
                return whole(f"{self.source}: {key}", self.content[key])
        if default is None:
            raise InputError(f"{self.source}: {keys[0]} is missing; it must be a whole number >= 1")
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """``key`` as a bool; ``default`` where it is missing or null."""
        value = self.content.get(key)
        if value is not None and not isinstance(value, bool):
            raise InputError(f"{self.source}: {key}(={value!r}) must be true or false")
        return default if value is None else value

    @property
    def layers(self) -> int:
        return self.count("num_hidden_layers", "n_layer")

    @property
    def heads(self) -> int:
        return self.count("num_attention_heads", "n_head")

    @property
    def hidden(self) -> int:
        return self.count("hidden_size", "n_embd")

    @property
    def kv_heads(self) -> int:
        """Heads with keys and values of their own; all of them where the file says nothing else."""
        falcon = self.content.get("model_type") == "falcon"
        if falcon and not self.flag("new_decoder_architecture"):
            return 1 if self.flag("multi_query", default=True) else self.heads
        return self.count("num_key_value_heads", "num_kv_heads", default=self.heads)

    @property
    def head_dim(self) -> int:
        if self.content.get("head_dim") is None and self.hidden % self.heads:
            allowed = f"a multiple of num_attention_heads(={self.heads}) where there is no head_dim"
            raise InputError(f"{self.source}: hidden_size(={self.hidden}) must be {allowed}")
        return self.count("head_dim", default=self.hidden // self.heads)

    @property
    def bytes_per_element(self) -> int:
        dtype = self.content.get("torch_dtype") or self.content.get("dtype") or "float16"
        if not isinstance(dtype, str) or dtype.removeprefix("torch.") not in _BYTES_PER_ELEMENT:
            allowed = ", ".join(_BYTES_PER_ELEMENT)
            raise InputError(f"{self.source}: torch_dtype(={dtype!r}) must be one of {allowed}")
        return _BYTES_PER_ELEMENT[dtype.removeprefix("torch.")]


def _llama_parameters(config: _Config) -> int:
    """Gated MLP, RMS norms; biases as ``attention_bias`` and ``mlp_bias`` say, and Qwen2's on q, k and v."""
    hidden, inner = config.hidden, config.count("intermediate_size")
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer = 2 * hidden * (queries + keys) + 3 * hidden * inner + 2 * hidden
    kind = config.content.get("model_type")
    if kind == "qwen2" or config.flag("attention_bias"):
        layer += queries + 2 * keys + (0 if kind == "qwen2" else hidden)
    if kind == "qwen3":  # norms of queries and keys
        layer += 2 * config.head_dim
    if config.flag("mlp_bias"):
        layer += 2 * inner + hidden
    tables = 1 if config.flag("tie_word_embeddings") else 2
    return config.layers * layer + tables * config.count("vocab_size") * hidden + hidden


def _classic_parameters(config: _Config) -> int:
    """OPT and GPT-2: two-matrix MLP, layer norms, biases everywhere, learned positions, tied embeddings.

    OPT keeps two position rows for padding; its 350M model embeds in fewer dimensions and has no last norm.
    """
    opt, hidden = config.content.get("model_type") == "opt", config.hidden
    inner = config.count("ffn_dim") if opt else config.count("n_inner", default=4 * hidden)
    layer = 4 * hidden * (hidden + 1) + 2 * hidden * inner + inner + hidden + 4 * hidden
    embed = config.count("word_embed_proj_dim", default=hidden)
    positions = config.count("max_position_embeddings") + 2 if opt else config.count("n_positions")
    projections = 2 * hidden * embed if embed != hidden else 0
    last_norm = 2 * hidden if config.flag("do_layer_norm_before", default=True) else 0
    table = config.count("vocab_size") * embed
    return config.layers * layer + table + positions * hidden + projections + last_norm


_PARAMETERS: dict[str, Callable[[_Config], int]] = {
    "llama": _llama_parameters,
    "mistral": _llama_parameters,
    "qwen2": _llama_parameters,
    "qwen3": _llama_parameters,
    "opt": _classic_parameters,
    "gpt2": _classic_parameters,
}


def _llama(kind: str, *sizes: int) -> dict[str, Any]:
    keys = "num_hidden_layers hidden_size intermediate_size num_attention_heads num_key_value_heads vocab_size"
    return {"model_type": kind, **dict(zip(keys.split(), sizes, strict=True))}


PRESETS: dict[str, dict[str, Any]] = {
    "OPT-13B": {
        "model_type": "opt",
        "num_hidden_layers": 40,
        "hidden_size": 5120,
        "ffn_dim": 20480,
        "num_attention_heads": 40,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
    },
    "Llama-2-7B": _llama("llama", 32, 4096, 11008, 32, 32, 32000),
    "Llama-2-13B": _llama("llama", 40, 5120, 13824, 40, 40, 32000),
    "Llama-3-8B": _llama("llama", 32, 4096, 14336, 32, 8, 128256),
    "Llama-3-70B": _llama("llama", 80, 8192, 28672, 64, 8, 128256),
    "Qwen2.5-7B": _llama("qwen2", 28, 3584, 18944, 28, 4, 152064),
    "Mistral-7B": _llama("mistral", 32, 4096, 14336, 32, 8, 32000),
}


def _model(name: str, config: _Config) -> Model:
    if "kv_lora_rank" in config.content:
        raise InputError(f"{config.source}: kv_lora_rank must be absent; latent attention keeps no keys and values")
    kind = config.content.get("model_type", "llama")
    count = _PARAMETERS.get(kind) if isinstance(kind, str) else None
    return Model(
        name,
        config.layers,
        config.kv_heads,
        config.head_dim,
        config.bytes_per_element,
        count(config) if count else None,
    )


def load_model(name_or_path: str | Path) -> Model:
    """A preset (in any case: ``llama-3-8b``) or the model a Hugging Face ``config.json`` describes.

    Read are the keys of Llama, Mistral, Qwen2/3, OPT, GPT-2 and Falcon; any other model whose file has
    ``num_hidden_layers``, ``num_attention_heads`` and ``hidden_size`` gives its bytes per slot, but no
    parameter count. A file that names no dtype is taken as fp16. Raises InputError, naming file and key.
    """
    name = str(name_or_path)
    for preset, content in PRESETS.items():
        if preset.lower() == name.strip().lower():
            return _model(preset, _Config(preset, content))
    try:
        content = json.loads(Path(name).read_bytes())
    except IsADirectoryError:
        raise InputError(f"model {name!r} is a directory; name the config.json in it") from None
    except OSError as error:
        choices = f"choose from {', '.join(PRESETS)} or name a Hugging Face config.json"
        reason = "" if isinstance(error, FileNotFoundError) else f" ({error.strerror})"
        raise InputError(f"unknown model {name!r}{reason}; {choices}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{name}: not JSON; a Hugging Face config.json is needed") from None
    if not isinstance(content, dict):
        raise InputError(f"{name}: must hold a JSON object with num_hidden_layers, num_attention_heads, ...")
    return _model(name, _Config(name, content))


def slots_for(memory_bytes: int, model: Model) -> int:
    """floor(memory / bytes per slot): 12 GiB of OPT-13B are 15,728 slots.

    Raises InputError when not even one slot fits.
    """
    if whole("memory_bytes", memory_bytes) < model.bytes_per_slot:
        slot = f"a token slot of {model.name}: {model.bytes_per_slot} bytes"
        raise InputError(f"memory_bytes(={memory_bytes!r}) must hold {slot}")
    return memory_bytes // model.bytes_per_slot
