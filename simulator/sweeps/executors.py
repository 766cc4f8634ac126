"""Where the runs of a sweep are carried out: on the cores of this machine, or by any executor.

Every executor of ``concurrent.futures`` will do; for that of a Dask cluster see :mod:`simulator.sweeps.cluster`.
"""

import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from simulator.messages.words import counted
from simulator.sweeps.jobs import Job, Outcome, carry_out
from simulator.sweeps.sources import UnseenError

OnDone = Callable[[Job, Outcome], object]
Check = Callable[[], object]

_AHEAD = 2  # runs handed over for each worker: one that is on, and one that waits beside it
_CHECK_S = 1.0


class LostError(Exception):
    """An executor gave up runs that were handed to it, or cannot start."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_here(jobs: list[Job], workers: int, done: OnDone, say: Callable[[str], object]) -> None:
    """Carry out jobs in so many processes of this machine. ``done`` hears of each, in the order they end.

    A process that dies takes all those of its pool along. The runs that were on are then repeated, each in a process
    of its own: one that dies again has failed, and the others are none the worse. ``say`` hears of it.
    """
    waiting = deque(jobs)
    while waiting:
        with _processes(min(workers, len(waiting))) as pool:
            suspects = _carry_out_all(pool, waiting, done, workers)
        if suspects:
            say("a worker process died; the runs that were on are repeated, one by one")
        for job in suspects:
            with _processes(1) as alone:
                if _carry_out_all(alone, deque([job]), done, 1):
                    done(job, Outcome(error="its process died, twice: killed, or out of memory"))


def run_elsewhere(jobs: list[Job], executor: Executor, done: OnDone, check: Check | None = None) -> None:
    """Carry out jobs by any executor. Raises LostError when it gives up.

    ``check`` is called about once a second until all is done, and raises LostError when no more will come.
    """
    lost = _carry_out_all(executor, deque(jobs), done, check=check)
    if lost:
        raise LostError(f"the executor broke and gave up {counted(len(lost), 'run')}")


def _carry_out_all(
    executor: Executor, waiting: deque[Job], done: OnDone, workers: int = 0, check: Check | None = None
) -> list[Job]:
    """Carry out all that waits; returns those that were handed over when the executor broke, and leaves the rest.

    Few are handed over at once: then it is known which ones were on, and a trace that has to be sent is sent with few.
    How many ``workers`` there are is found out where it is not known: one more than were heard of.
    """
    heard_of: set[str] = set()
    handed: dict[Future[Outcome], Job] = {}
    ended: SimpleQueue[Future[Outcome]] = SimpleQueue()

    def hand(job: Job) -> None:
        try:
            future = executor.submit(carry_out, job)
        except BrokenExecutor:
            raise
        except Exception as error:  # it was shut down, or its cluster is gone
            raise LostError(f"the executor takes no runs: {' '.join(str(error).split())}") from error
        handed[future] = job
        future.add_done_callback(ended.put)

    try:
        while waiting or handed:
            while waiting and len(handed) < _AHEAD * (workers or len(heard_of) + 1):
                hand(waiting[0])
                waiting.popleft()
            future = _next(ended, check)
            job = handed[future]
            try:
                outcome = _outcome_of(future, len(handed))
            except UnseenError:
                hand(job.with_columns())
                del handed[future]
                continue
            del handed[future]
            heard_of.add(outcome.worker)
            done(job, outcome)
    except BrokenExecutor:
        return list(handed.values())
    except BaseException:
        for future in handed:
            future.cancel()
        raise
    return []


def _outcome_of(future: "Future[Outcome]", handed: int) -> Outcome:
    """How a run ended. Raises UnseenError when its worker has not seen the trace, BrokenExecutor and LostError when no
    more will come; ``handed``: how many were handed over."""
    try:
        return future.result()
    except (UnseenError, BrokenExecutor):
        raise
    except CancelledError:
        raise LostError(f"the executor gave up {counted(handed, 'run')}") from None
    except ImportError as error:  # a run's own are in its outcome: this is of who should carry it out
        raise LostError(f"a worker cannot carry out runs: {' '.join(str(error).split())}") from None
    except Exception as error:
        return Outcome(error=" ".join(f"{type(error).__name__}: {error}".split()))


def _next(ended: "SimpleQueue[Future[Outcome]]", check: Check | None) -> "Future[Outcome]":
    """What ends next."""
    if check is None:
        return ended.get()
    while True:
        check()
        try:
            return ended.get(timeout=_CHECK_S)
        except Empty:
            continue


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that are gone at the end, at once if it is an exception's."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, initializer=_settle_in)
    try:
        try:
            with _deaf_to_interrupts():
                pool.submit(int).result()  # starts them
        except BrokenExecutor:
            raise LostError('no process can be started; a script needs if __name__ == "__main__": around it') from None
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What starts here never sees Ctrl-C, which goes to all processes of a terminal: the one that asked for it does.

    SIGTERM is blocked too, until a new process has settled in.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _settle_in() -> None:
    """In a new process: leave when the one that asked for it is gone, however it went."""
    gc.freeze()  # what it was born with is no garbage, and need not be looked through again and again
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
