"""Small runs whose every slot is known by heart, for the tests of pictures; the lessons' own among them."""

from functools import cache

from allocators import Allocator, Buddy, Contiguous, Paged
from simulator import Run, StepCost, Trace, simulate
from simulator.examples.lessons import SECOND
from simulator.examples.lessons import buddy_run as buddies
from simulator.examples.lessons import figure6_run as figure6

__all__ = ["SECOND", "buddies", "busy", "figure6", "reserved"]


@cache
def reserved() -> Run:
    """Three requests that reserve 40 slots each of 100, one of them longer than the others."""
    trace = Trace.from_columns([0, 0, 0], [10, 5, 3], [21, 11, 4])
    return simulate(trace, Contiguous(100, max_model_len=40), cost=SECOND, decisions=True, layout_times_s=[2.0])


@cache
def busy(spec: str = "paged") -> Run:
    """ShareGPT's requests for half a minute in a pool that is too small for them; ``paged``, ``oracle`` or ``max``."""
    trace = Trace.workload("sharegpt", rate=2.0, duration_s=30, seed=0, max_total=511)
    allocators: dict[str, Allocator] = {
        "paged": Paged(3000, 16),
        "oracle": Buddy(3000, "oracle", min_block=16, max_block=512, max_model_len=512),
        "max": Contiguous(3000, max_model_len=512),
    }
    cost = StepCost("25ms", "100us", "200us", "1us")
    return simulate(trace, allocators[spec], cost=cost, max_model_len=512, max_batch=32, decisions=True)
