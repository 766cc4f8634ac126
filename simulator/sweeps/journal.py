"""The results of a sweep on disk: safe to interrupt at any instant, and found again by who goes on.

While it runs, every result is a line of JSON in ``FILE.partial``, on the disk before the next. At the end FILE is
written whole, CSV or Parquet, in the order of the grid, and the lines go. A run is known by its key, in the column
``run``; whoever starts the same sweep again is handed all that either file has, failed runs excepted. Two sweeps that
write to one file would lose each other's results: the file of lines is locked while a sweep runs.
"""

import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any

import pandas as pd

from allocators.base import InputError
from simulator.files.locks import held
from simulator.files.writing import write_all, write_whole
from simulator.sweeps.jobs import Figures, Outcome, checked_figures, figure_types
from simulator.traces.parquet import pyarrow

ENDINGS = (".csv", ".parquet")
RUN, ERROR = "run", "error"
_KEY = re.compile(rb"[0-9a-f]{16}")
_HEAD = {"format": "kvfrag sweep 1"}


class Journal:
    """The results that a file has, and where more are added. Raises InputError when the file is not a sweep's."""

    def __init__(self, path: Path, option: str = "out") -> None:
        self.path, self.partial = path, _partial(path)
        self._name = f"{option}(={path})"
        _check_kind(self._name, path)
        self._lines: FileIO | None = None
        self._whole_bytes = 0
        self.finished: dict[str, Figures] = {}
        """The figures of each run that is done, by its key."""
        self._held: set[str] = set()
        try:
            if path.exists() and path.stat().st_size:
                self._read_table()
            if self.partial.exists():
                self._read_lines()
        except OSError as error:
            raise InputError(f"{self._name} cannot be read: {error.strerror}") from None

    @property
    def _is_parquet(self) -> bool:
        return _is_parquet(self.path)

    @property
    def where(self) -> str:
        """The file, or the lines of one that is not whole yet."""
        return str(self.partial if self.partial.exists() and self.partial.stat().st_size else self.path)

    def check(self, keys: Collection[str]) -> None:
        """Raise InputError when the file has runs that are none of these: they would be lost."""
        foreign = self._held - set(keys)
        if foreign:
            raise InputError(
                f"{self._name} was made by another sweep: {len(foreign):,} of its {len(self._held):,} runs are none of "
                "this one's (its grid may grow; its trace, settings and version must stay); name another file"
            )

    def add(self, key: str, outcome: Outcome) -> None:
        """Add a result; it is on the disk when this returns. Raises InputError when it cannot be written."""
        try:
            if self._lines is None:
                # Without a buffer: what a full disk did not take would be written again at the end, and fail again.
                self._lines = self.partial.open("ab", buffering=0)
                self._lines.truncate(self._whole_bytes)  # a line that was cut off
                if not self._whole_bytes:
                    self._write(_HEAD)
            self._write({RUN: key, **({ERROR: outcome.error} if outcome.figures is None else outcome.figures)})
            self._keep(key, outcome.error, outcome.figures or {})
        except OSError as error:
            raise InputError(f"{self.partial} cannot be written: {error.strerror}") from None

    def finish(self, table: pd.DataFrame) -> None:
        """Write the table whole in place of the lines."""
        file = BytesIO()
        table = _with_whole_numbers(table)
        if self._is_parquet:
            table.to_parquet(file, index=False)
        else:
            table.to_csv(file, index=False, lineterminator="\n")
        write_whole(self.path, file.getvalue())
        self.close()
        self.partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file of lines."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def _write(self, content: dict[str, Any]) -> None:
        if self._lines is not None:
            write_all(self._lines.fileno(), json.dumps(content).encode() + b"\n")
            os.fsync(self._lines.fileno())

    def _keep(self, key: str, error: object, figures: Figures) -> None:
        self._held.add(key)
        if not error:
            self.finished[key] = figures

    def _read_table(self) -> None:
        try:
            if self._is_parquet:
                table = pd.read_parquet(self.path).astype(object)
            else:
                _check_whole(self._name, self.path.read_bytes())
                table = pd.read_csv(self.path, dtype=object, keep_default_na=False)
            columns = table[[RUN, ERROR, *figure_types()]]
        except InputError:
            raise
        except (ValueError, LookupError, pd.errors.ParserError, OSError):
            raise InputError(f"{self._name} holds no sweep of this version; name another file") from None
        for nth, (key, error, *figures) in enumerate(columns.itertuples(index=False), start=1):
            try:
                failed = not pd.isna(error) and error
                values = dict(zip(figure_types(), map(_number, figures), strict=True))
                self._keep(str(key), failed, {} if failed else checked_figures(values))
            except ValueError as wrong:
                raise InputError(f"{self._name}: row {nth}: {wrong}; remove the row, or name another file") from None

    def _read_lines(self) -> None:
        lines = self.partial.read_bytes().splitlines(keepends=True)
        for nth, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                break  # the last one, cut off
            try:
                content = json.loads(line)
                if nth == 1 and content != _HEAD:
                    raise ValueError
            except ValueError:
                content = None
            if not isinstance(content, dict) or (nth > 1 and not isinstance(content.get(RUN), str)):
                raise InputError(
                    f"{self.partial}: line {nth} is not of a sweep of this version; remove it, or name another file"
                )
            try:
                if nth > 1:
                    failed = content.get(ERROR)
                    self._keep(content[RUN], failed, {} if failed else checked_figures(content))
            except ValueError as wrong:
                raise InputError(f"{self.partial}: line {nth}: {wrong}; remove it, or name another file") from None
            self._whole_bytes += len(line)


@contextmanager
def journal_at(path: Path, option: str = "out") -> Iterator[Journal]:
    """The journal of a file that no other sweep is writing. Raises InputError, for one that another is writing too."""
    name, partial = f"{option}(={path})", _partial(path)
    _check_kind(name, path)
    with ExitStack() as stack:
        try:
            ours = stack.enter_context(held(partial))
        except OSError as error:
            raise InputError(f"{partial} cannot be written: {error.strerror}") from None
        if not ours:
            raise InputError(f"{name}: another sweep is writing {path}; wait for its end, or name another file")
        journal = Journal(path, option)
        stack.callback(journal.close)
        yield journal


def _partial(path: Path) -> Path:
    """Where the lines are: beside the file itself, not beside a link to it."""
    real = path.resolve() if path.is_symlink() else path
    return real.with_name(f"{real.name}.partial")


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _check_kind(name: str, path: Path) -> None:
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{name} must end in one of {', '.join(ENDINGS)}")
    if _is_parquet(path):
        pyarrow()


def _check_whole(name: str, content: bytes) -> None:
    """Raise InputError for a sweep's CSV whose last row has no whole key, which is in the last column."""
    header, _, rows = content.partition(b"\n")
    last = rows.rpartition(b"\n")[2]
    if last and header.endswith(f",{RUN}".encode()) and not _KEY.fullmatch(last.rpartition(b",")[2].strip()):
        nth = rows.count(b"\n") + 1
        raise InputError(f"{name} is cut off in its last row, {nth}; remove that row, or name another file")


def _number(value: Any) -> Any:
    """A figure as it was before it was written; what is no number stays as it is."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        return value or None
    return None if pd.isna(value) else value


def _with_whole_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Whole numbers stay whole where some row has none: 16 and nothing, not 16.0 and NaN."""
    types = figure_types()
    whole = [
        name
        for name, values in table.items()
        if values.dtype == float and types.get(str(name), int) is int and values.isna().any()
        if (values.dropna() % 1 == 0).all()
    ]
    return table.astype(dict.fromkeys(whole, "Int64"))
