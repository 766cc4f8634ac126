"""Public traces fetched from their publishers into the user's cache folder, whole or not at all.

What arrives goes into ``FILE.part`` beside the place it is meant for, and a download that was cut goes on where it
stopped. Only what has the right checksum takes the file's place; where none is known, what begins as a trace does, and
is as long as the server said or, where it did not say, ends with a whole line.
"""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from allocators.base import InputError
from simulator.catalogue import PublicTrace
from simulator.files import MAX_LINE_BYTES, open_text
from simulator.jsontext import json_row
from simulator.reading import format_of

CHUNK_BYTES = 1 << 18
TIMEOUT_S = 30.0
TRIES = 3

Watch = Callable[[int, int | None], object]
"""Told the bytes that are there, and how many there will be (None: not known)."""


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
        if force:
            part.unlink(missing_ok=True)
            _tag_file(part).unlink(missing_ok=True)
        for attempt in range(1, TRIES + 1):
            try:
                measured = _fetch(source.url, part, watch)
                break
            except _CutError:
                if attempt == TRIES:
                    raise
        _check(source, part, measured)
        part.replace(target)
        _tag_file(part).unlink(missing_ok=True)
    except (OSError, http.client.HTTPException, _CutError, InputError) as error:
        raise DownloadError(
            f"cannot download {name}: {_reason(error)}. By hand: save {source.url} as {target} "
            "(behind a proxy, set HTTPS_PROXY and try again)"
        ) from None
    return True


class _CutError(Exception):
    """The connection ended before all was there."""


def _tag_file(part: Path) -> Path:
    return part.with_name(part.name + ".etag")


def _fetch(url: str, part: Path, watch: Watch) -> bool:
    """Fetch what is missing of a file; returns whether the server told where it ends.

    Raises _CutError when the connection ends before it is whole.
    """
    there = part.stat().st_size if part.exists() else 0
    tag_file = _tag_file(part)
    tag = tag_file.read_text() if tag_file.exists() else ""
    request = urllib.request.Request(url, headers={"User-Agent": f"kvfrag/{version('kvfrag')}"})
    # Only the same file may be gone on with, and only its tag tells.
    if there and tag:
        request.add_header("Range", f"bytes={there}-")
        request.add_header("If-Range", tag)
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and there:
            part.unlink()
            raise _CutError("the server has another file by now") from None
        raise
    with answer:
        goes_on = answer.status == http.client.PARTIAL_CONTENT and _begins_at(answer.headers["Content-Range"], there)
        if not goes_on:
            there = 0
            tag_file.write_text(answer.headers["ETag"] or "")
        length = answer.headers["Content-Length"]
        total = None if length is None else there + int(length)
        chunked = answer.headers["Transfer-Encoding"] == "chunked"  # then the last chunk is marked
        with part.open("ab" if goes_on else "wb") as file:
            watch(there, total)
            try:
                while block := answer.read(CHUNK_BYTES):
                    file.write(block)
                    there += len(block)
                    watch(there, total)
            except (http.client.IncompleteRead, ConnectionError, TimeoutError):
                raise _CutError(f"the connection was cut after {there:,} bytes; try again to go on") from None
    if total is not None and there < total:
        raise _CutError(f"the connection was cut after {there:,} of {total:,} bytes; try again to go on")
    return total is not None or chunked


def _begins_at(content_range: str | None, place: int) -> bool:
    return (content_range or "").startswith(f"bytes {place}-")


def _check(source: PublicTrace, part: Path, measured: bool) -> None:
    """Raise InputError, and throw it away, if what came is not the trace. ``measured``: it has the length it should."""
    try:
        if source.sha256 is None:
            format_of(part)
            if not measured and not _ends_whole(part):
                raise InputError("what came ends inside a line, and the server gives no length: it was cut")
        elif (found := _sha256(part)) != source.sha256:
            raise InputError(f"what came has the wrong checksum (sha256 {found}, not {source.sha256})")
    except InputError:
        part.unlink()
        _tag_file(part).unlink(missing_ok=True)
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
    return " ".join(str(error).split()) or type(error).__name__
