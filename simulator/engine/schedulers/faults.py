"""What a scheduler may not do, looked for in each decision of one of a user's own; ``clock.broken`` tells it."""

from collections.abc import Callable

from allocators.seam import rule
from simulator.engine.queue import NOBODY, PREEMPTED, place_of, waiting_count
from simulator.engine.schedulers.seam import ONE, UNTIL_LEAVING, State

(NOT_WAITING, NO_REASON, NO_ROOM, MAX_BATCH, MAX_TOKENS, NOT_PREEMPTED, SOME_WAIT, NO_HEAD, NOBODY_RUNS, NOT_ALIKE) = (
    range(-1, -11, -1)
)

FAULTS: dict[int, Callable[[State], str]] = {
    NOT_WAITING: lambda state: f"it admits row {state.clock.head}, which does not wait",
    NO_REASON: lambda state: (
        f"it returns {state.clock.why}, and not NOBODY, EXTERNAL, RESIDUAL, BATCH, TOKENS or PREEMPTED"
    ),
    NO_ROOM: lambda _: "a running request has no room for its next token: grow(state) first",
    MAX_BATCH: lambda state: f"{state.batch.now.count} requests run, and max_batch is {state.limits.max_batch}",
    MAX_TOKENS: lambda state: (
        f"{state.batch.now.count + state.clock.joining} new tokens, and max_batch_tokens is "
        f"{state.limits.max_batch_tokens}"
    ),
    NOT_PREEMPTED: lambda _: "it returns PREEMPTED, and preempted nobody",
    SOME_WAIT: lambda state: f"it returns NOBODY, and {waiting_count(state.queue, state.clock)} still wait",
    NO_HEAD: lambda state: (
        f"clock.head is {state.clock.head}, which does not wait: admit sets it, or set it to the row that was stopped"
    ),
    NOBODY_RUNS: lambda state: (
        f"it admits nobody although nothing runs, and {waiting_count(state.queue, state.clock)} wait"
    ),
    NOT_ALIKE: lambda state: f"clock.alike is {state.clock.alike}, and not ONE, UNTIL_ARRIVAL or UNTIL_LEAVING",
}
"""What each fault is, in words."""


@rule
def checked(state: State, why: int, preemptions: int) -> int:
    """The decision as it is, after so many preemptions; what is wrong with it is in ``clock.broken``."""
    if state.clock.broken == 0:
        state.clock.broken = _fault(state, why, preemptions)
    return why


@rule
def _fault(state: State, why: int, preemptions: int) -> int:
    limits, batch, clock = state.limits, state.batch.now, state.clock
    if not NOBODY <= why <= PREEMPTED:
        return NO_REASON
    if batch.next_grow <= clock.iteration:
        return NO_ROOM
    if batch.count > limits.max_batch:
        return MAX_BATCH
    if batch.count + clock.joining > limits.max_batch_tokens and batch.count > 1 and clock.joining:
        return MAX_TOKENS
    if why == PREEMPTED and preemptions == 0:
        return NOT_PREEMPTED
    if why == NOBODY and waiting_count(state.queue, clock):
        return SOME_WAIT
    if why not in (NOBODY, PREEMPTED) and place_of(state.queue, clock, clock.head) < 0:
        return NO_HEAD
    if batch.count == 0 and preemptions == 0:
        return NOBODY_RUNS
    if not ONE <= clock.alike <= UNTIL_LEAVING:
        return NOT_ALIKE
    return 0
