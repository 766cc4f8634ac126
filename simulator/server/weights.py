"""What the weights of a checkpoint take, quantised ones too.

A quantised checkpoint keeps the matrices of its layers in few bits, with scales beside them, and leaves embeddings
and output head (and what else it lists) in 16 bits: it weighs more than bits x parameters.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from simulator.server.config import Config
from simulator.server.parameters import Parameters

_MXFP4_BITS = Fraction(17, 4)  # 4 bits, and a scale of 8 for every 32


def _scheme(config: Config) -> tuple[str, Mapping[str, Any]] | None:
    """The key of the quantisation and what it says; None for a model that is not quantised."""
    key = config.given("quantization_config", "compression_config")
    if key is None:
        return None
    if not isinstance(config.content[key], dict):
        raise config.error(key, "must be an object")
    return key, config.content[key]


def weight_bytes(config: Config, parameters: Parameters, element: int) -> int | None:
    """Bytes of the weights; None, with the reason in ``config.unknown``, for a quantisation not understood here.

    ``element`` is the bytes of an element that is not quantised.
    """
    found = _scheme(config)
    if found is None:
        return parameters.total * element
    key, scheme = found
    method, quantised = scheme.get("quant_method"), parameters.total - parameters.tables
    bits = _bits(scheme)
    if method == "mxfp4" and parameters.experts:
        quantised, bits = parameters.experts, _MXFP4_BITS
    if bits is None:
        config.unknown = f"{config.source}: {key} with quant_method {method!r} is not understood"
        return None
    config.note(f"weights quantised by {method}; what else the checkpoint keeps in 16 bits is not counted")
    return (parameters.total - quantised) * element + int(quantised * bits / 8)


def cache_element(config: Config, element: int) -> int:
    """Bytes of an element of the cache in the data type that the checkpoint says; ``element``, where it says none."""
    found = _scheme(config)
    if found is None:
        return element
    key, scheme = found
    kv = scheme.get("kv_cache_scheme") or scheme.get("kv_cache_quant_algo")
    if kv is None:
        return element
    if (isinstance(kv, dict) and kv.get("num_bits") == 8) or kv == "FP8":
        config.note("the checkpoint says that its KV cache is in 8 bits")
        return 1
    raise config.error(key, "has a KV cache scheme that is not understood; understood are those with 8 bits")


def _bits(scheme: Mapping[str, Any]) -> Fraction | None:
    """Bits of a quantised parameter, its share of the scales included; None for a scheme that is not known."""
    method = scheme.get("quant_method")
    if method == "fp8" or (method == "modelopt" and scheme.get("quant_algo") == "FP8"):
        block = scheme.get("weight_block_size")
        scales = Fraction(32, block[0] * block[1]) if block is not None and _whole_numbers(block, 2) else Fraction(0)
        return 8 + scales
    if method in ("gptq", "awq") and _whole_numbers([scheme.get("bits"), scheme.get("group_size")], 2):
        bits = Fraction(scheme["bits"])
        return bits + (16 + bits) / Fraction(scheme["group_size"])  # a scale of 16 bits and a zero point for each group
    if method == "compressed-tensors":
        groups = scheme.get("config_groups")
        return _compressed_bits(list(groups.values())) if isinstance(groups, dict) else None
    return None


def _compressed_bits(groups: list[Any]) -> Fraction | None:
    """compressed-tensors: one group of layers, weights with ``num_bits`` and, by groups, scales of 16 bits."""
    weights = groups[0].get("weights") if len(groups) == 1 and isinstance(groups[0], dict) else None
    if not isinstance(weights, dict) or not _whole_numbers([weights.get("num_bits")], 1):
        return None
    bits = Fraction(weights["num_bits"])
    if weights.get("strategy") in ("tensor", "channel"):
        return bits
    if weights.get("strategy") == "group" and _whole_numbers([weights.get("group_size")], 1):
        return bits + Fraction(16, weights["group_size"])
    return None


def _whole_numbers(values: object, length: int) -> bool:
    """Whether these are ``length`` whole numbers >= 1."""
    return (
        isinstance(values, list)
        and len(values) == length
        and all(isinstance(value, int) and not isinstance(value, bool) and value >= 1 for value in values)
    )
