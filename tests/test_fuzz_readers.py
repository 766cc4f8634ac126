"""Thousands of mutated files: each is a trace, or one line that names the file. Nothing else ever reaches the user."""

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocators import InputError
from simulator.traces.logs.log_formats import LOG_FORMATS
from simulator.traces.text.jsontext import json_row
from simulator.traces.trace import Trace, open_trace

LOGS = [form.name for form in LOG_FORMATS]
TRACES = Path(__file__).parents[1] / "traces"
SAMPLES = {
    path.name: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for path in sorted(TRACES.iterdir())
    if path.suffix in (".csv", ".gz", ".json", ".jsonl")
}
TOKENS = [b"", b"\0", b"\r", b"\n", b"\r\n", b",", b";", b'"', b'""', b"'", b"{", b"}", b"[", b"]", b":", b"-", b"."]
TOKENS += [b"nan", b"Infinity", b"-1", b"0", b"1e400", b"9" * 400, b"true", b"null", b"{}", b"[[[[", b"\xef\xbb\xbf"]
TOKENS += [
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "ü😀".encode(),
    b"\\u0000",
    b"\\ud800",
    b"2024-02-30",
    b"+25:00",
    b"Z",
    b"\x1f\x8b",
]


def mutated(content: bytes, chance: random.Random) -> bytes:
    """A few bytes or fields replaced, lines swapped, doubled or lost, the end cut off, the whole packed and broken."""
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(content) + 1)
        other = chance.randrange(len(content) + 1)
        low, high = sorted((place, other))
        near = min(len(content), place + chance.randint(0, 12))
        kind = chance.randrange(6)
        if kind == 0:
            content = content[:place] + chance.choice(TOKENS) + content[near:]
        elif kind == 1:
            content = content[:place] + bytes([chance.randrange(256)]) + content[place + 1 :]
        elif kind == 2:
            content = content[:low] + content[high:] if chance.random() < 0.3 else content[:high]
        elif kind == 3:
            content = content[:high] + content[low:]
        elif kind == 4:
            lines = content.split(b"\n")
            chance.shuffle(lines)
            content = b"\n".join(lines)
        else:
            content = content.replace(chance.choice(TOKENS), chance.choice(TOKENS), chance.randint(1, 3))
    if chance.random() < 0.15:
        packed = gzip.compress(content)
        content = packed[: chance.randrange(len(packed) + 1)] if chance.random() < 0.5 else packed
    return content


def outcome(path: Path, chance: random.Random) -> None:
    """Read a file in one of the ways there are, and check what comes."""
    try:
        trace = Trace.read(
            path,
            strict=chance.random() < 0.2,
            rate=chance.choice([None, None, None, 4.0]),
            format=chance.choice([*[None] * 5, "azure", "mooncake", "sharegpt", "aiperf", *LOGS]),
        )
    except InputError as error:
        told = str(error)
        assert told.startswith(f"trace file '{path}': "), told
        assert len(told.splitlines()) == 1, told
        assert len(told) < 1500, told
    else:
        assert len(trace) > 0
        assert trace.arrival_ns[0] == 0
        assert (trace.arrival_ns[1:] >= trace.arrival_ns[:-1]).all()
        assert min(trace.prompt_tokens.min(), trace.output_tokens.min()) >= 1
        assert trace.report is not None
        assert trace.report.kept == len(trace) == trace.report.rows - sum(trace.report.dropped.values())


@pytest.mark.parametrize("name", SAMPLES)
@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_mutated_samples(tmp_path_factory: pytest.TempPathFactory, name: str, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(mutated(SAMPLES[name], chance))
    outcome(path, chance)


@given(st.binary(max_size=80), st.sampled_from([b"", b"\x1f\x8b\x08", b"PAR1", b'[{"', b'{"probabilities": [']))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_trace_or_one_line_on_the_command_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, front: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "anything"
    path.write_bytes(front + content)
    for text in (str(path), f"{path}:rate=4,requests=3"):
        try:
            assert len(open_trace(text)) > 0
        except InputError as error:
            assert str(path) in str(error)
            assert len(str(error).splitlines()) == 1


@given(st.text(max_size=30))
def test_a_line_of_json_is_an_object_or_none(line: str) -> None:
    assert json_row(line) is None or isinstance(json_row(line), dict)
