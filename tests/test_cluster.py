"""The same sweep on a real Dask cluster: two worker processes on loopback, killed in the middle, or without kvfrag."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace

import pytest

from gated import GO, TESTS, gated_sweep, results_in, started, wait_until
from simulator import sweep
from simulator.sweeps import cluster as module
from simulator.sweeps.executors import LostError

distributed = pytest.importorskip("distributed")


WITHOUT_KVFRAG = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("allocators", "simulator", "gated"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
"""The sitecustomize of a Python that has all but kvfrag."""


class Cluster:
    """A scheduler on loopback, and workers as they are asked for."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        (folder / "bare").mkdir()
        (folder / "bare" / "sitecustomize.py").write_text(WITHOUT_KVFRAG)

    def dask(self, role: str, *arguments: str, bare: bool = False) -> Popen[str]:
        """Start a process of the cluster. ``bare``: of a Python without kvfrag."""
        found = str(self.folder / "scheduler.json")
        command = (sys.executable, "-m", f"distributed.cli.dask_{role}", "--scheduler-file", found, "--no-dashboard")
        path = self.folder / "bare" if bare else TESTS
        return self._stack.enter_context(started(self.folder, *command, "--host", "127.0.0.1", *arguments, path=path))

    def scheduler(self, bare: bool = False) -> tuple[str, Popen[str]]:
        """Start the scheduler; its address, and its process."""
        found = self.folder / "scheduler.json"
        process = self.dask("scheduler", "--port", "0", bare=bare)
        wait_until(lambda: found.exists() and found.read_text().endswith("}"), process)
        return json.loads(found.read_text())["address"], process

    def worker(self, bare: bool = False) -> Popen[str]:
        return self.dask("worker", "--nthreads", "1", "--no-nanny", bare=bare)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


@pytest.fixture
def cluster(own_cluster: Cluster) -> tuple[str, list[Popen[str]]]:
    """The scheduler's address, its process, and the two workers'."""
    address, scheduler = own_cluster.scheduler()
    return address, [scheduler, own_cluster.worker(), own_cluster.worker()]


@pytest.mark.whole
def test_a_worker_that_is_killed_in_the_middle_changes_no_row(
    cluster: tuple[str, list[Popen[str]]], tmp_path: Path
) -> None:
    address, (_, *workers) = cluster
    far = [*gated_sweep("far.csv", last=8)[:-2], "--dask", address]
    with started(tmp_path, *far) as process:
        # Two runs are done, and both workers stand at the gate.
        wait_until(lambda: results_in(tmp_path / "far.csv.partial") == 2, process)
        wait_until(lambda: len(list(tmp_path.glob("pid-*"))) == 2, process)
        os.kill(workers[0].pid, signal.SIGKILL)
        workers[0].wait()
        (tmp_path / GO).touch()
        _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    with started(tmp_path, *gated_sweep("local.csv", last=8)) as process:
        process.communicate(timeout=120)
    assert (tmp_path / "far.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
    assert len((tmp_path / "far.csv").read_text().splitlines()) == 1 + 9


@pytest.mark.parametrize("ends", ["interrupted", "scheduler gone"])
def test_an_end_in_the_middle_is_told_in_one_line_and_what_was_done_is_kept(
    ends: str, cluster: tuple[str, list[Popen[str]]], tmp_path: Path
) -> None:
    address, (scheduler, *_) = cluster
    far = [*gated_sweep("far.csv")[:-2], "--dask", address]
    with started(tmp_path, *far) as process:
        wait_until(lambda: results_in(tmp_path / "far.csv.partial") == 2, process)
        os.kill(*((process.pid, signal.SIGINT) if ends == "interrupted" else (scheduler.pid, signal.SIGKILL)))
        out, told = process.communicate(timeout=120)
    kept = "2 runs are kept in far.csv.partial, and the same command goes on\n"
    if ends == "interrupted":
        assert (process.returncode, out, told) == (130, "", f"kvfrag: interrupted; {kept}")
    else:
        assert (process.returncode, out, told) == (1, "", f"kvfrag: the executor gave up 4 runs; {kept}")


def test_a_workers_address_is_told_in_one_line(cluster: tuple[str, list[Popen[str]]], tmp_path: Path) -> None:
    address, (scheduler, *_) = cluster
    with distributed.Client(address) as client:
        client.wait_for_workers(2)
        worker = next(iter(client.scheduler_info()["workers"]))
    with started(tmp_path, *gated_sweep("far.csv")[:-2], "--dask", worker) as process:
        out, told = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, ""), told
    assert told.startswith(f"kvfrag: --dask(={worker}): no scheduler answers there") and told.count("\n") == 1
    assert scheduler.poll() is None and not list(tmp_path.glob("far*"))


def test_that_nobody_works_is_said_to_those_who_asked_for_quiet_too(
    cluster: tuple[str, list[Popen[str]]], tmp_path: Path
) -> None:
    address, (_, *workers) = cluster
    for worker in workers:
        worker.kill()
        worker.wait()
    with started(tmp_path, *gated_sweep("far.csv")[:-2], "--dask", address, "--quiet") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"no worker has joined {address} yet; dask worker {address} starts some\n"


@pytest.mark.parametrize("also_the_scheduler", [False, True])
def test_a_worker_without_kvfrag_ends_the_sweep_in_one_line_that_names_it(
    also_the_scheduler: bool, own_cluster: Cluster, tmp_path: Path
) -> None:
    address, _ = own_cluster.scheduler(bare=also_the_scheduler)
    worker = own_cluster.worker(bare=True)
    with distributed.Client(address) as client:
        client.wait_for_workers(1)
        name = next(iter(client.scheduler_info()["workers"]))
    with started(tmp_path, *gated_sweep("far.csv")[:-2], "--dask", address) as process:
        out, told = process.communicate(timeout=120)
    lacks = "has no kvfrag, or not the one that asks (ModuleNotFoundError: No module named 'simulator')"
    assert (process.returncode, out) == (1, ""), told
    assert told == f"kvfrag: a worker cannot carry out runs: {name} {lacks}; no run was done yet\n"
    assert worker.poll() is None


def test_one_worker_without_kvfrag_among_others_ends_it_too_and_what_was_done_is_kept(
    cluster: tuple[str, list[Popen[str]]], own_cluster: Cluster, tmp_path: Path
) -> None:
    address, _ = cluster
    with started(tmp_path, *gated_sweep("far.csv")[:-2], "--dask", address) as process:
        # Two runs are done, and both workers stand at the gate when the third one comes.
        wait_until(lambda: results_in(tmp_path / "far.csv.partial") == 2, process)
        wait_until(lambda: len(list(tmp_path.glob("pid-*"))) == 2, process)
        own_cluster.worker(bare=True)
        out, told = process.communicate(timeout=120)
    assert (process.returncode, out, told.count("\n")) == (1, "", 1), told
    assert "No module named 'simulator'); 2 runs are kept in far.csv.partial, and the same command goes on" in told


@pytest.mark.whole
def test_when_all_workers_have_gone_it_waits_a_little_and_ends(
    cluster: tuple[str, list[Popen[str]]], tmp_path: Path
) -> None:
    address, (_, *workers) = cluster
    with started(tmp_path, *gated_sweep("far.csv")[:-2], "--dask", address) as process:
        wait_until(lambda: results_in(tmp_path / "far.csv.partial") == 2, process)
        for worker in workers:
            worker.kill()
            worker.wait()
        out, told = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert told.splitlines() == [
        "all workers have left the cluster; others may come within 10 s",
        "kvfrag: all workers have left the cluster; 2 runs are kept in far.csv.partial, and the same command goes on",
    ]


@pytest.mark.whole
def test_workers_that_come_in_time_go_on_where_others_left(
    cluster: tuple[str, list[Popen[str]]], own_cluster: Cluster, tmp_path: Path
) -> None:
    address, (_, *workers) = cluster
    with started(tmp_path, *gated_sweep("far.csv")[:-2], "--dask", address) as process:
        wait_until(lambda: results_in(tmp_path / "far.csv.partial") == 2, process)
        (tmp_path / GO).touch()
        for worker in workers:
            worker.kill()
        own_cluster.worker()
        out, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert out.startswith("sharegpt:rate=4,duration=9: 6 runs, 6 settings\n")


def test_the_executor_of_ones_own_client_is_watched_too(cluster: tuple[str, list[Popen[str]]]) -> None:
    address, _ = cluster
    with distributed.Client(address, set_as_default=False) as client:
        client.wait_for_workers(2)
        executor = client.get_executor(pure=False)
        watched = module.cluster_of(executor, str)
        assert watched is not None and module.cluster_of(watched, str) is watched
        watched.check()
        table = sweep("sharegpt:rate=4,duration=9", "paged", capacity=4000, executor=executor, progress=False)
        assert table["error"].tolist() == [None]
    with ThreadPoolExecutor(1) as other:
        assert module.cluster_of(other, str) is None


def test_a_cluster_that_had_workers_and_has_none_is_given_up_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    now, workers, told = [100.0], [0], list[str]()
    monkeypatch.setattr("simulator.sweeps.cluster.monotonic", lambda: now[0])
    one = module.Cluster(SimpleNamespace(_client=None), told.append)  # type: ignore[arg-type]
    monkeypatch.setattr(one, "_workers", lambda: workers[0])

    def later(seconds: float) -> None:
        now[0] += seconds
        one.check()

    for _ in range(100):
        later(60)  # nobody has come yet, and somebody may
    workers[0] = 1
    later(5)
    workers[0] = 0
    later(5)
    assert told == ["all workers have left the cluster; others may come within 10 s"]
    workers[0] = 1
    later(9.9)
    workers[0] = 0
    later(5)
    later(9.9)
    with pytest.raises(LostError, match="all workers have left the cluster"):
        later(1)
    assert len(told) == 2
