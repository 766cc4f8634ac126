"""What transformers 5.24 takes for heads where a ``config.json`` of a model type leaves the key out.

Only where it differs from what the other keys give: as many KV heads as attention heads, and hidden size / heads.
Files written before a key existed, and Gemma 3's text part, do leave keys out.
"""

_KV, _DIM, _HEADS = "num_key_value_heads", "head_dim", "num_attention_heads"

CLASS_DEFAULTS: dict[str, dict[str, int]] = {
    "afmoe": {_DIM: 128},
    "bailing_hybrid": {_DIM: 128},
    "bamba": {_KV: 8},
    "bitnet": {_KV: 5},
    "cohere2_moe": {_DIM: 128},
    "cwm": {_KV: 8, _DIM: 128},
    "ernie4_5": {_KV: 2, _DIM: 128},
    "ernie4_5_moe": {_KV: 4},
    "exaone": {_KV: 8},
    "falcon_h1": {_KV: 8},
    "gemma": {_KV: 16, _DIM: 256},
    "gemma2": {_KV: 4, _DIM: 256},
    "gemma3_text": {_HEADS: 8, _KV: 4, _DIM: 256},
    "gemma3n_text": {_HEADS: 8, _KV: 2, _DIM: 256, "num_kv_shared_layers": 15},
    "glm": {_KV: 2, _DIM: 128},
    "glm4": {_KV: 2, _DIM: 128},
    "glm4_moe": {_KV: 8},
    "gpt_oss": {_KV: 8, _DIM: 64},
    "granite_swa": {_KV: 4},
    "helium": {_DIM: 128},
    "hy_v3": {_KV: 8, _DIM: 128},
    "internlm3": {_KV: 2, _DIM: 128},
    "jamba": {_KV: 8},
    "lfm2": {_KV: 8},
    "lfm2_moe": {_KV: 8},
    "llama4_text": {_KV: 8, _DIM: 128},
    "minimax": {_KV: 8},
    "minimax_m2": {_KV: 8, _DIM: 128},
    "ministral": {_KV: 8},
    "ministral3": {_KV: 8, _DIM: 128},
    "mistral": {_KV: 8},
    "mixtral": {_KV: 8},
    "nemotron_h": {_KV: 8, _DIM: 128},
    "phi4_multimodal": {_KV: 8},
    "phimoe": {_KV: 8},
    "qwen3": {_DIM: 128},
    "qwen3_5_moe_text": {_KV: 2, _DIM: 256},
    "qwen3_5_text": {_KV: 4, _DIM: 256},
    "qwen3_moe": {_KV: 4},
    "qwen3_next": {_KV: 2, _DIM: 256},
    "seed_oss": {_KV: 8, _DIM: 128},
    "smollm3": {_KV: 4},
    "starcoder2": {_KV: 2},
    "vaultgemma": {_KV: 4, _DIM: 256},
}

# Of the part of a multimodal model that names no type of its own.
CLASS_DEFAULTS |= {"gemma3": CLASS_DEFAULTS["gemma3_text"], "gemma3n": CLASS_DEFAULTS["gemma3n_text"]}

_OLD = [
    "aquila",
    "biogpt",
    "ctrl",
    "git",
    "gpt_neox_japanese",
    "modernbert-decoder",
    "baichuan",
    "bloom",
    "codegen",
    "gpt2",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "internlm",
    "mpt",
    "openai-gpt",
    "opt",
    "qwen",
]
ALL_HEADS = frozenset([*_OLD, "cohere", "llama", "olmo", "persimmon", "phi", "phi3", "qwen2", "stablelm"])
"""Model types that have as many KV heads as heads where no key says else."""
