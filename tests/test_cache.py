"""Bytes of a slot on all GPUs together: divided heads, repeated heads, latents, data types; slots are the floor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.base import InputError
from simulator.server.cache import KV_CACHE_DTYPES, bytes_per_slot, kv_cache_dtype_of, slots_for
from simulator.server.cost import parse_bytes
from simulator.server.models import Model, load_model


def test_twelve_gib_of_opt_13b() -> None:
    assert slots_for(parse_bytes("12GiB"), load_model("OPT-13B")) == 15_728


def test_sizes_that_are_no_whole_bytes_are_floored() -> None:
    assert slots_for(parse_bytes("10.55GiB"), load_model("llama-3-8b")) == 86_425
    assert slots_for(parse_bytes("10.55GiB"), load_model("opt-13b")) == 13_828


@pytest.mark.parametrize("hundredths", range(1, 101))
def test_no_hundredth_of_a_gib_is_refused(hundredths: int) -> None:
    size = parse_bytes(f"{10 + hundredths / 100:.2f}GiB")
    assert slots_for(size, load_model("llama-3-8b")) == (1000 + hundredths) * 8192 // 100


@given(st.integers(1, 2**60), st.integers(1, 100), st.integers(1, 100), st.integers(1, 256))
def test_slots_fill_the_memory_but_for_less_than_one(memory_bytes: int, layers: int, heads: int, dim: int) -> None:
    model = Model("m", layers, heads, dim)
    if memory_bytes < model.bytes_per_slot:
        with pytest.raises(InputError, match="must hold a token slot of m"):
            slots_for(memory_bytes, model)
    else:
        assert 0 <= memory_bytes - slots_for(memory_bytes, model) * model.bytes_per_slot < model.bytes_per_slot


@pytest.mark.parametrize(
    ("gpus", "times"),
    [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)],
)
def test_four_kv_heads_are_divided_and_then_repeated(gpus: int, times: int) -> None:
    model = Model("m", layers=10, kv_heads=4, head_dim=64, heads=32)
    assert bytes_per_slot(model, gpus) == 10 * 2 * 4 * 64 * 2 * times
    # So the pool of 8 GPUs holds per token what that of 4 with half the memory does.
    assert slots_for(2**30 * gpus, model, gpus) == 2**30 * gpus // (10_240 * times)


@pytest.mark.parametrize("gpus", [1, 2, 8, 16])
def test_every_gpu_keeps_the_whole_latent(gpus: int) -> None:
    model = load_model("deepseek-v3")
    assert bytes_per_slot(model, gpus) == gpus * 70_272
    assert slots_for(gpus * 2**30, model, gpus) == slots_for(2**30, model)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("auto", 2), ("bf16", 2), ("fp16", 2), ("fp8", 1), ("bfloat16", 2), ("float16", 2), ("half", 2)]
    + [("fp8_e4m3", 1), ("fp8_e5m2", 1), (" FP8 ", 1)],
)
def test_the_data_type_of_the_cache(dtype: str, size: int) -> None:
    assert bytes_per_slot(load_model("llama-3-8b"), 1, dtype) == 65_536 * size
    assert kv_cache_dtype_of(dtype) in KV_CACHE_DTYPES
    assert bytes_per_slot(load_model("deepseek-v3"), 8, dtype) == 8 * 61 * 576 * size


def test_auto_is_the_model_s_own() -> None:
    wide = Model("m", 1, 1, 1, bytes_per_element=4)
    assert (bytes_per_slot(wide), bytes_per_slot(wide, kv_cache_dtype="bf16")) == (8, 4)


@pytest.mark.parametrize("dtype", ["int4", "", "nvfp4", "fp8_ds_mla", None])
def test_a_data_type_that_is_not_known(dtype: str) -> None:
    allowed = "auto, bf16, fp16, fp8, bfloat16, float16, half, fp8_e4m3, fp8_e5m2"
    with pytest.raises(InputError) as told:
        bytes_per_slot(load_model("llama-3-8b"), 1, dtype)
    assert str(told.value) == f"kv_cache_dtype(={dtype!r}) must be one of {allowed}"


@pytest.mark.parametrize(
    ("model", "gpus", "line"),
    [
        ("llama-3-8b", 3, "(=3) must be one of 1, 2, 4, 8, 16, 32: Llama-3-8B has 32 attention heads and 8 KV heads"),
        ("llama-3-8b", 64, "(=64) must be one of 1, 2, 4, 8, 16, 32: Llama-3-8B has 32 attention heads and 8 KV heads"),
        # 28 heads: 7 GPUs divide them, but not 4 KV heads.
        ("qwen2.5-7b", 7, "(=7) must be one of 1, 2, 4, 28: Qwen2.5-7B has 28 attention heads and 4 KV heads"),
        # 10 KV heads: 4 GPUs divide the 40 heads, but not those.
        ("phi-4", 4, "(=4) must be one of 1, 2, 5, 10, 20, 40: Phi-4 has 40 attention heads and 10 KV heads"),
        ("deepseek-v3", 3, "(=3) must be one of 1, 2, 4, 8, 16, 32, 64, 128: DeepSeek-V3 has 128 attention heads"),
    ],
)
def test_a_number_of_gpus_that_the_heads_do_not_divide_over(model: str, gpus: int, line: str) -> None:
    with pytest.raises(InputError) as told:
        bytes_per_slot(load_model(model), gpus)
    assert str(told.value) == f"tensor_parallel_size{line}"


@pytest.mark.parametrize("gpus", [0, -1, 1.5, True, "2"])
def test_a_number_of_gpus_that_is_none(gpus: int) -> None:
    with pytest.raises(InputError, match=r"tensor_parallel_size\(=.*\) must be a whole number >= 1"):
        bytes_per_slot(load_model("llama-3-8b"), gpus)


def test_without_a_number_of_attention_heads_only_kv_heads_are_asked() -> None:
    model = Model("m", 1, 3, 1)
    assert bytes_per_slot(model, 9) == 2 * 9 * 2
    with pytest.raises(InputError, match=r"=2\) must be one of 1, 3, 6, 9, 12, 15, .*, \.\.\.: m has 3 KV heads"):
        bytes_per_slot(model, 2)
