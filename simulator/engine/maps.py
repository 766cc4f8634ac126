"""The memory map of a server at an instant within the iterations that it has planned: who holds what."""

from allocators.base import Extent
from simulator.engine import loop
from simulator.engine.layout import Allocation, Layout
from simulator.engine.server import Server


def layout_of(server: Server, time_ps: int) -> Layout:
    """At a time that the planned iterations hold, their writes included; else nobody runs then."""
    batch, clock = server.batch, server.clock
    if not clock.planned:
        return Layout(time_ps, None, ())
    passed = _passed(server, time_ps - server.now_ps - int(clock.extra_ps))
    at = int(clock.iteration) + passed
    allocations = tuple(_allocation(server, seat, at) for seat in server.seats())
    used = int(batch.now.used) + passed * int(batch.now.count)
    return Layout(time_ps, at, allocations, used, int(server.allocator.capacity - batch.now.free))


def _passed(server: Server, left_ps: int) -> int:
    """Of the planned iterations, how many end within this time from the end of the prefill."""
    first_ps, step_ps = int(server.clock.first_ps), server.cost.kv_token * int(server.batch.now.count)
    low, high = 0, int(server.clock.count) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if loop.series(first_ps, step_ps, middle) <= left_ps else (low, middle - 1)
    return low


def _allocation(server: Server, seat: int, iteration: int) -> Allocation:
    batch = server.batch
    return Allocation(
        int(server.rows[batch.request[seat]]),
        tuple(Extent(*extent) for extent in server.extents(seat, int(batch.held[seat])).tolist()),
        written_tokens=int(batch.offset[seat]) + iteration,
        final_tokens=int(batch.final[seat]),
        overprovision_slots=int(batch.over[seat]),
    )
