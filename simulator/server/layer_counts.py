"""How many layers of a model keep a cache, by the keys with which files say which ones do."""

from collections.abc import Callable, Iterable

from simulator.server.config import Config

_FULL = {"full_attention", "attention"}

WINDOWED = {"sliding_attention", "chunked_attention"}

_NO_CACHE = {"linear_attention", "mamba", "mamba2", "conv", "recurrent", "moe", "mlp"}

_NEMOTRON = {"*": "attention", "M": "mamba", "-": "mlp", "E": "moe"}

LISTS = ("layer_types", "layers_block_type")


def _kinds(config: Config, key: str, kinds: Iterable[str]) -> int:
    """How many of the kinds of layers keep a cache; an InputError for a kind that is not known."""
    count = 0
    for kind in kinds:
        if kind not in _FULL | WINDOWED | _NO_CACHE:
            raise config.error(key, f"has {kind!r}; understood are {', '.join(sorted(_FULL | WINDOWED | _NO_CACHE))}")
        count += kind not in _NO_CACHE
    return count


def _full_length(config: Config, key: str, length: int) -> None:
    if length != config.layers:
        raise config.error(key, f"must have one entry per layer: {config.layers}")


def _listed(key: str) -> Callable[[Config], int]:
    """A counter of a list with the kind of each layer."""

    def count(config: Config) -> int:
        kinds = config.names(key)
        _full_length(config, key, len(kinds))
        return _kinds(config, key, kinds)

    return count


def _repeated(config: Config) -> int:
    """RecurrentGemma: a few kinds, repeated until every layer has one."""
    kinds = config.names("block_types")
    return _kinds(config, "block_types", (kinds[layer % len(kinds)] for layer in range(config.layers)))


def _pattern(config: Config) -> int:
    """Nemotron-H: a letter per layer."""
    pattern = config.content["hybrid_override_pattern"]
    if not isinstance(pattern, str) or set(pattern) - _NEMOTRON.keys():
        raise config.error("hybrid_override_pattern", f"must be letters of {' '.join(_NEMOTRON)}, one per layer")
    _full_length(config, "hybrid_override_pattern", len(pattern))
    return pattern.count("*")


def _zeros_and_ones(config: Config) -> int:
    """MiniMax: 1 for attention, 0 for linear attention."""
    kinds = config.numbers("attn_type_list")
    _full_length(config, "attn_type_list", len(kinds))
    if set(kinds) - {0, 1}:
        raise config.error("attn_type_list", "must be of 0 (linear attention) and 1 (attention)")
    return sum(kinds)


def _indices(key: str) -> Callable[[Config], int]:
    """A counter of a list with the numbers of the layers that have attention."""

    def count(config: Config) -> int:
        layers = config.numbers(key)
        if len(set(layers)) < len(layers) or max(layers, default=0) >= config.layers:
            raise config.error(key, f"must be different layers below {config.layers}")
        return len(layers)

    return count


def _interval(config: Config) -> int:
    """Qwen3-Next: the last of every so many layers."""
    return config.layers // config.count("full_attention_interval")


def _period(config: Config) -> int:
    """Jamba: the layer at the offset in each period."""
    period, offset = config.count("attn_layer_period"), config.content.get("attn_layer_offset", 0)
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < period:
        raise config.error("attn_layer_offset", f"must be a whole number from 0 to {period - 1}")
    return len(range(offset, config.layers, period))


COUNTERS: dict[str, Callable[[Config], int]] = {
    **{key: _listed(key) for key in LISTS},
    "block_types": _repeated,
    "hybrid_override_pattern": _pattern,
    "attn_type_list": _zeros_and_ones,
    "attn_layer_indices": _indices("attn_layer_indices"),
    "full_attn_idxs": _indices("full_attn_idxs"),
    "full_attention_interval": _interval,
    "attn_layer_period": _period,
}
"""The keys that say which layers keep a cache, and how each is counted; where a file has several, they must agree."""
