"""The same sweep on a real Dask cluster: two worker processes on loopback, one of them killed in the middle."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen

import pytest

from gated import GO, gated_sweep, results_in, started, wait_until

distributed = pytest.importorskip("distributed")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[Popen[str]]]]:
    """The scheduler's address, its process, and the two workers'."""
    found = tmp_path / "scheduler.json"
    with ExitStack() as stack:

        def dask(role: str, *arguments: str) -> Popen[str]:
            command = (sys.executable, "-m", f"distributed.cli.dask_{role}", "--scheduler-file", str(found))
            return stack.enter_context(started(tmp_path, *command, "--no-dashboard", *arguments))

        scheduler = dask("scheduler", "--host", "127.0.0.1", "--port", "0")
        wait_until(lambda: found.exists() and found.read_text().endswith("}"), scheduler)
        workers = [dask("worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny") for _ in range(2)]
        yield json.loads(found.read_text())["address"], [scheduler, *workers]


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
