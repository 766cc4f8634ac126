"""Public traces fetched from their publishers into the user's cache folder, whole or not at all.

What arrives goes into ``FILE.part`` beside the place it is meant for, see :mod:`simulator.traces.public.fetch`. Only
what has the right checksum takes the file's place; where none is known, what begins as a trace does, and is as long as
the server said or, where it did not say, ends with a whole line.
"""

import hashlib
import http.client
import os
import urllib.error
from contextlib import suppress
from pathlib import Path

from allocators.base import InputError
from simulator.files.locks import held
from simulator.traces.public.catalogue import PublicTrace
from simulator.traces.public.fetch import AnswerError, CutError, Watch, fetch, tag_file
from simulator.traces.reading import format_of
from simulator.traces.text.jsontext import json_row
from simulator.traces.text.opening import MAX_LINE_BYTES, open_text

TRIES = 3


class DownloadError(Exception):
    """What failed, in one line, and what can be done by hand."""


def _unwatched(done: int, total: int | None) -> None:
    del done, total


def download(name: str, source: PublicTrace, watch: Watch = _unwatched, force: bool = False) -> bool:
    """Fetch a public trace to ``source.path``, unless a good one is there already; returns whether it was fetched.

    ``force`` fetches it from its beginning, whatever is there.
    Proxies are those of the environment. Raises DownloadError; whatever good file was there before is still there then.
    """
    target = source.path
    if not force and target.is_file() and source.sha256 in (None, _sha256(target)):
        return False
    part = target.with_name(target.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        with held(part) as ours:
            if not ours:
                raise DownloadError(f"cannot download {name}: another process is fetching it; wait for its end")
            if force:
                _throw_away(part)
            measured = _fetched(source, part, watch)
            _check(source, part, measured)
            part.replace(target)
            tag_file(part).unlink(missing_ok=True)
    except (OSError, http.client.HTTPException, AnswerError, CutError, InputError) as error:
        raise DownloadError(
            f"cannot download {name}: {_reason(error)}. By hand: save {source.url} as {target} "
            "(behind a proxy, set HTTPS_PROXY and try again)"
        ) from None
    return True


def _fetched(source: PublicTrace, part: Path, watch: Watch) -> bool:
    """Fetch a trace, in a few tries; returns whether the server told where it ends."""
    for _ in range(TRIES - 1):
        with suppress(CutError):
            return fetch(source.url, part, watch, source.sha256 is not None)
    return fetch(source.url, part, watch, source.sha256 is not None)


def _throw_away(part: Path) -> None:
    """Empty it: a file that is held is removed by whoever holds it, in the end."""
    os.truncate(part, 0)
    tag_file(part).unlink(missing_ok=True)


def _check(source: PublicTrace, part: Path, measured: bool) -> None:
    """Raise InputError, and throw it away, if what came is not the trace. ``measured``: it has the length it should."""
    try:
        if not part.stat().st_size:
            raise InputError("what came is empty")
        if source.sha256 is None:
            format_of(part)
            if not measured and not _ends_whole(part):
                raise InputError("what came ends inside a line, and the server gives no length: it was cut")
        elif (found := _sha256(part)) != source.sha256:
            raise InputError(f"what came has the wrong checksum (sha256 {found}, not {source.sha256})")
    except InputError:
        _throw_away(part)
        raise


def _ends_whole(path: Path) -> bool:
    """Whether a text ends with a line's end, or a JSON object or list with its own."""
    last = b""
    text = open_text(path)
    for chunk in text.chunks:
        last = (last + chunk)[-MAX_LINE_BYTES:]
    line = last.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace")
    if text.head.lstrip().startswith(b"["):
        return line.endswith("]")
    return last.endswith(b"\n") or json_row(line) is not None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"the server cannot be reached ({error.reason})"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be used: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
