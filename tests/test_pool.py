"""The pool of a server: the sum, its parts, and what does not fit."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.base import InputError
from simulator.server.gpus import GPUS, Gpu, load_gpu
from simulator.server.models import MODELS, Model
from simulator.server.pool import (
    DEFAULT_UTILIZATION,
    check_fits,
    default_max_num_seqs,
    estimate_pool,
)

GIB = 2**30
ROUND = Gpu("round", 10_000, 1, 1, 1)
TINY = Model("tiny", 1, 1, 1, 1, parameters=1_000, heads=4, vocab_size=10)


def test_the_sum_in_round_numbers() -> None:
    pool = estimate_pool(TINY, ROUND, gpu_memory_utilization=0.9, activation_memory=2_000)
    assert (pool.usable_bytes, pool.weight_bytes, pool.activation_bytes) == (9_000, 1_000, 2_000)
    assert (pool.pool_bytes, pool.slots, pool.activation_source) == (6_000, 3_000, "as given")


def test_gpus_divide_weights_and_heads_and_each_has_its_own_activations() -> None:
    model = replace(TINY, kv_heads=2, weight_bytes=1_001)
    pool = estimate_pool(model, ROUND, tensor_parallel_size=2, gpu_memory_utilization=0.9, activation_memory=2_000)
    assert (pool.weight_bytes, pool.pool_bytes) == (501, 2 * (9_000 - 501 - 2_000))
    assert pool.slots == pool.pool_bytes // 4
    repeated = estimate_pool(model, ROUND, tensor_parallel_size=4, gpu_memory_utilization=0.9, activation_memory=2_000)
    assert repeated.slots == 4 * (9_000 - 251 - 2_000) // 8


def test_llama_3_8b_on_an_h100() -> None:
    pool = estimate_pool("llama-3-8b", "h100")
    assert DEFAULT_UTILIZATION == 0.92
    assert pool.lines() == [
        "H100: 79.18 GiB x 0.92 = 72.85 GiB",
        "- 14.96 GiB weights of Llama-3-8B",
        "- 4.90 GiB for activations: 39 bytes x max_num_seqs 1,024, vLLM's default on this card x vocabulary 128,256 "
        "+ 0.13 GiB outside torch, as start-ups of vLLM 0.11 logged it",
        "= 52.99 GiB for the KV cache",
        "= 434,076 token slots of 131,072 bytes (auto)",
    ]


def test_llama_3_70b_on_four() -> None:
    pool = estimate_pool("llama-3-70b", "h100", tensor_parallel_size=4, kv_cache_dtype="fp8_e4m3", max_num_seqs=256)
    assert pool.activation_bytes == 39 * 256 * 128_256 + round(0.55 * GIB)
    assert pool.lines()[-2:] == [
        "= 153.00 GiB for the KV cache on 4 GPUs together",
        "= 1,002,672 token slots of 163,840 bytes (fp8)",
    ]
    assert pool.to_dict() == json.loads(json.dumps(pool.to_dict()))
    assert pool.to_dict()["bytes_per_slot"] == 163_840


@given(
    st.sampled_from(sorted(MODELS)),
    st.sampled_from(sorted(GPUS)),
    st.floats(0.5, 1),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["auto", "fp8"]),
)
def test_the_sum_adds_up_or_is_told(model: str, gpu: str, utilization: float, gpus: int, dtype: str) -> None:
    options: dict[str, Any] = {"tensor_parallel_size": gpus, "gpu_memory_utilization": utilization}
    try:
        pool = estimate_pool(model, gpu, kv_cache_dtype=dtype, **options)
    except InputError as told:
        assert "does not fit" in str(told) or "tensor_parallel_size" in str(told)
        assert "\n" not in str(told)
        return
    left = pool.usable_bytes - pool.weight_bytes - pool.activation_bytes
    assert pool.usable_bytes == math.ceil(load_gpu(gpu).memory_bytes * utilization)
    assert pool.pool_bytes == gpus * left > 0
    assert 0 <= pool.pool_bytes - pool.slots * pool.to_dict()["bytes_per_slot"] < pool.to_dict()["bytes_per_slot"]


def test_a_model_that_does_not_fit_is_told_with_the_sum() -> None:
    with pytest.raises(InputError) as told:
        estimate_pool("llama-3-70b", "a100-40gb")
    assert str(told.value) == (
        "Llama-3-70B does not fit one A100-40GB: 39.39 GiB x 0.92 - 131.42 GiB weights - 1.32 GiB activations "
        "= -96.50 GiB for the KV cache"
    )
    with pytest.raises(InputError) as told:
        estimate_pool("llama-3-70b", "a100-40gb", tensor_parallel_size=2, activation_memory="1GiB")
    assert str(told.value) == (
        "Llama-3-70B does not fit 2 x A100-40GB: 39.39 GiB x 0.92 - 65.71 GiB weights - 1.00 GiB activations "
        "= -30.47 GiB on each GPU for the KV cache"
    )


def test_a_pool_of_less_than_a_slot_does_not_fit() -> None:
    exact = replace(TINY, layers=100)  # 200 bytes a slot
    assert estimate_pool(exact, ROUND, gpu_memory_utilization=1, activation_memory=8_800).slots == 1
    with pytest.raises(InputError, match="tiny does not fit one round"):
        estimate_pool(exact, ROUND, gpu_memory_utilization=1, activation_memory=8_801)


@pytest.mark.parametrize(
    ("gpu", "sequences"),
    [("L4", 256), ("RTX-4090", 256), ("A100-40GB", 256), ("A100-80GB", 256), ("H100", 1024), ("B200", 1024)],
)
def test_how_many_sequences_vllm_runs_by_default(gpu: str, sequences: int) -> None:
    assert default_max_num_seqs(load_gpu(gpu)) == sequences
    assert (
        f"max_num_seqs {sequences:,}, vLLM's default on this card"
        in estimate_pool("llama-3.2-1b", gpu).activation_source
    )


def test_the_allowance_has_a_least_value() -> None:
    pool = estimate_pool("llama-3-8b", "h100", max_num_seqs=1)
    assert pool.activation_bytes == 2**28 + round(0.13 * GIB)
    assert pool.activation_source == (
        "at least 0.25 GiB, as start-ups with little to sample logged it + 0.13 GiB outside torch, "
        "as start-ups of vLLM 0.11 logged it"
    )


@pytest.mark.parametrize("utilization", [0, -0.1, 1.01, float("nan"), True, "0.9", None])
def test_a_utilisation_that_is_not_allowed(utilization: float) -> None:
    with pytest.raises(InputError, match=r"gpu_memory_utilization\(=.*\) must be above 0 and at most 1"):
        estimate_pool("llama-3-8b", "h100", gpu_memory_utilization=utilization)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"activation_memory": "4"}, "activation_memory(='4') must be 1B to 1024PiB"),
        ({"activation_memory": False}, "activation_memory(=False) must be a whole number >= 1"),
        ({"activation_memory": -1}, "activation_memory(=-1) must be a whole number >= 1"),
        ({"max_num_seqs": 0}, "max_num_seqs(=0) must be a whole number >= 1"),
        ({"kv_cache_dtype": "int4"}, "kv_cache_dtype(='int4') must be one of"),
        ({"tensor_parallel_size": 3}, "tensor_parallel_size(=3) must be one of"),
    ],
)
def test_an_option_that_is_not_allowed(options: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as told:
        estimate_pool("llama-3-8b", "h100", **options)
    assert str(told.value).startswith(line)


def test_what_is_given_replaces_the_allowance() -> None:
    assert estimate_pool("llama-3-8b", "h100", activation_memory=0).activation_bytes == 0
    assert estimate_pool("llama-3-8b", "h100", activation_memory="0").activation_bytes == 0
    assert estimate_pool("llama-3-8b", "h100", activation_memory="1.5GiB").activation_bytes == 3 * GIB // 2


def test_a_model_of_unknown_weights_or_vocabulary_is_told() -> None:
    bare = Model("m", 1, 1, 1, unknown="m: intermediate_size is missing")
    with pytest.raises(InputError, match=r"weights of model .m. are not known \(m: intermediate_size is miss"):
        estimate_pool(bare, "h100")
    light = Model("m", 1, 1, 1, weight_bytes=1)
    with pytest.raises(InputError, match="the vocabulary of model 'm' is not known; give activation_memory"):
        estimate_pool(light, "h100")
    assert estimate_pool(light, "h100", activation_memory=0).weight_bytes == 1


def test_a_pool_that_was_given_must_fit_beside_the_weights() -> None:
    check_fits(64 * GIB, "llama-3-8b", "h100")
    with pytest.raises(InputError) as told:
        check_fits(300 * GIB, "llama-3-70b", "a100-40gb")
    assert str(told.value) == (
        "a pool of 300.00 GiB and the weights of Llama-3-70B, 131.42 GiB, are 431.42 GiB; one A100-40GB has 39.39 GiB"
    )
    with pytest.raises(InputError, match=r"8 x A100-40GB have 315\.12 GiB"):
        check_fits(300 * GIB, "llama-3-70b", "a100-40gb", tensor_parallel_size=8)
    check_fits(300 * GIB, "llama-3-70b", "a100-80gb", tensor_parallel_size=8)


def test_a_pool_to_the_last_byte() -> None:
    check_fits(9_000, TINY, ROUND)
    with pytest.raises(InputError, match="one round has"):
        check_fits(9_001, TINY, ROUND)
    check_fits(10_000, Model("m", 1, 1, 1), ROUND)
    with pytest.raises(InputError, match="one round has"):
        check_fits(10_001, Model("m", 1, 1, 1), ROUND)
