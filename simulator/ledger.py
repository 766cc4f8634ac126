"""Where every slot was, integrated over time exactly. Passive: the engine tells it, it never asks.

The engine records a row for each stretch of iterations (``simulator/stretch.py``) and for each gap. Rows come by
the million, so they are kept and integrated as columns (``simulator/integrals.py``), and still exactly.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.integrals import MOST_PS, PRODUCTS, Chunk, Columns, rough_times_ps

CATEGORIES = ("used", "reservation", "overprovision", "rounding", "external", "residual", "idle")
"""Where a slot can be (semantics.md section 4). In every iteration they sum to the capacity."""

NOBODY, RESIDUAL, EXTERNAL, BATCH, TOKENS = range(5)
"""What stopped the head of the queue in a row: nothing, as nobody waits; too little is free, or a preemption kept it
from asking; enough is free, but not in one run; ``max_batch``; ``max_batch_tokens``."""

COLUMNS = (
    "iterations",  # 0: a gap between iterations
    "first_ps",  # duration of the first iteration, but for
    "extra_ps",  # what prefill and swap add to it; or duration of the gap
    "running",  # requests
    "used",  # token states in the first iteration; each later one has `running` more
    "covered",  # slots held that are or will be written
    "overprovision",
    "rounding",
    "free",
    "largest",  # the longest run that could be handed out
    "why",  # NOBODY, RESIDUAL, ...
    "head",  # 1 + the row of the trace that heads the queue and was stopped; 0: nobody
    "grows",  # how many of the iterations behind its first are told of in `Ledger.grows`
    "last_grows",  # how many entries in `Ledger.last_grows` it has
)
"""A row. All but the duration and the token states stay the same throughout it, unless requests grow in it."""

SATURATED = tuple(f"saturated_{category}" for category in CATEGORIES)
"""The categories again, over the iterations with a refusal only."""

INTEGRALS = (*CATEGORIES, *SATURATED, "iteration_ps", "saturated_ps", "external_ps", "running", "largest")
"""What is integrated over time: slots (or requests) times picoseconds; those in ``_ps`` are times."""

PACK_ROWS = 1 << 12
"""The buffer is packed when it has so many rows, which then fit a cache."""


class Ledger:
    """Rows of one run over a pool of ``capacity`` slots, of which ``tail_slots`` can never be handed out."""

    def __init__(self, capacity: int, tail_slots: int, kv_token_ps: int, grow_slots: int = 0) -> None:
        self.capacity, self.tail_slots = capacity, tail_slots
        self.kv_token_ps, self.grow_slots = kv_token_ps, grow_slots
        self.rows: list[bytes] = []
        """Those recorded since they were last packed: ``ledger.rows.append(ledger.row(...))``."""
        self.grows: list[int] = []
        """For rows within which requests grow by ``grow_slots``, where no run is needed, so that ``largest`` falls with
        ``free``: how many grow in each iteration behind the row's first."""
        self.last_grows: list[int] = []
        """Of these, where slots are handed out past the end of a request: iteration behind the row's first, slots; two
        numbers an entry."""
        self._packed: list[Columns] = []

    row = Struct(f"{len(COLUMNS)}q").pack
    """A row, from ints in the order of COLUMNS."""

    def pack(self) -> None:
        """Move the rows into columns of the smallest types, after checking that every one adds up."""
        numbers = np.frombuffer(b"".join(self.rows), np.int64).reshape(-1, len(COLUMNS))
        self.rows.clear()
        if len(numbers):
            rows: Columns = dict(zip(COLUMNS, numbers.T, strict=True))
            if self.grows:
                rows = self._divided(rows)
            self._check(rows)
            for start in range(0, len(rows["why"]), PACK_ROWS):
                part = {name: values[start : start + PACK_ROWS] for name, values in rows.items()}
                self._packed.append(
                    {name: values.astype(np.min_scalar_type(values.max())) for name, values in part.items()}
                )

    def _divided(self, rows: Columns) -> Columns:
        """The rows, each divided into one up to its first grow and one from each grow on."""
        told, lasts = np.array(self.grows, np.int64), np.array(self.last_grows, np.int64).reshape(-1, 2)
        self.grows.clear()
        self.last_grows.clear()
        # Every iteration that is told of: its row, its place in it, what is handed out and what of that past an end.
        number = np.arange(len(rows["grows"]))
        begin = np.cumsum(rows["grows"]) - rows["grows"]
        row = np.repeat(number, rows["grows"])
        ahead = np.arange(len(told)) - begin[row] + 1
        past_end = np.zeros(len(told), np.int64)
        np.add.at(past_end, np.repeat(begin, rows["last_grows"]) + lasts[:, 0] - 1, lasts[:, 1])

        # A part begins with the row and in every iteration in which someone grows.
        kept = told > 0
        order = np.argsort(np.concatenate([number, row[kept]]), kind="stable")
        nothing = 0 * number
        parts_of = ((number, row), (nothing, ahead), (nothing, told * self.grow_slots), (nothing, past_end))
        row, ahead, slots, past_end = (np.concatenate([one, later[kept]])[order] for one, later in parts_of)
        first = np.flatnonzero(ahead == 0)
        behind = np.append(ahead[1:], 0)  # where the next part begins
        behind[np.append(first[1:], len(row)) - 1] = rows["iterations"]
        slots, past_end = (np.cumsum(given) - np.cumsum(given)[first][row] for given in (slots, past_end))
        parts = {name: values[row] for name, values in rows.items()}
        return parts | {
            "iterations": np.where(parts["iterations"] > 0, behind - ahead, 0),
            "first_ps": parts["first_ps"] + self.kv_token_ps * parts["running"] * ahead,
            "extra_ps": np.where(ahead > 0, 0, parts["extra_ps"]),
            "used": parts["used"] + parts["running"] * ahead,
            "covered": parts["covered"] + slots - past_end,
            "rounding": parts["rounding"] + past_end,
            "free": parts["free"] - slots,
            "largest": parts["largest"] - slots,
        }

    def _check(self, rows: Columns) -> None:
        """Conservation: in every iteration the categories are not negative and sum to the capacity."""
        held = rows["covered"] + rows["overprovision"] + rows["rounding"]
        most_used = rows["used"] + rows["running"] * np.maximum(rows["iterations"] - 1, 0)
        wrong = (held + rows["free"] != self.capacity) | (most_used > rows["covered"])
        wrong |= rows["largest"] > rows["free"] - self.tail_slots
        for values in rows.values():
            wrong |= values < 0
        if wrong.any():
            row = {name: int(values[wrong.argmax()]) for name, values in rows.items()}
            hint = "if the allocator is your own, allocators.check_allocator tells what it breaks"
            raise AssertionError(f"the ledger does not sum to the capacity {self.capacity}: {row}; {hint}")

    def integrate(self, edges_ps: Sequence[int]) -> dict[str, list[int]]:
        """Integrals over each bin ``edges_ps[k] .. edges_ps[k + 1]``, exact: for each of INTEGRALS, an int a bin.

        Edges ascend from 0 or later; what lies behind the last row counts nothing.
        """
        self.pack()
        start, before = 0, np.zeros((3, len(PRODUCTS), 1), object)
        up_to, found = [before[..., :0]], 0
        for rows in self._chunks():
            chunk = Chunk(rows, self.capacity, self.kv_token_ps)
            inside = edges_ps[found : bisect_left(edges_ps, start + chunk.duration_ps)]
            reached = before + chunk.sums([edge - start for edge in inside])
            up_to.append(reached[..., :-1])
            found += len(inside)
            start, before = start + chunk.duration_ps, reached[..., -1:]
        up_to.append(np.repeat(before, len(edges_ps) - found, axis=-1))
        return self._by_category(np.diff(np.concatenate(up_to, axis=-1)))

    def _by_category(self, sums: NDArray[Any]) -> dict[str, list[int]]:
        """INTEGRALS from sums of ``[group, product, bin]``."""
        idle, refused, external = (dict(zip(PRODUCTS, group, strict=True)) for group in sums)
        saturated = {name: refused[name] + external[name] for name in PRODUCTS}
        total = {name: idle[name] + saturated[name] for name in PRODUCTS}
        tail = self.tail_slots * external["time"]
        none = 0 * tail
        free = {"external": external["free"] - tail, "residual": refused["free"] + tail}
        integrals: dict[str, NDArray[Any]] = {}
        for prefix, part, idle_free in (("", total, idle["free"]), ("saturated_", saturated, none)):
            held = {name: part[name] for name in ("used", "overprovision", "rounding")}
            categories = held | free | {"reservation": part["covered"] - part["used"], "idle": idle_free}
            integrals |= {prefix + name: categories[name] for name in CATEGORIES}
        times = (total["iteration"], saturated["time"], external["time"], total["running"], total["largest"])
        integrals |= dict(zip(INTEGRALS[len(integrals) :], times, strict=True))
        return {name: values.tolist() for name, values in integrals.items()}

    def queue(self, kind: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Since when, in picoseconds, who heads the queue (the column ``head``), and why; only where that changes."""
        self.pack()
        start, last = 0, (-1, -1)
        parts: list[tuple[NDArray[Any], ...]] = [(np.array([], kind), np.array([], np.int64), np.array([], np.int64))]
        for rows in self._chunks():
            chunk = Chunk(rows, self.capacity, self.kv_token_ps)
            head, why = (rows[name].astype(np.int64) for name in ("head", "why"))
            changed = np.ones(len(why), bool)
            changed[1:] = (np.diff(head) != 0) | (np.diff(why) != 0)
            changed[0] = (head[0], why[0]) != last
            since = chunk.starts[changed].astype(kind)
            parts.append((since + start, head[changed], why[changed]))
            start, last = start + chunk.duration_ps, (int(head[-1]), int(why[-1]))
        since, heads, whys = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return since, heads, whys

    def _chunks(self) -> Iterator[Columns]:
        """The packed columns, those that last too long halved until they do not or are a single row."""
        waiting = self._packed[::-1]
        while waiting:
            rows = waiting.pop()
            count = len(rows["why"])
            if count > 1 and rough_times_ps(rows, self.kv_token_ps).sum() > MOST_PS:
                for half in (slice(count // 2, None), slice(0, count // 2)):
                    waiting.append({name: values[half] for name, values in rows.items()})
            else:
                yield rows
