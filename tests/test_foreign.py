"""An allocator in Python behind the loop: what it raises comes through, and what it must not do is caught."""

from collections.abc import Sequence

import numpy as np
import pytest

from allocators import Contiguous, Extent, InputError, Paged
from allocators import pool as ask
from simulator import Run, Trace, simulate
from simulator.engine.callback import CalledError
from simulator.engine.foreign import Foreign
from simulator.engine.layout import Layout

TRACE = Trace.from_columns([0, 0, 5], [4, 3, 2], [20, 5, 6])


class Own(Paged):
    """As paged, but the loop does not know its class."""


def run(allocator: Paged) -> Run:
    return simulate(TRACE, allocator, decisions=True, layout_times_s=(0, 0.0001), timeline_bins=5)


def test_it_is_served_as_the_project_s_own_is() -> None:
    ours, own = run(Paged(40, 4)), run(Own(40, 4))
    assert own.integrals == ours.integrals and own.layouts == ours.layouts != ()
    assert own.timeline.equals(ours.timeline) and own.requests.equals(ours.requests)
    assert own.decisions is not None and ours.decisions is not None and own.decisions.equals(ours.decisions)
    assert isinstance(own.layouts[0], Layout)


@pytest.mark.parametrize("name", ["admit", "grow", "release", "extents", "asked_slots", "fits_empty", "held_slots"])
@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), KeyboardInterrupt()])
def test_what_it_raises_comes_through(name: str, error: BaseException) -> None:
    def fail(*_: object) -> int:
        raise error

    failing = type("Failing", (Own,), {name: fail})
    with pytest.raises(type(error)) as caught:
        run(failing(40, 4))
    assert caught.value is error


@pytest.mark.parametrize("gives", [-1, -7])
def test_an_admit_of_less_than_nothing_is_caught(gives: int) -> None:
    class Lying(Own):
        def admit(self, request_id: int, prompt_tokens: int, output_tokens: int, alone: bool = False) -> int:
            return gives

    lie = rf"broke a promise: admit of 4 tokens of request 0 gave {gives}, and no number of slots"
    with pytest.raises(RuntimeError, match=lie):
        run(Lying(40, 4))


NO_SLOTS = [3.5, None, "4", True, 2**70, -1]


@pytest.mark.parametrize("gives", NO_SLOTS)
@pytest.mark.parametrize("name", ["admit", "release", "asked_slots"])
def test_what_is_no_number_of_slots_is_caught(name: str, gives: object) -> None:
    lying = type("Lying", (Own,), {name: lambda *_: gives})
    told = rf"broke a promise: {name}.* gave {gives!r}, and no number of slots"
    with pytest.raises(RuntimeError, match=told):
        run(lying(40, 4))


@pytest.mark.parametrize("gives", NO_SLOTS)
@pytest.mark.parametrize("name", ["free_slots", "largest_free_slots", "tail_slots"])
def test_sizes_that_are_none_are_told_before_anything_runs(name: str, gives: object) -> None:
    lying = type("Lying", (Own,), {name: property(lambda _: gives)})
    with pytest.raises(InputError, match=rf"Lying\.{name}\(=.*\) must be "):
        run(lying(40, 4))


def test_what_cannot_be_copied_is_made_of_its_spec_for_the_first_run() -> None:
    class Uncopied(Own):
        spec = "paged:block_size=4"

        def __deepcopy__(self, _: object) -> "Uncopied":
            raise TypeError("no")

    assert run(Uncopied(40, 4)).timeline.equals(run(Paged(40, 4)).timeline)

    class Unknown(Uncopied):
        spec = "nobody's"

    with pytest.raises(InputError, match=r"nobody's cannot be copied \(TypeError: no\) or made again from its spec"):
        run(Unknown(40, 4))


@pytest.mark.parametrize("gives", [None, 7, [(1,)], [(0, 3.5)], [("a", 4)]])
def test_what_are_no_extents_is_caught(gives: object) -> None:
    lying = type("Lying", (Own,), {"extents": lambda *_: gives})
    with pytest.raises(RuntimeError, match=r"broke a promise: (extents of request \d|a start|an extent) gave "):
        run(lying(40, 4))


def test_a_grow_that_gives_nothing_is_caught() -> None:
    class Lying(Own):
        def grow(self, request_ids: Sequence[int]) -> int:
            return len(request_ids)

    with pytest.raises(RuntimeError, match="broke a promise: grow gave 0 slots to request 0"):
        run(Lying(40, 4))


def test_more_extents_than_there_are_slots_are_not_written_down() -> None:
    class Lying(Own):
        def extents(self, request_id: int) -> tuple[Extent, ...]:
            return (Extent(0, 1),) * 10**6

    with pytest.raises(RuntimeError, match=r"request \d has 1000000 extents, more than the pool has slots"):
        simulate(TRACE, Lying(40, 4), decisions=True)


def test_what_is_free_is_known_after_each_call() -> None:
    foreign = Foreign(Contiguous(100, reserve="oracle"), np.array([7, 8]), 2)
    pool = foreign.pool
    assert (ask.free_slots(pool), ask.largest_free_slots(pool)) == (100, 100)
    assert ask.allocate(pool, 0, 1, 10, 21, False) == 30
    assert (ask.free_slots(pool), ask.asked_slots(pool, 10, 21)) == (70, 30)
    assert ask.asked_slots(pool, 3, 3) == 5
    assert foreign.allocator.extents(8) == (Extent(0, 30),)
    extents = np.zeros((4, 2), np.int64)
    assert ask.copy_extents(pool, 0, extents, 3) == 1 and extents.tolist() == [[0, 0]] * 3 + [[0, 30]]
    assert ask.extend(pool, 0) == 0
    assert ask.free(pool, 0) == 30 and ask.free_slots(pool) == 100
    with pytest.raises(CalledError):
        ask.free(pool, 0)
    assert "request" in str(foreign.callbacks.error)
