"""The traces of a sweep: the same as those that a single run gets, and read once for all processes."""

from pathlib import Path

import numpy as np
import pytest

import simulator.sweeps.sources
from allocators import InputError
from simulator import Trace
from simulator.sweeps.sources import DRAWS, TraceSource, UnseenError, drawn_traces, listed_seeds, trace_sources

TRACES = Path(__file__).parents[1] / "traces"


def same(source: TraceSource, trace: Trace) -> bool:
    return source._made().sha256 == trace.sha256


def test_a_workload_is_drawn_for_each_rate_and_seed(tmp_path: Path) -> None:
    found = list(trace_sources("sharegpt:duration=9", [2.0, 4.0], [0, 1], tmp_path))
    assert [(one.rate, one.seed) for one in found] == [(2, 0), (2, 1), (4, 0), (4, 1)]
    assert len({one.identity for one in found}) == 4
    for one in found:
        assert one.rate is not None and one.seed is not None
        assert same(one, Trace.workload("sharegpt", rate=one.rate, duration_s=9, seed=one.seed))
    (own,) = trace_sources("sharegpt:rate=3,duration=9,seed=7", [], [], tmp_path)
    assert (own.rate, own.seed) == (3, 7)
    assert not list(tmp_path.iterdir())  # a process draws it by itself


def test_lengths_of_a_file_are_drawn_from_here_and_shared(tmp_path: Path) -> None:
    text = f"{TRACES / 'blis.csv'}:duration=9"
    found = list(trace_sources(text, [5.0], [3], tmp_path))
    assert same(found[0], Trace.workload(str(TRACES / "blis.csv"), rate=5, duration_s=9, seed=3))
    assert found[0].path is not None and found[0].path.parent == tmp_path


def test_a_trace_is_stretched_to_a_rate(tmp_path: Path) -> None:
    whole = Trace.read(TRACES / "blis.csv")
    own = len(whole) / whole.duration_s
    (plain,) = trace_sources(TRACES / "blis.csv", [], [], tmp_path)
    assert same(plain, whole) and plain.rate == pytest.approx(own) and plain.seed is None
    (twice,) = trace_sources(whole, [2 * own], [], tmp_path)
    assert same(twice, whole.scaled(2.0))
    assert len(whole) / twice._made().duration_s == pytest.approx(2 * own)


def test_a_file_of_lengths_gets_arrivals_of_each_rate_and_seed(tmp_path: Path) -> None:
    path = TRACES / "lengths.csv"
    found = list(trace_sources(path, [2.0, 3.0], [0, 1], tmp_path))
    assert [(one.rate, one.seed) for one in found] == [(2, 0), (2, 1), (3, 0), (3, 1)]
    for one in found:
        assert one.seed is not None
        assert same(one, Trace.read(path, rate=one.rate, seed=one.seed))
    (alone,) = trace_sources(path, [2.0], [], tmp_path)
    assert alone.seed == 0
    with pytest.raises(InputError, match="rate"):
        list(trace_sources(path, [], [0], tmp_path))


def test_a_process_that_does_not_see_the_file_says_so_and_is_sent_the_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator.sweeps.sources, "_kept", {})
    trace = Trace.from_columns([0, 5], [3, 4], [1, 2], name="two")
    (source,) = trace_sources(trace, [], [], tmp_path)
    sent = source.with_columns()
    assert source.path is not None
    source.path.unlink()
    with pytest.raises(UnseenError):
        source.trace()
    assert sent.trace().sha256 == trace.sha256 and sent.trace().name == "two"
    assert source.trace() is sent.trace()  # and then it has it for the runs to come


def test_a_process_keeps_a_few_traces_and_makes_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator.sweeps.sources, "_kept", {})
    many = [TraceSource(f"sharegpt:rate=4,duration=9,seed={seed}", 4.0, seed) for seed in range(9)]
    for one in many:
        assert one.trace() is one.trace()
    assert len(simulator.sweeps.sources._kept) == simulator.sweeps.sources._MOST_KEPT
    assert many[-1].identity in simulator.sweeps.sources._kept


def test_what_a_trace_cannot_have_is_told(tmp_path: Path) -> None:
    at_once = Trace.from_columns(np.zeros(3, int), [1, 1, 1], [1, 1, 1], name="once")
    for trace, rates, seeds, message in (
        (at_once, [2.0], [], "all requests of once arrive at once: there is no rate to change"),
        (at_once, [], [0], "seeds are for workloads and files of lengths only: once has arrivals of its own"),
        ("sharegpt:rate=4", [2.0], [], "rate is given twice: in 'sharegpt:rate=4', and to the sweep"),
        ("sharegpt:rate=4,seed=1", [], [2], "seed is given twice"),
        ("sharegpt:duration=3", [], [2], "has no rate of its own"),
        ("shaergpt", [4.0], [2], "unknown workload 'shaergpt'"),
    ):
        with pytest.raises(InputError, match=message):
            list(trace_sources(trace, rates, seeds, tmp_path))
    (source,) = trace_sources(at_once, [], [], tmp_path)
    assert source.rate is None


def test_an_answer_draws_a_workload_with_several_seeds() -> None:
    own = drawn_traces("sharegpt:rate=3,duration=9,seed=7")
    assert list(own) == list(range(7, 7 + DRAWS)) and listed_seeds(own) == "7 to 11"
    for seed, trace in own.items():
        assert seed is not None and trace.sha256 == Trace.workload("sharegpt", 3, 9, seed).sha256
    chosen = drawn_traces("sharegpt:rate=3,duration=9", [7, 3])
    assert list(chosen) == [7, 3] and listed_seeds(chosen) == "7, 3" and chosen[7].sha256 == own[7].sha256
    lengths = drawn_traces(TRACES / "lengths.csv", 2, rate=4.0)
    assert list(lengths) == [0, 1] and lengths[1].sha256 == Trace.read(TRACES / "lengths.csv", rate=4.0, seed=1).sha256
    whole = Trace.read(TRACES / "blis.csv")
    assert drawn_traces(whole) == {None: whole} and listed_seeds(drawn_traces(whole)) == ""
    assert drawn_traces(TRACES / "blis.csv")[None].sha256 == whole.sha256
    for either in (whole, TRACES / "blis.csv"):
        with pytest.raises(
            InputError, match=r"blis.csv has arrivals of its own, and each seed would give the same run"
        ):
            drawn_traces(either, 2)
    with pytest.raises(InputError, match="seed is given twice"):
        drawn_traces("sharegpt:rate=3,duration=9,seed=7", "1,2")
