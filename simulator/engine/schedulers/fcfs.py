"""First come, first served: a whole prompt in the iteration that admits it, then one token in each."""

from allocators.seam import answer
from simulator.engine.queue import NOBODY, PREEMPTED
from simulator.engine.schedulers.seam import UNTIL_LEAVING, State, schedule
from simulator.engine.schedulers.steps import admit, grow, head


class Fcfs(State):
    """The state of a server that schedules so."""


@answer(schedule, Fcfs)
def fcfs(state: Fcfs) -> int:
    """The queue in its order, until a check stops its head; nobody is admitted after a preemption."""
    state.clock.alike = UNTIL_LEAVING
    if grow(state):
        return PREEMPTED
    while True:
        row = head(state)
        if row < 0:
            return NOBODY
        stopped = admit(state, row)
        if stopped:
            return stopped
