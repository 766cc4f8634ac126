"""Parameters: counts of small models of each architecture, added up by hand; what cannot be counted says why."""

from typing import Any

import pytest

from simulator.server.config import Config
from simulator.server.parameters import Parameters, count_parameters

SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "intermediate_size": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 3,
    "vocab_size": 7,
}
TABLE = 7 * 8
QKVO = 2 * 8 * (12 + 6)
MLP = 3 * 8 * 5


def count(kind: str, **change: Any) -> Parameters | None:
    return count_parameters(Config("m", SIZES | {"model_type": kind} | change))


@pytest.mark.parametrize(
    ("kind", "change", "total"),
    [
        ("llama", {}, 2 * (QKVO + MLP + 16) + 2 * TABLE + 8),
        ("llama", {"tie_word_embeddings": True}, 2 * (QKVO + MLP + 16) + TABLE + 8),
        ("llama", {"attention_bias": True, "mlp_bias": True}, 2 * (QKVO + MLP + 16 + 12 + 12 + 8 + 18) + 2 * TABLE + 8),
        ("phi3", {}, 2 * (QKVO + MLP + 16) + 2 * TABLE + 8),
        ("qwen2", {}, 2 * (QKVO + MLP + 16 + 12 + 12) + 2 * TABLE + 8),
        ("qwen3", {}, 2 * (QKVO + MLP + 16 + 6) + 2 * TABLE + 8),
        ("gemma2", {}, 2 * (QKVO + MLP + 32) + TABLE + 8),
        ("gemma3_text", {}, 2 * (QKVO + MLP + 32 + 6) + TABLE + 8),
    ],
)
def test_a_dense_model(kind: str, change: dict[str, Any], total: int) -> None:
    counted = count(kind, **change)
    assert counted is not None
    assert (counted.total, counted.active, counted.experts) == (total, total, 0)


@pytest.mark.parametrize(
    ("kind", "change", "rest", "expert"),
    [
        ("mixtral", {}, 2 * (QKVO + 16 + 8 * 6) + 2 * TABLE + 8, MLP),
        ("qwen3_moe", {"moe_intermediate_size": 3}, 2 * (QKVO + 16 + 6 + 8 * 6) + 2 * TABLE + 8, 3 * 8 * 3),
        # Sinks, biases of q, k, v, o, of the router and of both matrices of an expert.
        ("gpt_oss", {}, 2 * (QKVO + 16 + 12 + 12 + 8 + 4 + 8 * 6 + 6) + 2 * TABLE + 8, MLP + 10 + 8),
    ],
)
def test_of_the_experts_a_token_meets_some(kind: str, change: dict[str, Any], rest: int, expert: int) -> None:
    experts = {"num_local_experts": 6, "num_experts": 6, "num_experts_per_tok": 2}
    assert count(kind, **(experts | change)) == Parameters(rest + 12 * expert, 2 * TABLE, 12 * expert, 8 * expert)


def test_latent_attention_and_dense_layers_first() -> None:
    counted = count(
        "deepseek_v3",
        q_lora_rank=5,
        kv_lora_rank=4,
        qk_nope_head_dim=3,
        qk_rope_head_dim=2,
        v_head_dim=3,
        moe_intermediate_size=2,
        n_routed_experts=6,
        n_shared_experts=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
    )
    attention = 8 * 5 + 5 + 5 * 4 * 5 + 8 * (4 + 2) + 4 + 4 * 4 * (3 + 3) + 4 * 3 * 8
    expert = 3 * 8 * 2
    rest = 2 * (attention + 16) + MLP + (8 * 6 + expert) + 2 * TABLE + 8
    assert counted == Parameters(rest + 6 * expert, 2 * TABLE, 6 * expert, 4 * expert)


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("own", {}, "m: no formula for this shape of model_type 'own'"),
        ("", {}, "m: no formula for this shape of model_type None"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "m: no formula for this shape of model_type 'qwen3_moe'"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "m: no formula for this shape of model_type 'qwen3_moe'"),
        ("llama", {"intermediate_size": None}, "m: intermediate_size is missing; it must be a whole number >= 1"),
        ("llama", {"vocab_size": None}, "m: vocab_size is missing; it must be a whole number >= 1"),
    ],
)
def test_what_cannot_be_counted_says_why(kind: str, change: dict[str, Any], reason: str) -> None:
    config = Config("m", SIZES | {"model_type": kind} | change)
    assert count_parameters(config) is None
    assert config.unknown == reason


def test_towers_are_left_out_and_noted() -> None:
    config = Config("m", SIZES | {"model_type": "llama", "vision_config": {"depth": 3}, "audio_config": {"depth": 4}})
    assert count_parameters(config) is not None
    assert config.notes == ["parameters and weights of the language model only, without vision_config and audio_config"]
