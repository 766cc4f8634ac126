"""The worked examples, as scenarios that notebooks and tests run, and told step by step for a terminal.

Each scenario is a function that returns what happened; each lesson yields paragraphs made from one, so that no
number in a text is typed by hand.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from allocators import Allocator, Buddy, Contiguous, Extent, Paged
from simulator.engine.layout import Layout
from simulator.replay import simulate
from simulator.results.history import History
from simulator.results.run import Run
from simulator.results.views import view_shares
from simulator.server.cost import StepCost
from simulator.traces.trace import Trace

SECOND = StepCost("1s", "0", "0")
"""An iteration a second, whatever runs: then a time in seconds is the number of an iteration."""

_SIGNS_MEAN = "# used   + reserved   x never used"
_WIDTH = 64


class Placed(NamedTuple):
    """One step of the buddy lesson: who asked for how much, where it is (None: refused), and what is free after it."""

    name: str
    asked: int
    extent: Extent | None
    free: list[Extent]


def buddy_steps(split: str = "largest") -> list[Placed]:
    """128 slots; A asks 32, B 16, C 7, then D 64. With ``split=largest`` 72 slots are free and D is refused."""
    pool = Buddy(128, "oracle", split=split)
    steps = []
    for request, (name, asked) in enumerate({"A": 32, "B": 16, "C": 7, "D": 64}.items()):
        held = pool.admit(request, asked, 1)
        steps.append(Placed(name, asked, pool.extents(request)[0] if held else None, pool.free_blocks()))
    return steps


@cache
def buddy_run() -> Run:
    """The same requests as a trace: A, B and C arrive at once and D after a second; iterations take a second."""
    trace = Trace.from_columns([0, 0, 0, 10**9], [20, 10, 5, 60], [13, 7, 3, 5])
    return simulate(trace, Buddy(128, "oracle", split="largest"), cost=SECOND, decisions=True)


@cache
def figure3_run() -> Run:
    """The paper's Figure 3: 2,048 slots reserved for a prompt of 7 tokens that will be followed by 3 written ones."""
    trace = Trace.from_columns([0], [7], [4])
    return simulate(trace, Contiguous(2048, max_model_len=2048), cost=SECOND, decisions=True)


@cache
def figure6_run() -> Run:
    """The paper's Figure 6: blocks of 4, a prompt of 7 tokens, 3 written after it; beside it a prompt of 6."""
    trace = Trace.from_columns([0, 0], [7, 6], [4, 5])
    return simulate(trace, Paged(34, 4), cost=SECOND, decisions=True)


@cache
def waste_runs() -> tuple[Run, ...]:
    """A minute of ShareGPT's requests, 4 a second, against three allocators of 12 GiB of OPT-13B: 15,728 slots."""
    trace = Trace.workload("sharegpt", rate=4.0, duration_s=60, seed=0, max_total=2047)
    allocators: list[Allocator] = [
        Contiguous(15_728, "max", max_model_len=2048),
        Buddy(15_728, "oracle", min_block=16, max_block=2048, max_model_len=2048),
        Paged(15_728, block_size=16),
    ]
    cost = StepCost("25ms", "100us", "200us")
    limits = {"max_model_len": 2048, "max_batch": 256, "max_batch_tokens": 2560}
    return tuple(simulate(trace, one, cost=cost, decisions=True, **limits) for one in allocators)  # type: ignore[arg-type]


def tell(name: str) -> Iterator[str]:
    """The paragraphs of a lesson. ``name``: one of LESSONS."""
    yield from LESSONS[name]()


def _buddy() -> Iterator[str]:
    yield "A buddy allocator splits a free block in halves until one fits. A pool of 128 slots, all free:"
    yield _bar(128, {})
    held: dict[str, Extent] = {}
    for name, asked, extent, free in buddy_steps():
        blocks = ", ".join(f"{block.start}-{block.end - 1}" for block in free)
        total, largest = sum(block.slots for block in free), max(block.slots for block in free)
        if extent is None:
            yield (
                f"{name} asks for {asked}. {total} slots are free, in the blocks {blocks}; but the largest has only "
                f"{largest}.\nRefused: this is external fragmentation."
            )
            continue
        held[name] = extent
        rounding = f", {extent.slots - asked} of them rounding" if extent.slots > asked else ""
        yield (
            f"{name} asks for {asked} and gets {extent.slots} slots{rounding}: {extent.start}-{extent.end - 1}. "
            f"Free: {blocks}.\n{_bar(128, held)}"
        )
    *_, last = buddy_steps("smallest")
    assert last.extent is not None
    yield (
        "Here the largest free block is split, whatever was asked. If the smallest that is large enough is, "
        f"{last.name} gets {last.extent.start}-{last.extent.end - 1}:\nwhere a block comes from decides what is left."
    )


def _figure3() -> Iterator[str]:
    run = figure3_run()
    yield (
        "An early server reserves the longest possible answer (max_model_len = 2,048 slots) for every request.\n"
        "A prompt of 7 tokens comes; 3 more will be written. In its 2,048 slots:"
    )
    for iteration in range(run.counts["iterations"]):
        (held,) = _layout(run, iteration).allocations
        size = held.extents[0].slots
        used, reserved = held.written_tokens, held.final_tokens - held.written_tokens
        yield (
            f"iteration {iteration}: {used} used, {reserved} reserved, {size - held.final_tokens:,} never used\n"
            f"  |{'#' * used}{'+' * reserved}{'x' * (_WIDTH - held.final_tokens)}...|"
        )
    share = run.summary()["share"]
    yield f"Over its life {100 * share['overprovision']:.1f} % of the memory was held for nothing.\n{_SIGNS_MEAN}"


def _figure6() -> Iterator[str]:
    run = figure6_run()
    yield (
        "Paging cuts the pool into blocks of 4 slots. A block table maps a request's logical blocks to any physical "
        "ones,\nas an operating system's page table maps virtual pages to frames. A prompt of 7 tokens comes:"
    )
    for iteration in range(4):
        layout = _layout(run, iteration)
        held = next(one for one in layout.allocations if one.request == 0)
        rows = []
        for logical, extent in enumerate(held.extents):
            filled, final = (min(4, tokens - 4 * logical) for tokens in (held.written_tokens, held.final_tokens))
            slots = f"{'#' * filled}{'+' * (final - filled)}{'.' * (4 - final)}"
            rows.append(f"  logical {logical} -> physical {extent.start // 4}   filled {filled} of 4   |{slots}|")
        what = "prefill" if iteration == 0 else f"decode {iteration}"
        yield f"{what}: {held.written_tokens} tokens written\n" + "\n".join(rows)
    other = next(one for one in layout.allocations if one.request == 1)
    blocks = " and ".join(str(extent.start // 4) for extent in other.extents[:2])
    yield (
        f"A second request came with the first, and has physical blocks {blocks}: the blocks of one need not be "
        "neighbours.\nOnly the last block is not full: the slots of it that will be written are reserved (+), the rest "
        "(.) is lost,\nat most 3 slots of a request. Nothing beyond that block is held.\n"
        "# used   + reserved   . rounding"
    )


def _waste() -> Iterator[str]:
    runs = waste_runs()
    yield (
        f"The same {runs[0].trace.requests} requests, the same pool of {runs[0].capacity:,} slots, three allocators. "
        "Where the memory was,\nwhile somebody waited for it (% of pool x time):"
    )
    signs = {"used": "#", "reservation": "+", "internal": "x", "external": "!", "free": "."}
    for run in runs:
        share = view_shares(run.summary()["share_saturated"], "textbook")
        bar = "".join(sign * round(_WIDTH * share[name]) for name, sign in signs.items())
        parts = "  ".join(f"{name} {100 * value:.1f}" for name, value in share.items())
        yield f"{run.name}\n  |{bar}|\n  {parts}\n  done after {run.summary()['duration_s']:.0f} s"
    yield (
        "# used   + reserved, written later   x internal: held, never written   ! external: free in pieces   . free\n"
        "Memory that is not wasted runs more requests at once: that is the whole point of paging."
    )


LESSONS: dict[str, Callable[[], Iterator[str]]] = {
    "buddy": _buddy,
    "figure3": _figure3,
    "figure6": _figure6,
    "waste": _waste,
}
"""Name -> the paragraphs of the lesson."""


def _layout(run: Run, iteration: int) -> Layout:
    return History(run).layout(float(iteration))


def _bar(capacity: int, held: dict[str, Extent]) -> str:
    """A pool as one line, two slots a letter: whose each is, ``.`` for free."""
    letters = ["."] * (capacity // 2)
    for name, extent in held.items():
        letters[extent.start // 2 : extent.end // 2] = name * (extent.slots // 2)
    return f"  |{''.join(letters)}|"
