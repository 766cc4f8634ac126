"""JSON objects one after another, of any size: however the text is cut, and never all of it in memory."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators import InputError
from simulator.files import Text
from simulator.jsonstream import BrokenError, Cursor, holds_objects, object_rows
from simulator.jsontext import Decimals


def cut(content: bytes, size: int) -> Iterator[bytes]:
    """Pieces of about a size, cut between characters."""
    text = content.decode()
    return (text[place : place + size].encode() for place in range(0, len(text), size))


def rows(content: str, size: int = 1 << 19) -> list[tuple[int, Any]]:
    raw = content.encode()
    return list(object_rows(Text(raw, cut(raw, size))))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([1.5, -0.25, 1e300]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=3), st.integers(1, 40), st.booleans()
)
def test_how_a_text_is_cut_makes_no_difference(objects: list[dict[str, Any]], size: int, printed: bool) -> None:
    content = "\n".join(json.dumps(one, indent=1 if printed else None) for one in objects)
    expected = [json.loads(json.dumps(one), parse_float=Decimals) for one in objects]
    for one in expected:
        for name in ("itls", "ttfts", "latencies", "generated_texts", "experiments"):
            one.pop(name, None)
    assert [row for _, row in rows(content, size)] == expected


@pytest.mark.parametrize("number", ["1764500000.125", "1.5e-3", "-12", "1E+20", "0"])
def test_numbers_keep_their_digits_wherever_they_are_cut(number: str) -> None:
    for size in range(1, 20):
        assert str(Cursor(cut(f" {number}".encode(), size)).value()) == number
        (_, row), *rest = rows(f'{{"a": {number}}}', size)
        assert (str(row["a"]), rest) == (number, [])


def test_rows_tell_the_line_they_begin_on() -> None:
    content = '{"a": 1}\n\n {"a":\n 2} {"a": 3}\n{"a": 4}'
    assert rows(content) == rows(content, 3) == [(1, {"a": 1}), (3, {"a": 2}), (4, {"a": 3}), (5, {"a": 4})]


def test_a_broken_object_on_one_line_is_one_row() -> None:
    assert rows('{"a": 1}\n{"a": }\nnonsense\n{"a": 2}\n{"a"') == [
        (1, {"a": 1}),
        (2, None),
        (3, None),
        (4, {"a": 2}),
        (5, None),
    ]
    for broken in ('{"a" 1}', "{5: 1}", '{"a": 1,}', "[1]", '{"a": tru}', '{"a": "\\x"}', '{"a": ' + "9" * 5000 + "}"):
        assert rows(f'{broken}\n{{"a": 1}}') == [(1, None), (2, {"a": 1})]
    assert rows('{"a": ' + "[" * 100_000) == [(1, None)]


def test_a_broken_object_on_several_lines_is_an_error() -> None:
    for size in (1, 7, 1000):
        with pytest.raises(InputError, match=r"line 2 is no JSON \(Expecting ',' delimiter\), or the file breaks off"):
            rows('{"a": [1,\n2 3]}\n', size)
    with pytest.raises(InputError, match=r"line 2 is no JSON \(Expecting '}'\)|line 2 is no JSON \(Expecting ','\)"):
        rows('{"a": 1,\n"b": 2')


def test_requests_of_experiments_are_rows_of_their_own() -> None:
    content = json.dumps({"v": 1, "experiments": [{"mode": [1], "requests": [{"a": 1}, 5, {"a": 2}]}, {}], "w": [2]})
    for size in (1, 5, 1000):
        assert rows(content, size) == [(1, {"a": 1}), (1, None), (1, {"a": 2})]
    assert rows('{"experiments": 5}') == [(1, {"experiments": 5})]
    with pytest.raises(InputError, match="line 1 is no JSON"):  # requests are lost there
        rows('{"experiments": [{"requests": [{"a": 1}, {"a"')


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
        patch.setattr("simulator.jsonstream.MAX_VALUE_CHARS", 1000)
        pieces = (b'{"a": "' + b"x" * 1000 if number == 0 else b"x" * 1000 for number in range(10_000))
        text = Text(b"{", pieces)
        with pytest.raises(InputError, match="line 1: a value is longer than 1,000 characters: that is no log"):
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


def test_a_cursor_walks_lists_and_objects() -> None:
    cursor = Cursor(cut(b' {"a": [ ], "b": [1, [2], {"c": 3}], "d": {}} tail\nnext', 2))
    seen: list[object] = []
    for name in cursor.members():
        seen.append(name)
        if name == "b":
            seen += [cursor.value() for _ in cursor.items()]
        else:
            cursor.skip()
    assert seen == ["a", "b", 1, [2], {"c": 3}, "d"]
    assert (cursor.peek(), cursor.line) == ("t", 1)
    cursor.skip_line()
    assert (cursor.peek(), cursor.line) == ("n", 2)
    with pytest.raises(BrokenError):
        cursor.value()
    cursor.skip_line()
    assert cursor.peek() == ""
