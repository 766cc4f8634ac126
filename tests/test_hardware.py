"""What says how large the pool is and what an iteration costs: one rule for Python and the command line."""

from pathlib import Path
from typing import Any

import pytest

from allocators import InputError, Paged
from simulator import StepCost, Trace, advise, estimate_pool, fit, simulate, size, sweep
from simulator.cli.server_options import as_option
from simulator.server.gpus import load_gpu
from simulator.server.hardware import server_of
from simulator.server.models import load_model

TRACE = Trace.from_columns([0, 1, 2], [10, 20, 5], [5, 6, 1])
DEFAULT_OF = "OPT-13B on one A100-40GB, the costs behind the PagedAttention paper's Figure 2 (the default)"
GIVEN_BASE = "as given; prefill_token=100us, sequence=200us as for OPT-13B on one A100-40GB"
H100 = {"model": "llama-3-8b", "gpu": "h100"}


def test_slots_are_what_bytes_hold_whole() -> None:
    assert server_of({"capacity": 100}).slots == 100
    assert server_of({"memory": "12GiB", "model": "opt-13b"}).slots == 15_728
    assert server_of({"memory": "10.55GiB", "model": "llama-3-8b"}).slots == int(10.55 * 2**30) // 131_072
    assert server_of({"memory": 2**30, "model": load_model("llama-3-8b"), "kv_cache_dtype": "fp8"}).slots == 16_384
    # Four KV heads on eight GPUs: each is stored twice.
    assert server_of({"memory": "1GiB", "model": "qwen2.5-7b", "gpu": "h100"}).slots == 2**30 // 57_344


def test_a_model_and_a_gpu_say_how_large_the_pool_is() -> None:
    more: dict[str, Any] = {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.9, "kv_cache_dtype": "fp8"}
    made = server_of({**H100, **more, "max_batch": 64, "activation_memory": "2GiB"})
    alone = estimate_pool("llama-3-8b", "h100", **more, activation_memory="2GiB", max_num_seqs=64)
    assert (made.pool, made.slots) == (alone, alone.slots)
    assert made.lines() == [*alone.lines(), "cost of an iteration: Llama-3-8B on 2 H100, from peak rates"]
    assert made.settings.cost == StepCost.from_hardware("llama-3-8b", "h100", 2, "fp8")
    assert made.warnings == ()


def test_fewer_sequences_leave_more_for_the_pool() -> None:
    slots = [server_of({**H100, "max_num_seqs": count}).slots or 0 for count in (64, 1024)]
    assert slots[0] > slots[1]


@pytest.mark.parametrize(
    ("given", "of"),
    [
        ({"capacity": 9}, DEFAULT_OF),
        ({"capacity": 9, "cost": "base=1ms"}, GIVEN_BASE),
        ({"capacity": 9, "cost": StepCost(base="1ms").with_of("my server")}, "my server"),
        ({"capacity": 9, **H100}, "Llama-3-8B on one H100, from peak rates"),
        ({**H100, "cost": "base=1ms"}, GIVEN_BASE),
        ({"capacity": 9, "model": "llama-3-8b"}, "Llama-3-8B on one H100, from peak rates (assumed)"),
    ],
)
def test_what_a_cost_stands_for_is_said(given: dict[str, Any], of: str) -> None:
    made = server_of(given)
    assert made.settings.cost.of == of
    assert made.lines()[-1] == f"cost of an iteration: {of}"
    assert made.settings.to_dict()["cost_of"] == of


def test_an_assumed_gpu_is_said_and_that_the_model_does_not_fit_it() -> None:
    small = server_of({"capacity": 9, "model": "llama-3-8b"})
    assert small.settings.cost == StepCost.from_hardware("llama-3-8b", "h100")
    of = "Llama-3-8B on one H100, from peak rates (assumed)"
    assert small.warnings == (f"no GPU is named: the cost is that of {of}; gpu or cost says another",)
    (large,) = server_of({"memory": "1GiB", "model": "llama-3-70b"}, spelled=as_option).warnings
    assert ", although it does not fit there: a pool of 1.00 GiB and the weights of Llama-3-70B, 131.42 GiB" in large
    assert large.endswith("; --gpu or --cost says another")
    four = server_of({"memory": "1GiB", "model": "llama-3-70b", "tensor_parallel_size": 4})
    assert four.settings.cost.of == "Llama-3-70B on 4 H100, from peak rates (assumed)"
    assert "although" not in four.warnings[0]


def test_where_time_does_not_matter_no_gpu_is_assumed() -> None:
    assert server_of({"memory": "1GiB", "model": "llama-3-8b"}, timed=False).warnings == ()


def test_notes_on_a_model_are_passed_on() -> None:
    model = load_model("gemma-3-12b")
    assert model.notes
    said = server_of({"capacity": 9, "model": model, "gpu": "h100"}).warnings
    assert said == tuple(f"Gemma-3-12B: {note}" for note in model.notes)


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "how large is the pool? --capacity SLOTS, --memory SIZE with --model NAME, or --model NAME with --gpu NAME"),
    ({"model": "opt-13b"}, "how large is the pool?"),
    ({"capacity": 9, "memory": "1GiB", "model": "opt-13b"}, "--capacity and --memory both say how large the pool is"),
    ({"memory": "1GiB"}, "--memory needs --model NAME|config.json, which gives the bytes of a slot"),
    ({"gpu": "h100"}, "--gpu needs --model"),
    ({"capacity": 9, "tensor_parallel_size": 2}, "--tensor-parallel-size needs --model"),
    ({"capacity": 9, "kv_cache_dtype": "fp8"}, "--kv-cache-dtype needs --model"),
    ({"capacity": 9, "activation_memory": "1GiB"}, "--activation-memory needs --model"),
    ({"capacity": 9, "gpu_memory_utilization": 0.9}, "--gpu-memory-utilization needs --model"),
    ({**H100, "memory": "1GiB", "activation_memory": "1GiB"}, "here --memory says how large it is, and it makes no"),
    ({**H100, "capacity": 9, "gpu_memory_utilization": 0.9}, "here --capacity says how large it is, and it makes no"),
    ({"model": "opt-13b", "gpu_memory_utilization": 0.9}, "name the GPU with --gpu"),
    ({**H100, "tensor_parallel_size": 0}, "--tensor-parallel-size(=0) must be a whole number >= 1"),
    ({**H100, "tensor_parallel_size": 3}, "tensor_parallel_size"),
    ({**H100, "kv_cache_dtype": "fp9"}, "kv_cache_dtype(='fp9') must be one of auto, bf16, fp16, fp8"),
    ({**H100, "gpu_memory_utilization": 1.5}, "gpu_memory_utilization(=1.5)"),
    ({**H100, "activation_memory": "much"}, "activation_memory(='much')"),
    ({"model": "llama-3-70b", "gpu": "h100"}, "79.18 GiB x 0.92 - 131.42 GiB weights"),
    (
        {"memory": "300GiB", "model": "llama-3-70b", "gpu": "a100-40gb"},
        "a pool of 300.00 GiB and the weights of Llama-3-70B, 131.42 GiB, are 431.42 GiB; one A100-40GB has 39.39 GiB",
    ),
    ({**H100, "capacity": 10**6}, "a pool of 122.07 GiB and the weights of Llama-3-8B"),
    ({"capacity": 0}, "--capacity(=0) must be 1 to 1,000,000,000 token slots"),
    ({"capacity": 9, "max_batch": 3, "max_num_seqs": 3}, "max_num_seqs and max_batch are two names of one setting"),
    ({"capacity": 9, "model": 5}, "model(=5) must be a Model"),
    ({"capacity": 9, "model": "opt-13b", "gpu": 5}, "gpu(=5) must be a Gpu"),
    ({"capacity": 9, "models": "opt-13b"}, "unknown setting 'models' (did you mean model?); choose from cost, "),
]


@pytest.mark.parametrize(("given", "told"), BAD, ids=[told[:60] for _, told in BAD])
def test_what_does_not_go_together_is_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as raised:
        server_of(given, spelled=as_option)
    assert told in str(raised.value)


def test_a_model_of_unknown_size_needs_a_cost() -> None:
    unknown = load_model("llama-3-8b").__class__("mine", 2, 2, 64)
    with pytest.raises(InputError, match=r"^cost must be given, since the parameters of mine are not known$"):
        server_of({"capacity": 9, "model": unknown})
    assert server_of({"memory": "1MiB", "model": unknown, "cost": "base=1ms"}).slots == 1024


def test_vllm_names_are_the_same_settings() -> None:
    ours = simulate(TRACE, Paged(100), max_batch=1, max_batch_tokens=64)
    theirs = simulate(TRACE, Paged(100), max_num_seqs=1, max_num_batched_tokens=64)
    assert ours.settings == theirs.settings and ours.summary() == theirs.summary()


def test_an_allocator_or_its_spec_a_trace_or_its_text_are_the_same() -> None:
    text = "sharegpt:rate=8,duration=5"
    trace = Trace.workload("sharegpt", rate=8, duration_s=5)
    limits: dict[str, Any] = {"max_model_len": 2048, "max_batch": 32}
    spec, made = "paged:block_size=8", Paged(4000, 8)
    assert simulate(text, spec, capacity=4000, **limits).summary() == simulate(trace, made, **limits).summary()
    wanted: dict[str, Any] = {"max_refused": "5%", "checks": 1, **limits}
    assert size(text, spec, **wanted) == size(trace, Paged(9, 8), **wanted)
    assert fit("sharegpt:seed=1", spec, 4000, 1024) == fit("sharegpt:seed=1", made, max_model_len=1024)
    assert advise(text, [8, 16], seeds=1).table.equals(advise(trace, [8, 16]).table)
    table = sweep(text, [spec], capacity=4000, workers=1, **limits)
    assert table["used"].tolist() == sweep(text, Paged(9, 8), capacity=4000, workers=1, **limits)["used"].tolist()


def test_every_function_takes_the_pool_of_a_gpu() -> None:
    pool: dict[str, Any] = {"model": "llama-3-8b", "gpu": "rtx-4090", "max_model_len": 2048}
    slots = server_of(pool).slots
    assert simulate(TRACE, "paged", **pool).capacity == slots
    assert fit("sharegpt", "contiguous", **pool).capacity == slots
    assert advise(TRACE, [16], **pool).table["pool_blocks"].tolist() == [(slots or 0) // 16]
    assert sweep(TRACE, "paged", workers=1, **pool)["capacity"].tolist() == [slots]
    of = "Llama-3-8B on one RTX-4090, from peak rates"
    assert simulate(TRACE, "paged", **pool).settings.cost.of == of
    assert set(sweep(TRACE, "paged", workers=1, **pool)["cost_of"]) == {of}


def test_a_sweep_over_batches_has_the_pool_of_each() -> None:
    table = sweep(TRACE, "paged", model="llama-3-8b", gpu="h100", max_batch=[64, 1024], workers=1)
    each = [server_of({**H100, "max_batch": count}).slots for count in (64, 1024)]
    assert table["capacity"].tolist() == each


@pytest.mark.parametrize("wrong", [Paged, 5, None, lambda: Paged(9)])
def test_what_is_no_allocator_is_told_what_is(wrong: Any) -> None:
    for call in (
        lambda: simulate(TRACE, wrong, capacity=9),
        lambda: size(TRACE, wrong, max_refused=0),
        lambda: fit(TRACE, wrong, 9),
        lambda: sweep(TRACE, [wrong], capacity=9),
    ):
        with pytest.raises(InputError, match=r"allocator\(=.*\) must be an allocator, .*or its spec"):
            call()


def test_an_allocator_that_exists_has_its_size() -> None:
    with pytest.raises(InputError, match=r"capacity goes with an allocator's spec.* has 100 slots"):
        simulate(TRACE, Paged(100), capacity=100)
    with pytest.raises(InputError, match="here the allocator says how large it is"):
        simulate(TRACE, Paged(100), model="llama-3-8b", gpu="h100", activation_memory="1GiB")
    with pytest.raises(InputError, match="a pool of 122"):
        simulate(TRACE, Paged(10**6), model="llama-3-8b", gpu="h100")
    assert simulate(TRACE, Paged(100), model="llama-3-8b", gpu="h100").settings.cost.of.startswith("Llama-3-8B on one")


def test_size_says_when_the_answer_does_not_fit_the_card() -> None:
    trace = Trace.from_columns([0] * 40, [2000] * 40, [40] * 40)
    found = size(trace, "paged", max_refused=0, checks=0, model="llama-3-8b", gpu="rtx-4090", max_num_seqs=64)
    has = server_of({"model": "llama-3-8b", "gpu": "rtx-4090", "max_num_seqs": 64}).slots or 0
    assert found.capacity > has
    assert found.warnings == (
        f"a pool of {found.capacity:,} slots does not fit: one {load_gpu('rtx-4090').name} with Llama-3-8B has room "
        f"for {has:,}",
    )
    assert size(trace, "paged", max_refused=0, checks=0, model="llama-3-8b", gpu="h100").warnings == ()
    with pytest.raises(InputError, match="capacity is not asked for"):
        size(trace, "paged", max_refused=0, capacity=9)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "idle",
    [{"cost": StepCost()}, {"max_batch": 3}, {"model": "opt-13b"}, {"window_s": (0, 1)}, {"preemption": "swap"}],
    ids=str,
)
def test_what_only_a_replay_uses_needs_a_pool_to_advise(idle: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(idle))} is for a replay, which needs a pool"):
        advise(TRACE, **idle)


def test_what_helps_is_said_where_the_parameters_of_a_model_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"model_type": "qwen3_next", "full_attention_interval": 4, "hidden_size": 2048, "num_hidden_layers": 48, '
        '"num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "torch_dtype": "bfloat16"}'
    )
    given = {"model": str(path), "memory": "1GiB"}
    for more in ({}, {"gpu": "h100"}):
        with pytest.raises(InputError, match=r"^--cost must be given, since the parameters of .*qwen3"):
            server_of({**given, **more}, spelled=lambda name: f"--{name}")
    assert server_of({**given, "cost": "base=25ms"}).slots == 43_690


def test_requests_beyond_the_positions_of_a_model_are_told() -> None:
    told = "max_model_len is 8,193, and Llama-3-8B has 8,192 positions: vLLM refuses that unless told otherwise"
    assert told in server_of({**H100, "max_model_len": 8193}).warnings
    assert not any("positions" in one for one in server_of({**H100, "max_model_len": 8192}).warnings)


def test_a_pool_that_leaves_too_little_for_activations_is_told() -> None:
    given: dict[str, Any] = {"model": "llama-3-8b", "gpu": "h100"}
    most = estimate_pool("llama-3-8b", "h100", gpu_memory_utilization=1.0).slots  # 79.18 - 14.96 - 4.90 GiB
    assert most == 485_967
    told = "one H100 with Llama-3-8B and 4.90 GiB for them has room for 485,967 slots"
    for given_size in ({"capacity": most + 1}, {"memory": "64GiB"}):
        assert [one for one in server_of({**given, **given_size}).warnings if told in one]
    assert server_of({**given, "capacity": most}).warnings == ()
