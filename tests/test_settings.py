"""Settings: what is allowed and what is told, and the way to JSON and back."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators import InputError
from simulator import Settings, StepCost
from simulator.server.settings import MOST_SECONDS, to_ps

WINDOW = r"must be START END, in seconds, with 0 <= START < END <= 1e\+10"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"max_model_len": 0}, r"max_model_len\(=0\) must be a whole number >= 1"),
        ({"max_batch": -1}, r"max_batch\(=-1\) must be a whole number >= 1"),
        ({"max_batch": True}, r"max_batch\(=True\) must be a whole number >= 1"),
        ({"max_batch_tokens": 2.0}, r"max_batch_tokens\(=2.0\) must be a whole number >= 1"),
        ({"max_batch_tokens": "2"}, r"max_batch_tokens\(='2'\) must be a whole number >= 1"),
        ({"swap_slots": -1}, r"swap_slots\(=-1\) must be a whole number >= 0"),
        ({"swap_slots": None}, r"swap_slots\(=None\) must be a whole number >= 0"),
        ({"too_long": "cut"}, r"too_long\(='cut'\) must be one of reject, truncate"),
        ({"too_long": "truncate"}, r"max_model_len\(=None\) must be given with too_long=truncate"),
        ({"preemption": "stop"}, r"preemption\(='stop'\) must be one of recompute, swap"),
        ({"window_s": (5, 1)}, rf"window\(=5 1\) {WINDOW}"),
        ({"window_s": (5, 5)}, rf"window\(=5 5\) {WINDOW}"),
        ({"window_s": (-1, 5)}, rf"window\(=-1 5\) {WINDOW}"),
        ({"window_s": (0, float("inf"))}, rf"window\(=0 inf\) {WINDOW}"),
        ({"window_s": (float("nan"), 5)}, rf"window\(=nan 5\) {WINDOW}"),
        ({"window_s": (0, "1e400")}, rf"window\(=0 1e400\) {WINDOW}"),
        ({"window_s": (0, MOST_SECONDS + 1)}, rf"window\(=0 10000000001\) {WINDOW}"),
        ({"window_s": (0, 1e-13)}, rf"window\(=0 1e-13\) {WINDOW}"),
        ({"window_s": (0, "soon")}, rf"window\(=0 soon\) {WINDOW}"),
        ({"window_s": (0, None)}, rf"window\(=0 None\) {WINDOW}"),
        ({"window_s": (0,)}, rf"window\(=0\) {WINDOW}"),
        ({"window_s": (0, 1, 2)}, rf"window\(=0 1 2\) {WINDOW}"),
        ({"window_s": "0 1"}, rf"window\(=0 1\) {WINDOW}"),
        ({"window_s": 5}, rf"window\(=5\) {WINDOW}"),
    ],
)
def test_what_is_not_allowed_is_told(values: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=f"^{told}$"):
        Settings(**values)


def test_defaults_limit_nothing() -> None:
    default = Settings()
    assert (default.max_model_len, default.max_batch, default.max_batch_tokens, default.window_ps) == (None,) * 4
    assert (default.too_long, default.preemption, default.swap_slots) == ("reject", "recompute", 0)
    assert default.cost == StepCost()


def test_whole_numbers_of_numpy_are_kept_as_ours() -> None:
    made = Settings(max_model_len=np.int64(9), swap_slots=np.uint8(3))  # type: ignore[arg-type]
    assert [type(value) for value in (made.max_model_len, made.swap_slots)] == [int, int]


@pytest.mark.parametrize("window", [(300, 900.5), ("300", "900.5"), [Decimal(300), np.float64(900.5)]])
def test_a_window_is_the_same_however_it_is_given(window: Any) -> None:
    assert Settings(window_s=window) == Settings(window_s=(300.0, 900.5))
    assert Settings(window_s=window).to_dict() == Settings(window_s=(300.0, 900.5)).to_dict()


@pytest.mark.parametrize(
    ("time_s", "time_ps"),
    [
        (0.1, 10**11),
        ("0.1", 10**11),
        (0.1 + 0.2, 300_000_000_000),
        (1e-12, 1),
        ("0.0000000000005", 0),  # halves to even
        ("0.0000000000015", 2),
        (Decimal("9999999999.123456789012"), 9_999_999_999_123_456_789_012),
    ],
)
def test_seconds_are_read_as_they_are_printed(time_s: Any, time_ps: int) -> None:
    assert to_ps(time_s) == time_ps


WHOLE = st.none() | st.integers(1, 10**9)


@given(
    st.builds(
        Settings,
        cost=st.builds(StepCost, base=st.integers(0, 10**15), kv_token=st.integers(0, 10**12)),
        max_model_len=st.integers(1, 10**9),
        max_batch=WHOLE,
        max_batch_tokens=WHOLE,
        too_long=st.sampled_from(["reject", "truncate"]),
        preemption=st.sampled_from(["recompute", "swap"]),
        swap_slots=st.integers(0, 10**9),
        window_s=st.none()
        | st.tuples(st.floats(0, 1e5), st.floats(1e-9, 1e9)).map(lambda edge: (edge[0], edge[0] + edge[1])),
    )
)
def test_settings_come_back_from_json(made: Settings) -> None:
    again = Settings.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False)))
    assert again == made
    assert again.window_ps == made.window_ps
    assert again != replace(made, swap_slots=made.swap_slots + 1)
