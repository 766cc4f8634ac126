"""A trace, an allocator and settings through the compiled loop: what :func:`simulator.replay.simulate` does."""

from typing import Any

import numpy as np
import pandas as pd
from numba import njit

from allocators import Buddy, Contiguous, Paged
from allocators.base import Allocator, Extent
from simulator.core import pool as ask
from simulator.core.batch import NEVER, Batch, Log, new_batch
from simulator.core.buddy import SMALLEST, LARGEST, buddy_pool
from simulator.core.contiguous import contiguous_pool
from simulator.core.fcfs import Fcfs
from simulator.core.foreign import foreign_pool
from simulator.core.loop import BROKEN, FAR, FULL, IDLE, LOOK, PRODUCTS, REACHED, Cost, advance, new_clock, new_ledger
from simulator.core.paged import paged_pool
from simulator.core.queue import new_queue
from simulator.core.seam import record
from simulator.core.wide import integers

_RESERVE = {"max": 0, "pow2": 1, "oracle": 2}
_FIT = {"first": 0, "best": 1, "worst": 2, "next": 3}


def state_of(a: Allocator, seats: int) -> Any:
    if type(a) is Paged:
        return paged_pool(a.capacity, a.block_size, a.watermark_blocks, seats)
    if type(a) is Contiguous:
        return contiguous_pool(a.capacity, _RESERVE[a.reserve], _FIT[a.fit], a.max_model_len or 0, seats + 2)
    if type(a) is Buddy:
        split = SMALLEST if a.split == "smallest" else LARGEST
        return buddy_pool(a.capacity, _RESERVE[a.reserve], a.max_model_len or 0, a.min_block, a._top, split, seats)
    return foreign_pool(a, seats)


@njit(cache=True, _nrt=False)
def reject(pool, prompt, output, limit, truncate, status):
    for row in range(len(prompt)):
        if limit and prompt[row] + output[row] > limit:
            if not truncate or prompt[row] >= limit:
                status[row] = 1
                continue
            output[row] = limit - prompt[row]
        if not ask.fits_empty(pool, prompt[row], output[row]):
            status[row] = 2


def serve(trace, allocator, settings, edges, layout_times_ps=(), log_on=False):
    prompt, output = trace.prompt_tokens.copy(), trace.output_tokens.copy()
    arrival = trace.arrival_ns * 1000
    n = len(prompt)
    seats = min(n, settings.max_batch or n, allocator.capacity) + 1
    pool = state_of(allocator, seats)
    status = np.zeros(n, np.int8)
    reject(pool, prompt, output, settings.max_model_len or 0, settings.too_long == "truncate", status)
    rows = np.flatnonzero(status == 0)
    queue = new_queue(arrival[rows], prompt[rows], output[rows], seats)
    batch = new_batch(seats)
    clock, ledger = new_clock(), new_ledger(np.array(edges, np.int64), allocator.capacity)
    room = 4 * seats + 16
    extents = allocator.capacity if log_on else 0
    log = Log(
        record(on=log_on, events=0, extents=0, room_events=1 << 16, room_extents=1 << 16),
        np.zeros(((1 << 16) + room if log_on else 1, 7), np.int64),
        np.zeros(((1 << 16) + extents, 2) if log_on else (1, 2), np.int64),
    )
    c = settings.cost
    cost = Cost(c.base, c.prefill_token, c.sequence, c.kv_token, c.swapped_token)
    swap = settings.swap_slots if settings.preemption == "swap" else -1
    policy = Fcfs(settings.max_batch or NEVER, settings.max_batch_tokens or NEVER, swap, allocator.contiguous, allocator.tail_slots)
    until = settings.window_ps[1] if settings.window_ps else NEVER
    looks = list(layout_times_ps)
    layouts = []
    while True:
        look = looks[0] if looks else NEVER
        why = advance(policy, batch, queue, pool, log, cost, ledger, clock, until, look)
        if why == LOOK:
            layouts.append(layout(batch, pool, clock, cost, looks.pop(0), rows))
        elif why == FULL:
            raise NotImplementedError
        else:
            break
    if why == BROKEN:
        raise RuntimeError("broken")
    if why == FAR:
        raise NotImplementedError("far")
    layouts += [(time, None, {}) for time in looks]
    return dict(status=status, rows=rows, queue=queue, batch=batch, clock=clock, ledger=ledger, layouts=layouts, arrival=arrival,
                output=output, stopped=why == REACHED, sums=integers(ledger.sums), log=log)


def layout(batch, pool, clock, cost, time, rows):
    if not clock.planned:
        return time, None, {}
    left, step = time - clock.now - clock.extra_ps, cost.kv_token * batch.now.count
    passed = 0
    while passed + 1 < clock.count and (passed + 1) * clock.first_ps + step * ((passed + 1) * passed // 2) <= left:
        passed += 1
    at = clock.iteration + passed
    held = {}
    for k in range(batch.now.count):
        extents = np.zeros((int(batch.held[k]), 2), np.int64)
        count = ask.copy_extents(pool, batch.seat[k], extents, 0)
        held[int(rows[batch.request[k]])] = ([tuple(e) for e in extents[:count].tolist()], int(batch.offset[k] + at))
    return time, int(at), held
