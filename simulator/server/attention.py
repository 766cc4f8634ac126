"""Which layers of a model keep a cache that grows with every token, and what is in it.

Most keep keys and values in every layer. Hybrid models mix in layers of linear attention, state spaces or
convolutions, whose state has one size per request: they count nothing here. A sliding window bounds what a layer
keeps; it is counted in full, with a note.
"""

import re

from allocators.base import InputError
from simulator.server.config import Config
from simulator.server.layer_counts import COUNTERS, LISTS, WINDOWED

_WINDOWS = ("sliding_window", "sliding_window_size", "attention_chunk_size", "attention_window_size")

# Keys whose names say that the cache may be something else than keys and values in every layer.
_SUSPECTS = re.compile(
    r"(^|_)kv(_|$)|key_value|query_group|multi_query|latent|(^|_)(mamba|ssm|rwkv|lru|mla)|recurren|linear_(key|value|num"
    r"|conv|head|attn)|conv_l_cache|conv_kernel|conv1d|d_conv|short_conv|cross_att|cross_layer|use_cla|cla_share"
    r"|encoder_decoder|sparse_(att|block)|block_sparse|indexer|index_(topk|head|n_heads|block|kpool)|compress_r"
    r"|attention_head_size|qk_head_dim|layer_types?$|block_types?$|layers_block|attn_layer|attn_type|attn_config|attn_idx|attention_types?$"
    r"|attention_layers$|hybrid|layer_pattern|override_pattern|full_att|per_layer_config|block_configs|v_head_dim"
    r"|value_head_dim|swa_|global_head_dim|sliding_attention_heads|shared_layers|k_eq_v|layer_group_size|num_loop"
    r"|loop_(num|layer)|total_ut_steps|keep_window",
    re.IGNORECASE,
)
# Names that match and say nothing of the cache; those of speculative layers, which are not simulated, among them.
_HARMLESS = re.compile(
    r"^(mtp_|mlp_layer_types$|moe_layer|full_attn_(alpha|beta)_factor|linear_attn_(alpha|beta)_factor)"
)

_HEAD_KEYS = {
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "num_query_groups",
    "num_attention_groups",
    "kv_channels",
    "multi_query",
    "multi_query_attention",
    "multi_query_group_num",
    "attn_config",
}
_HEAD_DIMS = ("v_head_dim", "value_head_dim", "attention_head_size", "qk_head_dim")
_LATENT_KEYS = {"kv_lora_rank", "v_head_dim", "qk_head_dim", "mla_use_nope"}
# Sizes of layers without a cache: understood once the file says which layers those are.
_STATE_KEYS = re.compile(r"(^|_)(mamba|ssm|lru)|linear_(key|value|num|conv|head)|conv", re.IGNORECASE)

# Types whose layers are not what their keys say.
_ENCODER_DECODERS = (
    "t5",
    "mt5",
    "umt5",
    "longt5",
    "bart",
    "mbart",
    "led",
    "pegasus",
    "marian",
    "blenderbot",
    "whisper",
)
_REFUSED_KINDS = {
    "longcat_flash": "each layer has two attention blocks",
    "phi4flash": "its layers mix state spaces, windows and one shared cache",
    **dict.fromkeys(_ENCODER_DECODERS, "its decoder also keeps a cache of what the encoder has read"),
}
_NO_GROWING_CACHE = ("rwkv", "rwkv5", "rwkv6", "rwkv7", "mamba", "mamba2", "falcon_mamba", "xlstm", "retnet", "hyena")
_ENCODERS = frozenset(
    (
        "albert",
        "bert",
        "bert-generation",
        "big_bird",
        "roformer",
        "camembert",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "modernbert",
        "mpnet",
        "roberta",
    )
    + ("vit", "xlm-roberta", "clip", "siglip", "nomic_bert")
)

_INTERVAL = "full_attention_interval"
HYBRID = {
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _INTERVAL),
    **dict.fromkeys(("granitemoehybrid", "lfm2", "lfm2_moe", "olmo_hybrid", "bailing_hybrid"), "layer_types"),
    **dict.fromkeys(("kimi_linear", "lfm3", "qwen4_exp"), "layer_types"),
    **dict.fromkeys(("zamba", "zamba2"), "layers_block_type"),
    "jamba": "attn_layer_period",
    "bamba": "attn_layer_indices",
    "minimax": "attn_type_list",
    "recurrent_gemma": "block_types",
    "nemotron_h": "hybrid_override_pattern",
}
"""Model types whose layers do not all keep a cache, and the key that says which of them do."""

_CLASS_INTERVAL = 4
"""``full_attention_interval`` where a file leaves it out: what transformers 5.24 takes."""


def check_understood(config: Config) -> None:
    """Raise InputError for the first key that says of the cache what is not understood here."""
    if config.kind in _REFUSED_KINDS:
        raise config.error("model_type", f"is not understood: {_REFUSED_KINDS[config.kind]}; give a Model(...) instead")
    if config.kind in _NO_GROWING_CACHE:
        raise config.error("model_type", "keeps no KV cache that grows: its state has one size per request")
    if config.kind in _ENCODERS:
        raise config.error("model_type", "is an encoder: it generates no tokens and keeps no KV cache")
    known = _HEAD_KEYS | COUNTERS.keys() | {"attn_layer_offset", "num_kv_shared_layers"}
    if config.given("kv_lora_rank"):
        known |= _LATENT_KEYS
    if not config.flag("use_cla"):
        known.add("cla_share_factor")  # Hunyuan's files carry it unused
    told = config.kind == "falcon_h1" or any(config.given(key) for key in COUNTERS)
    for key in config.present():
        if not _SUSPECTS.search(key) or key in known or _HARMLESS.match(key) or (told and _STATE_KEYS.search(key)):
            continue
        if key in _HEAD_DIMS and config.content[key] == config.head_dim:
            continue
        raise config.error(key, "is not understood: it may change what the KV cache holds; give a Model(...) instead")


def latent_dim(config: Config) -> int | None:
    """Elements per token and layer of multi-head latent attention; None for keys and values."""
    if config.given("kv_lora_rank") is None:
        return None
    return config.count("kv_lora_rank") + config.count("qk_rope_head_dim")


def cached_layers(config: Config) -> int:
    """The layers that keep something of every token; ``config.notes`` tells of windows and of layers left out."""
    counts = {key: count(config) for key, count in COUNTERS.items() if config.given(key)}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{key} says {count}" for key, count in counts.items())
        raise InputError(f"{config.source}: how many layers keep a KV cache? {said}")
    layers = next(iter(counts.values())) if counts else _unlisted(config)
    if shared := _shared(config):
        if shared >= layers:
            raise InputError(
                f"{config.source}: num_kv_shared_layers(={shared}) must be below the number of layers, {layers}"
            )
        config.note(f"the last {shared} of {layers} layers use the cache of layers before them")
        layers -= shared
    elif layers < config.layers:
        config.note(
            f"{layers} of {config.layers} layers keep a KV cache; the state of the others, "
            "of one size per request, is not counted"
        )
    if layers < 1:
        raise InputError(f"{config.source}: no layer keeps a KV cache; its state does not grow with the tokens")
    _note_windows(config)
    return layers


def _unlisted(config: Config) -> int:
    """The layers that keep a cache where no key says which; an InputError for a type in which not all of them do."""
    key = HYBRID.get(config.kind)
    if key is None:
        return config.layers
    if key != _INTERVAL:
        raise InputError(
            f"{config.source}: {key} is missing; it says which layers of a model of model_type {config.kind!r} keep a "
            "KV cache"
        )
    config.note(f"{key} is not in the file: {_CLASS_INTERVAL}, as transformers takes it for {config.kind}")
    return config.layers // _CLASS_INTERVAL


def _shared(config: Config) -> int:
    """The layers that use the cache of layers before them."""
    key = "num_kv_shared_layers"
    if key in config.content:
        return config.numbers_of(key)
    return config.class_default(key) or 0


def _note_windows(config: Config) -> None:
    key = config.given(*_WINDOWS)
    kinds = next((config.names(key) for key in LISTS if config.given(key)), None)
    windowed = sum(kind in WINDOWED for kind in kinds or [])
    # Qwen's files carry a window that is not used.
    used = config.flag("use_sliding_window", default=not config.kind.startswith("qwen"))
    if not used or key is None or (kinds is not None and not windowed):
        return
    where = f"{windowed} of {len(kinds)} layers" if kinds is not None else "layers with it"
    value = "per layer" if isinstance(config.content[key], list) else config.content[key]
    config.note(f"{key} {value}: {where} counted in full, as without a window")
