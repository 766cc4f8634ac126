"""What goes to the terminal: names cannot steer it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.messages.words import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("azure 2023, 16 %", "azure 2023, 16 %"),
        ("", ""),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b2J", r"\x9b2J"),
        ("a\nb\rc\td\0\x7f", r"a\nb\rc\td\x00\x7f"),
        ("abc\u202ecba\u2066\u200f", r"abc\u202ecba\u2066\u200f"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\ud800", r"\ud800"),
        ("caf\u00e9 \u6642\u9593 \U0001f600", "caf\u00e9 \u6642\u9593 \U0001f600"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        (r"a\b", r"a\b"),
    ],
)
def test_what_steers_a_terminal_is_shown_and_the_rest_stays(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_what_is_to_be_kept_is_kept() -> None:
    assert printable("two\nlines\x1b", keep="\n") == "two\nlines\\x1b"


@given(st.text())
def test_it_has_one_line_no_controls_and_is_the_same_when_it_is_done_again(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in shown)
    assert printable(shown) == shown
    shown.encode()
