"""Locks go with their holder, however it goes; what dead processes left is removed, and nothing of the living."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from simulator.files.locks import held, scratch_folder

HOLD = """
import sys, time
from pathlib import Path
from simulator.files.locks import held, scratch_folder
with held(Path(sys.argv[1])) as ours, scratch_folder() as folder:
    print(ours, folder, flush=True)
    time.sleep(600)
"""


def test_one_has_a_lock_at_a_time_in_one_process_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.files.locks._TRIES", 1)
    path = tmp_path / "x"
    with held(path) as first, held(path) as second:
        assert (first, second) == (True, False)
        path.write_text("kept")
    with held(path) as third:
        assert third
    assert path.read_text() == "kept"
    path.unlink()
    with held(path):
        assert path.exists()
    assert not path.exists()  # nothing was written


def test_a_file_that_another_made_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with held(path):
        path.unlink()
        path.touch()
    assert path.exists()


def test_a_process_that_was_started_meanwhile_keeps_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.files.locks._TRIES", 1)
    with held(tmp_path / "x"):
        child = os.fork()
        if not child:
            signal.pause()
    try:
        with held(tmp_path / "x") as ours:
            assert ours
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_what_a_killed_process_held_is_free_and_its_scratch_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("simulator.files.locks._TRIES", 1)
    command = [sys.executable, "-c", HOLD, str(tmp_path / "x")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as one:
        assert one.stdout is not None
        ours, name = one.stdout.readline().split()
        folder = Path(name)
        (folder / "trace.npy").touch()
        with scratch_folder() as mine, held(tmp_path / "x") as second:
            assert (ours, second) == ("True", False)
            assert mine.is_dir() and (folder / "trace.npy").exists()
        assert not mine.exists()
        one.kill()
    with scratch_folder() as mine, held(tmp_path / "x") as second:
        assert second and not folder.exists()
    assert list(tmp_path.iterdir()) == []
