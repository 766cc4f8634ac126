"""Standard input as a file: copied to a scratch file at its first use, for it may be read several times."""

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from allocators.base import InputError
from simulator.messages.words import short

DASH = "-"
"""What names standard input on a command line."""

_BLOCK_BYTES = 1 << 20
_held: list[tuple[Any, Path]] = []  # the stream that was read, and the file that has what it held


def standard_input() -> str:
    """The path of a file with what standard input holds; it is removed when the process ends.

    Raises InputError when standard input is closed, cannot be read, or there is no room for it.
    """
    stream = sys.stdin
    for one, held in _held:
        if one is stream:
            return str(held)
    if stream is None or stream.closed:
        raise InputError("standard input is closed: there is no trace to read from it")
    if stream.isatty():
        print("reading a trace from standard input, to its end (Ctrl-D)", file=sys.stderr)
    path: Path | None = None
    try:
        path = _scratch()
        with path.open("wb") as file:
            for block in _blocks(stream):
                file.write(block)
    except OSError as error:
        where = tempfile.gettempdir() if path is None else path.parent
        raise InputError(
            f"standard input cannot be kept in {where}: {error.strerror or error}; TMPDIR names another folder"
        ) from None
    _held.append((stream, path))
    return str(path)


def _blocks(stream: TextIO) -> Iterator[bytes]:
    """The bytes of standard input, some at a time."""
    try:
        while block := stream.buffer.read(_BLOCK_BYTES):
            yield block
    except OSError as error:
        raise InputError(f"standard input cannot be read: {error.strerror or error}") from None


def shown(path: str | os.PathLike[str]) -> str:
    """A trace file as it is told to the user."""
    return "standard input" if is_standard_input(path) else f"trace file {short(str(path))}"


def file_name(path: str | os.PathLike[str]) -> str:
    """The name of a trace that is read from a file."""
    return "standard input" if is_standard_input(path) else Path(path).name


def is_standard_input(path: str | os.PathLike[str]) -> bool:
    """Whether a path is ``-`` or that of :func:`standard_input`."""
    return os.fspath(path) == DASH or any(os.fspath(held) == os.fspath(path) for _, held in _held)


def _scratch() -> Path:
    handle, name = tempfile.mkstemp(prefix="kvfrag-stdin-")
    os.close(handle)
    path, owner = Path(name), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not at the end of a process that was forked off
            path.unlink(missing_ok=True)

    atexit.register(remove)
    return path
