"""``import kvfrag``: the public names of all, quick, typed; ``python -m kvfrag`` is the command line."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import allocators
import kvfrag
import simulator

ROOT = Path(__file__).parents[1]


def test_it_has_the_public_names_and_dir_lists_them() -> None:
    assert dir(kvfrag) == sorted({*allocators.__all__, *simulator.__all__})
    assert dir(simulator) == sorted(simulator.__all__) and "simulate" in dir(simulator)
    for home in (allocators, simulator):
        assert [name for name in home.__all__ if getattr(kvfrag, name) is not getattr(home, name)] == []
    assert kvfrag.__version__ == version("kvfrag")
    with pytest.raises(AttributeError, match="module 'kvfrag' has no attribute 'nope'"):
        kvfrag.nope  # noqa: B018


def test_a_star_import_gives_them_all() -> None:
    names: dict[str, object] = {}
    exec("from kvfrag import *", names)
    assert {*kvfrag.__all__} <= set(names) and names["plots"] is simulator.plots


def test_python_m_kvfrag_is_the_command_line(tmp_path: Path) -> None:
    code = [sys.executable, "-m", "kvfrag", "--version"]
    ended = subprocess.run(code, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"kvfrag {version('kvfrag')}\n", "")


@pytest.mark.whole
def test_mypy_sees_the_names(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(
        "import kvfrag\n"
        "run: kvfrag.Run = kvfrag.simulate(kvfrag.Trace.read('x'), kvfrag.Paged(10))\n"
        "wrong: int = kvfrag.Paged(10)\n"
        "kvfrag.advise('x', capacity=1).nope\n"
    )
    code = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", "user.py"]
    environment = {"MYPYPATH": str(ROOT), "PATH": ""}
    ended = subprocess.run(code, cwd=tmp_path, env=environment, capture_output=True, text=True)
    errors = [line for line in ended.stdout.splitlines() if line.startswith("user.py:")]
    assert len(errors) == 2 and "Paged" in errors[0] and '"Advice" has no attribute "nope"' in errors[1], ended.stdout
