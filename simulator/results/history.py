"""A run address by address over time, rebuilt from its decision log: no second simulation, nothing drawn.

Between decisions every running request writes one token state an iteration, so the log and the cost of an iteration
say all: who held which slots from when to when, and how many tokens were written in any iteration.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocators import make_allocator
from allocators.base import Allocator, Extent, InputError
from simulator.engine.layout import Allocation, Layout
from simulator.results.iteration_times import Clock
from simulator.results.record import Record
from simulator.results.span import span_s

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Waiting(NamedTuple):
    """The head of the queue at an instant."""

    request: int
    asked_slots: int | None
    """What it asks for; None for an allocator that cannot be made again from its spec."""
    taken_slots: int | None = None
    """What it would hold of an empty pool: asked, and the allocator's rounding."""


class History:
    """What a run's decision log says. Times in seconds, sizes in slots; requests are rows of the trace.

    Raises InputError when the run has no decision log.
    """

    def __init__(self, run: Record) -> None:
        if run.decisions is None:
            raise InputError(f"run {run.name!r} has no decision log; make it with simulate(..., decisions=True)")
        self.run, self.log = run, run.decisions
        self.end_s = max(float(self.log["time_s"].max()) if len(self.log) else 0.0, span_s(run)[1])
        self.finals: Ints = (run.requests["prompt_tokens"] + run.requests["output_tokens"] - 1).to_numpy(np.int64)
        clock = Clock(run, run.decisions, self.end_s)
        self.anchors, self.iterations = clock.anchors, clock.iterations
        """The iteration that runs at each of some times (seconds), from 0; -1 in a gap and behind the end."""
        try:
            self.allocator: Allocator | None = self._new_allocator()
        except (InputError, TypeError):  # of one's own, and not importable from here
            self.allocator = None

    @property
    def tail_slots(self) -> int:
        """Slots at the end of the pool that can never be handed out; 0 where the allocator cannot be made again."""
        return 0 if self.allocator is None else int(self.allocator.tail_slots)

    @cached_property
    def stays(self) -> pd.DataFrame:
        """A row an admission, in their order: request, first (iteration), begin_s, end_s, tokens (written in the first
        iteration), final (when it ends), overprovision. One that still runs at the end ends with the run."""
        kinds = self.log["kind"]
        admits = self.log[(kinds == "admit") & (self.log["index"] == 0)].reset_index(drop=True)
        ends = self.log[kinds.isin(["finish", "preempt"])]
        nth, nth_end = (rows.groupby("request").cumcount() for rows in (admits, ends))
        end_s = pd.Series(ends["time_s"].to_numpy(), pd.MultiIndex.from_arrays([ends["request"], nth_end]))
        wanted = pd.MultiIndex.from_arrays([admits["request"], nth])
        requests = admits["request"].to_numpy()
        stays = pd.DataFrame(
            {
                "request": requests,
                "first": admits["iteration"],
                "begin_s": admits["time_s"],
                "end_s": end_s.reindex(wanted).fillna(self.end_s).to_numpy(float),
                "tokens": admits["tokens"],
                "final": self.finals[requests],
            }
        )
        stays["overprovision"] = [
            self._overprovision(int(request), int(tokens))
            for request, tokens in zip(stays["request"], stays["tokens"], strict=True)
        ]
        return stays

    @cached_property
    def extents(self) -> pd.DataFrame:
        """A row a rectangle of slots x time: stay (row of ``stays``), request, index, start, slots, offset (slots of
        the request before this extent), begin_s, end_s. Rows come in the order of the decisions."""
        columns = {name: self.log[name].tolist() for name in ("request", "index", "start", "slots", "time_s")}
        rows: list[list[float]] = []
        stay_of: dict[int, int] = {}
        held: dict[int, list[int]] = {}  # request -> its rectangles that are still open
        stays = 0
        for kind, request, index, start, slots, time_s in zip(
            self.log["kind"].tolist(), *columns.values(), strict=True
        ):
            if kind in ("finish", "preempt"):
                for row in held.pop(request):
                    rows[row][-1] = time_s
                continue
            if kind == "admit" and index == 0:
                stay_of[request], held[request] = stays, []
                stays += 1
            opened = held[request]
            offset = 0.0
            if index:
                before = rows[opened[index - 1]]
                offset = before[5] + before[4]
            if index < len(opened):  # an extent that changed: the old one ends here
                rows[opened[index]][-1] = time_s
                opened[index] = len(rows)
            else:
                opened.append(len(rows))
            rows.append([stay_of[request], request, index, start, slots, offset, time_s, self.end_s])
        names = ["stay", "request", "index", "start", "slots", "offset", "begin_s", "end_s"]
        frame = pd.DataFrame(np.array(rows, float).reshape(-1, len(names)), columns=names)
        return frame.astype(dict.fromkeys(names[:6], np.int64))

    def layout(self, time_s: float) -> Layout:
        """The memory map at an instant, as ``simulate(layout_times_s=[time_s])`` keeps it."""
        at = int(self.iterations([time_s])[0])
        if at < 0:
            return Layout(round(time_s * 10**12), None, ())
        extents, stays = self.extents, self.stays
        now = extents[(extents["begin_s"] <= time_s) & (time_s < extents["end_s"])]
        allocations = []
        for _, rows in now.groupby("stay", sort=True):
            one = stays.iloc[int(rows["stay"].iloc[0])]
            runs = tuple(map(Extent, rows["start"].tolist(), rows["slots"].tolist()))
            allocations.append(
                Allocation(
                    request=int(one["request"]),
                    extents=runs,
                    written_tokens=int(one["tokens"] + at - one["first"]),
                    final_tokens=int(one["final"]),
                    overprovision_slots=int(one["overprovision"]),
                )
            )
        return Layout(round(time_s * 10**12), at, tuple(allocations))

    def free_runs(self, layout: Layout) -> list[Extent]:
        """The holes of a memory map: the longest runs of free slots, in address order, the tail left out."""
        end = self.run.capacity - self.tail_slots
        runs, address = [], 0
        for extent in [*sorted(e for held in layout.allocations for e in held.extents), Extent(end, 0)]:
            if extent.start > address:
                runs.append(Extent(address, extent.start - address))
            address = extent.end
        return runs

    def pieces(self, time_s: float) -> list[Extent]:
        """What the allocator could hand out of its holes, in address order: their buddies, or the holes themselves."""
        holes = self.free_runs(self.layout(time_s))
        if not hasattr(self.allocator, "free_blocks"):
            return holes
        again: Any = self._new_allocator()
        done = self.log[(self.log["time_s"] <= time_s) & (self.log["index"] <= 0) & (self.log["kind"] != "grow")]
        columns = (done[name].tolist() for name in ("kind", "request", "tokens"))
        for kind, request, tokens in zip(*columns, strict=True):
            if kind == "admit":
                again.admit(request, tokens, int(self.finals[request]) + 1 - tokens, True)
            else:
                again.release(request)
        found: list[Extent] = again.free_blocks()
        return found

    @cached_property
    def hole_counts(self) -> tuple[Floats, Ints]:
        """When the number of holes changes, and how many there are from then on. Ascending times, the first is 0."""
        times, counts = [0.0], [1 if self.run.capacity > self.tail_slots else 0]
        for time_s, count in self._counted():
            if time_s == times[-1]:
                counts[-1] = count
            else:
                times.append(time_s)
                counts.append(count)
        return np.array(times), np.array(counts, np.int64)

    def head(self, time_s: float) -> Waiting | None:
        """Who is first in the queue at an instant: who was preempted last and is not back, else the first arrival."""
        log, requests = self.log, self.run.requests
        before = log[(log["time_s"] <= time_s) & ((log["kind"] == "preempt") | (log["kind"] == "admit"))]
        out: list[int] = []
        for kind, request in zip(before["kind"].tolist(), before["request"].tolist(), strict=True):
            if kind == "preempt":
                out.append(request)
            elif request in out:
                out.remove(request)
        if out:
            request = out[-1]
            lost = before[(before["request"] == request) & (before["kind"] == "preempt")]
            produced = int(lost["tokens"].iloc[-1]) + 1 - int(requests["prompt_tokens"].iloc[request])
        else:
            waits = (requests["arrival_s"] <= time_s) & ~requests["status"].isin(["too_long", "never_fits"])
            waits &= ~(requests["admitted_s"] <= time_s)
            if not waits.any():
                return None
            request, produced = int(np.flatnonzero(waits.to_numpy())[0]), 0
        prompt = int(requests["prompt_tokens"].iloc[request]) + produced
        output = int(requests["output_tokens"].iloc[request]) - produced
        if self.allocator is None:
            return Waiting(request, None)
        taken = int(self._new_allocator().admit(request, prompt, output, True))
        return Waiting(request, int(self.allocator.asked_slots(prompt, output)), taken)

    def _new_allocator(self) -> Allocator:
        return make_allocator(self.run.allocator, self.run.capacity, self.run.settings.max_model_len)

    def _overprovision(self, request: int, tokens: int) -> int:
        if self.allocator is None:
            return 0
        final = int(self.finals[request])
        asked = self.allocator.asked_slots(tokens, final + 1 - tokens)
        return max(0, int(asked) - final)

    def _counted(self) -> Iterator[tuple[float, int]]:
        """The number of holes after each extent that comes or goes, from the two neighbours of each."""
        extents = self.extents[self.extents["begin_s"] < self.extents["end_s"]]
        events = [(begin, 1, row) for row, begin in enumerate(extents["begin_s"].tolist())]
        events += [(end, 0, row) for row, end in enumerate(extents["end_s"].tolist())]
        events.sort()  # at one time what goes makes room for what comes
        starts, ends_at = extents["start"].tolist(), (extents["start"] + extents["slots"]).tolist()
        last = self.run.capacity - self.tail_slots
        # Where an extent begins, and where one ends: a neighbour there is held. Outside the pool all is held.
        begun, ended = {last}, {0}
        count = 1 if last else 0
        for time_s, comes, row in events:
            start, end = starts[row], ends_at[row]
            if not comes:
                begun.discard(start)
                ended.discard(end)
            around = (start not in ended) + (end not in begun)
            count += (around - 1) if comes else (1 - around)
            if comes:
                begun.add(start)
                ended.add(end)
            yield time_s, count
