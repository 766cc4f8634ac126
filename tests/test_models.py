"""Models: bytes per slot, parameters and weights of the presets against the published counts, and their names."""

from pathlib import Path
from typing import Any

import pytest

from allocators.base import InputError
from simulator.server.models import MODELS, Model, load_model
from simulator.server.presets import PRESETS

# Number of weights (a build with transformers 5.24, without memory), and bytes per slot in 16 bits.
PUBLISHED = {
    "OPT-13B": (12_853_473_280, 819_200),
    "Llama-2-7B": (6_738_415_616, 524_288),
    "Llama-2-13B": (13_015_864_320, 819_200),
    "Llama-3-8B": (8_030_261_248, 131_072),
    "Llama-3.1-8B": (8_030_261_248, 131_072),
    "Llama-3-70B": (70_553_706_496, 327_680),
    "Llama-3.1-70B": (70_553_706_496, 327_680),
    "Llama-3.3-70B": (70_553_706_496, 327_680),
    "Llama-3.2-1B": (1_235_814_400, 32_768),
    "Llama-3.2-3B": (3_212_749_824, 114_688),
    "Llama-4-Scout": (108_225_039_360, 196_608),
    "Qwen2.5-7B": (7_615_616_512, 57_344),
    "Qwen2.5-32B": (32_763_876_352, 262_144),
    "Qwen2.5-72B": (72_706_203_648, 327_680),
    "Qwen3-0.6B": (596_049_920, 114_688),
    "Qwen3-8B": (8_190_735_360, 147_456),
    "Qwen3-32B": (32_762_123_264, 262_144),
    "Qwen3-30B-A3B": (30_532_122_624, 98_304),
    "Qwen3-235B-A22B": (235_093_634_560, 192_512),
    "Qwen3-Next-80B-A3B": (79_674_391_296, 24_576),
    "Mistral-7B": (7_241_732_096, 131_072),
    "Mistral-7B-v0.3": (7_248_023_552, 131_072),
    "Mixtral-8x7B": (46_702_792_704, 131_072),
    "Mistral-Small-24B": (23_572_403_200, 163_840),
    "Gemma-2-9B": (9_241_705_984, 344_064),
    "Gemma-3-12B": (12_187_325_040, 393_216),
    "Gemma-3-27B": (27_432_406_640, 507_904),
    "Phi-4": (14_659_507_200, 204_800),
    "gpt-oss-20b": (20_914_757_184, 49_152),
    "gpt-oss-120b": (116_829_156_672, 73_728),
    "DeepSeek-V3": (671_026_404_352, 70_272),
}

# Parameters that one token meets, where tokens choose experts.
ACTIVE = {
    "Llama-4-Scout": 17_172_894_720,
    "Qwen3-30B-A3B": 3_353_032_704,
    "Qwen3-235B-A22B": 22_190_763_520,
    "Qwen3-Next-80B-A3B": 3_874_929_408,
    "Mixtral-8x7B": 12_879_925_248,
    "gpt-oss-20b": 4_187_440_704,
    "gpt-oss-120b": 5_711_982_912,
    "DeepSeek-V3": 37_552_282_624,
}

OPTIONAL = ["parameters", "weight_bytes", "active_parameters", "latent_dim", "heads", "vocab_size", "max_positions"]


def test_every_preset_is_checked() -> None:
    assert set(PUBLISHED) == set(PRESETS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_published_size(name: str) -> None:
    model = load_model(f" {name.lower()} ")
    assert (model.parameters, model.bytes_per_slot) == PUBLISHED[name]
    assert model.name == name


@pytest.mark.parametrize("name", PUBLISHED)
def test_tokens_meet_all_parameters_but_those_of_other_experts(name: str) -> None:
    # The vision tower of Gemma 3 stands beside the language model.
    text = {"Gemma-3-12B": 11_766_034_176, "Gemma-3-27B": 27_009_346_304}
    assert MODELS[name].active_parameters == (ACTIVE | text).get(name, PUBLISHED[name][0])


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_weights_of_a_preset(name: str) -> None:
    logged = {"gpt-oss-20b": 14_463_302_369, "gpt-oss-120b": 69_127_498_629}  # 13.47 and 64.38 GiB
    fp8 = {"DeepSeek-V3": 673_043_134_757}
    assert MODELS[name].weight_bytes == (logged | fp8).get(name, 2 * PUBLISHED[name][0])


def test_what_is_counted_otherwise_than_the_model_does_it_is_noted() -> None:
    assert {name: model.notes[0] for name, model in MODELS.items() if model.notes} == {
        "Llama-4-Scout": "attention_chunk_size 8192: 36 of 48 layers counted in full, as without a window",
        "Qwen3-Next-80B-A3B": "12 of 48 layers keep a KV cache; the state of the others, of one size per request, "
        "is not counted",
        "Mistral-7B": "sliding_window 4096: 32 of 32 layers counted in full, as without a window",
        "Gemma-2-9B": "sliding_window 4096: 21 of 42 layers counted in full, as without a window",
        "Gemma-3-12B": "sliding_window 1024: 40 of 48 layers counted in full, as without a window",
        "Gemma-3-27B": "sliding_window 1024: 52 of 62 layers counted in full, as without a window",
        "gpt-oss-20b": "sliding_window 128: 12 of 24 layers counted in full, as without a window",
        "gpt-oss-120b": "sliding_window 128: 18 of 36 layers counted in full, as without a window",
        "DeepSeek-V3": "weights quantised by fp8; what else the checkpoint keeps in 16 bits is not counted",
    }


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("Meta-Llama-3-70B", "Llama-3-70B"),
        ("llama 3.2 1b", "Llama-3.2-1B"),
        ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("google/gemma-3-12b-it", "Gemma-3-12B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("mistral-7b-v0.1", "Mistral-7B"),
        ("facebook/opt-13b", "OPT-13B"),
        ("GPT-OSS-20B", "gpt-oss-20b"),
        ("deepseek-ai/DeepSeek-R1", "DeepSeek-V3"),
    ],
)
def test_a_preset_has_other_names(name: str, preset: str) -> None:
    assert load_model(name) is MODELS[preset]


@pytest.mark.parametrize("name", ["llama-3-8b-fp8", "llama-3", "qwen3-30b-a3b-2507", "mistral-7b-v0.2", "", "8b"])
def test_what_is_no_name_of_a_preset(name: str) -> None:
    with pytest.raises(InputError, match="model"):
        load_model(name)


def test_a_folder_called_like_a_preset_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "llama-3-8b").mkdir()
    with pytest.raises(InputError, match=r"llama-3-8b' is a directory; name the config\.json in it"):
        load_model(tmp_path / "llama-3-8b")


def test_weights_follow_from_parameters_unless_given() -> None:
    assert Model("m", 1, 1, 1).weight_bytes is None
    assert Model("m", 1, 1, 1, 4, 10).weight_bytes == 40
    quantised = Model("m", 1, 1, 1, 2, 10, weight_bytes=7, active_parameters=3)
    assert (quantised.weight_bytes, quantised.active_parameters) == (7, 3)


def test_a_latent_stands_in_place_of_keys_and_values() -> None:
    assert Model("m", 61, 1, 576, latent_dim=576).bytes_per_slot == 61 * 576 * 2


@pytest.mark.parametrize("field", ["layers", "kv_heads", "head_dim", "bytes_per_element", *OPTIONAL])
def test_a_model_of_ones_own_is_checked(field: str) -> None:
    sizes: dict[str, Any] = {"layers": 1, "kv_heads": 1, "head_dim": 1, field: 0}
    with pytest.raises(InputError, match=rf"m: {field}\(=0\) must be a whole number >= 1"):
        Model("m", **sizes)


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
