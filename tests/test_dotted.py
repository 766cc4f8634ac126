"""Code by its dotted path: found, or one line that tells what is absent from what is broken."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from allocators import InputError
from allocators.dotted import optional, own

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write modules of one's own, which are gone after the test."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in [one for one in sys.modules if one.partition(".")[0] == "dotted_own"]:
        monkeypatch.delitem(sys.modules, name)

    def write(**modules: str) -> None:
        folder = tmp_path / "dotted_own"
        folder.mkdir()
        for name, code in {"__init__": "", **modules}.items():
            (folder / f"{name}.py").write_text(code)

    return write


def told(path: str) -> str:
    with pytest.raises(InputError) as caught:
        own(path, "unknown", "function")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_there_is_found(write: Write) -> None:
    write(count="def words(text):\n    return len(text.split())\nnumber = 3\n")
    assert own("dotted_own.count.words", "unknown", "function")("a b c") == 3
    assert told("dotted_own.count.nothing") == "unknown (dotted_own.count has no function nothing)"
    assert told("dotted_own.count.number") == "unknown (dotted_own.count has no function number)"


def test_a_module_that_is_not_there(write: Write) -> None:
    write()
    absent = "unknown (dotted_own.x cannot be imported: No module named 'dotted_own.x')"
    assert told("dotted_own.x.f") == absent
    assert told("dotted_none.x.f") == "unknown (dotted_none.x cannot be imported: No module named 'dotted_none')"


def test_a_module_that_lacks_another_is_not_called_absent(write: Write) -> None:
    write(a="import dotted_none\n")
    lacks = "ModuleNotFoundError: No module named 'dotted_none' (a.py, line 1)"
    assert told("dotted_own.a.f") == f"dotted_own.a cannot be imported: {lacks}"


def test_an_interrupt_goes_through(write: Write) -> None:
    write(a="raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        own("dotted_own.a.f", "unknown", "function")


def test_an_extra_that_is_broken_is_not_called_absent(write: Write) -> None:
    write(a="raise ImportError('half')\n", b="import dotted_none\n")
    with pytest.raises(InputError, match=r"^needs it$"):
        optional("dotted_none.x", "needs it")
    with pytest.raises(
        InputError, match=r"^dotted_own.a is installed, but cannot be imported: ImportError: half \(a.py"
    ):
        optional("dotted_own.a", "needs it")
    with pytest.raises(InputError, match=r"^dotted_own.b is installed, but .* named 'dotted_none' \(b.py, line 1\)$"):
        optional("dotted_own.b", "needs it")
    assert optional("json", "needs it") is sys.modules["json"]
