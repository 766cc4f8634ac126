"""How many parameters a model has, and how many of them one token meets.

Exact for the architectures below (held against transformers); None for any other. Layers for speculative
decoding (MTP) and towers for images and sound are not counted.
"""

from collections.abc import Callable
from dataclasses import dataclass

from simulator.server.config import Config, MissingKeyError


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters."""

    total: int
    tables: int
    """Of these, embeddings and output head: 16 bits in most quantised checkpoints too."""
    experts: int = 0
    """Of these, in the routed experts' matrices."""
    idle_experts: int = 0
    """Of these, in the experts that one token does not meet."""

    @property
    def active(self) -> int:
        """What one token meets."""
        return self.total - self.idle_experts


@dataclass(frozen=True)
class _Experts:
    """The routed experts of one layer."""

    count: int
    per_token: int
    size: int
    """Parameters of one expert's matrices."""


def _tables(config: Config, tied: bool = False) -> int:
    """Embeddings, and an output head unless it is the same table."""
    both = 1 if config.flag("tie_word_embeddings", default=tied) else 2
    return both * config.count("vocab_size") * config.hidden


def _attention(config: Config) -> int:
    """Projections of queries, keys, values and output, with biases as the file or the architecture says."""
    hidden, queries, keys = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    size = 2 * hidden * (queries + keys)
    if config.kind == "qwen2":
        return size + queries + 2 * keys
    if config.flag("attention_bias", default=config.kind == "gpt_oss"):
        size += queries + 2 * keys + hidden
    if config.kind in ("qwen3", "qwen3_moe", "gemma3_text", "gemma3"):
        size += 2 * config.head_dim  # norms of queries and keys
    return size


def _sum(
    config: Config, layer: int, experts: _Experts | None = None, moe_layers: int = 0, tied: bool = False
) -> Parameters:
    """The whole model: ``layer`` parameters in each layer besides the experts, tables, a last norm."""
    tables = _tables(config, tied)
    routed = 0 if experts is None else moe_layers * experts.count * experts.size
    idle = 0 if experts is None else moe_layers * (experts.count - experts.per_token) * experts.size
    return Parameters(config.layers * layer + routed + tables + config.hidden, tables, routed, idle)


def _llama(config: Config) -> Parameters:
    """Gated MLP, RMS norms; biases as ``attention_bias`` and ``mlp_bias`` say, and Qwen2's on q, k and v."""
    hidden, inner = config.hidden, config.count("intermediate_size")
    layer = _attention(config) + 3 * hidden * inner + 2 * hidden
    if config.flag("mlp_bias"):
        layer += 2 * inner + hidden
    return _sum(config, layer)


def _gemma(config: Config) -> Parameters:
    """Gemma 2 and 3: four norms per layer, tied embeddings."""
    layer = _attention(config) + 3 * config.hidden * config.count("intermediate_size") + 4 * config.hidden
    return _sum(config, layer, tied=True)


def _mixtral(config: Config) -> Parameters:
    """Mixtral: every layer's MLP is a choice of experts."""
    hidden, count = config.hidden, config.count("num_local_experts")
    experts = _Experts(count, config.count("num_experts_per_tok"), 3 * hidden * config.count("intermediate_size"))
    return _sum(config, _attention(config) + hidden * count + 2 * hidden, experts, config.layers)


def _qwen3_moe(config: Config) -> Parameters | None:
    """Qwen3 with experts in every layer; None for a file that mixes in dense ones."""
    if config.content.get("mlp_only_layers") or config.count("decoder_sparse_step", default=1) != 1:
        return None
    hidden, count = config.hidden, config.count("num_experts", "num_local_experts")
    experts = _Experts(count, config.count("num_experts_per_tok"), 3 * hidden * config.count("moe_intermediate_size"))
    return _sum(config, _attention(config) + hidden * count + 2 * hidden, experts, config.layers)


def _gpt_oss(config: Config) -> Parameters:
    """gpt-oss: biases everywhere, an attention sink per head, experts in every layer."""
    hidden, inner, count = config.hidden, config.count("intermediate_size"), config.count("num_local_experts")
    experts = _Experts(count, config.count("num_experts_per_tok"), 3 * hidden * inner + 2 * inner + hidden)
    layer = _attention(config) + config.heads + hidden * count + count + 2 * hidden
    return _sum(config, layer, experts, config.layers)


def _deepseek_v3(config: Config) -> Parameters:
    """DeepSeek-V3: latent attention, the first layers dense, then routed and shared experts."""
    hidden, inner = config.hidden, config.count("moe_intermediate_size")
    queries, latent = config.count("q_lora_rank"), config.count("kv_lora_rank")
    plain, rope, value = (config.count(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    attention = (
        hidden * (queries + latent + rope)
        + queries + latent
        + config.heads * (queries * (plain + rope) + latent * (plain + value) + value * hidden)
    )  # fmt: skip
    count, dense = config.count("n_routed_experts"), config.content.get("first_k_dense_replace") or 0
    sparse = config.layers - dense
    experts = _Experts(count, config.count("num_experts_per_tok"), 3 * hidden * inner)
    one = _sum(config, attention + 2 * hidden, experts, sparse)
    router = hidden * count
    shared = 3 * hidden * inner * config.count("n_shared_experts")
    rest = dense * 3 * hidden * config.count("intermediate_size") + sparse * (router + shared)
    return Parameters(one.total + rest, one.tables, one.experts, one.idle_experts)


def _classic(config: Config) -> Parameters:
    """OPT and GPT-2: two-matrix MLP, layer norms, biases everywhere, learned positions, tied embeddings.

    OPT keeps two position rows for padding; its 350M model embeds in fewer dimensions and has no last norm.
    """
    opt, hidden = config.kind == "opt", config.hidden
    inner = config.count("ffn_dim") if opt else config.count("n_inner", default=4 * hidden)
    layer = 4 * hidden * (hidden + 1) + 2 * hidden * inner + inner + hidden + 4 * hidden
    embed = config.count("word_embed_proj_dim", default=hidden)
    positions = config.count("max_position_embeddings") + 2 if opt else config.count("n_positions")
    projections = 2 * hidden * embed if embed != hidden else 0
    last_norm = 2 * hidden if config.flag("do_layer_norm_before", default=True) else 0
    table = config.count("vocab_size") * embed
    return Parameters(config.layers * layer + table + positions * hidden + projections + last_norm, table)


_COUNTS: dict[str, Callable[[Config], Parameters | None]] = {
    "llama": _llama,
    "mistral": _llama,
    "phi3": _llama,
    "qwen2": _llama,
    "qwen3": _llama,
    "gemma2": _gemma,
    "gemma3_text": _gemma,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
    "deepseek_v3": _deepseek_v3,
    "opt": _classic,
    "gpt2": _classic,
}


def count_parameters(config: Config) -> Parameters | None:
    """The parameters of the language model; None, with the reason in ``config.unknown``, where they cannot be told."""
    count = _COUNTS.get(config.kind)
    try:
        parameters = None if count is None else count(config)
    except MissingKeyError as missing:
        config.unknown = str(missing)
        return None
    if parameters is None:
        config.unknown = f"{config.source}: no formula for this shape of model_type {config.kind or None!r}"
        return None
    towers = [key for key in ("vision_config", "audio_config") if config.given(key)]
    if towers:
        config.note(f"parameters and weights of the language model only, without {' and '.join(towers)}")
    return parameters
