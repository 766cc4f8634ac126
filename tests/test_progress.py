"""Progress bars: in a terminal and a notebook, not in a pipe or a worker, and without any widgets."""

import multiprocessing
import sys
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from tqdm import tqdm

from allocators import Paged
from lesson_runs import figure6
from simulator import Trace, plots, simulate
from simulator.messages import progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal, and bars that do not wait two seconds. (A fixture would be undone by pytest.)"""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    return found


def run() -> None:
    simulate(Trace.from_columns([0, 1], [7, 6], [4, 5]), Paged(34, 4))


def test_a_run_shows_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    run()
    assert "paged: 100%" in shown.getvalue() and "2/2" in shown.getvalue()


def test_a_film_shows_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    plots.animate(figure6(), frames=2).to_html()
    assert "film of paged:block_size=4,watermark=0" in shown.getvalue() and "2/2" in shown.getvalue()
    before = shown.getvalue()
    plots.animate(figure6(), frames=2).to_html(progress=False)
    assert shown.getvalue() == before


def test_nothing_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    run()
    assert pipe.getvalue() == ""


def test_nothing_from_a_worker_or_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "someone")
    run()
    assert shown.getvalue() == ""
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: None)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    run()
    assert shown.getvalue() == ""
    monkeypatch.undo()
    monkeypatch.setattr(sys, "stderr", None)
    assert not progress.is_watched()


def test_nothing_before_two_seconds() -> None:
    made: list[dict[str, Any]] = []

    class Bar(tqdm):  # type: ignore[type-arg]
        def __init__(self, **options: Any) -> None:
            made.append(options)
            super().__init__(**options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "tqdm", Bar)
        progress.progress_bar(3, "name", "unit", shown=False).close()
    assert made[0]["delay"] == 2.0 and made[0]["disable"]


def test_a_notebook_is_watched_and_needs_no_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = StringIO()  # what a kernel shows under the cell is no terminal
    monkeypatch.setattr(sys, "stderr", cell)
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    assert progress.is_watched()
    run()
    assert "100%" in cell.getvalue()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not progress.is_watched()
