"""The notebooks run from top to bottom in a fresh kernel, twice with the same outputs, and what is saved is that."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

HAS_GPU_PART = find_spec("torch") is not None and find_spec("triton") is not None
FOLDER = Path(__file__).parents[1] / "notebooks"
PATHS = sorted(FOLDER.glob("[0-9]*.ipynb"))


def cells_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    return found


def words_of(cells: list[dict[str, Any]]) -> list[str]:
    """What cells print, and the text of the tables they show; not pictures, which are the font's business too."""
    words = []
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        data = output.get("data", {})
        if "image/png" not in data and len("".join(data.get("text/html", ""))) < 20_000:
            words.append("".join(output.get("text", data.get("text/plain", ""))))
    return words


def test_all_are_there() -> None:
    names = [path.stem for path in PATHS]
    assert [name.partition("_")[0] for name in names] == [f"{number:02}" for number in range(1, len(names) + 1)]
    assert len(names) >= 6
    told = "".join("".join(cell["source"]) for path in PATHS for cell in cells_of(path))
    assert [name for name in names[1:] if f"]({name}.ipynb)" not in told] == []  # each leads to the next


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_is_run_and_says_what_one_learns(path: Path) -> None:
    cells = cells_of(path)
    assert cells[0]["cell_type"] == "markdown" and "What you'll learn" in "".join(cells[0]["source"])
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [o for cell in code for o in cell["outputs"] if o.get("name") == "stderr"]
    for cell in code:
        for output in cell["outputs"]:
            assert not str(output.get("data", {}).get("text/plain", "")).startswith("<Figure") or (
                "image/png" in output["data"]
            )


@pytest.mark.whole
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs_twice_with_the_same_outputs(path: Path, tmp_path: Path) -> None:
    if "from gpu" in path.read_text("utf-8") and not HAS_GPU_PART:
        pytest.skip("torch and triton are not installed")
    copies = [tmp_path / name / path.name for name in ("first", "second")]
    runs = []
    for copy in copies:
        copy.parent.mkdir()
        shutil.copy(path, copy)
        command = [sys.executable, str(FOLDER / "execute.py"), str(copy)]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for run in runs:
        told, _ = run.communicate(timeout=280)
        assert run.returncode == 0, told
    first, second = copies
    assert first.read_bytes() == second.read_bytes()
    assert words_of(cells_of(first)) == words_of(cells_of(path)), "stale: make notebooks"
