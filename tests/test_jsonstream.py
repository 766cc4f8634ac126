"""JSON cut into rows: whatever the pieces it comes in, the same rows, and never all of it in memory."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allocators import InputError
from simulator.traces.text.jsonstream import holds_objects, json_rows, object_rows
from simulator.traces.text.jsontext import Decimals
from simulator.traces.text.opening import Text


def cut(content: bytes, size: int) -> Iterator[bytes]:
    """Pieces of about a size, cut between characters."""
    text = content.decode()
    return (text[place : place + size].encode() for place in range(0, len(text), size))


def rows(content: str, size: int = 1 << 19) -> list[tuple[int, Any]]:
    raw = content.encode()
    return list(json_rows(Text(raw[:1000], cut(raw, size))))


def objects(content: str, size: int = 1 << 19) -> list[tuple[int, Any]]:
    raw = content.encode()
    return list(object_rows(Text(raw, cut(raw, size))))


def complaint(text: str, size: int = 1 << 19) -> str:
    with pytest.raises(InputError) as caught:
        rows(text, size)
    return str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([1.5, -0.25, 1e300]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=3), st.integers(1, 40), st.booleans()
)
def test_how_a_text_is_cut_makes_no_difference(values: list[dict[str, Any]], size: int, printed: bool) -> None:
    content = "\n".join(json.dumps(one, indent=1 if printed else None) for one in values)
    expected = [json.loads(json.dumps(one), parse_float=Decimals) for one in values]
    for one in expected:
        for name in ("itls", "ttfts", "latencies", "generated_texts", "experiments"):
            one.pop(name, None)
    assert [row for _, row in objects(content, size)] == expected


@pytest.mark.parametrize("number", ["1764500000.125", "1.5e-3", "-12", "1E+20", "0", "9" * 5000])
def test_numbers_keep_their_digits_wherever_they_are_cut(number: str) -> None:
    for content in (f'{{"a": {number}}}', f'[{{"a": {number}}}]', f'{{"a":\n{number}}}'):
        for size in (*range(1, 20), 1 << 19):
            ((line, row),) = rows(content, size)
            assert (line, str(row["a"])) == (1, number)


def test_rows_tell_the_line_they_begin_on() -> None:
    content = '{"a": 1}\n\n {"a":\n 2} {"a": 3}\n{"a": 4}'
    assert objects(content) == objects(content, 3) == [(1, {"a": 1}), (3, {"a": 2}), (4, {"a": 3}), (5, {"a": 4})]


def test_a_broken_object_on_one_line_is_one_row() -> None:
    assert objects('{"a": 1}\n{"a": }\nnonsense\n{"a": 2}\n{"a"') == [
        (1, {"a": 1}),
        (2, None),
        (3, None),
        (4, {"a": 2}),
        (5, None),
    ]
    for broken in ('{"a" 1}', "{5: 1}", '{"a": 1,}', "[1]", '{"a": tru}', '{"a": "\\x"}'):
        assert objects(f'{broken}\n{{"a": 1}}') == [(1, None), (2, {"a": 1})]
    assert objects('{"a": ' + "[" * 100_000) == [(1, None)]


def test_a_broken_object_on_several_lines_is_an_error() -> None:
    for size in (1, 7, 1000):
        with pytest.raises(InputError, match=r"line 2 is no JSON \(Expecting ',' delimiter\), or the file breaks off"):
            objects('{"a": [1,\n2 3]}\n', size)
    with pytest.raises(InputError, match=r"line 2 is no JSON \(Expecting '}'\)|line 2 is no JSON \(Expecting ','\)"):
        objects('{"a": 1,\n"b": 2')


def test_requests_of_experiments_are_rows_of_their_own() -> None:
    content = json.dumps({"v": 1, "experiments": [{"mode": [1], "requests": [{"a": 1}, 5, {"a": 2}]}, {}], "w": [2]})
    for size in (1, 5, 1000):
        assert objects(content, size) == [(1, {"a": 1}), (1, None), (1, {"a": 2})]
    assert objects('{"experiments": 5}') == [(1, {"experiments": 5})]
    with pytest.raises(InputError, match="line 1 is no JSON"):  # requests are lost there
        objects('{"experiments": [{"requests": [{"a": 1}, {"a"')


def test_no_more_than_a_value_is_in_memory() -> None:
    itls = json.dumps([[0.012345678901] * 200] * 2000)
    content = f'{{"input_lens": [1], "itls": {itls}, "errors": [""]}}'.encode()
    assert len(content) > 6 << 20
    pieces = list(cut(content, 1 << 16))
    tracemalloc.start()
    try:
        found = list(object_rows(Text(content[:100], iter(pieces))))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [(1, {"input_lens": [1], "itls": [], "errors": [""]})]
    assert peak < 1 << 20


def test_a_value_that_is_too_long_ends() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulator.traces.text.jsoncursor.MAX_VALUE_CHARS", 1000)
        pieces = (b'{"a": "' + b"x" * 1000 if number == 0 else b"x" * 1000 for number in range(10_000))
        text = Text(b"{", pieces)
        with pytest.raises(InputError, match="line 1: a value is longer than 1,000 characters: that is none"):
            next(object_rows(text))
        assert sum(1 for _ in pieces) > 9_000


def test_which_texts_hold_objects() -> None:
    for content, expected in (
        ('{"timestamp": 1}\n{"timestamp": 2}\n', False),
        ('{"timestamp": 1,\n"input_length": 2}\n', True),
        ('{"resourceSpans": []}\n', True),
        ('{"request_rate": 1}', True),
        ('{"input_lens": [1', True),
        ('[{"input_lens": [1]}]', False),
        ("a,b\n", False),
    ):
        assert holds_objects(Text(content.encode(), iter([]))) is expected


# Lists.

R = '{"a": 1}'


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


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "null"])
def test_what_is_not_finite_is_null(word: str) -> None:
    for content in (f'[{{"a": {word}}}]', f'{{"a": {word}}}', f'{{"a":\n{word}}}'):
        assert rows(content) == [(1, {"a": None})]


def test_an_object_with_two_values_for_a_key_is_useless() -> None:
    assert rows('[{"a": 1, "b": 1, "a": 2}, {"a": 1}]') == [(1, None), (1, {"a": 1})]
    assert rows('{"a": 1,\n"a": 2}\n{"a": 1,\n"a": 1}') == [(1, None), (3, {"a": 1})]


def test_what_is_no_object_in_a_list_is_a_row_that_cannot_be_used() -> None:
    assert rows(f'[{R}, null, 12, [1], "x", NaN, true, {R}]') == [(1, {"a": 1}), *[(1, None)] * 6, (1, {"a": 1})]


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
        found = [row for _, row in rows(text, size)]
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
