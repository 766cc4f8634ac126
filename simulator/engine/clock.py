"""SimPy's clock, in whole picoseconds, and the processes on it: a server, and the moments of memory maps."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import simpy

from simulator.engine.layout import Layout
from simulator.engine.loop import LOOK, PAUSE
from simulator.engine.maps import layout_of
from simulator.engine.server import Server


class _FailedError(Exception):
    """Carries what a server raised: SimPy raises a copy of it, which not every exception can be made of."""


@contextmanager
def _carried() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        raise _FailedError(error) from None


def _serve(
    env: simpy.Environment, server: Server, end_ps: int | None, on_progress: Callable[[int], object]
) -> Generator[simpy.Event, Any, None]:
    """Serve between the events of others: an iteration that holds one is planned before it, and runs after it."""
    while True:
        event = env.peek()
        event_ps = None if event == simpy.core.Infinity else int(event)
        with _carried():
            why = server.advance(end_ps, event_ps)
        on_progress(int(server.clock.finished))
        if why == LOOK:
            yield env.timeout(event - env.now)
        elif why != PAUSE:
            return
        elif server.now_ps < event:  # else its next iteration, which holds the event, has yet to be planned
            yield env.timeout(server.now_ps - env.now)


def _look(
    env: simpy.Environment, server: Server, times_ps: Sequence[int], layouts: list[Layout]
) -> Generator[simpy.Event, Any, None]:
    """Keep the memory map at each of these times, which ascend."""
    for time_ps in times_ps:
        yield env.timeout(time_ps - env.now)
        with _carried():
            layouts.append(layout_of(server, time_ps))


def serve(
    server: Server,
    end_ps: int | None,
    layout_times_ps: Sequence[int] = (),
    on_progress: Callable[[int], object] = bool,
) -> list[Layout]:
    """Run a server until all are served, or with the iteration that reaches ``end_ps``. Returns the memory maps."""
    env = simpy.Environment(initial_time=0)
    layouts: list[Layout] = []
    env.process(_look(env, server, layout_times_ps, layouts))
    env.process(_serve(env, server, end_ps, on_progress))
    try:
        env.run()
    except _FailedError as failed:
        raise failed.args[0] from None
    server.close()
    return layouts
