"""The lessons: the contract's worked examples come out, and the texts say them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.examples.lessons import LESSONS, buddy_run, buddy_steps, figure3_run, figure6_run, tell, waste_runs
from simulator.results.history import History
from simulator.results.views import view_shares


def test_the_buddy_example_of_the_contract() -> None:
    a, b, c, d = buddy_steps()
    assert (a.extent, b.extent, c.extent, d.extent) == ((0, 32), (64, 16), (32, 8), None)
    assert d.free == c.free == [(40, 8), (48, 16), (80, 16), (96, 32)]
    assert sum(block.slots for block in d.free) == 72
    assert buddy_steps("smallest")[-1].extent is not None
    text = "\n".join(tell("buddy"))
    assert "C asks for 7 and gets 8 slots, 1 of them rounding: 32-39. Free: 40-47, 48-63, 80-95, 96-127." in text
    assert "D asks for 64. 72 slots are free" in text and "largest has only 32" in text
    assert "|AAAAAAAAAAAAAAAACCCC............BBBBBBBB........................|" in text
    # The trace of the same requests is the same story.
    layout = History(buddy_run()).layout(0.0)
    assert [held.extents for held in layout.allocations] == [((0, 32),), ((64, 16),), ((32, 8),)]
    assert buddy_run().summary()["refused_although_free_s"] > 0


def test_figure_3_of_the_paper() -> None:
    (held,) = History(figure3_run()).layout(1.0).allocations
    assert (held.written_tokens, held.final_tokens - held.written_tokens) == (8, 2)
    assert held.extents[0].slots - held.final_tokens == 2038
    assert "iteration 1: 8 used, 2 reserved, 2,038 never used\n  |########++xxx" in "\n".join(tell("figure3"))


def test_figure_6_of_the_paper() -> None:
    filled = []
    for second in range(4):
        held = History(figure6_run()).layout(float(second)).allocations[0]
        filled.append([min(4, held.written_tokens - 4 * block) for block in range(len(held.extents))])
    assert filled == [[4, 3], [4, 4], [4, 4, 1], [4, 4, 2]]
    text = "\n".join(tell("figure6"))
    assert "prefill: 7 tokens written\n  logical 0 -> physical 0   filled 4 of 4   |####|" in text
    assert "logical 2 -> physical 4   filled 1 of 4   |#+..|" in text
    assert "has physical blocks 2 and 3" in text


def test_waste_compared() -> None:
    text = "\n".join(tell("waste"))
    for run in waste_runs():
        share = view_shares(run.summary()["share_saturated"], "textbook")
        found = re.search(rf"{re.escape(run.name)}\n  \|(.*)\|\n  used ([\d.]+)", text)
        assert found is not None
        assert float(found[2]) == pytest.approx(100 * share["used"], abs=0.05)
        assert abs(found[1].count("#") - 64 * share["used"]) <= 0.5 and abs(len(found[1]) - 64) <= 3


def test_the_command_tells_them() -> None:
    root = Path(__file__).parents[1]

    def told(name: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "simulator", "lesson", name]
        return subprocess.run(command, cwd=root, capture_output=True, text=True)

    done = told("figure3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "\n\n".join(tell("figure3")) + "\n\n"
    wrong = told("figure4")
    assert wrong.returncode == 2 and wrong.stdout == ""
    assert wrong.stderr == f"kvfrag: lesson(='figure4') must be one of {', '.join(LESSONS)}\n"
