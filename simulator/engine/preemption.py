"""What becomes of a request that loses its memory: its token states are computed again, or kept on the host."""

from typing import Any

from allocators.seam import rule
from simulator.engine.batch import Batch, drop_newest
from simulator.engine.log import Log
from simulator.engine.queue import Queue, put_back


@rule
def preempt_newest(batch: Batch, queue: Queue, pool: Any, log: Log, clock: Any, swap_slots: int) -> None:
    """Take all memory from the newest request. Its states go to the host if that has room among ``swap_slots``."""
    row = batch.request[batch.order[batch.now.count - 1]]
    states = drop_newest(batch, pool, log, clock)
    put_back(queue, clock, row, states)
    if queue.now.host + states <= swap_slots:
        queue.host[row] = states
        queue.now.host += states
        clock.swapped += states
