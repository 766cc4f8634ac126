"""Files written whole or not at all."""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from allocators.base import InputError


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of ``path`` once it is complete: what was there before stays until then.

    A link stays a link, a file keeps its permissions; what is no file (a device, a pipe) is written to. Raises
    InputError when it cannot be written.
    """
    scratch = None
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
            return
        real = Path(os.path.realpath(path))
        with tempfile.NamedTemporaryFile(dir=real.parent, prefix=".kvfrag-", delete=False) as file:
            scratch = Path(file.name)
            yield file
            file.flush()
            os.fsync(file.fileno())  # a disk may say only now that it is full, and what is replaced must be there
        if real.exists():
            shutil.copymode(real, scratch)
        else:
            scratch.chmod(0o666 & ~_umask())
        scratch.replace(real)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        if scratch is not None:
            scratch.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file all at once, see :func:`replacing`."""
    with replacing(path) as file:
        file.write(content)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it to an open file, however little is taken at a time. Raises OSError."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[str | None] = ()) -> None:
    """Raise InputError unless every output, by its option, can be written, is no other's, and none of the inputs."""
    taken = {os.path.realpath(path): f"an input, {path}" for path in inputs if path}
    for option, path in outputs.items():
        if path is not None:
            _check_writable(f"{option}(={path})", path)
            other = taken.setdefault(os.path.realpath(path), option)
            if other != option:
                raise InputError(f"{option}(={path}) must not be the same file as {other}")


def _check_writable(name: str, path: Path) -> None:
    """Raise InputError unless a file can be written there, as far as that shows. Nothing is left behind."""
    try:
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG
        if stat.S_ISREG(mode):
            real = Path(os.path.realpath(path))
            with tempfile.TemporaryFile(dir=real.parent):
                pass
            if real.exists():
                real.open("ab").close()
        elif stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError) and not path.parent.exists()
        reason = f"there is no folder {path.parent}" if missing else error.strerror
        raise InputError(f"{name} cannot be written: {reason}") from None
