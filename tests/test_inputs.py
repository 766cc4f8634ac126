"""What the public functions take for a trace, and one-line errors for whatever else they are given."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import pytest

from allocators import Contiguous, InputError, Paged
from allocators.base import in_short
from simulator import Trace, advise, fit, simulate, size, sweep

FRAME: Any = pd.DataFrame({"arrival_s": range(100), "prompt_tokens": 5, "output_tokens": 5})
DRAWN = "sharegpt:requests=9,rate=1"


@pytest.mark.parametrize(
    "call",
    [
        lambda: simulate(FRAME, "paged", capacity=99),
        lambda: size(FRAME, "paged", max_refused="1%"),
        lambda: fit(FRAME, "paged", 99),
        lambda: advise(FRAME),
        lambda: sweep(FRAME, "paged", capacity=99),
    ],
)
def test_a_data_frame_is_told_how_it_becomes_a_trace(call: Callable[[], Any]) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value) == (
        "trace(=a DataFrame) must be a Trace, such as Trace.read(path), or the name of a file or a workload; "
        "Trace.from_frame makes one of a DataFrame"
    )


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *((name, {"capacity": 99, name: FRAME}) for name in ("max_batch", "too_long", "preemption", "cost")),
        ("window", {"capacity": 99, "window_s": FRAME}),
        ("memory", {"memory": FRAME, "model": "opt-13b"}),
        *((name, {"model": "opt-13b", "gpu": "h100", name: FRAME}) for name in ("model", "gpu", "kv_cache_dtype")),
        *(
            (name, {"model": "opt-13b", "gpu": "h100", name: FRAME})
            for name in ("gpu_memory_utilization", "activation_memory")
        ),
    ],
)
def test_an_object_in_place_of_a_setting_is_named_in_one_line(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        simulate(DRAWN, "paged", **given)
    assert str(error.value).startswith(f"{name}(=a DataFrame) must be ") and "\n" not in str(error.value)


def test_a_rate_that_is_a_table_is_named_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^rate\(=a DataFrame\) must be a finite number > 0$"):
        sweep("sharegpt:requests=9", "paged", capacity=99, rate=[FRAME])


def test_a_value_is_shown_in_one_line_of_limited_length() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert (in_short(90.0), in_short("a\nb"), in_short(Broken())) == ("90.0", r"'a\nb'", "a Broken")
    assert in_short(list(range(1000))) == f"{str(list(range(1000)))[:97]}..." and len(in_short("x" * 500)) == 100


LENGTHS = Trace.from_columns([0, 1, 2], [10, 20, 5], [5, 6, 1])


def test_an_allocator_brings_its_own_pool_to_fit() -> None:
    made = fit("sharegpt:seed=1", Paged(3000, 16), max_model_len=1024)
    assert made == fit("sharegpt:seed=1", "paged:block_size=16", 3000, 1024) and made.capacity == 3000


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"capacity": 14_927}, "capacity goes with an allocator's spec, .*the allocator given has 999,999,999 slots"),
        ({"model": "llama-2-7b", "gpu": "l4"}, "a pool of 488,281.25 GiB and the weights of Llama-2-7B, .* one L4 has"),
    ],
)
def test_a_pool_that_an_allocator_cannot_have_is_an_error_in_fit_as_in_simulate(given: Any, told: str) -> None:
    for ask in (partial(simulate, DRAWN), partial(fit, DRAWN)):
        with pytest.raises(InputError, match=told):
            ask(Paged(999_999_999), max_model_len=2048, **given)


def test_the_limit_of_an_allocator_is_that_of_fit() -> None:
    with pytest.raises(InputError, match=r"max_model_len\(=64\) must be the allocator's, which is 128"):
        fit(LENGTHS, Contiguous(1000, max_model_len=128), max_model_len=64)


def test_a_block_size_is_a_keyword_wherever_a_spec_is_named() -> None:
    run = simulate(LENGTHS, "paged", capacity=99, block_size=4)
    assert run.summary() == simulate(LENGTHS, "paged:block_size=4", capacity=99).summary()
    one, other = (size(LENGTHS, spec, max_refused="1%", **more) for spec, more in SAME)
    assert one == other
    pool: dict[str, Any] = {"capacity": 3000, "max_model_len": 1024}
    assert fit("sharegpt", "paged", block_size=4, **pool) == fit("sharegpt", "paged:block_size=4", **pool)
    table = sweep(LENGTHS, ["paged", "buddy:reserve=oracle"], capacity=99, block_size=4, workers=1)
    assert table["block_size"].dropna().tolist() == [4.0]


SAME: list[tuple[str, dict[str, Any]]] = [("paged", {"block_size": 4}), ("paged:block_size=4", {})]


@pytest.mark.parametrize(
    ("allocator", "block_size", "told"),
    [
        ("paged:block_size=8", 4, "block_size(=4) and paged:block_size=8 say two block sizes; give one of them"),
        ("buddy", 4, "block_size(=4) makes no difference: none of buddy is paged"),
        ("paged", 0, "block_size(=0) must be a whole number >= 1"),
        (
            Paged(99, 16),
            4,
            "block_size(=4) goes with an allocator's spec, such as 'paged'; the allocator given is paged",
        ),
    ],
)
def test_a_block_size_that_does_not_go_is_told(allocator: Any, block_size: int, told: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(told)}"):
        simulate(LENGTHS, allocator, block_size=block_size, capacity=None if isinstance(allocator, Paged) else 9)


def test_a_window_has_both_names_and_one_of_them_is_given() -> None:
    both: list[dict[str, Any]] = [{"window": (0, 1)}, {"window_s": (0, 1)}]
    runs = [simulate(LENGTHS, "paged", capacity=99, **given) for given in both]
    assert runs[0].summary() == runs[1].summary() and runs[0].settings.window_s == (0.0, 1.0)
    with pytest.raises(InputError, match="window and window_s are two names of one setting; give one of them"):
        simulate(LENGTHS, "paged", capacity=99, window=(0, 1), window_s=(0, 1))
