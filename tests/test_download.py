"""Downloads from a server on loopback: whole, resumed, cut, wrong, gone."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from simulator.traces.public import download as module
from simulator.traces.public.catalogue import CATALOGUE, PublicTrace
from simulator.traces.public.download import DownloadError, download

CONTENT = b"arrival_s,prompt_tokens,output_tokens\n" + b"".join(b"%d,10,5\n" % i for i in range(20_000))
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves ``content``; ``cuts`` are the bytes after which answers end too early, one an answer."""

    content = CONTENT
    tag: str | None = '"v1"'
    status = 200
    lengths = True
    cuts: list[int]
    seen: list[str | None]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        asked = self.headers["Range"]
        server.seen.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if start and self.headers["If-Range"] != server.tag:
            start = 0
        if server.status != 200 or start >= len(server.content):
            self.send_error(416 if start else server.status)
            return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if server.lengths:
            self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

    def log_message(self, *args: Any) -> None:
        """Nothing on standard error."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "TRIES", 1)
    one = Server(("127.0.0.1", 0), Handler)
    one.cuts, one.seen = [], []
    thread = threading.Thread(target=one.serve_forever, args=(0.01,))
    thread.start()
    yield one
    one.shutdown()
    thread.join()
    one.server_close()


def source(server: Server, sha256: str | None = DIGEST) -> PublicTrace:
    return PublicTrace(f"http://127.0.0.1:{server.server_port}/t.csv", "CC0", "nobody", "a test", sha256)


def left(one: PublicTrace) -> set[str]:
    return {path.name for path in one.path.parent.iterdir()}


def test_success_and_no_second_time(server: Server, tmp_path: Path) -> None:
    one = source(server)
    assert one.path == tmp_path / "kvfrag" / "traces" / "t.csv"
    seen: list[tuple[int, int | None]] = []
    assert download("t", one, lambda done, total: seen.append((done, total)))
    assert one.path.read_bytes() == CONTENT
    assert left(one) == {"t.csv"}
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert not download("t", one)
    assert len(server.seen) == 1


def test_a_bad_file_is_fetched_again_a_good_one_stays(server: Server) -> None:
    one = source(server)
    one.path.parent.mkdir(parents=True)
    one.path.write_bytes(b"half of it")
    assert download("t", one)
    assert one.path.read_bytes() == CONTENT


def test_a_wrong_checksum(server: Server) -> None:
    server.content = CONTENT.replace(b"10", b"11")
    one = source(server)
    one.path.parent.mkdir(parents=True)
    one.path.write_bytes(b"an older one")
    with pytest.raises(DownloadError) as caught:
        download("t", one)
    found = hashlib.sha256(server.content).hexdigest()
    assert str(caught.value) == (
        f"cannot download t: what came has the wrong checksum (sha256 {found}, not {DIGEST}). By hand: save {one.url} "
        f"as {one.path} (behind a proxy, set HTTPS_PROXY and try again)"
    )
    assert one.path.read_bytes() == b"an older one"
    assert left(one) == {"t.csv"}


def test_a_cut_connection_goes_on_where_it_stopped(server: Server) -> None:
    one = source(server)
    server.cuts = [1000]
    with pytest.raises(DownloadError, match=rf"the connection was cut after 1,000 of {len(CONTENT):,} bytes"):
        download("t", one)
    assert not one.path.exists()
    assert download("t", one)
    assert server.seen == [None, "bytes=1000-"]
    assert one.path.read_bytes() == CONTENT
    assert left(one) == {"t.csv"}


def test_it_goes_on_by_itself_a_few_times(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 3)
    server.cuts = [1000, 500]
    one = source(server)
    assert download("t", one)
    assert server.seen == [None, "bytes=1000-", "bytes=1500-"]
    assert one.path.read_bytes() == CONTENT


@pytest.mark.parametrize("tag", ['"v2"', None])
def test_another_file_by_now_is_fetched_from_the_start(server: Server, tag: str | None) -> None:
    one = source(server, None)
    server.cuts = [1000]
    server.tag = tag
    with pytest.raises(DownloadError, match="was cut"):
        download("t", one)
    server.tag = '"v3"'
    server.content = CONTENT.replace(b"10", b"11")
    assert download("t", one)
    assert one.path.read_bytes() == server.content
    assert server.seen == [None, "bytes=1000-" if tag else None]


def test_a_part_that_is_too_long_is_thrown_away(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    one = source(server)
    one.path.parent.mkdir(parents=True)
    part = one.path.with_name("t.csv.part")
    part.write_bytes(CONTENT + b"more")
    part.with_name("t.csv.part.etag").write_text('"v1"')
    with pytest.raises(DownloadError, match="the server has another file by now"):
        download("t", one)
    monkeypatch.setattr(module, "TRIES", 2)
    part.write_bytes(CONTENT + b"more")
    assert download("t", one)
    assert one.path.read_bytes() == CONTENT


def test_not_found(server: Server) -> None:
    server.status = 404
    one = source(server)
    with pytest.raises(
        DownloadError, match=r"cannot download t: the server answers 404 Not Found\. By hand: save http:"
    ):
        download("t", one)
    assert left(one) == set()


def test_nobody_there(server: Server) -> None:
    one = PublicTrace("http://127.0.0.1:9/t.csv", "CC0", "nobody", "a test")
    with pytest.raises(DownloadError, match=r"the server cannot be reached \(.*refused\)\. By hand") as caught:
        download("t", one)
    assert len(str(caught.value).splitlines()) == 1
    assert server.seen == []


def test_no_room_to_keep_it(server: Server, tmp_path: Path) -> None:
    (tmp_path / "kvfrag").write_text("in the way")
    with pytest.raises(DownloadError, match=r"cannot download t: .*(Not a directory|File exists)"):
        download("t", source(server))


def test_without_a_checksum_what_comes_must_look_like_a_trace(server: Server) -> None:
    one = source(server, None)
    server.content = b"<!DOCTYPE html><html>Please log in</html>"
    with pytest.raises(DownloadError, match="is a web page, not a trace"):
        download("t", one)
    assert left(one) == set()
    server.content, server.lengths, server.tag = CONTENT, False, None
    assert download("t", one)
    assert not download("t", one)


@pytest.mark.parametrize("content", [CONTENT[:-4], b'[\n{"timestamp": 1, "input_length": 9, "output_length": 8},\n'])
def test_without_checksum_and_length_a_cut_file_is_refused(server: Server, content: bytes) -> None:
    one = source(server, None)
    server.content, server.lengths, server.tag = content, False, None
    with pytest.raises(DownloadError, match="what came ends inside a line, and the server gives no length: it was cut"):
        download("t", one)
    assert left(one) == set()


def test_a_last_line_of_json_needs_no_end(server: Server) -> None:
    one = source(server, None)
    server.lengths, server.tag = False, None
    server.content = b'{"timestamp": 1, "input_length": 9, "output_length": 8}'
    assert download("t", one)


def test_force_fetches_what_is_there_again(server: Server) -> None:
    one = source(server, None)
    assert download("t", one)
    one.path.with_name("t.csv.part").write_bytes(CONTENT[:1000])
    one.path.with_name("t.csv.part.etag").write_text('"v1"')
    server.content = CONTENT.replace(b"10", b"11")
    assert not download("t", one)
    assert download("t", one, force=True)
    assert one.path.read_bytes() == server.content
    assert server.seen == [None, None]
    assert left(one) == {"t.csv"}


def test_the_catalogue() -> None:
    assert {"azure-2023-code", "azure-2023-conv", "azure-2024-conv", "burstgpt-1", "mooncake-conversation"} <= set(
        CATALOGUE
    )
    assert len({one.file for one in CATALOGUE.values()}) == len(CATALOGUE)
    for one in CATALOGUE.values():
        assert one.url.startswith("https://")
        assert one.licence in ("CC-BY-4.0", "Apache-2.0")
        assert one.sha256 is None or len(one.sha256) == 64
