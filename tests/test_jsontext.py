"""JSON cut into rows: whatever the pieces it comes in, the same rows as Python's own decoder finds in the whole."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allocators import InputError
from simulator.files import Text
from simulator.jsontext import (
    Decimals,
    alternatives,
    json_row,
    json_rows,
    json_tables,
    literal,
    value_at,
    value_text,
)

R = '{"a": 1}'


def cut(text: str, size: int = 1 << 20) -> Text:
    raw = text.encode()
    pieces = [raw[place : place + size] for place in range(0, len(raw), size)] or [b""]
    return Text(pieces[0], iter(pieces))


def rows(text: str, size: int = 1 << 20) -> list[tuple[int, Any]]:
    return list(json_rows(cut(text, size)))


def complaint(text: str) -> str:
    with pytest.raises(InputError) as caught:
        rows(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"[{R},{R}]\n[{R},{R}]", [1, 1, 2, 2]),
        (f"[{R},{R}]\n[{R},{R}]\n", [1, 1, 2, 2]),
        (f"[]\n\n[\n{R}\n,\n{R}]", [4, 6]),
        (f"[{R}][{R}]", [1, 1]),
        (f"[{R}]\n\ufeff[{R}]", [1, 2]),
        (f"{R}\n\ufeff{R}\n", [1, 2]),
    ],
)
def test_lists_stand_one_after_the_other(text: str, lines: list[int]) -> None:
    assert rows(text) == [(line, {"a": 1}) for line in lines]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"[{R} {R}]", "line 1: neither a comma nor a bracket after a row of the list"),
        (f"[{R}\n{R}]", "line 2: neither a comma nor a bracket after a row of the list"),
        (f"[,{R}]", "row 1 (line 1) of the list is no whole JSON object"),
        (f"[{R},]", "row 2 (line 1) of the list is no whole JSON object"),
        (f"[{R},,{R}]", "row 2 (line 1) of the list is no whole JSON object"),
        (f"[{R}", "row 2 (line 1) of the list is no whole JSON object"),
        (f"[{R},\n", "row 2 (line 2) of the list is no whole JSON object"),
        ("[", "row 1 (line 1) of the list is no whole JSON object"),
        (f"[{R}]\n{R}", "line 2: more than blanks stands after the list, and it is no other list"),
        (f"[{R}],\n[{R}]", "line 1: more than blanks stands after the list"),
        (f"[{R}]]", "line 1: more than blanks stands after the list"),
        (f"[{R}]\n[{R}", "row 3 (line 2) of the list is no whole JSON object"),
        (f"[{R}, {'[' * 100_000}", "row 2 (line 1) of the list is no whole JSON object"),
        (f"[{R}, nul]", "row 2 (line 1) of the list is no whole JSON object"),
    ],
)
def test_what_is_no_list_is_an_error(text: str, message: str) -> None:
    assert complaint(text).startswith(message)


def test_what_is_no_object_in_a_list_is_a_row_that_cannot_be_used() -> None:
    assert rows(f'[{R}, null, 12, [1], "x", NaN, true, {R}]') == [(1, {"a": 1}), *[(1, None)] * 6, (1, {"a": 1})]


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "null"])
def test_what_is_not_finite_is_null(word: str) -> None:
    assert json_row(f'{{"a": {word}, "b": [{word}]}}') == {"a": None, "b": [None]}
    assert rows(f'[{{"a": {word}}}]') == [(1, {"a": None})]


def test_a_key_with_two_values_makes_an_object_useless_and_with_one_twice_it_does_not() -> None:
    assert json_row('{"a": 1, "a": 2}') is None
    assert json_row('{"a": 1, "a": 1}') == {"a": 1}
    assert rows('[{"a": 1, "b": 1, "a": 2}, {"a": 1}]') == [(1, None), (1, {"a": 1})]
    inside = json_row('{"a": {"b": 1, "b": 2}, "c": 3}')
    assert inside is not None
    assert inside["c"] == 3 and not isinstance(inside["a"], dict)


def test_numbers_keep_every_digit() -> None:
    assert json_row('{"a": 18446744073709551615, "b": 1.10, "c": 1e400}') == {"a": 2**64 - 1, "b": "1.10", "c": "1e400"}
    assert json_row('{"a": 1, "d": ' + "9" * 5000 + "}") == {"a": "1", "d": "9" * 5000}
    assert rows('[{"d": ' + "9" * 5000 + "}]") == [(1, {"d": "9" * 5000})]


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


def expected(text: str) -> list[Any] | None:
    """The elements of lists one after the other, by the decoder of Python; None where they are no such text."""

    def found() -> Iterator[Any]:
        place = 0
        while (place := len(text) - len(text[place:].lstrip(" \t\r\n\ufeff"))) < len(text):
            value, place = json.JSONDecoder().raw_decode(text, place)
            if not isinstance(value, list):
                raise ValueError
            yield from value

    try:
        return [one if isinstance(one, dict) else None for one in found()]
    except ValueError:
        return None


PIECES = st.sampled_from(
    [*"[]{},: \n", R, '{"b": "x]},[\\n\\"ü"}', '"t"', "null", "12", "-3", "true", "\ufeff", "[1, {}]", "{}", '{"c":']
)


@given(st.lists(PIECES).map("".join), st.integers(1, 9))
@example(f"[{R},{R}]\n[{R},{R}]", 3)
@example("[1", 2)
@example("[12]", 2)
def test_the_same_rows_as_the_decoder_finds_in_the_whole(text: str, size: int) -> None:
    text = "[" + text
    wanted = expected(text)
    try:
        found = [row for _, row in rows(text, size if text.isascii() else 1 << 20)]
    except InputError:
        assert wanted is None
    else:
        assert found == wanted


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.lists(VALUES, max_size=4), min_size=1, max_size=3), st.sampled_from([None, 1]), st.integers(1, 40))
def test_what_python_writes_comes_back_with_its_lines(lists: list[list[Any]], indent: int | None, size: int) -> None:
    text = "\n".join(json.dumps(one, indent=indent) for one in lists)
    found = rows(text, size)
    assert [row for _, row in found] == [one if isinstance(one, dict) else None for some in lists for one in some]
    assert [line for line, _ in found] == sorted(line for line, _ in found)
    lines = text.split("\n")
    assert all(lines[line - 1].strip() for line, _ in found)


@given(st.text())
def test_a_line_is_the_object_that_the_decoder_finds_or_none(line: str) -> None:
    try:
        wanted = json.loads(line.lstrip("\ufeff"))
    except ValueError:
        wanted = None
    found = json_row(line)
    assert (found is None) == (not isinstance(wanted, dict))
