"""The folder of a saved run: a head, and the tables whose checksums the head has. It is replaced all at once.

New tables are written beside the old ones, under names that contain their checksum::

    run.json  requests.csv  requests-1f0c93d2a4b86e75.csv

Putting the new head in the place of the old one replaces the run, in a single step: until then the old head finds its
tables, from then on the new one does. Afterwards the tables get their plain names, and what no head names is removed.
A save that is killed at any point leaves the old run or the new one, complete; the next save removes what else it left.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from allocators.base import InputError

HEAD, TIMELINE, REQUESTS, DECISIONS = "run.json", "timeline.csv", "requests.csv", "decisions.csv"
TABLES = (TIMELINE, REQUESTS, DECISIONS)
_SCRATCH = ".kvfrag-"
_ASIDE = re.compile(rf"({'|'.join(Path(name).stem for name in TABLES)})-[0-9a-f]{{16}}\.csv")


def check_folder(folder: Path) -> None:
    """Raise InputError unless a run can be saved there: nothing is there yet, or an empty folder, or a saved run."""
    try:
        try:
            held = sorted(path.name for path in folder.iterdir() if not _is_left(path.name))
        except FileNotFoundError:
            held = []
        foreign = [name for name in held if name not in (HEAD, *TABLES)]
        if held and not foreign and not _is_head(folder / HEAD):
            foreign = held
        if foreign:
            raise InputError(f"{folder} must be new or empty, or a saved run to replace; it holds {foreign[0]}")
        real = Path(os.path.realpath(folder))
        with tempfile.TemporaryFile(dir=next(path for path in (real, *real.parents) if path.exists())):
            pass
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None


def sha256(content: bytes) -> str:
    """The checksum of a table, as the head has it under ``sha256``."""
    return hashlib.sha256(content).hexdigest()


def write_files(folder: Path, head: bytes, tables: Mapping[str, bytes]) -> None:
    """Write a head, which has the checksums of the tables, and the tables. Raises OSError."""
    folder = Path(os.path.realpath(folder))  # a link stays a link
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for name, content in tables.items():
            _put(folder, _aside(name, sha256(content)), content)
        _put(folder, HEAD, head)
    finally:
        # What is not done here is done next time: the run is whole without it.
        with suppress(OSError, ValueError):
            _tidy(folder)
        if made and not (folder / HEAD).exists():
            with suppress(OSError):
                folder.rmdir()


def read_files(folder: Path) -> tuple[bytes, dict[str, bytes]]:
    """The head and its tables. Raises OSError, and InputError for a table that is not what was saved."""
    while True:
        head = (folder / HEAD).read_bytes()
        tables, wrong = {}, None
        for name, checksum in checksums(head).items():
            tables[name] = _read(folder, name, checksum)
            if sha256(tables[name]) != checksum:
                wrong = name
        if wrong is None:
            return head, tables
        if (folder / HEAD).read_bytes() == head:  # else it was replaced while it was read
            raise InputError(f"{wrong} is not what was saved")


def checksums(head: bytes) -> dict[str, str]:
    """The checksum of each table, by its plain name. Raises InputError when the head does not have them."""
    found = json.loads(head)
    named = found.get("sha256") if isinstance(found, dict) else None
    if not isinstance(named, dict):
        raise InputError(f"{HEAD} lacks 'sha256', the checksums of its tables")
    for name, checksum in named.items():
        if name not in TABLES:
            raise InputError(f"{HEAD}: sha256 names an unknown table {name!r}; known are {', '.join(TABLES)}")
        if not isinstance(checksum, str) or not re.fullmatch(r"[0-9a-f]{64}", checksum):
            raise InputError(f"{HEAD}: the sha256 of {name!r} must be 64 hexadecimal digits")
    return named


def _tidy(folder: Path) -> None:
    """Give the tables their plain names, and remove what no head names. Raises OSError."""
    named = checksums((folder / HEAD).read_bytes()) if (folder / HEAD).exists() else None
    for name, checksum in (named or {}).items():
        with suppress(FileNotFoundError):
            (folder / _aside(name, checksum)).replace(folder / name)
    for path in folder.iterdir():
        name = path.name
        if _is_left(name) or (named is not None and name in TABLES and name not in named):
            path.unlink()


def _is_left(name: str) -> bool:
    """Whether it was left by a save that was killed."""
    return name.startswith(_SCRATCH) or _ASIDE.fullmatch(name) is not None


def _is_head(path: Path) -> bool:
    """Whether this is the head of a saved run, of whatever version."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return b'"format": "kvfrag run ' in file.read(100)


def _aside(name: str, checksum: str) -> str:
    path = Path(name)
    return f"{path.stem}-{checksum[:16]}{path.suffix}"


def _read(folder: Path, name: str, checksum: str) -> bytes:
    try:
        return (folder / _aside(name, checksum)).read_bytes()
    except FileNotFoundError:
        return (folder / name).read_bytes()


def _put(folder: Path, name: str, content: bytes) -> None:
    scratch = folder / f"{_SCRATCH}{name}"
    scratch.write_bytes(content)
    scratch.replace(folder / name)
