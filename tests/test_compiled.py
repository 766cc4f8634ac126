"""Machine code of the loop: kept on disk by the text it is made of, told of while it is made, made again if damaged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.engine import compiled

ROOT = Path(__file__).parents[1]
RUN = (
    "from simulator import Trace, simulate; from simulator.engine import loop; "
    "run = simulate(Trace.from_columns([0], [5], [9]), 'paged:block_size=4', capacity=40); "
    "print(run.counts['iterations'], sum(getattr(loop.advance, 'stats').cache_hits.values()) if {jit} else '')"
)


def ran(cache: Path, jit: bool = True) -> tuple[list[str], str]:
    """The words on standard output, and all of standard error, of a fresh interpreter that simulates."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)} | ({} if jit else {"NUMBA_DISABLE_JIT": "1"})
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN.format(jit=jit)],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def test_the_first_run_compiles_says_so_and_keeps_it(tmp_path: Path) -> None:
    words, told = ran(tmp_path)
    assert words == ["9", "0"]
    assert told == f"kvfrag: compiling the simulation loop for paged (once, it is kept in {tmp_path})\n"
    # The second one finds it,
    assert ran(tmp_path) == (["9", "1"], "")
    # and one that finds it damaged makes it again.
    kept = [*tmp_path.rglob("*.nbc"), *tmp_path.rglob("*.nbi")]
    assert len(kept) >= 3
    for path in kept:
        path.write_bytes(path.read_bytes()[:50])
    words, told = ran(tmp_path)
    assert words == ["9", "0"] and told.count("\n") == 1
    assert ran(tmp_path) == (["9", "1"], "")


def test_nothing_is_compiled_where_numba_is_switched_off(tmp_path: Path) -> None:
    assert ran(tmp_path, jit=False) == (["9"], "")
    assert not list(tmp_path.rglob("*.nb?"))


@pytest.mark.whole
def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    words, told = ran(file / "folder")
    assert words == ["9", "0"]
    assert told == (
        "kvfrag: compiling the simulation loop for paged "
        f"(each time anew, as {file / 'folder'} cannot be written)\n"
    )  # fmt: skip


def test_the_folder_goes_by_the_text_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "allocators" / "one.py"
    source.parent.mkdir()
    monkeypatch.setattr(compiled, "_ROOT", tmp_path)
    folders = []
    for text in ("a = 1", "a = 2", "a = 3", "a = 1", "a = 4", "a = 5", "a = 6"):
        source.write_text(text)
        folders.append(compiled.cache_folder())
        os.utime(folders[-1], (len(folders), len(folders)))
    assert folders[0] == folders[3] and len({*folders}) == 6
    # Of other versions only the newest few are kept.
    assert [folder.is_dir() for folder in folders] == [True, False, True, True, True, True, True]
