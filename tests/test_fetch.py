"""What servers do to a download: each answer is written here byte by byte, and sent over loopback."""

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from urllib.request import Request

import pytest

from simulator.files.locks import held
from simulator.traces.public import download as module
from simulator.traces.public import fetch
from simulator.traces.public.catalogue import PublicTrace
from simulator.traces.public.download import DownloadError, download

CONTENT = b"arrival_s,prompt_tokens,output_tokens\n" + b"".join(b"%d,10,5\n" % i for i in range(900))
DIGEST = hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)
TAG = 'ETag: "v1"'
STALL = b"stall"


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


def whole(*headers: str) -> bytes:
    return answer(CONTENT, f"Content-Length: {SIZE}", *headers)


def rest(first: int, *headers: str) -> bytes:
    ranged = f"Content-Range: bytes {first}-{SIZE - 1}/{SIZE}"
    return answer(CONTENT[first:], f"Content-Length: {SIZE - first}", ranged, *headers, status="206 Partial Content")


class Server:
    """Sends one answer per connection, in order, and keeps what was asked. One that ends in STALL is never ended."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.asked: list[str] = []
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/t.csv"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection = self._listener.accept()[0]
            head = b""
            while not head.endswith(b"\r\n\r\n") and (more := connection.recv(4096)):
                head += more
            if head == b"":
                connection.close()
                return
            self.asked.append(head.decode())
            content = self.answers.pop(0)
            with suppress(ConnectionError):
                connection.sendall(content.removesuffix(STALL))
            if content.endswith(STALL):
                self._open.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        for one in [*self._open, self._listener]:
            one.close()

    def ranges(self) -> list[str]:
        """The Range that each request asked for."""
        return [
            next((line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("Range:")), "")
            for head in self.asked
        ]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "TRIES", 1)
    one = Server()
    yield one
    one.close()


def source(server: Server, sha256: str | None = DIGEST) -> PublicTrace:
    return PublicTrace(server.url, "CC0", "nobody", "a test", sha256)


def refused(server: Server, sha256: str | None = DIGEST) -> str:
    """What a download says that does not succeed, less the name in front and what can be done by hand."""
    with pytest.raises(DownloadError) as caught:
        download("t", source(server, sha256))
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix("cannot download t: ").partition(". By hand")[0]


def part(server: Server) -> bytes:
    path = source(server).path
    return path.with_name(f"{path.name}.part").read_bytes()


def succeeds(server: Server, sha256: str | None = DIGEST) -> None:
    assert download("t", source(server, sha256))
    path = source(server).path
    assert path.read_bytes() == CONTENT
    assert [one.name for one in path.parent.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("text", ["abc", "-5", "1.5", "", "5, 6"])
def test_a_length_that_is_none_is_told(text: str, server: Server) -> None:
    server.answers = [answer(CONTENT, f"Content-Length: {text}")]
    assert refused(server) == f"the server's Content-Length ({text!r}) is no number of bytes"


def test_two_lengths_that_differ_are_told_and_two_that_are_one_are_not(server: Server) -> None:
    server.answers = [answer(CONTENT, "Content-Length: 7", "Content-Length: 9"), whole(f"Content-Length: {SIZE}")]
    assert refused(server) == "the server's Content-Length ('7, 9') is no number of bytes"
    succeeds(server)


def test_a_download_that_stalls_keeps_every_byte_and_goes_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT_S", 1.0)
    server.answers = [whole(TAG)[: -SIZE + 1000] + STALL, rest(1000, TAG)]
    assert refused(server, None) == f"nothing came for 1 s, after 1,000 of {SIZE:,} bytes; try again to go on"
    assert part(server) == CONTENT[:1000]
    succeeds(server, None)
    assert server.ranges() == ["", "bytes=1000-"]


def test_where_the_checksum_is_known_no_tag_is_needed_to_go_on(server: Server) -> None:
    server.answers = [whole()[: -SIZE + 1000], rest(1000)]
    assert refused(server) == f"the connection was cut after 1,000 of {SIZE:,} bytes; try again to go on"
    succeeds(server)
    assert server.ranges() == ["", "bytes=1000-"]


def test_without_tag_and_checksum_it_begins_anew_and_says_so(server: Server) -> None:
    server.answers = [whole()[: -SIZE + 1000], whole()]
    hint = "try again: the server says nothing by which it could be gone on with"
    assert refused(server, None) == f"the connection was cut after 1,000 of {SIZE:,} bytes; {hint}"
    succeeds(server, None)
    assert server.ranges() == ["", ""]


@pytest.mark.parametrize(
    ("headers", "goes_on"),
    [
        (('ETag: W/"v1"',), False),
        (("Last-Modified: Mon, 02 Jan 2023 10:00:00 GMT", "Date: Mon, 02 Jan 2023 10:05:00 GMT"), True),
        (("Last-Modified: Mon, 02 Jan 2023 10:00:00 GMT", "Date: Mon, 02 Jan 2023 10:00:01 GMT"), False),
        (("Last-Modified: yesterday", "Date: Mon, 02 Jan 2023 10:00:01 GMT"), False),
        (("Last-Modified: Mon, 02 Jan 2023 10:00:00 GMT",), False),
    ],
)
def test_what_tells_that_it_is_the_same_file(headers: tuple[str, ...], goes_on: bool, server: Server) -> None:
    server.answers = [whole(*headers)[: -SIZE + 1000], rest(1000) if goes_on else whole()]
    assert refused(server, None).endswith("to go on" if goes_on else "gone on with")
    succeeds(server, None)
    assert server.ranges()[1] == ("bytes=1000-" if goes_on else "")
    assert (f"If-Range: {headers[0].partition(': ')[2]}" in server.asked[1]) == goes_on


def test_a_server_without_ranges_takes_nothing_away(server: Server) -> None:
    server.answers = [whole(TAG)[: -SIZE + 1000], whole(TAG)[: -SIZE + 300], whole(TAG)]
    assert "after 1,000 of" in refused(server, None)
    assert "after 300 of" in refused(server, None)
    assert part(server) == CONTENT[:1000]
    succeeds(server, None)


def test_another_file_by_now_replaces_what_came_of_the_old_one(server: Server) -> None:
    server.answers = [
        answer(b"x" * 1000, "Content-Length: 9999", 'ETag: "v0"'),
        whole(TAG)[: -SIZE + 300],
        rest(300, TAG),
    ]
    refused(server, None)
    assert "after 300 of" in refused(server, None)
    assert part(server) == CONTENT[:300]
    succeeds(server, None)


@pytest.mark.parametrize(
    "ranged",
    [
        f"bytes 500-{SIZE - 1}/{SIZE}",
        f"bytes 1000-{SIZE + 5}/{SIZE}",
        f"bytes 1000-1003/{SIZE}",
        "bytes 1000-",
        "items 1000-2000/3000",
        None,
    ],
)
def test_another_range_than_was_asked_for_is_not_taken(ranged: str | None, server: Server) -> None:
    wrong = [f"Content-Range: {ranged}"] if ranged else []
    body = CONTENT[500:]
    other = answer(body, f"Content-Length: {len(body)}", TAG, *wrong, status="206 Partial Content")
    server.answers = [whole(TAG)[: -SIZE + 1000], other, whole(TAG)]
    refused(server, None)
    succeeds(server, None)
    assert server.ranges() == ["", "bytes=1000-", ""]


def test_a_partial_answer_that_nobody_asked_for_is_told(server: Server) -> None:
    server.answers = [rest(1000)]
    assert refused(server) == "the server answers 206 Partial Content"


def test_when_nothing_is_missing_nothing_is_fetched_again(server: Server) -> None:
    server.answers = [whole(TAG)[:-1], answer(b"", "Content-Range: bytes */9", status="416 Range Not Satisfiable")]
    server.answers += [whole(TAG)[:-1], answer(b"", f"Content-Range: bytes */{SIZE}", status="416 Too Far")]
    assert f"after {SIZE - 1:,} of {SIZE:,}" in refused(server, None)
    assert refused(server, None) == "the server has another file by now; try again"
    refused(server, None)
    path = source(server).path
    with path.with_name("t.csv.part").open("ab") as file:
        file.write(CONTENT[-1:])
    succeeds(server, None)


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_what_comes_packed_is_not_taken_for_the_file(coding: str, server: Server) -> None:
    server.answers = [whole(f"Content-Encoding: {coding}")]
    assert refused(server) == f"the server sends it packed (Content-Encoding: {coding}), and was asked not to"


def test_identity_is_no_packing(server: Server) -> None:
    server.answers = [whole("Content-Encoding: identity")]
    succeeds(server)


@pytest.mark.parametrize("sha256", [DIGEST, None])
def test_an_empty_body_is_told(sha256: str | None, server: Server) -> None:
    server.answers = [answer(b"", "Content-Length: 0")]
    assert refused(server, sha256) == "what came is empty"


def test_chunks_have_an_end_and_a_cut_one_is_gone_on_with(server: Server) -> None:
    first, second = CONTENT[:1000], CONTENT[1000:]
    chunks = b"%x\r\n%s\r\n" % (len(first), first) + b"%x\r\n%s\r\n" % (len(second), second)
    chunked = "Transfer-Encoding: chunked"
    server.answers = [answer(chunks[:-500], TAG, chunked), answer(chunks + b"0\r\n\r\n", TAG, chunked)]
    assert refused(server, None).endswith("bytes; try again to go on")
    assert CONTENT.startswith(part(server)) and len(part(server)) >= 1000
    succeeds(server, None)


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/t.csv", "file:///etc/passwd"])
def test_a_redirect_to_another_scheme_is_not_followed(target: str, server: Server) -> None:
    server.answers = [answer(b"", f"Location: {target}", "Content-Length: 0", status="302 Found")]
    told = refused(server)
    assert target in told and "not" in told
    assert len(server.asked) == 1


def test_a_redirect_to_the_same_scheme_is_followed(server: Server) -> None:
    server.answers = [answer(b"", f"Location: {server.url}?2", "Content-Length: 0", status="302 Found"), whole()]
    succeeds(server)


def test_a_redirect_never_leaves_https() -> None:
    request = Request("https://127.0.0.1/t.csv")
    with pytest.raises(fetch.AnswerError, match=r"from https to http://127\.0\.0\.1/t\.csv, which is not followed"):
        fetch._Redirects().redirect_request(request, BytesIO(), 302, "Found", {}, "http://127.0.0.1/t.csv")


def test_a_server_that_says_nothing_is_told_after_a_while(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT_S", 0.2)
    server.answers = [STALL]
    assert refused(server) == "the server has not answered for 0.2 s; try again"


def test_two_at_once_do_not_write_one_file(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.files.locks._TRIES", 1)
    path = source(server).path
    path.parent.mkdir(parents=True)
    with held(path.with_name("t.csv.part")):
        assert refused(server) == "another process is fetching it; wait for its end"
    assert server.asked == []


def test_a_full_disk_is_told_with_the_file(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    server.answers = [whole(TAG)]
    with monkeypatch.context() as patched:
        patched.setattr("simulator.files.writing.os.write", full)
        path = source(server).path
        assert refused(server) == f"{path}.part cannot be written: No space left on device"
