"""Models: bytes per slot and parameters against the published counts, and config.json files of every kind."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.base import InputError
from simulator.cost import parse_bytes
from simulator.server.cache import slots_for
from simulator.server.gpus import GPUS, Gpu, load_gpu
from simulator.server.models import Model, load_model
from simulator.server.presets import PRESETS

# Number of weights in the published checkpoints, and bytes per slot in 16 bits.
PUBLISHED = {
    "OPT-13B": (12_853_473_280, 819_200),
    "Llama-2-7B": (6_738_415_616, 524_288),
    "Llama-2-13B": (13_015_864_320, 819_200),
    "Llama-3-8B": (8_030_261_248, 131_072),
    "Llama-3-70B": (70_553_706_496, 327_680),
    "Qwen2.5-7B": (7_615_616_512, 57_344),
    "Mistral-7B": (7_241_732_096, 131_072),
}

LLAMA = {
    "model_type": "llama",
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


def test_every_preset_is_checked() -> None:
    assert set(PUBLISHED) == set(PRESETS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_published_size(name: str) -> None:
    model = load_model(f" {name.lower()} ")
    assert (model.parameters, model.bytes_per_slot) == PUBLISHED[name]
    assert model.name == name


def test_twelve_gib_of_opt_13b() -> None:
    assert slots_for(parse_bytes("12GiB"), load_model("OPT-13B")) == 15_728


@given(st.integers(1, 2**60), st.integers(1, 100), st.integers(1, 100), st.integers(1, 256))
def test_slots_fill_the_memory_but_for_less_than_one(memory_bytes: int, layers: int, heads: int, dim: int) -> None:
    model = Model("m", layers, heads, dim)
    if memory_bytes < model.bytes_per_slot:
        with pytest.raises(InputError, match="must hold a token slot of m"):
            slots_for(memory_bytes, model)
    else:
        assert 0 <= memory_bytes - slots_for(memory_bytes, model) * model.bytes_per_slot < model.bytes_per_slot


def test_gpu_presets_are_found_in_any_case() -> None:
    assert load_gpu("h200") is GPUS["H200"]
    assert GPUS["H100"] == Gpu("H100", 80 * 10**9, 3_350 * 10**9, 989_500 * 10**9, 64 * 10**9)
    with pytest.raises(InputError, match="unknown GPU 'V100'; choose from A100-40GB, A100-80GB, H100, H200"):
        load_gpu("V100")


@pytest.mark.parametrize("field", ["layers", "kv_heads", "head_dim", "bytes_per_element", "parameters"])
def test_a_model_of_ones_own_is_checked(field: str) -> None:
    sizes = {"layers": 1, "kv_heads": 1, "head_dim": 1, field: 0}
    with pytest.raises(InputError, match=rf"m: {field}\(=0\) must be a whole number >= 1"):
        Model("m", **sizes)


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
        str(tmp_path / "config.json"), layers=2, kv_heads=3, head_dim=4, parameters=2 * (4 * 144 + 180 + 24) + 180
    )
    narrow = load_model(config_file(tmp_path, **LLAMA, num_key_value_heads=None, head_dim=8, torch_dtype="float32"))
    assert (narrow.kv_heads, narrow.head_dim, narrow.bytes_per_element) == (3, 8, 4)


def test_biases_are_counted(tmp_path: Path) -> None:
    plain = load_model(config_file(tmp_path, **LLAMA)).parameters
    biased = load_model(config_file(tmp_path, **LLAMA, attention_bias=True, mlp_bias=True)).parameters
    assert plain is not None and biased == plain + 2 * (4 * 12 + 2 * 5 + 12)


def test_the_language_part_of_a_multimodal_model_is_read(tmp_path: Path) -> None:
    model = load_model(config_file(tmp_path, model_type="llava", torch_dtype="float8_e5m2", text_config=LLAMA))
    assert model.parameters is not None
    assert model.bytes_per_slot == 2 * 2 * 3 * 4 * 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers is missing; it must be a whole number >= 1"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers(='32') must be a whole number >= 1"),
        ({"num_key_value_heads": 0}, "num_key_value_heads(=0) must be a whole number >= 1"),
        ({"head_dim": 64.0}, "head_dim(=64.0) must be a whole number >= 1"),
        ({"vocab_size": None}, "vocab_size is missing; it must be a whole number >= 1"),
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
        ({"kv_lora_rank": 512}, "kv_lora_rank must be absent; latent attention keeps no keys and values"),
    ],
)
def test_a_wrong_key_is_told_with_its_file(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    file = config_file(tmp_path, **(LLAMA | change))
    with pytest.raises(InputError) as told:
        load_model(file)
    assert str(told.value) == f"{file}: {complaint}"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_file_that_is_not_json(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError) as told:
        load_model(file)
    assert str(told.value) == f"{file}: not JSON; a Hugging Face config.json is needed"


def test_a_file_that_is_no_object(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("[1]")
    with pytest.raises(InputError, match="must hold a JSON object"):
        load_model(file)


def test_a_directory_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a directory; name the config\.json in it"):
        load_model(tmp_path)
    with pytest.raises(InputError, match=r"^unknown model 'llama-9'; choose from OPT-13B, .* or name a Hugging Face"):
        load_model("llama-9")
    with pytest.raises(InputError, match=r"^unknown model 'x+' \(File name too long\); choose from"):
        load_model("x" * 5000)
