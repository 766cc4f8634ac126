"""Files written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
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
