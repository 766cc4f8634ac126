"""config.json files of every kind: sizes, heads, data types; what is missing, wrong or assumed is told by its key."""

import json
from pathlib import Path
from typing import Any

import pytest

from allocators.base import InputError
from simulator.server.attention import HYBRID
from simulator.server.class_defaults import CLASS_DEFAULTS
from simulator.server.models import Model, load_model, read_model

LLAMA = {
    "model_type": "llama",
    "torch_dtype": "float16",
    "num_hidden_layers": 2,
    "hidden_size": 12,
    "intermediate_size": 5,
    "num_attention_heads": 3,
    "vocab_size": 7,
}


def config_file(folder: Path, **content: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(content))
    return file


# Files of real models, cut down to the keys that are read; parameters and bytes per slot as published.
@pytest.mark.parametrize(
    ("content", "parameters", "bytes_per_slot"),
    [
        pytest.param(
            {"model_type": "opt", "num_hidden_layers": 24, "hidden_size": 1024, "ffn_dim": 4096, "vocab_size": 50272}
            | {"num_attention_heads": 16, "max_position_embeddings": 2048, "torch_dtype": "float16"}
            | {"word_embed_proj_dim": 512, "do_layer_norm_before": False},
            331_196_416,
            98_304,
            id="opt-350m",
        ),
        pytest.param(
            {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024}
            | {"vocab_size": 50257, "n_inner": None},
            124_439_808,
            36_864,
            id="gpt2",
        ),
        pytest.param(
            {"model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896, "intermediate_size": 4864}
            | {"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936}
            | {"tie_word_embeddings": True, "torch_dtype": "bfloat16"},
            494_032_768,
            12_288,
            id="qwen2.5-0.5b",
        ),
        pytest.param(
            {"model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024, "intermediate_size": 3072}
            | {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}
            | {"tie_word_embeddings": True, "dtype": "bfloat16"},
            596_049_920,
            114_688,
            id="qwen3-0.6b",
        ),
        pytest.param(
            {"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71}
            | {"multi_query": True, "new_decoder_architecture": False, "num_kv_heads": 71},
            None,
            8_192,
            id="falcon-7b",
        ),
        pytest.param(
            {"model_type": "falcon", "num_hidden_layers": 60, "hidden_size": 8192, "num_attention_heads": 128}
            | {"new_decoder_architecture": True, "num_kv_heads": 8},
            None,
            122_880,
            id="falcon-40b",
        ),
        pytest.param(
            {"model_type": "falcon", "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 32}
            | {"multi_query": False},
            None,
            196_608,
            id="falcon-rw-1b",
        ),
        pytest.param(
            {"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
            | {"num_key_value_heads": 8, "torch_dtype": "bfloat16"},
            None,
            131_072,
            id="mixtral-8x7b",
        ),
    ],
)
def test_a_config_file_of_a_real_model(
    tmp_path: Path, content: dict[str, Any], parameters: int | None, bytes_per_slot: int
) -> None:
    model = load_model(config_file(tmp_path, **content))
    assert (model.parameters, model.bytes_per_slot) == (parameters, bytes_per_slot)


def test_heads_and_dimensions_fall_back(tmp_path: Path) -> None:
    assert load_model(config_file(tmp_path, **LLAMA)) == Model(
        str(tmp_path / "config.json"),
        layers=2,
        kv_heads=3,
        head_dim=4,
        parameters=2 * (4 * 144 + 180 + 24) + 180,
        heads=3,
        vocab_size=7,
    )
    narrow = read_model("m", LLAMA | {"num_key_value_heads": None, "head_dim": 8, "torch_dtype": "float32"})
    assert (narrow.kv_heads, narrow.head_dim, narrow.bytes_per_element) == (3, 8, 4)


def test_biases_are_counted(tmp_path: Path) -> None:
    plain = load_model(config_file(tmp_path, **LLAMA)).parameters
    biased = load_model(config_file(tmp_path, **LLAMA, attention_bias=True, mlp_bias=True)).parameters
    assert plain is not None and biased == plain + 2 * (4 * 12 + 2 * 5 + 12)


def test_the_language_part_of_a_multimodal_model_is_read(tmp_path: Path) -> None:
    text = {key: value for key, value in LLAMA.items() if key != "torch_dtype"} | {"torch_dtype": None}
    whole = {"model_type": "llava", "torch_dtype": "float8_e5m2", "text_config": text, "vision_config": {"depth": 9}}
    model = load_model(config_file(tmp_path, **whole))
    assert model.parameters is not None
    assert model.bytes_per_slot == 2 * 2 * 3 * 4 * 1
    assert model.notes == ("parameters and weights of the language model only, without vision_config",)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers is missing; it must be a whole number >= 1"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers(='32') must be a whole number >= 1"),
        ({"num_key_value_heads": 0}, "num_key_value_heads(=0) must be a whole number >= 1"),
        ({"head_dim": 64.0}, "head_dim(=64.0) must be a whole number >= 1"),
        ({"vocab_size": "7"}, "vocab_size(='7') must be a whole number >= 1"),
        (
            {"hidden_size": 13},
            "hidden_size(=13) must be a multiple of num_attention_heads(=3) where there is no head_dim",
        ),
        (
            {"torch_dtype": "int4"},
            "torch_dtype(='int4') must be one of float32, float16, bfloat16, float8_e4m3fn, float8_e5m2",
        ),
        (
            {"torch_dtype": ["float16"]},
            "torch_dtype(=['float16']) must be one of float32, float16, bfloat16, float8_e4m3fn, float8_e5m2",
        ),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings(='no') must be true or false"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing; it must be a whole number >= 1"),
        ({"num_key_value_heads": [1, 2]}, "num_key_value_heads(=[1, 2]) must be a whole number >= 1"),
        ({"multi_query": True, "num_kv_heads": 3}, "num_kv_heads(=3) must be 1 where multi_query is true"),
        ({"multi_query": "yes"}, "multi_query(='yes') must be true or false"),
        ({"multi_query_attention": True}, "multi_query_group_num is missing; it must be a whole number >= 1"),
        ({"attn_config": 3}, "attn_config(=3) must be an object"),
    ],
)
def test_a_wrong_key_is_told_with_its_file(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    file = config_file(tmp_path, **(LLAMA | change))
    with pytest.raises(InputError) as told:
        load_model(file)
    assert str(told.value) == f"{file}: {complaint}"


HEADS = {"num_hidden_layers": 10, "hidden_size": 640, "num_attention_heads": 10, "torch_dtype": "float16"}


@pytest.mark.parametrize(
    ("change", "kv_heads"),
    [
        ({"model_type": "gpt_bigcode"}, 1),
        ({"model_type": "gpt_bigcode", "multi_query": True}, 1),
        ({"model_type": "gpt_bigcode", "multi_query": False}, 10),
        ({"model_type": "RefinedWeb", "n_head_kv": 5}, 5),
        ({"model_type": "RefinedWeb"}, 10),
        ({"model_type": "RefinedWebModel", "multi_query": True}, 1),
        ({"model_type": "chatglm", "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 64}, 2),
        ({"model_type": "chatglm", "multi_query_attention": False, "multi_query_group_num": 2}, 10),
        ({"model_type": "own", "num_kv_heads": 5}, 5),
        ({"model_type": "own", "n_kv_heads": 2}, 2),
        ({"model_type": "own", "n_head_kv": 2}, 2),
        ({"model_type": "own", "num_query_groups": 2}, 2),
        ({"model_type": "dbrx", "attn_config": {"kv_n_heads": 2, "clip_qkv": 8}}, 2),
        ({"model_type": "mpt", "attn_config": {"attn_type": "multiquery_attention"}}, 1),
        ({"model_type": "mpt", "attn_config": {"attn_type": "multihead_attention"}}, 10),
        ({"model_type": "mpt", "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 5}}, 5),
        ({"model_type": "falcon", "multi_query": True}, 1),
        ({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 5}, 5),
        ({"model_type": "mistral", "num_key_value_heads": None}, 10),
    ],
)
def test_kv_heads_under_every_key(change: dict[str, Any], kv_heads: int) -> None:
    model = read_model("m", HEADS | change)
    assert (model.kv_heads, model.head_dim) == (kv_heads, 64)
    assert model.bytes_per_slot == 2 * 10 * kv_heads * 64 * 2
    assert model.notes == ()


def test_an_attention_type_that_is_not_known_is_told() -> None:
    with pytest.raises(InputError, match=r"m: attn_config: attn_type\(='linear'\) must be multihead_attention, multi"):
        read_model("m", HEADS | {"model_type": "mpt", "attn_config": {"attn_type": "linear"}})


def test_what_a_file_leaves_out_is_what_transformers_takes_and_noted() -> None:
    # Gemma 3 4B: its file has no heads, no head_dim and no vocabulary.
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    model = read_model("m", {"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": text})
    assert (model.kv_heads, model.head_dim, model.bytes_per_slot) == (4, 256, 2 * 34 * 4 * 256 * 2)
    assert "num_key_value_heads is not in the file: 4, as transformers takes it for gemma3_text" in model.notes
    assert "head_dim is not in the file: 256, as transformers takes it for gemma3_text" in model.notes
    assert model.parameters is None and model.unknown == "m: vocab_size is missing; it must be a whole number >= 1"


@pytest.mark.parametrize("kind", CLASS_DEFAULTS)
def test_a_default_of_a_model_type_gives_way_to_the_file(kind: str) -> None:
    heads = HEADS | {"num_hidden_layers": 20, "num_attention_heads": 80, "hidden_size": 80 * 64, "model_type": kind}
    if kind in HYBRID:
        heads |= {HYBRID[kind]: EVERY_LAYER[HYBRID[kind]]}
    given = {"num_key_value_heads": 2, "head_dim": 32}
    model = read_model("m", heads | given | {"vocab_size": None})
    assert (model.kv_heads, model.head_dim) == (2, 32)
    bare = read_model("m", heads)
    expected = CLASS_DEFAULTS[kind]
    assert (bare.kv_heads, bare.head_dim) == (expected.get("num_key_value_heads", 80), expected.get("head_dim", 64))
    assert bare.layers == 20 - expected.get("num_kv_shared_layers", 0)


EVERY_LAYER: dict[str, Any] = {
    "full_attention_interval": 1,
    "layer_types": ["full_attention"] * 20,
    "layers_block_type": ["attention"] * 20,
    "attn_layer_period": 1,
    "attn_layer_indices": [*range(20)],
    "attn_type_list": [1] * 20,
    "block_types": ["attention"],
    "hybrid_override_pattern": "*" * 20,
}
"""For each key that says which of 20 layers keep a cache: all of them."""


@pytest.mark.parametrize("kind", HYBRID)
def test_a_hybrid_model_that_does_not_say_which_layers_keep_a_cache_is_not_counted_in_full(kind: str) -> None:
    file = HEADS | {"model_type": kind, "num_hidden_layers": 20, "num_key_value_heads": 2, "head_dim": 256}
    key = HYBRID[kind]
    assert read_model("m", file | {key: EVERY_LAYER[key]}).layers == 20
    if key != "full_attention_interval":
        with pytest.raises(InputError, match=rf"^m: {key} is missing; it says which layers of .*{kind}.*"):
            read_model("m", file)
        return
    model = read_model("m", file)  # transformers has a default: every fourth layer
    assert (model.layers, model.bytes_per_slot) == (5, 5 * 2 * 2 * 256 * 2)
    assert f"{key} is not in the file: 4, as transformers takes it for {kind}" in model.notes


def test_the_issue_s_hybrid_without_its_key() -> None:
    file = {"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16}
    model = read_model("m", file | {"num_key_value_heads": 2, "head_dim": 256, "torch_dtype": "bfloat16"})
    assert (model.bytes_per_slot, 2**30 // model.bytes_per_slot) == (24_576, 43_690)


def test_how_many_kv_heads_is_never_guessed() -> None:
    with pytest.raises(InputError, match=r"^m: num_key_value_heads is missing, and how many KV heads .*own"):
        read_model("m", HEADS | {"model_type": "own"})
    assert (
        read_model("m", HEADS | {"model_type": "own", "num_key_value_heads": None}).kv_heads == 10
    )  # said: all of them
    step = {"model_type": "step3_text", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64}
    step |= {"num_attention_groups": 1, "head_dim": 256, "torch_dtype": "bfloat16"}
    assert read_model("m", step).bytes_per_slot == 62_464
    with pytest.raises(InputError, match=r"^m: 16 attention heads must be a multiple of the KV heads, 5$"):
        read_model("m", HEADS | {"model_type": "own", "num_attention_heads": 16, "num_key_value_heads": 5})
    with pytest.raises(InputError, match="must agree: num_hidden_layers says 10, n_layer says 20"):
        read_model("m", HEADS | {"model_type": "llama", "num_hidden_layers": 10, "n_layer": 20})
    with pytest.raises(InputError, match=r"attention_head_size\(=32\) is not understood"):
        read_model("m", HEADS | {"model_type": "llama", "attention_head_size": 32})


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("rwkv", "keeps no KV cache that grows"),
        ("rwkv7", "keeps no KV cache that grows"),
        ("t5", "is not understood: its decoder also keeps a cache of what the encoder has read"),
        ("phi4flash", "is not understood: its layers mix state spaces, windows and one shared cache"),
        ("mamba", "keeps no KV cache that grows"),
        ("mamba2", "keeps no KV cache that grows"),
        ("falcon_mamba", "keeps no KV cache that grows"),
        ("bert", "is an encoder"),
        ("xlm-roberta", "is an encoder"),
    ],
)
def test_a_model_without_a_growing_cache_is_refused_by_its_type(kind: str, says: str) -> None:
    with pytest.raises(InputError, match=rf"^m: model_type\(='{kind}'\) {says}"):
        read_model("m", {"model_type": kind, "hidden_size": 64, "num_hidden_layers": 2})


def test_a_data_type_that_is_missing_or_of_32_bits_is_noted() -> None:
    bare = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    assert read_model("m", bare).notes == ("no dtype in the file: bf16 or fp16 is assumed, 2 bytes per element",)
    wide = read_model("m", LLAMA | {"torch_dtype": "torch.float32"})
    assert (wide.bytes_per_element, len(wide.notes)) == (4, 1)


def test_a_missing_intermediate_size_leaves_the_bytes_per_slot() -> None:
    model = read_model("m", {key: value for key, value in LLAMA.items() if key != "intermediate_size"})
    assert (model.bytes_per_slot, model.parameters) == (2 * 2 * 3 * 4 * 2, None)
    assert model.unknown == "m: intermediate_size is missing; it must be a whole number >= 1"


def test_no_default_is_noted_where_another_key_says_it() -> None:
    model = read_model(
        "m",
        {"model_type": "gemma3_text", "torch_dtype": "bfloat16", "num_hidden_layers": 2, "n_head": 4}
        | {"hidden_size": 64, "num_kv_heads": 2, "kv_channels": 32},
    )
    assert (model.heads, model.kv_heads, model.head_dim, model.notes) == (4, 2, 32, ())
