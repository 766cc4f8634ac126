"""Where every slot was, integrated over time exactly. Passive: the engine tells it, it never asks.

The engine records a row for each stretch of iterations (``simulator/stretch.py``) and for each gap. Rows come by
the million, so they are kept and integrated as columns, and still exactly: what a row adds fits 64 bits (where it does
not, that row is done in Python's integers), and sums are taken of its upper and its lower half.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.stretch import boundary, duration_ps

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

_THIRD = np.uint64(pow(3, -1, 1 << 64))  # times this is divided by 3, modulo 2^64, for multiples of 3
_MOST_PS = 1 << 62  # of a chunk, so that its times stay below 2^63
_MOST = 1 << 62  # slots times picoseconds of a row

_PRODUCTS = ("used", "covered", "overprovision", "rounding", "free", "running", "largest", "time", "iteration")
"""What is summed: each times time; ``iteration`` is the time within iterations."""
_GROUP = np.array([0, 1, 2, 0, 0])
"""By what stopped the head of the queue: no refusal, too little free, enough free. Sums are kept apart for each."""

_TIMED = ("iterations", "first_ps", "extra_ps", "running")
_NEEDED = (*_TIMED, *_PRODUCTS[:5], "largest")
_HALF, _LOWER = np.uint64(32), np.uint64((1 << 32) - 1)

Columns = Mapping[str, NDArray[Any]]


class Ledger:
    """Rows of one run over a pool of ``capacity`` slots, of which ``tail_slots`` can never be handed out."""

    def __init__(self, capacity: int, tail_slots: int, kv_token_ps: int, grow_slots: int = 0) -> None:
        self.capacity, self.tail_slots, self.kv_token_ps, self.grow_slots = (
            capacity,
            tail_slots,
            kv_token_ps,
            grow_slots,
        )
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
                self._packed.append({name: values.astype(_smallest(values)) for name, values in part.items()})

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
        row, ahead, slots, past_end = (
            np.concatenate([first, later[kept]])[order]
            for first, later in (
                (number, row),
                (0 * number, ahead),
                (0 * number, told * self.grow_slots),
                (0 * number, past_end),
            )
        )
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
        start, before = 0, np.zeros((3, len(_PRODUCTS), 1), object)
        up_to, found = [before[..., :0]], 0
        for rows in self._chunks():
            chunk = _Chunk(rows, self.capacity, self.kv_token_ps)
            inside = edges_ps[found : bisect_left(edges_ps, start + chunk.duration_ps)]
            reached = before + chunk.sums([edge - start for edge in inside])
            up_to.append(reached[..., :-1])
            found += len(inside)
            start, before = start + chunk.duration_ps, reached[..., -1:]
        up_to.append(np.repeat(before, len(edges_ps) - found, axis=-1))
        return self._by_category(np.diff(np.concatenate(up_to, axis=-1)))

    def _by_category(self, sums: NDArray[Any]) -> dict[str, list[int]]:
        """INTEGRALS from sums of ``[group, product, bin]``."""
        idle, refused, external = (dict(zip(_PRODUCTS, group, strict=True)) for group in sums)
        saturated = {name: refused[name] + external[name] for name in _PRODUCTS}
        total = {name: idle[name] + saturated[name] for name in _PRODUCTS}
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
            chunk = _Chunk(rows, self.capacity, self.kv_token_ps)
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
            if count > 1 and _times(_widened(rows, np.float64), float(self.kv_token_ps)).sum() > _MOST_PS:
                for half in (slice(count // 2, None), slice(0, count // 2)):
                    waiting.append({name: values[half] for name, values in rows.items()})
            else:
                yield rows


class _Chunk:
    """Rows that follow each other, summed up."""

    def __init__(self, rows: Columns, capacity: int, kv_token_ps: int) -> None:
        self._rows, self._capacity, self._kv_token_ps = rows, capacity, kv_token_ps
        self._columns = _widened({name: rows[name] for name in _NEEDED}, np.uint64)
        self.starts = np.zeros(len(rows["why"]), np.uint64)
        np.cumsum(_times(self._columns, np.uint64(kv_token_ps))[:-1], out=self.starts[1:])
        count, first, extra, running = self._row(-1)
        self.duration_ps = int(self.starts[-1]) + extra + duration_ps(count, first, kv_token_ps * running)

    def sums(self, times_ps: Sequence[int]) -> NDArray[Any]:
        """Sums from the chunk's start to each of these times in it and to its end: [group, product, time], ints."""
        # A row of more than 2^64 ps is a chunk of its own, and then this is row 0 whatever the time is.
        within = np.array([min(time_ps, (1 << 64) - 1) for time_ps in times_ps], np.uint64)
        cut = np.searchsorted(self.starts, within, "right") - 1
        groups = _GROUP[self._rows["why"]]
        sums = self._before(groups, np.append(cut, len(groups)))
        if times_ps:
            starts = self.starts[cut].tolist()
            parts = [
                self._iterations(row, time_ps - start)
                for row, time_ps, start in zip(cut.tolist(), times_ps, starts, strict=True)
            ]
            counts, rests = np.array(parts, object).T
            sums[groups[cut], :, np.arange(len(cut))] += self._of(cut, counts, rests).T
        return sums

    def _before(self, groups: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """Sums of all that comes before each of these rows."""
        columns = self._columns
        whole = _products(columns, columns["iterations"], _gaps(columns), np.uint64(self._kv_token_ps))
        sums = np.zeros((3, len(_PRODUCTS), len(rows)), object)
        rough_ps = _times(_widened(self._columns, np.float64), float(self._kv_token_ps))
        for row in np.flatnonzero(rough_ps * self._capacity > _MOST).tolist():
            whole[:, row] = 0
            rest = int(self._rows["extra_ps"][row]) if self._rows["iterations"][row] == 0 else 0
            exact = self._of(
                np.array([row]), np.array([int(self._rows["iterations"][row])], object), np.array([rest], object)
            )
            sums[groups[row]] += exact * (rows > row)
        for group, into in enumerate(sums):
            own = np.flatnonzero(groups == group)
            if not len(own):
                continue
            at = np.searchsorted(own, rows)
            halves = []
            for half in (whole[:, own] >> _HALF, whole[:, own] & _LOWER):
                passed = np.zeros((len(_PRODUCTS), len(own) + 1), np.uint64)
                np.cumsum(half, axis=1, out=passed[:, 1:])
                halves.append(passed[:, at].astype(object))
            into += halves[0] * (1 << 32) + halves[1]
        return sums

    def _of(self, rows: NDArray[Any], counts: NDArray[Any], rests_ps: NDArray[Any]) -> NDArray[Any]:
        """Products of the first ``counts`` iterations of these rows and what follows, in Python's integers."""
        columns = {name: self._rows[name][rows].astype(object) for name in _NEEDED}
        return _products(columns, counts, rests_ps, self._kv_token_ps)

    def _row(self, row: int) -> tuple[int, int, int, int]:
        count, first, extra, running = (int(self._rows[name][row]) for name in _TIMED)
        return count, first, extra, running

    def _iterations(self, row: int, time_ps: int) -> tuple[int, int]:
        """How many whole iterations the first ``time_ps`` of a row have, and what is left over."""
        count, first, extra, running = self._row(row)
        step = self._kv_token_ps * running
        if count == 0 or time_ps < first + extra:
            return 0, time_ps
        if first or step:
            count = min(boundary(time_ps - extra + 1, first, step) - 1, count)
        return count, time_ps - extra - duration_ps(count, first, step)


def _smallest(values: NDArray[np.int64]) -> np.dtype[Any]:
    return np.min_scalar_type(values.max())


def _widened(rows: Columns, kind: type[np.generic]) -> Columns:
    return {name: values.astype(kind) for name, values in rows.items()}


def _gaps(rows: Columns) -> NDArray[Any]:
    """Duration of the rows that are gaps, 0 for the others."""
    return np.where(rows["iterations"] == 0, rows["extra_ps"], rows["iterations"].dtype.type(0))


def _times(rows: Columns, kv_token_ps: Any) -> NDArray[Any]:
    """Duration of each row, in the type of the columns."""
    count = rows["iterations"]
    times: NDArray[Any] = count * rows["first_ps"] + kv_token_ps * rows["running"] * _ones(count) + rows["extra_ps"]
    return times


def _ones(count: NDArray[Any]) -> NDArray[Any]:
    """0 + 1 + ... + (count - 1), in the type of ``count``; below 2^32 iterations."""
    ones: NDArray[Any] = count * (count - (count > 0)) // 2
    return ones


def _products(rows: Columns, count: NDArray[Any], rest_ps: NDArray[Any], kv_token_ps: Any) -> NDArray[Any]:
    """_PRODUCTS of the first ``count`` iterations of each row and ``rest_ps`` of what follows, in their type."""
    first, running, used = (rows[name] for name in ("first_ps", "running", "used"))
    extra = rows["extra_ps"] * (count > 0)
    step, ones = kv_token_ps * running, _ones(count)
    thrice = ones * (2 * count - (count > 0))  # of the squares 0, 1, 4, ...
    squares = thrice // 3 if thrice.dtype == object else thrice * _THIRD
    time = extra + count * first + step * ones + rest_ps
    products = np.empty((len(_PRODUCTS), len(time)), time.dtype)
    products[0] = (extra + count * first) * used + (first * running + step * used) * ones + step * running * squares
    products[0] += rest_ps * (used + running * count)
    for into, name in zip(products[1:7], _PRODUCTS[1:7], strict=True):
        np.multiply(rows[name], time, out=into)
    products[7] = time
    products[8] = time * (rows["iterations"] > 0)
    return products
