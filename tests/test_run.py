"""A saved run is the run, to the bit; saving replaces all of an earlier run or nothing; damage is told in one line."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import Contiguous, Extent, InputError, Paged
from simulator import Run, StepCost, Trace, simulate
from simulator.ledger import CATEGORIES, INTEGRALS
from simulator.run import COUNTS, STATUS, TIMELINE_TYPES, Allocation, Layout
from simulator.saved import read_table

COST = StepCost(base="3ms", prefill_token="7us", sequence="11us", kv_token="13ns")


def small(**options: Any) -> Run:
    """Requests of every status, an allocator that grows, preemptions, memory maps in and behind the run."""
    trace = Trace.from_columns(
        [0, 0, 10**6, 2 * 10**6, 3 * 10**6, 3 * 10**6, 10**12], [3, 30, 5, 40, 9, 50, 1], [9, 20, 30, 30, 97, 50, 1]
    )
    return simulate(
        trace,
        Paged(98, block_size=3, watermark="0.1"),
        max_model_len=105,
        cost=COST,
        window_s=("0.0001", "0.1"),
        timeline_bins=13,
        layout_times_s=[0.01, 0.05, 77],
        decisions=True,
        **options,
    )


def bits(frame: pd.DataFrame | None) -> list[tuple[str, str, bytes | list[Any]]]:
    """Every column's name, type and values, floats to the bit."""
    if frame is None:
        return []
    return [
        (str(name), repr(column.dtype), column.to_numpy().tobytes() if column.dtype.kind in "if" else column.tolist())
        for name, column in frame.items()
    ]


def everything(run: Run) -> dict[str, Any]:
    return {
        field.name: bits(value) if isinstance(value := getattr(run, field.name), pd.DataFrame) else value
        for field in fields(run)
    }


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_example_is_worth_saving() -> None:
    run = small()
    assert set(run.requests["status"]) == set(STATUS) - {"waiting"}
    assert run.counts["preemptions"] > 0
    assert run.requests["finished_s"].isna().any()
    assert [len(layout.allocations) > 0 for layout in run.layouts] == [True, True, False]


NOTHING_RUNS = Trace.from_columns([0, 5], [10, 10], [10, 10])


@pytest.mark.parametrize(
    "run",
    [
        small(),
        replace(small(), decisions=None, label='a label, with "quotes",\nlines and \N{GREEK SMALL LETTER PI}'),
        simulate(NOTHING_RUNS, Paged(4, block_size=2)),
        simulate(NOTHING_RUNS, Contiguous(40, max_model_len=40), timeline_bins=0),
        simulate(NOTHING_RUNS, Contiguous(40, "pow2"), cost=StepCost("0", "0", "0"), preemption="swap", swap_slots=7),
    ],
    ids=["all", "label", "nothing ran", "no timeline", "no time"],
)
def test_a_loaded_run_is_the_saved_one_to_the_bit(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path / "new" / "folders" / "run")
    loaded = Run.load(str(tmp_path / "new" / "folders" / "run"))
    assert everything(loaded) == everything(run)
    assert loaded.summary() == run.summary()
    assert loaded.name == run.name
    assert [type(held.extents[0]) for layout in loaded.layouts for held in layout.allocations] == [
        Extent for layout in run.layouts for held in layout.allocations
    ]
    # And saved again it has the same bytes.
    loaded.save(tmp_path / "again")
    assert read(tmp_path / "again") == read(tmp_path / "new" / "folders" / "run")


EXAMPLE, SMALL = small(), small(max_batch=2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=64) | st.sampled_from([5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1 / 3]), min_size=1))
def test_any_float_comes_back_to_the_bit(values: list[float]) -> None:
    # A NaN is any NaN: what it says besides is not kept.
    values = [float("nan") if value != value else value for value in values]
    frame = pd.DataFrame(dict.fromkeys(TIMELINE_TYPES, values), dtype=np.float64)
    assert bits(read_table("timeline.csv", frame.to_csv(index=False).encode())) == bits(frame)


@pytest.mark.parametrize("base_ps", [10**15, 10**15 - 1, 3, 0])
def test_waits_of_any_length_are_whole_picoseconds_before_and_after(base_ps: int, tmp_path: Path) -> None:
    # The second waits for 9,500 iterations: from 9,224 on picoseconds do not fit 63 bits.
    trace = Trace.from_columns([0, 0, 0], [1, 1, 1], [9500, 1, 1])
    cost = StepCost(base_ps, "0", "0")
    run = simulate(trace, Paged(16000), max_batch=1, cost=cost, timeline_bins=7, decisions=True)
    assert run.requests["wait_ps"].tolist() == [0, 9500 * base_ps, 9501 * base_ps]
    assert run.requests["wait_max_batch_ps"].tolist() == [0, 9500 * base_ps, base_ps]
    assert run.requests["wait_behind_ps"].tolist() == [0, 0, 9500 * base_ps]
    assert run.requests["wait_s"].tolist() == [0, 9500 * base_ps / 10**12, 9501 * base_ps / 10**12]
    assert {type(time_ps) for time_ps in run.requests["wait_ps"].tolist()} == {int}
    assert run.waits_s()["behind"] == 9500 * base_ps / (3 * 10**12)
    run.save(tmp_path / "run")
    assert everything(Run.load(tmp_path / "run")) == everything(run)


def test_waits_that_only_together_leave_64_bits_are_summed_exactly() -> None:
    # 9,000 iterations of 1000 s each: each wait is below 2^63 ps, two of them are not.
    trace = Trace.from_columns([0] * 4, [1] * 4, [9000, 1, 1, 1])
    run = simulate(trace, Paged(10000), max_batch=1, cost=StepCost("1000s", "0", "0"))
    assert run.waits_s()["behind"] == (2 * 9000 + 1) * 1000 / 4
    assert run.waits_s()["max_batch"] == (9000 + 2) * 1000 / 4


def test_numbers_of_numpy_are_saved_too(tmp_path: Path) -> None:
    """As a user's own allocator may return them."""
    held = Allocation(0, (Extent(np.int64(3), np.int64(4)),), np.int64(2), 4, 0)  # type: ignore[arg-type]
    replace(EXAMPLE, layouts=(Layout(5, 0, (held,), 2, 4),)).save(tmp_path / "run")
    assert Run.load(tmp_path / "run").layouts == (Layout(5, 0, (Allocation(0, (Extent(3, 4),), 2, 4, 0),), 2, 4),)


def test_the_summary_is_what_the_integrals_say() -> None:
    integrals = dict.fromkeys(INTEGRALS, 0) | {"used": 30, "idle": 70, "running": 12, "largest": 500}
    integrals |= {"saturated_residual": 20, "saturated_ps": 2, "iteration_ps": 6, "external_ps": 1}
    run = replace(EXAMPLE, capacity=10, duration_ps=10, integrals=integrals, counts=dict.fromkeys(COUNTS, 4))
    assert run.summary() == {
        "allocator": "paged:block_size=3,watermark=0.1",
        "capacity": 10,
        "duration_s": 10e-12,
        "saturated_s": 2e-12,
        "iterations": 4,
        "peak_batch": 4,
        "mean_batch": 2.0,
        "preemptions": 4,
        "finished": 4,
        "rejected": {"too_long": 4, "never_fits": 4},
        "share": dict.fromkeys(CATEGORIES, 0.0) | {"used": 0.3, "idle": 0.7},
        "share_saturated": dict.fromkeys(CATEGORIES, 0.0) | {"residual": 1.0},
        "mean_largest_free": 50.0,
        "refused_although_free_s": 1e-12,
        "mean_wait": {f"{cause}_s": mean_s for cause, mean_s in run.waits_s().items()},
    }
    assert Layout(1_500_000_000_000, None, ()).time_s == 1.5


# Saving.


def test_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    EXAMPLE.save(tmp_path / "run")
    later = replace(small(max_batch=2), decisions=None)
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
    for run in (small(max_batch=2), EXAMPLE):
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
    def _writes(path: object, mode: str | None, flags: int) -> bool:
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
    monkeypatch.setattr(tempfile, "TemporaryDirectory", fail)
    with pytest.raises(InputError, match="new cannot be written: No space left on device"):
        EXAMPLE.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def fail(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


# Loading.


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], object]:
    """Change the head's entry of that name."""

    def damage(folder: Path) -> None:
        head = json.loads((folder / "run.json").read_text())
        head[name] = change(head[name])
        (folder / "run.json").write_text(json.dumps(head))

    return damage


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda entries: {key: value for key, value in entries.items() if key != name}


def cut(name: str, keep: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


DAMAGES: list[tuple[str, Callable[[Path], object]]] = [
    ("No such file or directory", lambda folder: (folder / "run.json").unlink()),
    ("No such file or directory", lambda folder: (folder / "timeline.csv").unlink()),
    ("No such file or directory", lambda folder: (folder / "decisions.csv").unlink()),
    ("JSONDecodeError", cut("run.json", 500)),
    ("JSONDecodeError", cut("run.json", 0)),
    ("UnicodeDecodeError", lambda folder: (folder / "run.json").write_bytes(b"\xff\xff\xff")),
    ("", lambda folder: (folder / "run.json").write_text("[" * 100_000)),
    ("TypeError", lambda folder: (folder / "run.json").write_text("[]")),
    ("KeyError 'format'", lambda folder: (folder / "run.json").write_text("{}")),
    ("its format is 'kvfrag run 9', and this version reads 'kvfrag run 3'", edit("format", lambda _: "kvfrag run 9")),
    ("timeline.csv is not what was saved", cut("timeline.csv", 700)),
    ("requests.csv is not what was saved", cut("requests.csv", 0)),
    ("decisions.csv is not what was saved", cut("decisions.csv", 100)),
    ("KeyError 'timeline.csv'", edit("sha256", without("timeline.csv"))),
    ("KeyError 'used'", edit("integrals", without("used"))),
    ("ValueError", edit("integrals", lambda integrals: integrals | {"idle": "many"})),
    ("KeyError 'finished'", edit("counts", without("finished"))),
    ("TypeError", edit("counts", lambda counts: counts | {"finished": None})),
    ("ValueError", edit("capacity", lambda _: "large")),
    ("TypeError", edit("trace", without("sha256"))),
    ("TypeError", edit("trace", lambda trace: trace | {"path": "/home"})),
    ("TypeError", edit("settings", lambda _: [])),
    ("AttributeError", edit("settings", lambda values: values | {"cost": 5})),
    ("TypeError", edit("settings", lambda values: values | {"speed": 3})),
    ("max_batch(=0) must be", edit("settings", lambda values: values | {"max_batch": 0})),
    ("window(=", edit("settings", lambda values: values | {"window_s": [5, 1]})),
    ("TypeError", edit("layouts", lambda _: [[1]])),
    ("ValueError", edit("layouts", lambda layouts: [[*layouts[0][:2], [[1]], *layouts[0][3:]]])),
]


@pytest.mark.parametrize(("told", "damage"), DAMAGES)
def test_damage_is_told_in_one_line(told: str, damage: Callable[[Path], object], tmp_path: Path) -> None:
    EXAMPLE.save(tmp_path / "run")
    damage(tmp_path / "run")
    with pytest.raises(InputError) as refused:
        Run.load(tmp_path / "run")
    assert str(refused.value).startswith(f"{tmp_path / 'run'} is not a saved run")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("what", ["none", "file", "folder"])
def test_what_is_no_run_is_told(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=rf"{what} is not a saved run: (No such file|Not a directory)"):
        Run.load(tmp_path / what)
