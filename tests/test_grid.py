"""One text, several values: braces, lists, ranges."""

from decimal import Decimal
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators import InputError
from simulator.sweeps.grid import MOST_VALUES, expand, positives, seeds_of, several, wholes


def test_braces_become_every_combination_the_last_changing_fastest() -> None:
    assert expand("paged") == ["paged"]
    assert expand("paged:block_size={1,8,16}") == ["paged:block_size=1", "paged:block_size=8", "paged:block_size=16"]
    assert expand("buddy:reserve={max, oracle},min_block={1:2}") == [
        "buddy:reserve=max,min_block=1",
        "buddy:reserve=max,min_block=2",
        "buddy:reserve=oracle,min_block=1",
        "buddy:reserve=oracle,min_block=2",
    ]
    assert expand("{paged,package.module.Mine}:block_size=4") == [
        "paged:block_size=4",
        "package.module.Mine:block_size=4",
    ]


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), max_size=4))
def test_as_many_specs_as_the_product_of_the_lists(lists: list[list[int]]) -> None:
    text = "x:" + ",".join(f"o{nth}={{{','.join(map(str, some))}}}" for nth, some in enumerate(lists))
    count = 1
    for some in lists:
        count *= len(some)
    assert len(expand(text)) == count


@given(st.integers(-(10**6), 10**6), st.integers(1, 500), st.integers(0, 300), st.integers(0, 4))
def test_ranges_are_exact_in_decimals_and_have_both_ends(start: int, step: int, count: int, places: int) -> None:
    unit = Decimal(1).scaleb(-places)
    first, wide = start * unit, step * unit
    values = [first + wide * nth for nth in range(count + 1)]
    text = f"{first:f}:{values[-1]:f}:{wide:f}"
    found = expand(f"{{{text}}}")
    assert [Decimal(value) for value in found] == values
    if first > 0:
        assert positives("rate", text) == [float(value) for value in values]


def test_numbers_and_sequences_stand_for_themselves() -> None:
    assert wholes("capacity", 8000) == [8000]
    assert wholes("capacity", (8000, 16000)) == wholes("capacity", "8000,16000") == [8000, 16000]
    assert wholes("capacity", "1,4:8:2,5") == [1, 4, 6, 8, 5]
    assert wholes("capacity", range(1, 3)) == [1, 2]
    assert positives("rate", "0.1:0.3:0.1") == [0.1, 0.2, 0.3]
    assert positives("rate", [1, 2.5]) == positives("rate", "1,2.5") == [1.0, 2.5]
    assert positives("rate", 3) == [3.0]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=9, unique=True))
def test_whatever_holds_several_numbers_does_as_well_as_a_list(numbers: list[int]) -> None:
    for read in (wholes, seeds_of, positives):
        assert read("x", np.array(numbers)) == read("x", iter(numbers)) == read("x", numbers) == numbers
        assert read("x", set(numbers)) == read("x", frozenset(numbers)) == sorted(numbers)
    assert {type(value) for value in several("x", np.array(numbers))} == {int}


def test_values_that_are_no_numbers() -> None:
    assert several("x", {None, 8, 16}) == [8, 16, None] and several("x", {"swap", "recompute"}) == ["recompute", "swap"]
    assert several("x", "ab") == ["ab"] and several("x", {"a": 1}) == [{"a": 1}] and several("x", np.array(3)) == [3]
    with pytest.raises(InputError, match="x has more than 100,000 values"):
        several("x", count())


def test_a_product_that_is_too_large_is_told_before_it_is_spelled_out() -> None:
    assert len(expand("x:a={1:400},b={1:250}")) == MOST_VALUES
    with pytest.raises(InputError, match="the grid has 100,250 runs; 100,000 is the most"):
        expand("x:a={1:401},b={1:250}")
    with pytest.raises(InputError, match="the grid has 9,900,000,999 runs"):
        expand("x:a={1:99999},b={0:0.99:0.00001}")


@pytest.mark.parametrize("spec", ["x:a={}", "x:a={ },b={1}"])
def test_braces_with_nothing_in_them_are_empty(spec: str) -> None:
    with pytest.raises(InputError, match="a list in braces is empty"):
        expand(spec)


def test_one_number_is_so_many_seeds_and_several_are_those() -> None:
    assert seeds_of("seeds", 3) == seeds_of("seeds", "3") == seeds_of("seeds", np.int64(3)) == [0, 1, 2]  # type: ignore[arg-type]
    assert seeds_of("seeds", "3,7") == seeds_of("seeds", [3, 7]) == [3, 7]
    assert seeds_of("seeds", "0:2") == [0, 1, 2]


@pytest.mark.parametrize("spec", ["paged:block_size={1,8", "paged:block_size=1}", "x:a={1,{2}}"])
def test_braces_that_do_not_match_are_told(spec: str) -> None:
    with pytest.raises(InputError, match="braces must come in pairs"):
        expand(spec)


@pytest.mark.parametrize(
    ("given_text", "message"),
    [
        ("", "has a part with nothing in it"),
        ("1,,2", "'1,,2' has a part with nothing in it"),
        ("5:1", "the range '5:1' is empty"),
        ("1:5:0", "the range '1:5:0' is empty"),
        ("1:5:-1", "the range '1:5:-1' is empty"),
        ("1.5", r"capacity\(=1.5\) must be a whole number, or a list of them"),
        ("abc", r"capacity\(=abc\) must be a whole number"),
        ("1:2:3:4", r"capacity\(=1:2:3:4\) must be a whole number"),
        ("1:e:2", "must be START:STOP"),
        ("0", "must be a whole number >= 1"),
        (f"1:{MOST_VALUES + 1}", "more than 100,000 values"),
        ("1e99:1e99", "at most 12 digits"),
    ],
)
def test_what_is_no_list_of_whole_numbers_is_told(given_text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wholes("capacity", given_text)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x", 0, True, float("nan"), [1, None]])
def test_what_is_no_number_above_0_is_told(value: object) -> None:
    with pytest.raises(InputError, match=r"rate\(=.*\) must be a finite number > 0"):
        positives("rate", value)  # type: ignore[arg-type]


def test_an_empty_grid_is_told() -> None:
    for read in (wholes, positives, seeds_of):
        with pytest.raises(InputError, match="seeds has no value: an empty grid has no runs"):
            read("seeds", [])
    with pytest.raises(InputError, match=r"seeds\(=0\) must be a whole number >= 1"):
        seeds_of("seeds", 0)
    with pytest.raises(InputError, match="at most 100,000"):
        seeds_of("seeds", 10**6)
