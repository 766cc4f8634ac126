"""Saving replaces all of an earlier run, in one step: wherever it is interrupted, the one or the other is there."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from allocators import InputError
from saved_runs import EXAMPLE, SMALL, everything, read
from simulator import Run


def test_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    EXAMPLE.save(tmp_path / "run")
    later = replace(SMALL, decisions=None)
    later.save(tmp_path / "run")
    assert everything(Run.load(tmp_path / "run")) == everything(later)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert set(read(tmp_path / "run")) == {"run.json", "timeline.csv", "requests.csv"}


def test_a_run_can_be_saved_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for _ in range(2):
        EXAMPLE.save(tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert everything(Run.load(tmp_path / "run")) == everything(EXAMPLE)


def test_a_run_can_be_saved_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run in (SMALL, EXAMPLE):
        run.save(".")
        assert everything(Run.load(".")) == everything(run)


class Interruption:
    """Raises at the n-th step that changes a file or a folder: only there, or from there on, as if killed there.

    Python tells its audit hooks of every such step; a hook cannot be removed, but this one can be told to do nothing.
    """

    STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir")

    def __init__(self) -> None:
        self.left: int | None = None
        self.happened = False
        self.error: BaseException = KeyboardInterrupt()
        self.for_good = False
        sys.addaudithook(self._hear)

    @contextmanager
    def at(self, number: int, error: BaseException, for_good: bool) -> Iterator[None]:
        self.left, self.error, self.for_good, self.happened = number, error, for_good, False
        try:
            yield
        finally:
            self.left = None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left is None or event not in self.STEPS or (event == "open" and not self._writes(*arguments)):
            return
        self.left -= 1
        if self.left == 0 or (self.left < 0 and self.for_good):
            self.happened = True
            raise self.error

    @staticmethod
    def _writes(_path: object, _mode: str | None, flags: int) -> bool:
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


INTERRUPTION = Interruption()
FULL = OSError(28, "No space left on device")
WHOLE = {"run.json", "timeline.csv", "requests.csv", "decisions.csv"}


class Killed(BaseException):
    """The process ends here: nothing that would be cleaned up afterwards is."""


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt(), Killed()], ids=["full", "interrupt", "killed"])
@pytest.mark.parametrize("before", ["nothing", "a run", "a killed save", "a killed save of the same"])
def test_at_every_instant_the_old_run_or_the_new_one_is_there(
    before: str, error: BaseException, tmp_path: Path
) -> None:
    other = replace(EXAMPLE, decisions=None)
    for number in count(1):
        folder = tmp_path / str(number)
        found = None
        if before != "nothing":
            SMALL.save(folder)
            found = everything(SMALL)
        if before.startswith("a killed save"):
            with INTERRUPTION.at(9, Killed(), for_good=True), pytest.raises(Killed):
                (EXAMPLE if before.endswith("of the same") else other).save(folder)
            found = everything(Run.load(folder))
        told = None
        with INTERRUPTION.at(number, error, for_good=isinstance(error, Killed)):
            try:
                EXAMPLE.save(folder)
            except (InputError, KeyboardInterrupt, Killed) as raised:
                told = raised
        if not INTERRUPTION.happened:
            break
        if told is None:  # what could not be tidied up is told to nobody: the run is saved
            found = everything(EXAMPLE)
        if found is None and not (folder / "run.json").exists():
            assert isinstance(told, Killed) or not folder.exists()
        else:
            assert everything(Run.load(folder)) in (found, everything(EXAMPLE))
        if isinstance(told, InputError):
            assert str(told) == f"{folder} cannot be written: No space left on device"
            assert everything(Run.load(folder)) == found if found else not folder.exists()
            assert {*read(folder)} <= WHOLE if found else True
        # The next one finds its way, and leaves nothing else there.
        EXAMPLE.save(folder)
        assert everything(Run.load(folder)) == everything(EXAMPLE)
        assert set(read(folder)) == WHOLE
    assert number > 8 and told is None


def test_a_run_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    SMALL.save(tmp_path / "run")
    first = True

    def read_bytes(path: Path) -> bytes:
        nonlocal first
        found = original(path)
        if path.name == "run.json" and first:
            first = False
            EXAMPLE.save(tmp_path / "run")
        return found

    original = Path.read_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_bytes)
        loaded = Run.load(tmp_path / "run")
    assert everything(loaded) == everything(EXAMPLE)


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ({"notes.txt": ""}, "notes.txt"),
        ({"run.json": "{}"}, "run.json"),
        ({"timeline.csv": "mine"}, "timeline.csv"),
        ({"run.json": '{\n "format": "kvfrag run 1"}', "mine.txt": ""}, "mine.txt"),
        ({"run.json/file": ""}, "run.json"),
    ],
)
def test_a_folder_that_holds_anything_else_is_refused(held: dict[str, str], told: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name, text in held.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with pytest.raises(InputError) as refused:
        EXAMPLE.save(folder)
    assert str(refused.value) == f"{folder} must be new or empty, or a saved run to replace; it holds {told}"
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == sorted(held)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for path, told in (
        (tmp_path / "file", "cannot be written: Not a directory"),
        (tmp_path / "file" / "run", "cannot be written: Not a directory"),
        (tmp_path / ("x" * 300), "cannot be written: File name too long"),
    ):
        with pytest.raises(InputError, match=told):
            EXAMPLE.save(path)
    (tmp_path / "empty").mkdir()
    EXAMPLE.save(tmp_path / "empty")
    assert everything(Run.load(tmp_path / "empty")) == everything(EXAMPLE)
    # No folder can be made there.
    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    with pytest.raises(InputError, match="new cannot be written: No space left on device"):
        EXAMPLE.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def fail(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")
