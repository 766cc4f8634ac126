"""The conformance kit: drive any allocator through random steps and raise on the first broken promise."""

from collections.abc import Callable
from math import exp, log
from typing import TYPE_CHECKING

from allocators.base import Allocator, Extent, InputError, MisuseError, in_short
from allocators.twins import BrokenPromiseError, Twins

if TYPE_CHECKING:
    from numpy.random import Generator


def check_allocator(factory: Callable[[], Allocator], steps: int = 2000, seed: int = 0) -> None:
    """Drive two allocators made by ``factory`` through the same ``steps`` random calls, and compare and check them.

    Checked after every call: the invariants of ``allocators/base.py`` (extents inside the pool, disjoint, adding
    up to what is held and to ``capacity - free_slots``), that nobody else's memory moved, that a refusal or a
    misuse changed nothing, that growing serves a prefix in order and keeps what was there, and that the same calls
    give the same addresses. Whenever all is released: that an empty pool places what ``fits_empty`` says it can, at
    every length, and that the pool can be filled again, to the last slot, as a new one can. An allocator with a
    ``max_model_len`` sees no request longer than that.

    ``factory`` takes no argument and returns a new allocator: ``lambda: Paged(1000)``. Raises BrokenPromiseError, an
    AssertionError, that names the seed, the step and the call.
    """
    if not callable(factory) or (isinstance(factory, Allocator) and not isinstance(factory, type)):
        raise InputError(
            f"factory(={in_short(factory)}) must be a function that makes a new allocator: lambda: Paged(1000)"
        )
    from numpy.random import default_rng  # needed here only: the allocators themselves do without numpy

    drive = _Drive(factory, default_rng(seed), seed)
    try:
        drive.new_pool()
        for step in range(steps):
            drive.step = step
            drive.random_call()
        drive.step = steps
        drive.drain()
        drive.longest_alone()
    except BrokenPromiseError:
        raise
    except Exception as error:
        raise BrokenPromiseError(drive.told(f"raised {type(error).__name__}: {error}")) from error


class _Drive(Twins):
    """Random calls, and what each must do."""

    def __init__(self, factory: Callable[[], Allocator], rng: "Generator", seed: int) -> None:
        super().__init__(factory, seed)
        self.rng = rng
        self.refused: tuple[int, int] | None = None  # tokens of a request refused since the last release
        limit = getattr(self.allocator, "max_model_len", None)
        beyond = self.allocator.capacity + 2  # prompt + output of a request that cannot fit
        self.longest = beyond if limit is None else min(limit, beyond)

    def new_pool(self) -> None:
        self.expect(isinstance(self.allocator.spec, str), "spec is not a text")
        self.empty = self.state()
        self.longest_alone()

    def random_call(self) -> None:
        """One call of a random kind; a full or an empty pool is visited often enough to matter."""
        kind = self.rng.choice(
            ["admit", "admit", "grow", "release", "misuse", "drain"], p=[0.3, 0.2, 0.2, 0.22, 0.06, 0.02]
        )
        if kind == "drain":
            self.drain()
        elif kind == "misuse":
            self.misuse()
        elif kind == "admit" or not self.held:
            self.admit()
        elif kind == "grow":
            self.grow()
            self.ask_again()
        else:
            self.release(self.pick())

    def pick(self) -> int:
        return int(self.rng.choice(list(self.held)))

    def admit(self) -> None:
        # Log-uniform: short ones fill a pool with small holes, long ones meet them.
        total = int(exp(self.rng.uniform(log(2), log(max(self.longest, 2) + 1))))
        total = min(max(total, 2), max(self.longest, 2))
        prompt = int(self.rng.integers(1, total))
        output = total - prompt
        request, alone = self.next_id, not self.held
        self.call = f"admit({request}, {prompt}, {output}, alone={alone})"
        before = self.state()
        asked = self.allocator.asked_slots(prompt, output)
        could = self.allocator.fits_empty(prompt, output)
        got = self.both(lambda allocator: allocator.admit(request, prompt, output, alone))
        if got == 0:
            self.expect(self.state() == before, "a refusal changed the state")
            self.expect(not (alone and could), "an empty pool refused what fits_empty says it can place")
            self.refused = self.refused or (prompt, output)
            return
        self.next_id += 1
        self.held[request] = prompt, output
        after = self.state()
        self.expect(after[2].pop(request, ()) != () and after[2] == before[2], "admit moved other requests' memory")
        self.expect(got == self.allocator.held_slots(request), f"admit returned {got}, held_slots says otherwise")
        self.expect(got <= before[1], f"placed {got} slots, and largest_free_slots was {before[1]}")
        self.expect(got >= max(asked, prompt), f"{got} slots held, fewer than asked ({asked}) or written ({prompt})")
        if self.allocator.grow_slots == 0:
            self.expect(got >= prompt + output - 1, f"it never grows, and {got} slots cannot hold the whole request")

    def ask_again(self) -> None:
        if self.refused is not None and self.held:
            prompt, output = self.refused
            self.call = f"admit({self.next_id}, {prompt}, {output}) again, after {self.call}"
            got = self.both(lambda allocator: allocator.admit(self.next_id, prompt, output))
            self.expect(got == 0, "it had refused this request and nothing was released since")

    def grow(self) -> None:
        ids = [int(i) for i in self.rng.permutation(list(self.held))[: self.rng.integers(1, len(self.held) + 1)]]
        ids += [int(i) for i in self.rng.choice(ids, self.rng.integers(0, 3))]
        self.call = f"grow({ids})"
        before = self.state()
        served = self.both(lambda allocator: allocator.grow(ids))
        after = self.state()
        step = self.allocator.grow_slots
        self.expect(0 <= served <= len(ids), f"grow returned {served} of {len(ids)}")
        self.expect(served == 0 or step != 0, f"grow_slots is 0, and grow served {served} requests")
        for request, old in before[2].items():
            new = after[2].get(request, ())
            if request not in ids[:served]:
                self.expect(new == old, f"grow changed request {request}, which it did not serve")
                continue
            gained, times = sum(e.slots for e in new) - sum(e.slots for e in old), ids[:served].count(request)
            as_promised = gained >= times if step is None else gained == times * step
            self.expect(as_promised, f"request {request} grew by {gained} slots, asked to {times} times")
            last = new[len(old) - 1] if len(new) >= len(old) else Extent(-1, 0)
            kept = new[: len(old) - 1] == old[:-1] and last.start == old[-1].start and last.slots >= old[-1].slots
            self.expect(kept, f"growing moved what request {request} had written")

    def release(self, request: int) -> None:
        self.call = f"release({request})"
        before = self.state()
        held = self.allocator.held_slots(request)
        given = self.both(lambda allocator: allocator.release(request))
        self.expect(given == held, f"release returned {given}, held_slots said {held}")
        del self.held[request], before[2][request]
        self.refused = None
        self.expect(self.state()[2] == before[2], "release moved other requests' memory")

    def misuse(self) -> None:
        absent = self.next_id + 7
        calls: list[tuple[str, int, Callable[[Allocator], object]]] = [
            (f"release({absent})", absent, lambda allocator: allocator.release(absent)),
            (f"held_slots({absent})", absent, lambda allocator: allocator.held_slots(absent)),
            (f"extents({absent})", absent, lambda allocator: allocator.extents(absent)),
            (f"grow([..., {absent}])", absent, lambda allocator: allocator.grow([*self.held, absent])),
        ]
        if self.held:
            twice = self.pick()
            calls.append((f"admit({twice}, 1, 1)", twice, lambda allocator: allocator.admit(twice, 1, 1)))
        before = self.state()
        for self.call, request, call in calls:
            for allocator in (self.allocator, self.twin):
                try:
                    call(allocator)
                except MisuseError as error:
                    self.expect(str(request) in str(error), f"the MisuseError does not name request {request}: {error}")
                else:
                    self.expect(False, "misuse raised no MisuseError")
            self.expect(self.state() == before, "misuse changed the state")

    def drain(self) -> None:
        for request in [int(i) for i in self.rng.permutation(list(self.held))]:
            self.release(request)
        self.call = "after the last release"
        self.expect(self.state() == self.empty, "not all of the pool came back")
        self.fill()

    def longest_alone(self) -> None:
        """In an empty pool, requests about as long as it can hold must be placed and grow, or be said not to fit."""
        most, whole = self.allocator.largest_free_slots, self.allocator.capacity - self.allocator.tail_slots
        for final in sorted({most - 1, most, most + 1, whole, whole + 1}):
            for prompt in {max(1, final - 50), final}:  # the last grows are where it fails, if it does
                output = final - prompt + 1
                if final < 1 or prompt + output > max(self.longest, 2):
                    continue
                self.call = f"admit({self.next_id}, {prompt}, {output}, alone=True) and grow to {final} slots"
                fits = self.allocator.fits_empty(prompt, output)
                held = self.both(lambda allocator: allocator.admit(self.next_id, prompt, output, True))  # noqa: B023
                self.expect(held > 0 or not fits, "an empty pool refused what fits_empty says it can place")
                while 0 < held < final:
                    grown = self.both(lambda allocator: allocator.grow([self.next_id]))
                    self.expect(grown in (0, 1), f"grow returned {grown} of 1")
                    if not grown:
                        break
                    before, held = held, self.allocator.held_slots(self.next_id)
                    self.expect(held > before, f"request {self.next_id} grew by {held - before} slots")
                stuck = f"fits_empty says it fits, and it cannot grow beyond {held} slots"
                self.expect(held >= final or not fits, stuck)
                self.expect(fits or held < final, "fits_empty says it does not fit, and it was placed")
                if held:
                    self.both(lambda allocator: allocator.release(self.next_id))

    def fill(self) -> None:
        """Fill the pool to the last slot, side by side with a new one; then give all of it back."""
        new, size, held, ids = self.factory(), self.longest - 1, 0, list[int]()
        while size:
            request = self.next_id + len(ids)
            self.call = f"admit({request}, {size}, 1, alone=True), filling up"
            asked, largest = self.allocator.asked_slots(size, 1), self.allocator.largest_free_slots
            got = self.both(lambda allocator: allocator.admit(request, size, 1, True))  # noqa: B023
            again = new.admit(request, size, 1, True)
            self.expect(got == again, f"{got} slots where a new pool gives {again}: not all of the pool came back")
            self.expect(got > 0 or asked > largest, f"refused {asked} slots, and largest_free_slots is {largest}")
            if got:
                ids.append(request)
                held += got
                self.expect(held <= self.allocator.capacity, f"{held} slots are held, more than there are")
            else:
                size //= 2
        free, tail = self.allocator.free_slots, self.allocator.tail_slots
        full = self.allocator.largest_free_slots == 0
        self.expect(not full or free == tail, f"the pool is full, {free} slots are free, and tail_slots is {tail}")
        for request in ids:
            self.both(lambda allocator: allocator.release(request))  # noqa: B023
        self.call = "after filling the pool and releasing all"
        self.expect(self.state() == self.empty, "not all of the pool came back")
