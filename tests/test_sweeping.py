"""Sweeps: every row is the run that a single ``simulate`` makes, whoever carried it out."""

from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simulator.sweeps.sources
from allocators import InputError, Paged, make_allocator
from gated import GO, WORKLOAD, Gated
from simulator import StepCost, Trace, simulate, sweep
from simulator.results.ledger import CATEGORIES
from simulator.sweeps import executors
from simulator.sweeps.executors import LostError

TRACE = Trace.workload("sharegpt", rate=4.0, duration_s=20, seed=5)
GRID: dict[str, Any] = {
    "allocators": ["paged:block_size={1,16}", "buddy:reserve={max,oracle},min_block=16"],
    "capacity": "3000,4000",
    "max_model_len": 2048,
    "max_batch": [4, None],
    "cost": StepCost(base="30ms"),
}


@pytest.fixture(scope="module")
def local() -> pd.DataFrame:
    return sweep(TRACE, **GRID)


def test_every_row_is_what_simulate_says(local: pd.DataFrame) -> None:
    assert len(local) == 4 * 2 * 2 and local["error"].isna().all() and local["run"].is_unique
    order = local[["allocator", "block_size", "reserve", "capacity", "max_batch"]]
    assert [tuple(map(str, row)) for row in order.itertuples(index=False)] == [
        (name, size, rule, capacity, batch)
        for name, size, rule in (
            ("paged", "1.0", "None"),
            ("paged", "16.0", "None"),
            ("buddy", "nan", "max"),
            ("buddy", "nan", "oracle"),
        )
        for capacity in ("3000", "4000")
        for batch in ("4.0", "nan")
    ]
    for row in local.to_dict("records"):
        option = f"block_size={row['block_size']:.0f}" if row["allocator"] == "paged" else f"reserve={row['reserve']}"
        more = "" if row["allocator"] == "paged" else ",min_block=16"
        allocator = make_allocator(f"{row['allocator']}:{option}{more}", row["capacity"], 2048)
        batch = None if np.isnan(row["max_batch"]) else int(row["max_batch"])
        run = simulate(TRACE, allocator, max_batch=batch, max_model_len=2048, cost=StepCost(base="30ms"))
        summary = run.summary()
        for name in ("duration_s", "saturated_s", "iterations", "peak_batch", "mean_batch", "preemptions", "finished"):
            assert row[name] == summary[name]
        assert row["rejected_never_fits"] == summary["rejected"]["never_fits"]
        assert [row[name] for name in CATEGORIES] == [summary["share"][name] for name in CATEGORIES]
        if summary["share_saturated"] is None:
            assert np.isnan(row["used_saturated"])
        else:
            assert [row[f"{name}_saturated"] for name in CATEGORIES] == list(summary["share_saturated"].values())


class Blind(ThreadPoolExecutor):
    """A machine elsewhere: it sees no file of this one."""

    def __init__(self) -> None:
        super().__init__(2)
        self.sent = 0
        simulator.sweeps.sources._kept.clear()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        (job,) = args
        if job.source.columns is None:
            elsewhere = replace(job.source, path=Path("/nowhere/trace.npy"))
            return super().submit(fn, replace(job, source=elsewhere), **kwargs)
        self.sent += 1
        return super().submit(fn, job, **kwargs)


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), lambda: ProcessPoolExecutor(2), Blind])
def test_any_executor_gives_the_same_table(make: Any, local: pd.DataFrame) -> None:
    with make() as executor:
        pd.testing.assert_frame_equal(sweep(TRACE, executor=executor, **GRID), local)
        if isinstance(executor, Blind):
            assert 1 <= executor.sent <= 6 < len(local)  # with no more than are on at once, not with every run


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_larger_grid_goes_on_with_the_file_of_a_smaller(ending: str, local: pd.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / f"grid.{ending}"
    smaller = sweep(TRACE, out=out, **GRID | {"capacity": 4000})
    pd.testing.assert_frame_equal(smaller, local[local["capacity"] == 4000].reset_index(drop=True))
    new: list[int] = []

    class Counting(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            new.append(args[0].capacity)
            return super().submit(fn, *args, **kwargs)

    with Counting(2) as executor:
        larger = sweep(TRACE, out=out, executor=executor, **GRID)
    assert new == [3000] * 8
    pd.testing.assert_frame_equal(larger, local)
    fresh = tmp_path / f"fresh.{ending}"
    sweep(TRACE, out=fresh, **GRID)
    assert fresh.read_bytes() == out.read_bytes()
    assert sorted(tmp_path.iterdir()) == [fresh, out]
    for other in ({"max_batch": 5}, {"capacity": 4000}, {"cost": StepCost()}):
        with pytest.raises(InputError, match="was made by another sweep"):
            sweep(TRACE, out=out, **GRID | other)
    with pytest.raises(InputError, match="was made by another sweep"):
        sweep(TRACE[:-1], out=out, **GRID)
    assert fresh.read_bytes() == out.read_bytes()
    read = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert read["used"].tolist() == local["used"].tolist()


def test_a_run_is_known_by_all_that_it_depends_on() -> None:
    def keys(trace: Any = "sharegpt:duration=5,rate=4", spec: str = "paged", **more: Any) -> set[str]:
        return set(sweep(trace, spec, **{"capacity": 4000, **more}, executor=Same())["run"])

    one = keys()
    assert one == keys(spec="paged:watermark=0.0,block_size=16") == keys(seeds=[0])
    others = [
        keys(spec="paged:block_size=8"),
        keys(capacity=4001),
        keys(max_batch=9),
        keys(cost=StepCost(base="1ms")),
        keys(window_s=(0, 1)),
        keys(seeds=[1]),
        keys("sharegpt:duration=5,rate=4.5"),
        keys(TRACE),
    ]
    assert len(set.union(one, *others)) == 1 + len(others)


class Same(Executor):
    """Carries out what it is given at once, in this thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def test_runs_that_are_asked_for_twice_are_carried_out_once() -> None:
    table = sweep("sharegpt:rate=4,duration=5", ["paged", "paged:block_size={8,16}"], capacity=[4000, 4000])
    assert table["block_size"].tolist() == [16, 8]


def test_a_pool_that_is_too_small_and_an_allocator_that_breaks_are_rows() -> None:
    table = sweep(WORKLOAD, "paged:block_size={16,5000}", capacity=4000)
    assert table["error"].tolist() == [None, "capacity(=4000) must be >= block_size(=5000)"]
    assert table["used"].isna().tolist() == [False, True]


def gated(folder: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, **more: Any) -> pd.DataFrame:
    monkeypatch.setenv("KVFRAG_TEST_FOLDER", str(folder))
    (folder / GO).touch()
    more = {"workers": 2, **more}
    return sweep(WORKLOAD, f"gated.Gated:nth={{0:4}},trouble={trouble}", capacity=4000, **more)


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ("none", None),
        ("raises", "RuntimeError: two lines (gated.py, line "),
        ("leaves", "SystemExit: 3 (gated.py, line "),
        ("interrupts", "KeyboardInterrupt: mine (gated.py, line "),
        ("base", "BaseException: of its own (gated.py, line "),
        ("dies", "its process died, twice: killed, or out of memory"),
        ("dies_once", None),
    ],
)
def test_trouble_in_one_run_leaves_the_others_alone(
    trouble: str, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = gated(tmp_path, monkeypatch, trouble)
    assert table["nth"].tolist() == [0, 1, 2, 3, 4]
    good = table.drop(index=1) if error else table
    assert good["error"].isna().all()
    assert good["used"].nunique() == 1
    run = simulate(Trace.workload("sharegpt", rate=4, duration_s=9), Paged(4000, 16))
    assert good["used"].iloc[0] == run.summary()["share"]["used"]
    if error:
        assert table["error"][1].startswith(error) and np.isnan(table["used"][1])


def test_failed_runs_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "t.csv"
    assert gated(tmp_path, monkeypatch, "raises", out=out)["error"].notna().sum() == 1
    monkeypatch.setattr(Gated, "_make_trouble", lambda *_: None)
    assert gated(tmp_path, monkeypatch, "raises", out=out)["error"].isna().all()
    assert pd.read_csv(out)["error"].isna().all()


def test_an_executor_that_breaks_is_told_and_what_was_done_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t.csv"
    with ProcessPoolExecutor(1) as executor, pytest.raises(LostError, match=r"the executor broke and gave up \d runs?"):
        gated(tmp_path, monkeypatch, "dies_once", executor=executor, out=out)
    assert not out.exists()
    assert gated(tmp_path, monkeypatch, "dies_once", out=out)["error"].isna().all()

    class Leaving(Same):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    with pytest.raises(LostError, match="the executor gave up 1 run"):
        sweep(WORKLOAD, "paged", capacity=4000, executor=Leaving())


def test_a_trace_that_cannot_be_sent_any_more_is_no_run_lost() -> None:
    """The executor breaks at the very moment when a run is handed to it for the second time."""

    class Breaking(Blind):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            if args[0].source.columns is not None:
                raise BrokenExecutor("gone")
            return super().submit(fn, *args, **kwargs)

    with Breaking() as executor, pytest.raises(LostError, match="the executor broke and gave up 2 runs"):
        sweep(TRACE, executor=executor, **GRID)


def test_a_worker_of_another_version_is_told() -> None:
    class Old(Same):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            return super().submit(fn, replace(args[0], version="0.0.9"), **kwargs)

    table = sweep(WORKLOAD, "paged", capacity=4000, executor=Old())
    assert table["error"][0].endswith(", and the sweep is of 0.0.9")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"allocators": []}, "an empty grid has no runs"),
        ({"allocators": "pagd"}, "allocator pagd: unknown allocator 'pagd'"),
        ({"allocators": "paged:size=1"}, "unknown option 'size' of paged"),
        ({"allocators": "paged:block_size={1,0}"}, r"allocator paged:block_size=0: block_size\(=0\)"),
        ({"allocators": "contiguous"}, "max_model_len.*must be given with reserve=max"),
        ({"capacity": []}, "capacity has no value"),
        ({"max_batch": []}, "max_batch has no value"),
        ({"max_batch": [0]}, r"max_batch\(=0\)"),
        ({"batch": 3}, r"unknown setting 'batch' \(did you mean max_batch\?\); choose from cost, max_model_len"),
        ({"seeds": 2}, "seeds are for workloads"),
        ({"rate": "1:0:1"}, "is empty"),
        ({"allocators": None}, r"allocator\(=None\) must be an allocator.* or its spec"),
        ({"allocators": [1]}, r"allocator\(=1\) must be an allocator"),
        ({"executor": "x"}, r"executor\(='x'\) must be an Executor"),
        ({"trace": None}, r"trace\(=None\) must be a Trace"),
        ({"rate": True}, r"rate\(=True\)"),
        ({"workers": 0}, r"workers\(=0\) must be a whole number >= 1"),
        ({"capacity": range(1, 90_001), "max_batch": [1, 2]}, "the grid has 180,000 runs; 100,000 is the most"),
    ],
)
def test_what_is_wrong_with_the_grid_is_told_before_anything_runs(changed: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"trace": TRACE, "allocators": "paged", "capacity": 4000} | changed
    with pytest.raises(InputError, match=message):
        sweep(**arguments)


def test_a_grid_that_is_too_large_is_not_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.server.settings.Settings.__post_init__", lambda *_: pytest.fail("it is"))
    with pytest.raises(InputError, match="the grid has 4,000,000 runs; 100,000 is the most"):
        sweep(TRACE, "paged", capacity=4000, max_batch="1:2000", max_batch_tokens=np.arange(1, 2001))


def test_an_executor_that_was_shut_down_is_told(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        pass
    with pytest.raises(LostError, match="the executor takes no runs: cannot schedule new futures after shutdown"):
        sweep(WORKLOAD, "paged", capacity=4000, executor=executor, out=tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    source = tmp_path / "t.csv"
    TRACE.write(source)
    for out, message in (
        (tmp_path / "none" / "t.csv", "cannot be written: there is no folder"),
        (source, "must not be the same file as an input"),
        (tmp_path, "cannot be written: Is a directory"),
    ):
        with pytest.raises(InputError, match=message):
            sweep(source, "paged", capacity=4000, out=out)


def test_options_with_a_columns_name_and_of_mixed_kinds() -> None:
    table = sweep(WORKLOAD, ["test_sweeping.Named:rate={1,x},max_block=none"], capacity=4000, executor=Same())
    assert table["allocator"].tolist() == ["test_sweeping.Named"] * 2
    assert table["allocator_rate"].tolist() == ["1", "x"]
    assert table["max_block"].isna().all() and table["rate"].tolist() == [4.0, 4.0]


class Named(Paged):
    """One of a user's own, whose options are called like columns, and whose spec does not tell them."""

    def __init__(self, capacity: int, rate: str = "x", max_block: int | None = None) -> None:
        super().__init__(capacity, 16)
        self.rate, self.most = rate, max_block

    @property
    def spec(self) -> str:
        return "named"


def test_progress_counts_runs_and_failures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("simulator.messages.progress.AFTER_S", 0.0)
    sweep(WORKLOAD, "paged:block_size={16,5000}", capacity=4000, executor=Same(), progress=True)
    told = capsys.readouterr().err
    assert "sweep: 100%" in told and "2/2" in told and "failed=1" in told
    sweep(WORKLOAD, "paged", capacity=4000, executor=Same(), progress=False)
    assert capsys.readouterr().err == ""


def test_this_machine_has_cores() -> None:
    assert executors.cores() >= 1
