"""A saved run is the run, to the bit; saving replaces all of an earlier run or nothing; damage is told in one line."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
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
from simulator.run import COUNTS, STATUS, Allocation, Layout

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


EXAMPLE = small()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=64) | st.sampled_from([5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1 / 3]), min_size=1))
def test_any_float_comes_back_to_the_bit(values: list[float]) -> None:
    # A NaN is any NaN: what it says besides is not kept.
    values = [float("nan") if value != value else value for value in values]
    frame = pd.DataFrame({"start_s": values}, dtype=np.float64)
    with tempfile.TemporaryDirectory() as folder:
        replace(EXAMPLE, timeline=frame).save(Path(folder, "run"))
        assert bits(Run.load(Path(folder, "run")).timeline) == bits(frame)


def test_numbers_of_numpy_are_saved_too(tmp_path: Path) -> None:
    """As a user's own allocator may return them."""
    held = Allocation(0, (Extent(np.int64(3), np.int64(4)),), np.int64(2), 4, 0)  # type: ignore[arg-type]
    replace(EXAMPLE, layouts=(Layout(5, None, (held,)),)).save(tmp_path / "run")
    assert Run.load(tmp_path / "run").layouts == (Layout(5, None, (Allocation(0, (Extent(3, 4),), 2, 4, 0),)),)


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
        "prompts_over_budget": 0,
        "share": dict.fromkeys(CATEGORIES, 0.0) | {"used": 0.3, "idle": 0.7},
        "share_saturated": dict.fromkeys(CATEGORIES, 0.0) | {"residual": 1.0},
        "mean_largest_free": 50.0,
        "refused_although_free_s": 1e-12,
        "mean_wait": {f"{cause}_s": mean_s for cause, mean_s in run.waits_s().items()},
        "warnings": [
            "2 of 7 requests rejected, and in no other figure: 1 longer than max_model_len, 1 more than the empty pool "
            "can hold",
            "the pool is too small for max_model_len: a request of 105 tokens does not fit in 98 slots, even alone",
        ],
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


def fail(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def fails_at(number: int, error: BaseException, does: Callable[..., Any]) -> Callable[..., Any]:
    """``does``, which raises ``error`` when it is called the n-th time."""
    calls = iter(range(1, 100))

    def call(*arguments: Any, **options: Any) -> Any:
        if next(calls) == number:
            raise error
        return does(*arguments, **options)

    return call


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupt"])
@pytest.mark.parametrize(
    ("earlier", "step", "number"),
    [
        *((earlier, "write_bytes", number) for earlier in (True, False) for number in (1, 2, 3, 4)),
        (False, "rename", 1),  # the new one to its place
        (True, "rename", 1),  # the earlier one aside
        (True, "rename", 2),  # the new one to its place
    ],
)
def test_all_is_saved_or_nothing(
    earlier: bool, step: str, number: int, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if earlier:
        small(max_batch=2).save(tmp_path / "run")
    before = {path.name: read(path) for path in tmp_path.iterdir()}
    monkeypatch.setattr(Path, step, fails_at(number, error, getattr(Path, step)))
    with pytest.raises((InputError, KeyboardInterrupt)) as told:
        EXAMPLE.save(tmp_path / "run")
    if error is FULL:
        assert str(told.value) == f"{tmp_path / 'run'} cannot be written: No space left on device"
    assert {path.name: read(path) for path in tmp_path.iterdir()} == before


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


def test_a_folder_that_cannot_be_replaced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for path, told in (
        (tmp_path / "file", "cannot be written: Not a directory"),
        (tmp_path / "file" / "run", "cannot be written: Not a directory"),
        (tmp_path / ("x" * 300), "cannot be written: File name too long"),
    ):
        with pytest.raises(InputError, match=told):
            EXAMPLE.save(path)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(InputError, match="is the current folder or a mount, and cannot be replaced"):
        EXAMPLE.save(".")
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os.path, "ismount", lambda _: True)
        with pytest.raises(InputError, match="empty is the current folder or a mount"):
            EXAMPLE.save("empty")
    EXAMPLE.save("empty")
    assert everything(Run.load("empty")) == everything(EXAMPLE)
    # No folder can be made there.
    monkeypatch.setattr(tempfile, "TemporaryDirectory", fail)
    with pytest.raises(InputError, match="new cannot be written: No space left on device"):
        EXAMPLE.save("new")
    assert not Path("new").exists()


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
