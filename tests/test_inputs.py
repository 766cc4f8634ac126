"""What the public functions take for a trace, and one-line errors for whatever else they are given."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from allocators import InputError
from allocators.base import in_short
from simulator import advise, fit, simulate, size, sweep

FRAME = pd.DataFrame({"arrival_s": range(100), "prompt_tokens": 5, "output_tokens": 5})
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
        sweep("sharegpt:requests=9", "paged", capacity=99, rate=[FRAME])  # type: ignore[list-item]


def test_a_value_is_shown_in_one_line_of_limited_length() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert (in_short(90.0), in_short("a\nb"), in_short(Broken())) == ("90.0", r"'a\nb'", "a Broken")
    assert in_short(list(range(1000))) == f"{str(list(range(1000)))[:97]}..." and len(in_short("x" * 500)) == 100
