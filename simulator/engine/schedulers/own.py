"""A scheduler of a user's own, in plain Python, behind the question that the loop asks.

The arrays of a server are the same for compiled code and for Python, so all that crosses over is a number: the function
works on the server itself, with the rules in ``steps.py`` as they stand. What it decides is checked each time.
"""

from typing import NamedTuple

from numba import objmode

from allocators.seam import answer
from simulator.engine.queue import NOBODY, PREEMPTED
from simulator.engine.schedulers import Scheduler, State
from simulator.engine.schedulers.named import name_of
from simulator.engine.schedulers.seam import ONE, UNTIL_LEAVING, schedule
from simulator.engine.schedulers.steps import NOT_WAITING, waiting

_OWN: dict[int, tuple[Scheduler, State]] = {}

_REASONS = "NOBODY, EXTERNAL, RESIDUAL, BATCH, TOKENS or PREEMPTED of simulator.engine.schedulers"


class Own(NamedTuple):
    """A number that stands for the function and the server."""

    handle: int


def own_policy(function: Scheduler, state: State) -> Own:
    """What asks the function about this server; until it is forgotten."""
    handle = next(number for number in range(len(_OWN) + 1) if number not in _OWN)
    _OWN[handle] = function, state
    return Own(handle)


def forget(policy: Own) -> None:
    """Let go of the function and the server."""
    del _OWN[policy.handle]


def _decide(handle: int) -> int:
    function, state = _OWN[handle]
    preemptions = int(state.queue.now.preemptions)
    why = function(state)
    broken = _broken(state, why, int(state.queue.now.preemptions) - preemptions)
    if broken:
        raise RuntimeError(
            f"scheduler {name_of(function)} broke a promise: {broken} (iteration {state.clock.iteration}); "
            "simulator.check_scheduler tells more"
        )
    return int(why)


def _broken(state: State, why: object, preemptions: int) -> str:
    """What a decision breaks; nothing as a rule."""
    batch, clock = state.batch.now, state.clock
    running, head = int(batch.count), int(clock.head)
    if clock.broken == NOT_WAITING:
        return f"it admits row {head}, which does not wait"
    if clock.broken:
        return ""  # by the allocator, which is told elsewhere
    if isinstance(why, bool) or not hasattr(why, "__index__") or not NOBODY <= why <= PREEMPTED:  # type: ignore[operator]
        return f"it returns {why!r}, and not {_REASONS}"
    if batch.next_grow <= clock.iteration:
        return "a running request has no room for its next token; grow(state) first"
    if running > state.limits.max_batch:
        return f"{running} requests run, and max_batch is {state.limits.max_batch}"
    tokens = running + int(clock.joining)
    if tokens > state.limits.max_batch_tokens and running > 1 and clock.joining:
        return f"{tokens} new tokens, and max_batch_tokens is {state.limits.max_batch_tokens}"
    if why == PREEMPTED and not preemptions:
        return "it returns PREEMPTED, and nobody was preempted"
    rows = waiting(state)
    if why == NOBODY and len(rows):
        return f"it returns NOBODY, and {len(rows)} wait"
    if why not in (NOBODY, PREEMPTED) and head not in rows:
        return (
            f"clock.head is {head}, and that row does not wait: admit(state, row) sets it, or set it to who was stopped"
        )
    if not running and not preemptions:
        return f"it admits nobody although nothing runs, and {len(rows)} wait: that would go on for ever"
    if not ONE <= clock.alike <= UNTIL_LEAVING:
        return f"clock.alike is {clock.alike}, and not ONE, UNTIL_ARRIVAL or UNTIL_LEAVING"
    return ""


@answer(schedule, Own)
def _schedule(policy: Own) -> int:
    handle = policy.handle
    with objmode(why="int64"):
        why = _decide(handle)
    return why
