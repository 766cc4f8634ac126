"""Bytes of the weights: plain, and quantised in the ways that checkpoints say; the data type of their cache."""

from typing import Any

import pytest

from allocators.base import InputError
from simulator.server.config import Config
from simulator.server.models import read_model
from simulator.server.parameters import Parameters
from simulator.server.weights import cache_element, weight_bytes

# 128 x 128 x 8 of matrices, 1,000 of tables; half of the matrices are experts.
COUNTED = Parameters(total=132_072, tables=1_000, experts=65_536, idle_experts=0)


def config_of(scheme: Any) -> Config:
    return Config("m", {"quantization_config": scheme})


def compressed(**weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("scheme", "size"),
    [
        (None, 264_144),
        ({"quant_method": "fp8"}, 131_072 + 2_000),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 131_072 + 8 * 4 + 2_000),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 131_072 + 2_000),
        (compressed(num_bits=8, type="float", strategy="channel"), 131_072 + 2_000),
        (compressed(num_bits=8, strategy="tensor"), 131_072 + 2_000),
        (compressed(num_bits=4, strategy="group", group_size=128), 65_536 + 1_024 * 2 + 2_000),
        # 4 bits, and for each 128 a scale of 16 bits and a zero point of 4.
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 65_536 + 1_024 * 20 // 8 + 2_000),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 65_536 + 2_048 * 20 // 8 + 2_000),
        # Experts in 4 bits with a scale of 8 for each 32; all else in 16.
        ({"quant_method": "mxfp4"}, 32_768 + 2_048 + 2 * (132_072 - 65_536)),
    ],
)
def test_the_bytes_of_a_checkpoint(scheme: Any, size: int) -> None:
    config = config_of(scheme)
    assert weight_bytes(config, COUNTED, element=2) == size
    assert bool(config.notes) == (scheme is not None)


@pytest.mark.parametrize(
    "scheme",
    [
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": "gptq", "bits": 4},
        {"quant_method": "gptq", "bits": 4, "group_size": -1},
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        {"quant_method": "compressed-tensors"},
        compressed(num_bits=4, strategy="block"),
        compressed(num_bits="4", strategy="channel"),
        {"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}},
        {},
    ],
)
def test_a_scheme_that_is_not_understood_gives_no_bytes_and_says_why(scheme: dict[str, Any]) -> None:
    config = config_of(scheme)
    assert weight_bytes(config, COUNTED, element=2) is None
    method = scheme.get("quant_method")
    assert config.unknown == f"m: quantization_config with quant_method {method!r} is not understood"


def test_a_scheme_that_is_no_object() -> None:
    with pytest.raises(InputError, match=r"m: quantization_config\(='fp8'\) must be an object"):
        weight_bytes(config_of("fp8"), COUNTED, element=2)


@pytest.mark.parametrize(
    ("scheme", "element"),
    [
        (None, 2),
        ({"quant_method": "fp8"}, 2),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, 2),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 1),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, 1),
    ],
)
def test_the_data_type_of_the_cache_is_what_the_checkpoint_says(scheme: Any, element: int) -> None:
    assert cache_element(config_of(scheme), 2) == element


def test_a_scheme_of_the_cache_that_is_not_understood() -> None:
    with pytest.raises(InputError, match=r"m: quantization_config.* has a KV cache scheme that is not understood"):
        cache_element(config_of({"kv_cache_quant_algo": "NVFP4"}), 2)


def test_llama_70b_in_fp8_weighs_what_vllm_logs() -> None:
    content = {"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 80, "hidden_size": 8192}
    content |= {"intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256}
    model = read_model("m", content | {"quantization_config": {"quant_method": "fp8"}})
    assert model.weight_bytes == 72_655_052_800
    assert abs(72_655_052_800 / 2**30 / 67.7 - 1) < 0.001  # logged: 67.7 GiB
    assert model.bytes_per_slot == 327_680
