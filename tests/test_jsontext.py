"""Values of JSON: no digit is lost, what contradicts itself is no value, and names find what is meant."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.traces.text.jsontext import (
    Decimals,
    alternatives,
    json_row,
    json_tables,
    literal,
    value_at,
    value_text,
)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "null"])
def test_what_is_not_finite_is_null(word: str) -> None:
    assert json_row(f'{{"a": {word}, "b": [{word}]}}') == {"a": None, "b": [None]}


def test_a_key_with_two_values_makes_an_object_useless_and_with_one_twice_it_does_not() -> None:
    assert json_row('{"a": 1, "a": 2}') is None
    assert json_row('{"a": 1, "a": 1}') == {"a": 1}
    inside = json_row('{"a": {"b": 1, "b": 2}, "c": 3}')
    assert inside is not None
    assert inside["c"] == 3 and not isinstance(inside["a"], dict)


def test_numbers_keep_every_digit() -> None:
    assert json_row('{"a": 18446744073709551615, "b": 1.10, "c": 1e400}') == {"a": 2**64 - 1, "b": "1.10", "c": "1e400"}
    assert json_row('{"a": 1, "d": ' + "9" * 5000 + "}") == {"a": "1", "d": "9" * 5000}


def test_equal_whole_numbers_are_one_text() -> None:
    for written in ("7", "7.0", "7e0", "0.7E1", "70e-1"):
        assert value_text(json.loads(written, parse_float=Decimals)) == "7"
    assert value_text("7") == "7"
    for kept in ("7.5", "1e400", "1e-400", "1e9999999999999999999"):
        assert value_text(Decimals(kept)) == kept
    assert value_text("7.0") == "7.0"  # a text is no number


def test_names_with_points_are_paths_where_they_are_no_names() -> None:
    row = {"usage": {"in": 1, "deep": {"x": None}}, "usage.out": 2}
    assert [value_at(row, name) for name in ("usage.in", "usage.out", "usage.deep.x", "usage.in.x", "none.x", "x")] == [
        *(1, 2),
        *[None] * 4,
    ]
    (table,) = json_tables(iter([(1, row), (2, None)]), ["none|usage.in"])
    assert table.columns["none|usage.in"].texts() == ["1", ""]
    assert table.misfit.tolist() == [False, True]


def test_a_bar_in_a_name_is_a_bar() -> None:
    assert alternatives("a|b") == ["a", "b"]
    assert alternatives(literal("a|b")) == ["a|b"]


@given(st.text())
def test_a_line_is_the_object_that_the_decoder_finds_or_none(line: str) -> None:
    try:
        wanted = json.loads(line.lstrip("\ufeff"))
    except ValueError:
        wanted = None
    found = json_row(line)
    assert (found is None) == (not isinstance(wanted, dict))
