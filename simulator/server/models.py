"""Models: how many bytes a token slot takes, and how many the weights.

Bytes per slot = 2 (a key and a value) x layers x kv_heads x head_dim x bytes per element
(OPT-13B in fp16: 2 x 40 x 40 x 128 x 2 = 819,200), or, with multi-head latent attention,
layers x latent_dim x bytes per element.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocators.base import InputError, whole
from simulator.server.attention import cached_layers, check_understood, latent_dim
from simulator.server.config import Config
from simulator.server.gpus import plain_name
from simulator.server.parameters import count_parameters
from simulator.server.presets import ALIASES, PRESETS, Preset
from simulator.server.weights import cache_element, weight_bytes


@dataclass(frozen=True)
class Model:
    """What of a transformer decides the size of its KV cache, its weights and the least time of a step."""

    name: str
    layers: int
    """Layers that keep something of every token."""
    kv_heads: int
    head_dim: int
    bytes_per_element: int = 2
    """Of the cache, and of weights that are not quantised: 2 for fp16 and bf16."""
    parameters: int | None = None
    """None where the architecture's count is not known."""
    weight_bytes: int | None = None
    """Unless given: parameters x bytes_per_element; None where the parameters are not known either."""
    active_parameters: int | None = None
    """Parameters that one token meets; fewer than all where tokens choose experts. Unless given, all of them."""
    latent_dim: int | None = None
    """Elements per token and layer that stand in place of keys and values (multi-head latent attention)."""
    heads: int | None = None
    """Attention heads; None: not known, and not asked for when GPUs divide them."""
    vocab_size: int | None = None
    max_positions: int | None = None
    """The longest context the model was made for, in tokens."""
    notes: tuple[str, ...] = ()
    """What is assumed, and what is counted otherwise than the model does it; a sentence each."""
    unknown: str = ""
    """Why parameters or weights are not known."""

    def __post_init__(self) -> None:
        """Raise InputError unless every number is whole and >= 1; fill in what follows from others."""
        for field in ("layers", "kv_heads", "head_dim", "bytes_per_element"):
            whole(f"{self.name}: {field}", getattr(self, field))
        for field in _OPTIONAL:
            if getattr(self, field) is not None:
                whole(f"{self.name}: {field}", getattr(self, field))
        if self.parameters is None:
            return
        if self.weight_bytes is None and not self.unknown:
            object.__setattr__(self, "weight_bytes", self.parameters * self.bytes_per_element)
        if self.active_parameters is None:
            object.__setattr__(self, "active_parameters", self.parameters)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of what one token leaves in all layers, on one GPU, in the model's own data type."""
        per_layer = self.latent_dim or 2 * self.kv_heads * self.head_dim
        return self.layers * per_layer * self.bytes_per_element


_OPTIONAL = (
    "parameters",
    "weight_bytes",
    "active_parameters",
    "latent_dim",
    "heads",
    "vocab_size",
    "max_positions",
)


def _model(name: str, config: Config, preset: Preset | None = None) -> Model:
    """The model that a configuration describes; a preset adds what the file does not say."""
    check_understood(config)
    layers, latent, element = cached_layers(config), latent_dim(config), config.bytes_per_element
    if not latent and config.heads % config.kv_heads:
        raise InputError(
            f"{config.source}: {config.heads} attention heads must be a multiple of the KV heads, {config.kv_heads}"
        )
    counted = count_parameters(config)
    total, active = (counted.total, counted.active) if counted else (None, None)
    weights = None
    if preset is not None and preset.weight_bytes is not None:
        weights = preset.weight_bytes
    elif preset is not None and preset.parameters is not None:
        weights = preset.parameters * element
    elif counted is not None:
        weights = weight_bytes(config, counted, element)
    if preset is not None:
        total, active = preset.parameters or total, preset.active_parameters or active
    return Model(
        name,
        layers,
        1 if latent else config.kv_heads,
        latent or config.head_dim,
        cache_element(config, element),
        total,
        weights,
        active,
        latent,
        config.heads,
        config.vocab,
        config.max_positions,
        (*config.notes, *(preset.notes if preset else ())),
        "" if total and weights else config.unknown,
    )


def _preset(name: str) -> Model:
    preset = PRESETS[name]
    return _model(name, Config(name, preset.config), preset)


MODELS = {name: _preset(name) for name in PRESETS}
"""The presets, by name."""


def _named(name: str) -> Model | None:
    """The preset of that name: in any case, with or without its maker (``meta-llama/``), ``-instruct`` and the like."""
    if "/" in name and Path(name).exists():
        return None
    plain = plain_name(name.rpartition("/")[2])
    short = re.sub(r"instruct|chat|hf$|base$|it$|pt$", "", plain).removeprefix("meta")
    found = {plain_name(preset): preset for preset in PRESETS} | ALIASES
    return next((MODELS[found[key]] for key in (plain, short) if key in found), None)


def load_model(name_or_path: str | Path) -> Model:
    """A preset (in any case: ``llama-3-8b``) or the model a Hugging Face ``config.json`` describes.

    Parameters are known for the architectures of :mod:`simulator.server.parameters`; any other model whose keys are
    understood gives its bytes per slot. A key that may mean another kind of cache is an error that names it; what
    is assumed stands in ``notes``. Raises InputError, naming file and key.
    """
    name = str(name_or_path)
    model = _named(name.strip())
    if model is not None:
        return model
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
    return read_model(name, content)


def read_model(name: str, content: Mapping[str, Any]) -> Model:
    """The model that the content of a ``config.json`` describes; errors begin with ``name``."""
    return _model(name, Config(name, content))
