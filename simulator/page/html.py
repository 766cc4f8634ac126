"""One page to scrub through a run: the address-time map of each allocator, its waste, and any request's block table.

A single file that needs no server and no network: plotly draws the figures, and a script of ours (``web/``) answers
what is under the mouse. The runs travel in the page as packed columns. Maps are images of at most ``MAP_CELLS`` cells
and the waste comes in ``WASTE_BINS`` bins, whatever the length of the run; besides these the page
has the decision logs themselves, as far as it stays below ``MOST_BYTES``, and says on itself what it left out.
"""

import gzip
import json
import os
import re
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocators.base import InputError, one_of
from allocators.dotted import optional
from simulator.files.writing import check_outputs, write_whole
from simulator.messages.showing import labels
from simulator.messages.words import printable
from simulator.results.cells import KINDS, MOST_CELLS, Cells, across_of, cells_over_time, middles, unit_of
from simulator.results.history import History
from simulator.results.hues import palette
from simulator.results.ledger import CATEGORIES
from simulator.results.record import Record
from simulator.results.span import no_time, some_span_s, span_s
from simulator.results.views import COLORS

MAP_CELLS = (400, 800)
"""Addresses x instants of a map."""

WASTE_BINS = 400
MOST_BYTES = 7_800_000
"""Of the page; decision logs that would make it larger are left out."""

_OWN_BYTES = 60_000  # of our script, style and head
_HELD = ("stay", "start", "slots", "begin_s")
_STAY = ("request", "first", "begin_s", "end_s", "tokens", "final", "overprovision")
_ANCHOR = ("iteration", "time_s", "running", "used", "first_ps")
_REQUEST = ("arrival_s", "prompt_tokens", "output_tokens")


def write_page(runs: Sequence[Record], path: str | os.PathLike[str]) -> None:
    """Write the page of some runs of one trace, which have decision logs, to a file.

    Raises InputError when there is none, one has no log, none covers any time, they are of different traces, plotly
    is not installed, or the file is no ``.html`` or cannot be written.
    """
    target = Path(path)
    one_of("the ending of a page's file", target.suffix.lower(), (".html", ".htm"))
    check_outputs({"path": target})
    write_whole(target, page_of(runs).encode())


def check_plotly() -> None:
    """Raise InputError unless plotly is there."""
    optional("plotly.offline", "a page needs plotly: pip install 'kvfrag[notebooks]'")


def page_of(runs: Sequence[Record]) -> str:
    """The page as text."""
    check_plotly()
    from plotly.offline.offline import get_plotlyjs

    if not runs:
        raise InputError("runs(=[]) must hold at least one run")
    for run in runs:
        if not isinstance(run, Record):
            raise InputError(f"a page shows runs, as simulate() makes them, and not a {type(run).__name__}")
        if run.trace.sha256 != runs[0].trace.sha256:
            traces = f"{_called(run)} and {_called(runs[0])}"
            raise InputError(f"run {run.name!r} is of another trace than {runs[0].name!r}, {traces}; a page shows one")
        if run.duration_ps and not len(run.timeline):
            raise no_time(run.name, run.summary(), "a page")
    packed = _Packed()
    histories = [History(run) for run in runs]
    spans = [span_s(run) for run in runs if run.duration_ps] or [some_span_s(runs[0], "a page")]
    start, end = min(begun for begun, _ in spans), max(over for _, over in spans)
    requests = runs[0].requests
    names = labels(runs)
    maps = [_run(history, name, start, end, packed) for history, name in zip(histories, names, strict=True)]
    plotly = str(get_plotlyjs())  # type: ignore[no-untyped-call]
    _add_logs(histories, maps, packed, (MOST_BYTES - len(plotly) - _OWN_BYTES) * 3 // 4)  # base64: 4 letters for 3
    head = {
        "trace": printable(runs[0].trace.name),
        "requests": {name: packed.add(requests[name].to_numpy()) for name in _REQUEST},
        "start_s": start,
        "end_s": end,
        "kinds": KINDS,
        "palette": [[[round(255 * level) for level in color] for color in hues] for hues in palette().tolist()],
        "categories": [{"name": name, "color": COLORS[name]} for name in CATEGORIES],
        "runs": [run for _, run in maps],
    }
    web = files("simulator.page") / "web"
    parts = {
        "TITLE": _escaped(f"kvfrag: {runs[0].trace.name}"),
        "STYLE": (web / "page.css").read_text("utf-8"),
        "DATA": packed.text(head),
        "PLOTLY": plotly,
        "SCRIPT": (web / "page.js").read_text("utf-8"),
    }
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda found: parts[found[1]], (web / "page.html").read_text("utf-8"))


class _Packed:
    """Columns of numbers, one behind the other; the page finds each by its place and type."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: NDArray[Any]) -> dict[str, Any]:
        """Take a column, whole numbers in the smallest unsigned type, and say where it is."""
        if values.dtype.kind in "iu":
            values = values.astype(_smallest(int(values.max(initial=0))))
        content = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()
        content += b"\0" * (-len(content) % 8)  # where the next one starts, numbers of any type can be read
        place = {"at": self._size, "count": int(values.size), "type": values.dtype.name}
        self._parts.append(content)
        self._size += len(content)
        return place

    def travelling_bytes(self) -> int:
        """What the columns so far take when they are compressed."""
        return len(gzip.compress(b"".join(self._parts), 6))

    def text(self, head: dict[str, Any]) -> str:
        """All of it, after a head in JSON; compressed, in letters."""
        words = json.dumps(head, separators=(",", ":")).encode()
        words += b" " * (-len(words) % 8)
        content = len(words).to_bytes(8, "little") + words + b"".join(self._parts)
        return b64encode(gzip.compress(content, mtime=0)).decode()


def _smallest(most: int) -> str:
    return "uint8" if most < 1 << 8 else "uint16" if most < 1 << 16 else "uint32" if most < 1 << 32 else "float64"


def _run(history: History, name: str, start: float, end: float, packed: _Packed) -> tuple[Cells, dict[str, Any]]:
    """The map of a run, and all that the page shows of it whatever its length."""
    run, allocator = history.run, history.allocator
    unit = unit_of(allocator)
    slots, size = middles(run.capacity, MAP_CELLS[0], unit)
    pool, pool_size = middles(run.capacity, MOST_CELLS, unit)
    across = across_of(len(pool), max(1, unit // pool_size))
    edges = np.linspace(start, end, MAP_CELLS[1] + 1)
    cells = cells_over_time(history, slots, (edges[1:] + edges[:-1]) / 2)
    waste = _binned(run) if run.duration_ps else _nothing(start, end)
    figures = run.summary()
    return cells, {
        "name": printable(name),
        "capacity": run.capacity,
        "tail": history.tail_slots,
        "block": int(getattr(allocator, "block_size", 0) or 0),
        "iterations": run.counts["iterations"],
        "cost": [run.settings.cost.base, run.settings.cost.sequence, run.settings.cost.kv_token],
        "share": figures["share"],
        "map": {
            "rows": len(slots),
            "columns": MAP_CELLS[1],
            "size": size,
            "kind": packed.add(cells.kind.ravel()),
            "request": packed.add((cells.request + 1).ravel()),
        },
        "pool": {"size": pool_size, "count": len(pool), "across": across},
        "waste": {name: packed.add(values) for name, values in waste.items()},
        "end_s": history.end_s,
        "status": run.requests["status"].astype(str).tolist() if len(run.requests) <= 20_000 else None,
    }


def _binned(run: Record) -> dict[str, NDArray[np.float32]]:
    """The timeline in fewer bins: percent of the pool in each category, means over bins of equal length."""
    bins = run.timeline
    groups = np.array_split(np.arange(len(bins)), min(WASTE_BINS, len(bins)))
    edges = [float(bins["start_s"].iloc[group[0]]) for group in groups] + [float(bins["end_s"].iloc[-1])]
    found = {"edges_s": np.array(edges)}
    for name in (*CATEGORIES, "running", "waiting"):
        values = bins[name].to_numpy(float) * (100 / run.capacity if name in CATEGORIES else 1)
        found[name] = np.array([values[group].mean() for group in groups])
    return {name: values.astype(np.float32) for name, values in found.items()}


def _nothing(start: float, end: float) -> dict[str, NDArray[np.float32]]:
    """The bins of a run that covers no time, beside others that do: all of its pool is idle."""
    found = {name: np.zeros(1, np.float32) for name in (*CATEGORIES, "running", "waiting")}
    return found | {"edges_s": np.array([start, end], np.float32), "idle": np.full(1, 100, np.float32)}


def _add_logs(
    histories: Sequence[History], maps: Sequence[tuple[Cells, dict[str, Any]]], packed: _Packed, most_bytes: int
) -> None:
    """The decision logs, the shortest first, as long as they fit. Instead of one that does not, its map says more."""
    left = most_bytes - packed.travelling_bytes()
    for place in sorted(range(len(histories)), key=lambda place: len(histories[place].extents)):
        history = histories[place]
        columns = _log(history)
        size = sum(len(gzip.compress(np.ascontiguousarray(values).tobytes(), 6)) for values in columns.values())
        cells, run = maps[place]
        run["log"] = None
        if size <= left:
            left -= size
            run["log"] = {name: packed.add(values) for name, values in columns.items()}
        else:
            run["map"]["offset"] = packed.add(cells.offset.ravel())


def _log(history: History) -> dict[str, NDArray[Any]]:
    """The columns of who held what from when to when, extents grouped by the stay they belong to."""
    extents = history.extents.sort_values("stay", kind="stable")
    stays, anchors = history.stays, history.anchors
    columns: dict[str, NDArray[Any]] = {f"extent_{name}": extents[name].to_numpy() for name in _HELD}
    if (extents["end_s"].to_numpy() != stays["end_s"].to_numpy()[extents["stay"]]).any():
        columns["extent_end_s"] = extents["end_s"].to_numpy()
    columns["extent_offset"] = extents["offset"].to_numpy()
    columns |= {f"stay_{name}": stays[name].to_numpy() for name in _STAY}
    columns |= {f"anchor_{name}": anchors[name].to_numpy() for name in _ANCHOR}
    return {name: _shrunk(values) for name, values in columns.items()}


def _shrunk(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(_smallest(int(values.max(initial=0)))) if values.dtype.kind in "iu" else values


def _called(run: Record) -> str:
    """Its trace, told from others of the same name."""
    return f"{run.trace.name!r} (requests: {run.trace.requests:,}, sha256 {run.trace.sha256[:8]})"


def _escaped(text: str) -> str:
    return printable(text).replace("&", "&amp;").replace("<", "&lt;")
