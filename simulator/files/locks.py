"""What only one process may have at a time: locks of the operating system, which go with their holder, however it goes.

A lock is on an open file or folder (flock), and ends when it is let go or when nobody has that file open any more.
Where there are no such locks, on Windows and on some network disks, nobody is kept out.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_TRIES, _TRY_S = 20, 0.05  # the processes of a sweep that was killed hold its locks until they have left, too
_PREFIX = "kvfrag-scratch-"


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """The lock on a file, which is made if it is not there; whether we have it. Raises OSError when it cannot be made.

    A file that is still empty at the end is removed.
    """
    descriptor = None
    for _ in range(_TRIES):
        descriptor = _locked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        if descriptor is not None:
            break
        sleep(_TRY_S)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(FileNotFoundError):
                if not os.fstat(descriptor).st_size and os.path.samestat(os.fstat(descriptor), path.stat()):
                    path.unlink()
            _let_go(descriptor)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for a while. Those of processes that were killed, and could not remove theirs, are removed first."""
    if fcntl is None:
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
            yield Path(name)
        return
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        _remove_if_dead(left)
    descriptor = None
    while descriptor is None:  # one that is not locked yet may be taken for a dead one's
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(FileNotFoundError):
            descriptor = _locked(folder, os.O_RDONLY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _let_go(descriptor)


def _locked(path: Path, flags: int) -> int | None:
    """The descriptor of what is at a path, once it is locked; None: another has the lock."""
    while True:
        descriptor = os.open(path, flags, 0o666)
        try:
            if not _lock(descriptor):
                os.close(descriptor)
                return None
        except OSError:
            return descriptor  # a disk without locks
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # whoever had the lock removed the file meanwhile
        if not flags & os.O_CREAT:
            raise FileNotFoundError(path)


def _lock(descriptor: int) -> bool:
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _let_go(descriptor: int) -> None:
    """Unlocked by name: a process that was started meanwhile has the file open too."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _remove_if_dead(folder: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid == os.getuid() and _lock(descriptor):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
