"""A cursor in a JSON text: however the text is cut, the same values on the same lines."""

from collections.abc import Iterator

import pytest

from simulator.traces.text.jsoncursor import BrokenError, Cursor


def cut(content: str, size: int) -> Iterator[bytes]:
    """Pieces of a size."""
    return (content[place : place + size].encode() for place in range(0, len(content), size))


@pytest.mark.parametrize("number", ["1764500000.125", "1.5e-3", "-12", "1E+20", "0"])
def test_numbers_keep_their_digits_wherever_they_are_cut(number: str) -> None:
    for size in range(1, 20):
        assert str(Cursor(cut(f" {number}", size)).value()) == number


def test_a_cursor_walks_lists_and_objects() -> None:
    cursor = Cursor(cut(' {"a": [ ], "b": [1, [2], {"c": 3}], "d": {}} tail\nnext', 2))
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


def test_texts_may_begin_with_a_byte_order_mark() -> None:
    cursor = Cursor(cut("\ufeff \n\ufeff[1]\n", 1))
    assert (cursor.at_text(), cursor.peek(), cursor.line) == (True, "[", 2)
    assert cursor.value() == [1]
    assert not cursor.at_text()
