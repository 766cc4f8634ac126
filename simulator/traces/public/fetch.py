"""One file over HTTP into ``FILE.part``: what has come is kept, and the next try goes on with it.

Only the same file may be gone on with. What tells that it is the same, the server's strong ETag or else its
Last-Modified, is in ``FILE.part.etag`` (RFC 9110, sections 8.8 and 14); where the checksum of the whole is known, that
tells it in the end.
"""

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from allocators.base import InputError
from simulator.files.writing import write_all

CHUNK_BYTES = 1 << 18
TIMEOUT_S = 30.0

Watch = Callable[[int, int | None], object]
"""Told the bytes that are there, and how many there will be (None: not known)."""


class CutError(Exception):
    """The connection ended, or nothing came any more, before all was there. What came is kept."""


class AnswerError(Exception):
    """What the server answers cannot be used."""


def tag_file(part: Path) -> Path:
    """Where the tag of the file is kept that a part is of."""
    return part.with_name(part.name + ".etag")


def fetch(url: str, part: Path, watch: Watch, verified: bool, anew: bool = False) -> bool:
    """Fetch what is missing of a file; returns whether the server told where it ends.

    ``verified``: a checksum of the whole is known to the caller. ``anew``: ask for the file from its beginning.
    Raises CutError, AnswerError, InputError when ``part`` cannot be written, and what urllib raises.
    """
    there = part.stat().st_size if part.exists() else 0
    tag = tag_file(part).read_text() if tag_file(part).exists() else ""
    request = urllib.request.Request(url, headers={"User-Agent": f"kvfrag/{version('kvfrag')}"})
    asked = there if there and (tag or verified) and not anew else 0
    if asked:
        request.add_header("Range", f"bytes={asked}-")
        if tag:
            request.add_header("If-Range", tag)
    try:
        answer = urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT_S)
    except TimeoutError:
        raise CutError(f"the server has not answered for {TIMEOUT_S:g} s; try again") from None
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not asked:
            raise
        if error.headers["Content-Range"] == f"bytes */{there}":
            return True  # nothing is missing
        os.truncate(part, 0)
        raise CutError("the server has another file by now; try again") from None
    with answer:
        _check_coding(answer.headers)
        length = _length(answer.headers)
        if answer.status == http.client.PARTIAL_CONTENT and asked:
            if not _is_rest(answer.headers, asked, length):
                return fetch(url, part, watch, verified, anew=True)
            return _receive(answer, part, asked, length, watch, bool(tag) or verified)
        if answer.status not in (http.client.OK, None):  # None: a file: address, which has none
            raise AnswerError(f"the server answers {answer.status} {answer.reason}")
        new_tag = _tag(answer.headers)
        if new_tag != tag or not (tag or verified):
            _write_tag(part, new_tag)  # another file, as far as one knows: what is there of the old one goes
        return _receive(answer, part, 0, length, watch, bool(new_tag) or verified)


def _receive(answer: Any, part: Path, there: int, length: int | None, watch: Watch, goes_on: bool) -> bool:
    """Write what comes over the part from a place on; returns whether its end is known.

    What the part has beyond that place stays until it is written over: a try that ends sooner loses nothing.
    """
    total = None if length is None else there + length
    chunked = "chunked" in (answer.headers["Transfer-Encoding"] or "").lower()  # then the last chunk is marked
    hint = "try again to go on" if goes_on else "try again: the server says nothing by which it could be gone on with"
    with _opened(part) as file:
        file.seek(there)
        watch(there, total)
        try:
            while there != total and (block := answer.read1(CHUNK_BYTES)):
                _write(file, block, part)
                there += len(block)
                watch(there, total)
        except (http.client.IncompleteRead, ConnectionError):
            raise CutError(f"the connection was cut after {there:,} bytes; {hint}") from None
        except TimeoutError:
            of = "" if total is None else f" of {total:,}"
            raise CutError(f"nothing came for {TIMEOUT_S:g} s, after {there:,}{of} bytes; {hint}") from None
        if total is not None and there < total:
            raise CutError(f"the connection was cut after {there:,} of {total:,} bytes; {hint}")
        file.truncate(there)
    return total is not None or chunked


class _Redirects(urllib.request.HTTPRedirectHandler):
    """To where what travels is as safe as it was; never from https to anything else."""

    def redirect_request(self, req: urllib.request.Request, *arguments: Any) -> urllib.request.Request | None:
        answer, target = arguments[0], arguments[-1]
        if urlsplit(target).scheme not in ("https", req.type):
            answer.close()
            raise AnswerError(f"the server sends us on from {req.type} to {target}, which is not followed")
        return super().redirect_request(req, *arguments)


def _check_coding(headers: Message) -> None:
    coding = headers["Content-Encoding"]
    if coding is not None and coding.strip().lower() not in ("", "identity"):
        raise AnswerError(f"the server sends it packed (Content-Encoding: {coding}), and was asked not to")


def _length(headers: Message) -> int | None:
    """The bytes that the answer has. Raises AnswerError for what is no number (RFC 9112, section 6.3)."""
    given = set(headers.get_all("Content-Length", []))
    if not given or headers["Transfer-Encoding"]:
        return None
    text = ", ".join(sorted(given)).strip()
    if not re.fullmatch("[0-9]{1,18}", text):
        raise AnswerError(f"the server's Content-Length ({text!r}) is no number of bytes")
    return int(text)


def _is_rest(headers: Message, asked: int, length: int | None) -> bool:
    """Whether a partial answer is what was asked for: the bytes from ``asked`` on, all of them or some."""
    found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", headers["Content-Range"] or "")
    if found is None:
        return False
    first, last = int(found[1]), int(found[2])
    within = found[3] == "*" or last < int(found[3])
    return first == asked and last >= first and within and length in (None, last - first + 1)


def _tag(headers: Message) -> str:
    """What tells this file from a later one byte for byte; "" for nothing."""
    tag = headers["ETag"] or ""
    if tag and not tag.startswith("W/"):
        return str(tag)
    try:
        changed, now = (parsedate_to_datetime(headers[name]) for name in ("Last-Modified", "Date"))
        # Younger, it could have been changed twice within its second.
        return str(headers["Last-Modified"]) if now - changed >= timedelta(minutes=1) else ""
    except (TypeError, ValueError):
        return ""


def _write_tag(part: Path, tag: str) -> None:
    try:
        part.write_bytes(b"")
        tag_file(part).write_text(tag)
    except OSError as error:
        raise _unwritten(part, error) from None


def _opened(part: Path) -> IO[bytes]:
    try:
        return os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
    except OSError as error:
        raise _unwritten(part, error) from None


def _write(file: IO[bytes], block: bytes, part: Path) -> None:
    try:
        write_all(file.fileno(), block)
    except OSError as error:
        raise _unwritten(part, error) from None


def _unwritten(part: Path, error: OSError) -> InputError:
    return InputError(f"{part} cannot be written: {error.strerror}")
