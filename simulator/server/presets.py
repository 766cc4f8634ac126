"""Models by name: excerpts of their ``config.json``, read by the code that reads such a file.

Two things are not in those files: the parameters of architectures without a formula here (counted by building the
model with transformers 5.24 without memory), and the bytes that vLLM logs for MXFP4 weights.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """An excerpt of a configuration, and what it does not say."""

    config: dict[str, Any]
    parameters: int | None = None
    """The exact count, where the architecture has no formula here."""
    active_parameters: int | None = None
    weight_bytes: int | None = None
    """As logged; None: from the parameters and the data type."""
    notes: tuple[str, ...] = field(default=())


_LLAMA_KEYS = "num_hidden_layers hidden_size intermediate_size num_attention_heads num_key_value_heads vocab_size"


def _sizes(kind: str, dtype: str, positions: int, *sizes: int, **more: Any) -> dict[str, Any]:
    """A configuration with Llama's keys, and ``more``."""
    keys = dict(zip(_LLAMA_KEYS.split(), sizes, strict=True))
    return {"model_type": kind, "torch_dtype": dtype, "max_position_embeddings": positions} | keys | more


def _llama(positions: int, *sizes: int, dtype: str = "bfloat16", **more: Any) -> Preset:
    return Preset(_sizes("llama", dtype, positions, *sizes, **more))


def _bf16(kind: str, positions: int, *sizes: int, **more: Any) -> Preset:
    return Preset(_sizes(kind, "bfloat16", positions, *sizes, **more))


def _windows(layers: int, windowed: int) -> list[str]:
    """``windowed`` layers with a window, then one without, and so on."""
    return ((["sliding_attention"] * windowed + ["full_attention"]) * layers)[:layers]


def _gpt_oss(layers: int, experts: int, logged_gib: float) -> Preset:
    more = {"head_dim": 64, "sliding_window": 128, "layer_types": _windows(layers, 1), "attention_bias": True}
    more |= {"num_local_experts": experts, "num_experts_per_tok": 4, "quantization_config": {"quant_method": "mxfp4"}}
    config = _sizes("gpt_oss", "bfloat16", 131072, layers, 2880, 2880, 64, 8, 201088, **more)
    note = f"weights as vLLM 0.11 logs them on an H100: {logged_gib} GiB (MXFP4, padded)"
    return Preset(config, weight_bytes=round(logged_gib * 2**30), notes=(note,))


_DEEPSEEK_V3 = _sizes(
    "deepseek_v3", "bfloat16", 163840, 61, 7168, 18432, 128, 128, 129280,
    q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
    first_k_dense_replace=3,
    quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
)  # fmt: skip

_LLAMA_8B = (32, 4096, 14336, 32, 8, 128256)
_LLAMA_70B = (80, 8192, 28672, 64, 8, 128256)

_WITH_VISION = "parameters and weights with the vision tower, counted by building the model with transformers 5.24"

# Sizes: llm-analysis, vidur, LLMServingSim, torchtitan, vLLM's tests/config/base_model_arch_groundtruth.json, and
# transformers' converters and defaults. Each count of parameters equals that of a build with transformers 5.24.
PRESETS: dict[str, Preset] = {
    "OPT-13B": Preset(
        {
            "model_type": "opt",
            "torch_dtype": "float16",
            "num_hidden_layers": 40,
            "hidden_size": 5120,
            "ffn_dim": 20480,
            "num_attention_heads": 40,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
        }
    ),
    "Llama-2-7B": _llama(4096, 32, 4096, 11008, 32, 32, 32000, dtype="float16"),
    "Llama-2-13B": _llama(4096, 40, 5120, 13824, 40, 40, 32000, dtype="float16"),
    "Llama-3-8B": _llama(8192, *_LLAMA_8B),
    "Llama-3.1-8B": _llama(131072, *_LLAMA_8B),
    "Llama-3-70B": _llama(8192, *_LLAMA_70B),
    "Llama-3.1-70B": _llama(131072, *_LLAMA_70B),
    "Llama-3.3-70B": _llama(131072, *_LLAMA_70B),
    "Llama-3.2-1B": _llama(131072, 16, 2048, 8192, 32, 8, 128256, head_dim=64, tie_word_embeddings=True),
    "Llama-3.2-3B": _llama(131072, 28, 3072, 8192, 24, 8, 128256, head_dim=128, tie_word_embeddings=True),
    "Llama-4-Scout": Preset(
        _sizes("llama4_text", "bfloat16", 10485760, 48, 5120, 8192, 40, 8, 202048)
        | {"head_dim": 128, "attention_chunk_size": 8192, "num_local_experts": 16, "num_experts_per_tok": 1}
        | {"layer_types": (["chunked_attention"] * 3 + ["full_attention"]) * 12},
        parameters=108_225_039_360,
        active_parameters=17_172_894_720,
        notes=(_WITH_VISION,),
    ),
    "Qwen2.5-7B": _bf16("qwen2", 32768, 28, 3584, 18944, 28, 4, 152064),
    "Qwen2.5-32B": _bf16("qwen2", 32768, 64, 5120, 27648, 40, 8, 152064),
    "Qwen2.5-72B": _bf16("qwen2", 32768, 80, 8192, 29568, 64, 8, 152064),
    "Qwen3-0.6B": _bf16("qwen3", 40960, 28, 1024, 3072, 16, 8, 151936, head_dim=128, tie_word_embeddings=True),
    "Qwen3-8B": _bf16("qwen3", 40960, 36, 4096, 12288, 32, 8, 151936, head_dim=128),
    "Qwen3-32B": _bf16("qwen3", 40960, 64, 5120, 25600, 64, 8, 151936, head_dim=128),
    "Qwen3-30B-A3B": _bf16(
        "qwen3_moe",
        40960,
        48,
        2048,
        6144,
        32,
        4,
        151936,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
    ),
    "Qwen3-235B-A22B": _bf16(
        "qwen3_moe",
        40960,
        94,
        4096,
        12288,
        64,
        4,
        151936,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=1536,
    ),
    "Qwen3-Next-80B-A3B": Preset(
        _sizes("qwen3_next", "bfloat16", 262144, 48, 2048, 5120, 16, 2, 151936)
        | {"head_dim": 256, "full_attention_interval": 4, "num_experts": 512, "num_experts_per_tok": 10},
        parameters=79_674_391_296,
        active_parameters=3_874_929_408,
    ),
    "Mistral-7B": _bf16(
        "mistral", 32768, 32, 4096, 14336, 32, 8, 32000, sliding_window=4096, layer_types=["sliding_attention"] * 32
    ),
    "Mistral-7B-v0.3": _bf16("mistral", 32768, 32, 4096, 14336, 32, 8, 32768),
    "Mixtral-8x7B": _bf16("mixtral", 32768, 32, 4096, 14336, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    "Mistral-Small-24B": _bf16("mistral", 32768, 40, 5120, 32768, 32, 8, 131072, head_dim=128),
    "Gemma-2-9B": _bf16(
        "gemma2", 8192, 42, 3584, 14336, 16, 8, 256000, head_dim=256, sliding_window=4096, layer_types=_windows(42, 1)
    ),
    "Gemma-3-12B": Preset(
        _sizes(
            "gemma3_text",
            "bfloat16",
            131072,
            48,
            3840,
            15360,
            16,
            8,
            262208,
            head_dim=256,
            sliding_window=1024,
            layer_types=_windows(48, 5),
        ),
        parameters=12_187_325_040,
        notes=(_WITH_VISION,),
    ),
    "Gemma-3-27B": Preset(
        _sizes(
            "gemma3_text",
            "bfloat16",
            131072,
            62,
            5376,
            21504,
            32,
            16,
            262208,
            head_dim=128,
            sliding_window=1024,
            layer_types=_windows(62, 5),
        ),
        parameters=27_432_406_640,
        notes=(_WITH_VISION,),
    ),
    "Phi-4": _bf16("phi3", 16384, 40, 5120, 17920, 40, 10, 100352),
    "gpt-oss-20b": _gpt_oss(24, 32, 13.47),
    "gpt-oss-120b": _gpt_oss(36, 128, 64.38),
    "DeepSeek-V3": Preset(_DEEPSEEK_V3),
}

# Other names of the same shapes, letters, digits and dots only.
ALIASES = {
    "mistral7bv0.1": "Mistral-7B",
    "mixtral8x7bv0.1": "Mixtral-8x7B",
    "llama4scout17b16e": "Llama-4-Scout",
    "deepseekr1": "DeepSeek-V3",
    "mistralsmall24b2501": "Mistral-Small-24B",
}
