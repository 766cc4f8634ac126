"""Which layers keep a cache: every way a file says it, with the exact count; what is not understood is told by key."""

from typing import Any

import pytest

from allocators.base import InputError
from simulator.server.cache import slots_for
from simulator.server.models import Model, read_model

PLAIN: dict[str, Any] = {
    "num_hidden_layers": 12,
    "hidden_size": 640,
    "num_attention_heads": 10,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "torch_dtype": "bfloat16",
}


def read(**change: Any) -> Model:
    return read_model("m", PLAIN | change)


def test_qwen3_next_with_48_layers_has_43690_slots_in_a_gib() -> None:
    model = read(
        model_type="qwen3_next",
        num_hidden_layers=48,
        full_attention_interval=4,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
    )
    assert slots_for(2**30, model) == 43_690
    note = "12 of 48 layers keep a KV cache; the state of the others, of one size per request, is not counted"
    assert model.notes[0] == note


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        pytest.param({"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 3}, 3, id="linear attention"),
        pytest.param({"layer_types": ["mamba", "attention"] * 6, "mamba_d_state": 128}, 6, id="mamba"),
        pytest.param({"layer_types": ["conv"] * 8 + ["full_attention"] * 4, "conv_L_cache": 3}, 4, id="conv"),
        pytest.param({"layers_block_type": ["mamba", "moe", "attention", "mlp"] * 3}, 3, id="blocks"),
        pytest.param({"num_hidden_layers": None, "layers_block_type": ["mamba", "attention"]}, 1, id="only blocks"),
        pytest.param({"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_conv": 4}, 1, id="jamba"),
        pytest.param({"attn_layer_period": 4, "attn_layer_offset": 3}, 3, id="period of 4"),
        pytest.param({"attn_layer_period": 5}, 3, id="period without offset"),
        pytest.param({"attn_layer_indices": [2, 5, 11], "mamba_n_heads": 8}, 3, id="bamba"),
        pytest.param({"full_attn_idxs": [0, 1, 2, 11], "conv_L_cache": 3}, 4, id="lfm2"),
        pytest.param({"attn_type_list": [0] * 7 + [1] + [0] * 3 + [1]}, 2, id="minimax"),
        pytest.param({"hybrid_override_pattern": "M-M-M-M*-M-E", "ssm_state_size": 128}, 1, id="nemotron-h"),
        pytest.param(
            {"block_types": ["recurrent", "recurrent", "attention"], "lru_width": 640}, 4, id="recurrentgemma"
        ),
        pytest.param({"block_types": ["recurrent"] * 4 + ["attention"]}, 2, id="repeated, the last cut short"),
        pytest.param({"full_attention_interval": 5}, 2, id="interval that does not divide"),
        pytest.param({"num_kv_shared_layers": 5}, 7, id="shared"),
        pytest.param({"layer_types": ["sliding_attention"] * 12, "num_kv_shared_layers": 4}, 8, id="gemma 3n"),
        pytest.param(
            {"layer_types": ["chunked_attention", "full_attention"] * 6}, 12, id="windows are counted in full"
        ),
        pytest.param({"model_type": "falcon_h1", "mamba_d_ssm": 1536}, 12, id="both in every layer"),
        pytest.param(
            {"full_attention_interval": 4, "layer_types": (["conv"] * 3 + ["attention"]) * 3}, 3, id="agreeing"
        ),
    ],
)
def test_layers_that_keep_a_cache(change: dict[str, Any], layers: int) -> None:
    model = read(**change)
    assert model.layers == layers
    assert model.bytes_per_slot == 2 * layers * 2 * 64 * 2
    assert bool(model.notes) == (layers < 12 or "window" in str(model.notes))


def test_latent_attention_keeps_one_vector_per_layer() -> None:
    model = read(num_hidden_layers=61, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128)
    assert (model.latent_dim, model.kv_heads, model.bytes_per_slot) == (576, 1, 61 * 576 * 2)


def test_a_latent_in_some_layers_only() -> None:
    model = read(kv_lora_rank=512, qk_rope_head_dim=64, layer_types=(["linear_attention"] * 2 + ["full_attention"]) * 4)
    assert model.bytes_per_slot == 4 * 576 * 2


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"sliding_window": 4096}, "sliding_window 4096: layers with it counted in full, as without a window"),
        ({"sliding_window": 4096, "use_sliding_window": False}, None),
        ({"sliding_window": 4096, "model_type": "qwen2"}, None),
        (
            {"sliding_window": 512, "layer_types": ["sliding_attention"] * 9 + ["full_attention"] * 3},
            "sliding_window 512: 9 of 12 layers counted in full, as without a window",
        ),
        ({"sliding_window": 512, "layer_types": ["full_attention"] * 12}, None),
        (
            {"attention_chunk_size": 8192, "layer_types": ["chunked_attention"] * 12},
            "attention_chunk_size 8192: 12 of 12 layers counted in full, as without a window",
        ),
    ],
)
def test_a_window_is_counted_in_full_and_noted(change: dict[str, Any], note: str | None) -> None:
    model = read(**change)
    assert model.layers == 12
    assert model.notes == (() if note is None else (note,))


UNDERSTOOD = "attention, chunked_attention, conv, full_attention, linear_attention, mamba, mamba2, mlp, moe, recurrent"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"layer_types": ["lsh"] * 12}, f"has 'lsh'; understood are {UNDERSTOOD}, sliding_attention"),
        ({"layer_types": ["attention"] * 11}, "must have one entry per layer: 12"),
        ({"layer_types": "attention"}, "layer_types(='attention') must be a list of names, one per layer"),
        ({"attn_type_list": [1] * 11 + [2]}, "must be of 0 (linear attention) and 1 (attention)"),
        ({"attn_type_list": [1] * 13}, "must have one entry per layer: 12"),
        ({"attn_type_list": 1}, "attn_type_list(=1) must be a list of whole numbers"),
        ({"attn_layer_indices": [3, 3]}, "attn_layer_indices(=[3, 3]) must be different layers below 12"),
        ({"attn_layer_indices": [12]}, "attn_layer_indices(=[12]) must be different layers below 12"),
        ({"attn_layer_indices": [-1]}, "attn_layer_indices(=-1) must be a whole number >= 0"),
        ({"attn_layer_period": 4, "attn_layer_offset": 4}, "attn_layer_offset(=4) must be a whole number from 0 to 3"),
        ({"attn_layer_period": 4, "attn_layer_offset": True}, "attn_layer_offset(=True) must be a whole number from"),
        ({"hybrid_override_pattern": "MX*-MMMMMMMM"}, "must be letters of * M - E, one per layer"),
        ({"hybrid_override_pattern": "M*"}, "must have one entry per layer: 12"),
        ({"num_kv_shared_layers": 12}, "num_kv_shared_layers(=12) must be below the number of layers, 12"),
        ({"layer_types": ["mamba"] * 12}, "no layer keeps a KV cache; its state does not grow with the tokens"),
        (
            {"full_attention_interval": 4, "attn_layer_indices": [1]},
            "how many layers keep a KV cache? attn_layer_indices says 1, full_attention_interval says 3",
        ),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing; it must be a whole number >= 1"),
    ],
)
def test_what_is_said_of_the_layers_must_make_sense(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError) as told:
        read(**change)
    line = str(told.value)
    assert line.startswith("m: ") and complaint in line and "\n" not in line


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mamba_d_state", 128),  # with nothing that says which layers
        ("linear_num_key_heads", 16),
        ("conv_L_cache", 3),
        ("ssm_state_size", 16),
        ("lru_width", 640),
        ("is_encoder_decoder", True),
        ("cross_attention_layers", [3, 8]),
        ("cross_layer_interval", 4),
        ("use_cla", True),
        ("index_topk", 2048),
        ("indexer_kv_heads", 1),
        ("compress_rates", {"a": 4}),
        ("layer_group_size", 6),
        ("per_layer_config", {"05": {"head_dim": 512}}),
        ("block_configs", [{"attention": {"no_op": True}}]),
        ("num_global_key_value_heads", 1),
        ("global_head_dim", 512),
        ("swa_num_attention_heads", 64),
        ("attention_k_eq_v", True),
        ("v_head_dim", 128),
        ("kv_source_layers", [0, 1]),
        ("attn_layers", ["lsh", "local"]),
        ("attention_types", [[["global", "local"], 6]]),
        ("attention_type", "block_sparse"),
        ("hybrid_layer_ids", [6]),
        ("linear_attn_config", {"kda_layers": [1]}),
        ("recurrent_kv_cache_mode", "per_loop"),
        ("loop_num_passes", 2),
        ("keep_window_size", 2048),
        ("compress_ratios", None),  # null says nothing
    ],
)
def test_a_key_that_may_mean_another_cache_is_refused_by_name(key: str, value: object) -> None:
    if value is None:
        assert read(**{key: value}).layers == 12
        return
    with pytest.raises(InputError) as told:
        read(**{key: value})
    assert str(told.value) == (
        f"m: {key}(={value!r}) is not understood: it may change what the KV cache holds; give a Model(...) instead"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"v_head_dim": 64},  # as long as the keys
        {"is_encoder_decoder": False},
        {"cross_attention_layers": []},
        {"use_cla": False, "cla_share_factor": 2},
        {"mtp_layer_types": ["full_attention"]},
        {"mlp_layer_types": ["dense", "sparse"]},
        {"qkv_bias": True, "use_cache": True, "rope_scaling": {"factor": 8}, "num_experts": 8},
    ],
)
def test_keys_that_do_not_change_the_cache_are_let_through(change: dict[str, Any]) -> None:
    assert read(**change).bytes_per_slot == 2 * 12 * 2 * 64 * 2


def test_a_model_type_whose_layers_are_not_what_its_keys_say() -> None:
    with pytest.raises(InputError, match=r"m: model_type\(='longcat_flash'\) is not understood: each layer has two"):
        read(model_type="longcat_flash")
