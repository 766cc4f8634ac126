"""Standard input as a trace: what is read, how often, and what is left behind."""

import gzip
import io
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from allocators import InputError
from simulator import Trace, open_trace
from simulator.traces.text.stdin import file_name, is_standard_input, shown, standard_input

KVFRAG = [sys.executable, "-m", "simulator"]
CSV = b"arrival_s,prompt_tokens,output_tokens\n0,3,4\n1.5,5,6\n"
TRACES = Path(__file__).parents[1] / "traces"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("simulator.traces.text.stdin._held", [])
    return tmp_path


def give(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("content", [CSV, gzip.compress(CSV)], ids=["plain", "packed"])
def test_a_dash_is_standard_input_as_often_as_it_is_asked_for(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, content)
    for trace in (open_trace("-"), Trace.read("-"), open_trace("-")):
        assert trace.arrival_ns.tolist() == [0, 1_500_000_000]
        assert trace.name == "standard input"
    assert open_trace("-:rate=3,requests=2").prompt_tokens.tolist()[0] in (3, 5)
    give(monkeypatch, CSV.replace(b"3", b"7"))
    assert open_trace("-").prompt_tokens.tolist() == [7, 5]


def test_parquet_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, (TRACES / "neutral.parquet").read_bytes())
    assert open_trace("-").sha256 == Trace.read(TRACES / "neutral.parquet").sha256


def test_nothing_to_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"")
    with pytest.raises(InputError, match=r"^standard input: is empty$"):
        open_trace("-")
    for stream in (None, io.StringIO()):
        if stream is not None:
            stream.close()
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(InputError, match=r"^standard input is closed: there is no trace to read from it$"):
            open_trace("-")


def test_what_cannot_be_read_or_kept_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Broken()))
    with pytest.raises(InputError, match=r"^standard input cannot be read: Input/output error$"):
        open_trace("-")
    give(monkeypatch, CSV)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"^standard input cannot be kept in .*: No such file or directory; TMPDIR"):
        open_trace("-")


def test_how_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, CSV)
    path = standard_input()
    for name in ("-", path):
        assert is_standard_input(name)
        assert (shown(name), file_name(name)) == ("standard input", "standard input")
    assert not is_standard_input("./-")
    assert (shown("a/b.csv"), file_name("a/b.csv")) == ("trace file 'a/b.csv'", "b.csv")


def kvfrag(line: str, content: bytes, scratch: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*KVFRAG, *line.split()], input=content, capture_output=True, env={"TMPDIR": str(scratch)}, check=False
    )


@pytest.mark.parametrize(
    "line",
    [
        "run - -a paged --capacity 2000",
        "size - -a paged --max-refused 1%",
        "advise -",
        "trace info -",
        "trace convert - -o {0}/out.csv",
        "trace slice - --requests 0 1 -o {0}/out.csv",
        "trace scale - --rate 2 -o {0}/out.csv",
        "trace profile - -o {0}/out.json",
    ],
)
def test_every_command_that_takes_a_trace_takes_a_dash(line: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    scratch = tmp_path / "scratch"
    out.mkdir()
    scratch.mkdir()
    ended = kvfrag(line.format(out), gzip.compress(CSV), scratch)
    assert ended.returncode == 0, ended.stderr
    assert b"2 requests" in ended.stdout + ended.stderr
    assert not list(scratch.iterdir())


def test_a_sweep_takes_a_dash(tmp_path: Path) -> None:
    ended = kvfrag("sweep - -a paged --capacity 2000 --workers 1", CSV, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(b"standard input: 1 run, 1 setting\n")


def test_lengths_from_standard_input_are_read_for_each_rate(tmp_path: Path) -> None:
    lengths = b"prompt_tokens,output_tokens\n3,4\n5,6\n"
    ended = kvfrag("sweep - -a paged --capacity 2000 --workers 1 --rate 1,2 --seeds 2", lengths, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert b"4 runs" in ended.stdout
    assert not list(tmp_path.iterdir())
    ended = kvfrag("trace profile - -o " + str(tmp_path / "p.json"), lengths, tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_a_closed_standard_input_ends_in_one_line() -> None:
    command = f"{sys.executable} -m simulator run - -a paged --capacity 2000 <&-"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == b"kvfrag: standard input is closed: there is no trace to read from it\n"
