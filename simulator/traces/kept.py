"""The usable rows of a file as they are read, joined without ever being there twice."""

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.traces.schema import Columns

_LARGE_ROWS = 5 << 20  # of 8 bytes: more than malloc ever takes from the heap


class Kept:
    """The usable rows so far, in parts of each column, which are joined one by one: they are never all there twice.

    Small parts are joined into large ones on the way. The memory of those goes back to the system when they are let go;
    the heap would keep that of small ones.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {column.name: [] for column in fields(Columns)}
        self._small = self._rows = 0  # small parts at the end, and rows in them

    def add(self, columns: Columns) -> None:
        for name, parts in self._parts.items():
            if (part := getattr(columns, name)) is not None:
                parts.append(part)
        self._small += 1
        self._rows += len(columns.time_ns)
        if self._rows >= _LARGE_ROWS:
            for parts in self._parts.values():
                if parts:
                    parts[-self._small :] = [np.concatenate(parts[-self._small :])]
            self._small = self._rows = 0

    def joined(self) -> Columns:
        columns: dict[str, NDArray[Any]] = {}
        for name, parts in self._parts.items():
            if parts:
                columns[name] = np.concatenate(parts)
                parts.clear()
        return Columns(**columns)
