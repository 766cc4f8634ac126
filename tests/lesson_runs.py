"""Small runs whose every slot is known by heart, for the tests of pictures."""

from functools import cache

from allocators import Allocator, Buddy, Contiguous, Paged
from simulator import Run, StepCost, Trace, simulate

SECOND = StepCost("1s", "0", "0")
"""An iteration a second."""


@cache
def figure6() -> Run:
    """The paper's Figure 6: 7 tokens in blocks of 4, three more written; beside it a second request of 6."""
    return simulate(Trace.from_columns([0, 0], [7, 6], [4, 5]), Paged(34, 4), cost=SECOND, decisions=True)


@cache
def buddies() -> Run:
    """The lesson's pool of 128: A = 32 in 0-31, B = 16 in 64-79, C = 7 in 32-39; D = 64 is refused, 72 being free."""
    trace = Trace.from_columns([0, 0, 0, 10**9], [20, 10, 5, 60], [13, 7, 3, 5])
    return simulate(trace, Buddy(128, "oracle", split="largest"), cost=SECOND, decisions=True)


@cache
def reserved() -> Run:
    """Three requests that reserve 40 slots each of 100, one of them longer than the others."""
    trace = Trace.from_columns([0, 0, 0], [10, 5, 3], [21, 11, 4])
    return simulate(trace, Contiguous(100, max_model_len=40), cost=SECOND, decisions=True, layout_times_s=[2.0])


@cache
def busy(spec: str = "paged") -> Run:
    """A minute of ShareGPT's requests in a pool that is too small for them; ``paged``, ``oracle`` or ``max``."""
    trace = Trace.workload("sharegpt", rate=2.0, duration_s=30, seed=0, max_total=511)
    allocators: dict[str, Allocator] = {
        "paged": Paged(3000, 16),
        "oracle": Buddy(3000, "oracle", min_block=16, max_block=512, max_model_len=512),
        "max": Contiguous(3000, max_model_len=512),
    }
    cost = StepCost("25ms", "100us", "200us", "1us")
    return simulate(trace, allocators[spec], cost=cost, max_model_len=512, max_batch=32, decisions=True)
