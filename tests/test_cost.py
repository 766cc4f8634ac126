"""StepCost: exact picoseconds in, exact durations out, and one line for what is wrong."""

import dataclasses
import pickle
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.base import InputError, in_short
from simulator.server.cost import (
    MOST_BASE_PS,
    MOST_ITEM_PS,
    StepCost,
    format_time_ps,
    parse_bytes,
    parse_time_ps,
)
from simulator.server.gpus import Gpu
from simulator.server.models import Model

UNITS_PS = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12}
KEYS = "base, prefill_token, sequence, kv_token, swapped_token"


@pytest.mark.parametrize(
    ("text", "time_ps"),
    [
        ("25ms", 25_000_000_000),
        ("100us", 100_000_000),
        ("100µs", 100_000_000),
        ("1.5ns", 1500),
        ("2e-3s", 2_000_000_000),
        (".5us", 500_000),
        (" 1. ps ", 1),
        ("1000s", MOST_BASE_PS),
        ("0", 0),
        ("0.000", 0),
        ("0s", 0),
        (7, 7),
    ],
)
def test_a_time_is_read_exactly(text: str | int, time_ps: int) -> None:
    assert parse_time_ps("base", text) == time_ps


@pytest.mark.parametrize(
    "value",
    ["", "ms", "1", "-1ms", "+1ms", "0.5ps", "nan", "inf", "infs", "1_0ms", "１ms", "1MS", "1min", "1e3", "1 m s"]
    + ["1000.000000000001s", "1e999s", "1e9999999999s", "9" * 6000 + "s", -1, MOST_BASE_PS + 1, True, 1.0, None],
)
def test_what_is_no_time_is_told_in_one_line(value: object) -> None:
    with pytest.raises(InputError) as told:
        parse_time_ps("base", value)  # type: ignore[arg-type]
    assert str(told.value) == (
        f"base(={in_short(value)}) must be whole picoseconds from 0 to 1000s: "
        "0, or a decimal and one of ps, ns, us, ms, s, such as 25ms or 1.5ns"
    )


@given(st.integers(0, MOST_BASE_PS))
def test_a_written_time_is_read_back(time_ps: int) -> None:
    text = format_time_ps(time_ps)
    assert parse_time_ps("base", text) == time_ps
    larger = {"ps": "ns", "ns": "us", "us": "ms", "ms": "s"}
    unit = text.lstrip("0123456789")
    assert unit not in larger or time_ps % UNITS_PS[larger[unit]]


@given(st.decimals(0, 1000, places=14), st.sampled_from(list(UNITS_PS)))
def test_a_decimal_is_exact_or_refused(number: Decimal, unit: str) -> None:
    exact = Fraction(number) * UNITS_PS[unit]
    if exact.denominator == 1:
        assert parse_time_ps("base", f"{number}{unit}") == exact
    else:
        with pytest.raises(InputError, match="whole picoseconds"):
            parse_time_ps("base", f"{number}{unit}")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("12GiB", 12 * 2**30),
        ("12 gib", 12 * 2**30),
        ("40GB", 40 * 10**9),
        ("1.5KiB", 1536),
        ("0.001KB", 1),
        ("1e3B", 1000),
        ("1PiB", 2**50),
        ("7MB", 7_000_000),
        (2**60, 2**60),
        ("1.0001KiB", 1024),
        ("10.55GiB", 11_327_976_243),
    ],
)
def test_bytes_are_read_exactly_and_only_whole_ones_count(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "12", "12G", "0B", "0.5B", "-1GB", "1e999TB", 2**60 + 1])
def test_what_is_no_size_is_told_in_one_line(text: str | int) -> None:
    with pytest.raises(InputError) as told:
        parse_bytes(text, "swap")
    assert str(told.value).startswith(f"swap(={text!r}) must be 1B to 1024PiB: ")
    assert "\n" not in str(told.value)


def test_a_size_of_another_type_is_refused() -> None:
    with pytest.raises(InputError, match=r"memory\(=1.5\) must be a whole number >= 1"):
        parse_bytes(1.5)  # type: ignore[arg-type]


def test_the_defaults_are_those_of_figure_2() -> None:
    cost = StepCost()
    assert cost == StepCost(base="25ms", prefill_token="0.1ms", sequence="0.2ms", kv_token="0", swapped_token="0")
    assert dataclasses.astuple(cost) == (25 * 10**9, 10**8, 2 * 10**8, 0, 0)
    assert str(cost) == "base=25ms,prefill_token=100us,sequence=200us,kv_token=0,swapped_token=0"


def test_a_cost_is_a_value() -> None:
    cost = StepCost(kv_token="3ns")
    assert pickle.loads(pickle.dumps(cost)) == cost
    assert dataclasses.replace(cost, base=10**12) == StepCost(base="1s", kv_token=3000)
    assert len({cost, StepCost(kv_token=3000)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        cost.base = 0  # type: ignore[misc]


def test_each_cost_names_itself_when_out_of_range() -> None:
    with pytest.raises(InputError, match=r"^cost prefill_token\(='1.1s'\) must be whole picoseconds from 0 to 1s:"):
        StepCost(prefill_token="1.1s")
    with pytest.raises(InputError, match=r"^cost base\(='1001s'\) must be whole picoseconds from 0 to 1000s:"):
        StepCost(base="1001s")


def test_an_iteration_at_the_bounds_stays_below_two_to_the_62() -> None:
    million = 10**6
    most = StepCost(MOST_BASE_PS, MOST_ITEM_PS, MOST_ITEM_PS, MOST_ITEM_PS, MOST_ITEM_PS)
    assert most.duration_ps(million, million, million) < 2**62
    assert most.duration_ps(0, million, million, million) < 2**62


@given(st.tuples(*[st.integers(0, MOST_ITEM_PS)] * 5))
def test_the_text_of_a_cost_is_read_back(coefficients: tuple[int, int, int, int, int]) -> None:
    cost = StepCost(*coefficients)
    assert StepCost.parse(cost.to_text()) == cost


def test_a_parsed_cost_keeps_the_defaults_of_what_is_left_out() -> None:
    assert StepCost.parse(" base = 1ms , kv_token=1ns") == StepCost(base="1ms", kv_token="1ns")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("base", f"cost 'base' must be KEY=TIME, such as base=25ms, with a key of {KEYS}"),
        ("", f"cost '' must be KEY=TIME, such as base=25ms, with a key of {KEYS}"),
        ("base=1ms,", f"cost '' must be KEY=TIME, such as base=25ms, with a key of {KEYS}"),
        ("bas=1ms", f"unknown cost 'bas'; choose from {KEYS}"),
        ("base=1ms,base=2ms", "cost 'base' is given twice; once is allowed"),
    ],
)
def test_a_cost_that_cannot_be_read_is_told_in_one_line(text: str, line: str) -> None:
    with pytest.raises(InputError) as told:
        StepCost.parse(text)
    assert str(told.value) == line


def test_a_wrong_value_in_a_text_names_its_key() -> None:
    with pytest.raises(InputError, match=r"^cost sequence\(='1=2ms'\)"):
        StepCost.parse("sequence=1=2ms")


def test_a_duration_is_the_sum_of_its_parts() -> None:
    cost = StepCost(base=1_000_000, prefill_token=10_000, sequence=1000, kv_token=10, swapped_token=1)
    assert cost.duration_ps(2, 3, 4) == 1_023_040
    assert cost.duration_ps(prefill_tokens=0, sequences=3, kv_tokens=4, swapped_tokens=5) == 1_003_045


def test_the_cost_of_hardware_is_the_formula_in_round_numbers() -> None:
    model = Model("tiny", layers=1, kv_heads=1, head_dim=5, bytes_per_element=2, parameters=1000)
    gpu = Gpu("slow", 10**9, bandwidth_bytes_per_s=10**6, flops_per_s=10**9, host_link_bytes_per_s=10**5)
    assert StepCost.from_hardware(model, gpu) == StepCost(
        base="2ms",  # 2000 bytes at 1 MB/s
        prefill_token="2us",  # 2000 operations at 1 GFLOP/s
        sequence="2us",
        kv_token="20us",  # 20 bytes a slot at 1 MB/s
        swapped_token="200us",  # and at 100 kB/s
    )


def test_the_cost_of_hardware_is_rounded_halves_to_even() -> None:
    model = Model("one", layers=1, kv_heads=1, head_dim=1, bytes_per_element=1, parameters=1)
    assert StepCost.from_hardware(model, Gpu("g", 1, 2 * 10**12, 10**12, 3 * 10**12)) == StepCost(0, 2, 2, 1, 1)


def test_gpus_divide_weights_operations_and_cache() -> None:
    model = Model("tiny", 1, kv_heads=2, head_dim=5, parameters=1000, heads=8)
    gpu = Gpu("slow", 10**9, bandwidth_bytes_per_s=10**6, flops_per_s=10**9, host_link_bytes_per_s=10**5)
    two = StepCost.from_hardware(model, gpu, tensor_parallel_size=2)
    assert two == StepCost(base="1ms", prefill_token="1us", sequence="1us", kv_token="20us", swapped_token="200us")
    # On 8 GPUs each of the 2 heads is stored four times: every GPU still reads one.
    eight = StepCost.from_hardware(model, gpu, tensor_parallel_size=8)
    assert eight == StepCost(
        base="250us", prefill_token="250ns", sequence="250ns", kv_token="20us", swapped_token="200us"
    )
    half = StepCost.from_hardware(model, gpu, tensor_parallel_size=2, kv_cache_dtype="fp8")
    assert half == dataclasses.replace(two, kv_token=10**7, swapped_token=10**8)


def test_operations_are_those_of_the_experts_that_a_token_meets_and_all_weights_are_read() -> None:
    cost = StepCost.from_hardware("mixtral-8x7b", "h100")
    assert cost.base == round(2 * 46_702_792_704 * 10**12 / 3_350_000_000_000)
    assert cost.sequence == cost.prefill_token == round(2 * 12_879_925_248 * 10**12 / 989_500_000_000_000)


def test_a_cost_says_what_it_stands_for() -> None:
    assert (
        StepCost().of == "OPT-13B on one A100-40GB, the costs behind the PagedAttention paper's Figure 2 (the default)"
    )
    assert StepCost("25ms", "100us", "200us").of == StepCost().of
    assert StepCost(base="1ms").of == "as given"
    # What a text leaves out keeps a default that is another model's: it says so, but for what is 0.
    left = "prefill_token=100us, sequence=200us as for OPT-13B on one A100-40GB"
    assert StepCost.parse("base=25ms").of == f"as given; {left}"
    assert StepCost.parse("base=1s,prefill_token=0,sequence=0").of == "as given"
    assert StepCost.from_hardware("llama-3-8b", "h100-sxm").of == "Llama-3-8B on one H100, from peak rates"
    assert StepCost.from_hardware("llama-3-70b", "h100", 4).of == "Llama-3-70B on 4 H100, from peak rates"


def test_what_a_cost_stands_for_is_no_cost() -> None:
    cost = StepCost(base="1ms")
    named = cost.with_of("mine")
    assert (named, hash(named), str(named)) == (cost, hash(cost), str(cost))
    assert (cost.of, named.of, pickle.loads(pickle.dumps(named)).of) == ("as given", "mine", "mine")
    assert [field.name for field in dataclasses.fields(named)] == KEYS.split(", ")
    # Another cost stands for something else.
    assert dataclasses.replace(named, base=2 * 10**9).of == "as given"


@pytest.mark.parametrize("gpu", ["a100-40gb", "A100-80GB", "H100", "h200"])
def test_hardware_bounds_figure_2_from_below(gpu: str) -> None:
    measured, bound = StepCost(), StepCost.from_hardware("opt-13b", gpu)
    assert 0 < bound.base < measured.base
    assert 0 < bound.prefill_token == bound.sequence < measured.prefill_token
    assert 0 < bound.kv_token < bound.swapped_token


def test_hardware_that_cannot_be_priced() -> None:
    with pytest.raises(
        InputError,
        match="unknown GPU 'B9'; choose from L4, A10G, RTX-4090, L40S, A100-40GB, A100-80GB, H100, H100-PCIe",
    ):
        StepCost.from_hardware("OPT-13B", "B9")
    with pytest.raises(
        InputError, match=r"^the number of parameters of model 'm' is not known \(no intermediate_size\); give"
    ):
        StepCost.from_hardware(Model("m", 1, 1, 1, unknown="no intermediate_size"), "H100")
    with pytest.raises(InputError, match=r"^the bytes of the weights of model 'm' are not known; give Model"):
        StepCost.from_hardware(Model("m", 1, 1, 1, active_parameters=1), "H100")
    with pytest.raises(InputError, match="the number of parameters of model 'm' is not known; give Model"):
        StepCost.from_hardware(Model("m", 1, 1, 1), "H100")
