"""Files are written whole or not at all, where they can be; what they would replace is safe until then."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allocators import InputError
from simulator.cli.tables.printing import table
from simulator.cli.tables.report import write_json
from simulator.files.writing import check_outputs, write_whole


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_new_file_has_the_permissions_that_any_new_file_has(tmp_path: Path) -> None:
    write_whole(tmp_path / "new", b"content")
    assert (tmp_path / "new").read_bytes() == b"content"
    assert mode_of(tmp_path / "new") == 0o640
    assert os.umask(0o027) == 0o027  # the process's own is as it was


@pytest.mark.usefixtures("umask")
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a longer content than the new one")
    path.chmod(0o604)
    write_whole(path, b"new")
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o604)


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(exists: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    check_outputs({"--json": link})
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
def test_a_full_device_is_told_and_stays_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def guard(self: Path, target: Path) -> Path:
        raise AssertionError(f"{self} would replace {target}")

    monkeypatch.setattr(Path, "replace", guard)
    device = tmp_path / "full"
    device.symlink_to("/dev/full")
    check_outputs({"--json": device})
    with pytest.raises(InputError, match=r"full cannot be written: No space left on device"):
        write_whole(device, b"content")
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("failing", ["write", "replace"])
def test_nothing_is_left_of_a_file_that_could_not_be_finished(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if failing == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    else:
        make = tempfile.NamedTemporaryFile

        def full(**options: Any) -> Any:
            file = make(**options)
            monkeypatch.setattr(file, "write", fail, raising=False)
            return file

        monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    with pytest.raises(InputError, match=r"file cannot be written: No space left on device"):
        write_whole(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_number_that_json_lacks_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(str(tmp_path / "file"), {"share": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unprivileged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of files that this process may not write, if need be by stepping down from root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for made in (folder / "file", folder / "closed" / "file"):
            made.parent.mkdir(exist_ok=True)
            made.write_text("old")
        os.mkfifo(folder / "pipe")
        (folder / "pipe").chmod(0o444)
        (folder / "file").chmod(0o444)
        (folder / "closed" / "file").chmod(0o666)
        (folder / "closed").chmod(0o555)
        folder.chmod(0o777)
        root = os.geteuid() == 0
        if root:
            # A real user has no other one to fall back on, and os.access asks for the real one.
            monkeypatch.setattr(os, "access", lambda path, mode: bool(mode_of(Path(path)) & 0o222 and mode))
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            (folder / "closed").chmod(0o755)


@pytest.mark.parametrize("name", ["file", "pipe", "closed/file", "closed/new"])
def test_what_may_not_be_written_is_told_before(name: str, unprivileged: Path) -> None:
    path = unprivileged / name
    with pytest.raises(InputError) as told:
        check_outputs({"--json": path})
    assert str(told.value) == f"--json(={path}) cannot be written: Permission denied"


def test_checking_leaves_nothing_behind_and_nothing_changed(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    before = (tmp_path / "old").stat()
    check_outputs(
        {"--json": tmp_path / "old", "--plot": tmp_path / "new.png", "--save": None}, [None, "sharegpt:rate=4"]
    )
    assert (tmp_path / "old").read_text() == "old"
    assert (tmp_path / "old").stat().st_mtime_ns == before.st_mtime_ns
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("way", ["{0}/a", "{0}/folder/../a", "{0}/link"])
def test_two_outputs_and_an_input_are_never_the_same_file(way: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    path = Path(way.format(tmp_path))
    with pytest.raises(InputError, match=r"--plot\(=.*\) must not be the same file as --json"):
        check_outputs({"--json": tmp_path / "a", "--plot": path})
    (tmp_path / "a").write_text("trace")
    with pytest.raises(InputError, match=r"--json\(=.*\) must not be the same file as an input, .*/a"):
        check_outputs({"--json": path}, [str(tmp_path / "a")])


def test_a_table_shows_markup_as_it_is() -> None:
    made = table("title", "name", "number")
    made.add_row("[bold]x", "1")
    assert list(made.columns[0].cells) == ["[bold]x"]
    assert [column.justify for column in made.columns] == ["left", "right"]
