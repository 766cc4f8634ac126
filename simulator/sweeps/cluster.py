"""The runs of a sweep on a Dask cluster: its scheduler found, its workers watched, whatever goes wrong told.

Dask itself keeps silent and waits for ever where a worker lacks a module that a task needs (the worker ends), and where
all workers have left. So runs travel as bytes, which a worker unpacks in a task and not before, and somebody looks from
time to time whether a worker is there.
"""

import asyncio
import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from time import monotonic
from typing import Any

from allocators.base import InputError
from allocators.dotted import optional
from simulator.sweeps.executors import LostError

GRACE_S = 10.0
"""How long a cluster may be without a worker once it has had one: a worker that is restarted is back by then."""

_TIMEOUT_S = 3
_LOOK_S = 1.0


class Cluster(Executor):
    """The executor of a Dask client, ``client.get_executor()``, and whether anybody works there.

    ``say`` hears that the workers have left, before :meth:`check` gives up.
    """

    def __init__(self, executor: Executor, say: Callable[[str], object]) -> None:
        self._executor, self._say = executor, say
        self._client: Any = executor._client  # type: ignore[attr-defined]
        self._far = _unpacked_there()
        self._has_had_workers = False
        self._looked_s = self._alone_since_s = 0.0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a function called on a worker. The future raises ImportError where the worker lacks kvfrag."""
        return self._executor.submit(self._far, pickle.dumps((function, args, kwargs)))

    def check(self) -> None:
        """Raise LostError when the cluster has had workers, and has had none for :data:`GRACE_S` seconds.

        One that never had any is waited for.
        """
        now_s = monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return
        workers, self._looked_s = self._workers(), now_s
        if workers is None or (not workers and not self._has_had_workers):
            return
        if workers:
            self._has_had_workers, self._alone_since_s = True, 0.0
        elif not self._alone_since_s:
            self._alone_since_s = now_s
            self._say(f"all workers have left the cluster; others may come within {GRACE_S:g} s")
        elif now_s - self._alone_since_s >= GRACE_S:
            raise LostError("all workers have left the cluster")

    def _workers(self) -> int | None:
        """How many there are; None: the scheduler does not say, and if it is gone the runs' futures will tell."""
        if self._client.status != "running":
            return None
        try:
            return len(self._client.sync(self._client.scheduler.ncores, callback_timeout=_TIMEOUT_S))
        except Exception:  # whatever a connection that breaks may raise
            return None


def cluster_of(executor: Executor, say: Callable[[str], object]) -> Cluster | None:
    """A Dask client's executor as a :class:`Cluster`; None for any other."""
    if isinstance(executor, Cluster):
        return executor
    module = sys.modules.get("distributed.cfexecutor")
    is_dask = module is not None and isinstance(executor, module.ClientExecutor)
    return Cluster(executor, say) if is_dask else None


def _unpacked_there() -> Callable[[bytes], Any]:
    """A function that unpacks a call, and makes it.

    Being nested it travels by value: a worker that lacks kvfrag has the function nevertheless, and says so.
    """

    def carry_out(packed: bytes) -> Any:
        import pickle

        from distributed import get_worker

        try:
            function, args, kwargs = pickle.loads(packed)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise ImportError(f"{get_worker().address} has no kvfrag, or not the one that asks ({told})") from None
        return function(*args, **kwargs)

    return carry_out


@contextmanager
def dask_executor(address: str, say: Callable[[str], object]) -> Iterator[Cluster]:
    """The executor of a Dask cluster, by its scheduler's address, ``tcp://host:8786``. ``say`` hears when nobody works.

    Raises InputError when dask.distributed is not installed, or no scheduler answers within seconds.
    """
    distributed = optional("distributed", "a Dask cluster needs dask.distributed: pip install 'kvfrag[cluster]'")

    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is told here, and in one line

    async def call() -> None:
        comm = await distributed.comm.connect(address, timeout=_TIMEOUT_S)
        try:
            # A worker answers too; a scheduler knows of workers.
            (await distributed.core.send_recv(comm, op="identity"))["workers"]
        finally:
            comm.abort()

    try:
        # First by hand: a client that fails leaves threads behind, and is long in leaving itself.
        asyncio.run(asyncio.wait_for(call(), 2 * _TIMEOUT_S))
        client = distributed.Client(address, timeout=_TIMEOUT_S, set_as_default=False)
    except Exception:  # whatever answers there may say anything
        raise InputError(
            f"--dask(={address}): no scheduler answers there; dask scheduler starts one, at an address such as "
            "tcp://host:8786"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_TIMEOUT_S)
        except TimeoutError:
            say(f"no worker has joined {address} yet; dask worker {address} starts some")
        # Impure, that is: a run that is asked for again is carried out again.
        yield Cluster(client.get_executor(pure=False), say)
