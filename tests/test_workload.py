"""Synthetic traces: as long and as frequent as their profiles say, and the same for the same seed."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from allocators import InputError
from simulator.trace import Trace
from simulator.workload import MAX_REQUESTS, Profile, Workload, parse_workload, poisson_arrivals, profiles

REAL = {
    "azure-code": "AzureLLMInferenceTrace_code.csv",
    "azure-conv": "AzureLLMInferenceTrace_conv.csv",
    "mooncake-conv": "mooncake_conversation_trace.jsonl",
}


@pytest.mark.parametrize("name", profiles())
def test_the_mean_lengths_are_those_of_the_profile(name: str) -> None:
    trace = Trace.workload(name, rate=1, requests=1_000_000)
    prompt, output = trace.prompt_tokens.mean(), trace.output_tokens.mean()
    assert prompt == pytest.approx(profiles()[name].mean_prompt, rel=0.015)
    # Geometric between quantiles is 2.5 % short where outputs are mostly short and some long (azure-code), and
    # drawing pairs beyond the limit again costs arxiv 2 %.
    tolerance = {"azure-code": 0.03, "arxiv": 0.025}.get(name, 0.015)
    assert output == pytest.approx(profiles()[name].mean_output, rel=tolerance)


@pytest.mark.parametrize("name", REAL)
def test_the_lengths_are_distributed_as_in_the_real_file(name: str) -> None:
    folder = os.environ.get("KVFRAG_TRACES")
    if not folder:
        pytest.skip("KVFRAG_TRACES does not name a folder with the public traces")
    real = Trace.read(Path(folder) / REAL[name])
    drawn = Trace.workload(name, requests=50_000)
    assert distance(real.prompt_tokens, drawn.prompt_tokens) < 0.015
    assert distance(real.output_tokens, drawn.output_tokens) < 0.015


def distance(one: NDArray[np.int64], two: NDArray[np.int64]) -> float:
    """Kolmogorov-Smirnov: the largest difference of the two cumulative distributions."""
    values = np.union1d(one, two)
    shares = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (one, two)]
    return float(np.abs(shares[0] - shares[1]).max())


@pytest.mark.parametrize(("name", "limit"), [("sharegpt", 2047), ("arxiv", 4096)])
def test_no_request_is_longer_than_the_profile_allows(name: str, limit: int) -> None:
    trace = Trace.workload(name, rate=1, requests=200_000)
    total = trace.prompt_tokens + trace.output_tokens
    assert limit - 5 <= total.max() <= limit
    assert min(trace.prompt_tokens.min(), trace.output_tokens.min()) == 1


def test_every_cell_keeps_its_share_under_the_profile_s_own_limit() -> None:
    trace = Trace.workload("sharegpt", rate=1, requests=200_000)
    longest = np.exp(profiles()["sharegpt"].prompt[-1, 0])
    assert (trace.prompt_tokens > longest).mean() == pytest.approx(1 / 24, rel=0.05)


def test_max_total() -> None:
    tight = Trace.workload("sharegpt", rate=1, requests=20_000, max_total=600)
    assert (tight.prompt_tokens + tight.output_tokens).max() <= 600
    wide = Trace.workload("sharegpt", rate=1, requests=200_000, max_total=10_000)
    assert (wide.prompt_tokens + wide.output_tokens).max() > 2047
    with pytest.raises(InputError, match=r"max_total\(=2\) must be larger: under 1 % of the pairs of sharegpt fit"):
        Trace.workload("sharegpt", rate=1, requests=10, max_total=2)


def test_lengths_lie_on_the_quantiles() -> None:
    profile = profiles()["sharegpt"]
    assert profile.prompt.shape == profile.output.shape == (24, len(profile.probabilities))
    assert (np.diff(profile.prompt) >= 0).all()
    assert (profile.probabilities[0], profile.probabilities[-1]) == (0, 1)


# Arrivals.


def test_arrivals_are_a_poisson_process() -> None:
    trace = Trace.workload("azure-conv", rate=50, duration_s=4_000)
    assert trace.arrival_ns[0] == 0
    assert len(trace) == pytest.approx(200_000, rel=0.01)
    assert 3_999 < trace.duration_s < 4_000
    gaps = np.diff(trace.arrival_ns) / 1e9
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.01)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.02)
    assert (gaps > 2 / 50).mean() == pytest.approx(np.exp(-2), rel=0.03)


def test_so_many_requests() -> None:
    trace = Trace.workload("azure-conv", requests=100_000)
    assert len(trace) == 100_000
    assert trace.duration_s == pytest.approx(100_000 / 5.5304, rel=0.02)
    assert len(Trace.workload("azure-conv", requests=1)) == 1
    assert len(poisson_arrivals(rate=1, requests=3, seconds=1e-9, generator=np.random.default_rng(0))) == 3


def test_the_seed_makes_the_trace() -> None:
    one, same = (Trace.workload("sharegpt", rate=4, duration_s=60, seed=3) for _ in range(2))
    assert one.sha256 == same.sha256
    assert one.sha256 != Trace.workload("sharegpt", rate=4, duration_s=60, seed=4).sha256
    assert one.sha256 == Trace.of_workload(parse_workload("sharegpt:rate=4,duration=60,seed=3")).sha256
    assert one.name == "sharegpt:rate=4,duration=60,seed=3"


def test_a_longer_trace_begins_with_the_shorter_and_rates_share_lengths() -> None:
    short, long = (Trace.workload("arxiv", rate=4, requests=count) for count in (100, 70_000))
    assert long[:100].sha256 == short.sha256
    faster = Trace.workload("arxiv", rate=8, requests=100)
    assert faster.prompt_tokens.tolist() == short.prompt_tokens.tolist()
    assert faster.duration_s == pytest.approx(short.duration_s / 2)


# What may be asked for.


def test_parse_workload() -> None:
    assert parse_workload("azure-conv") == Workload("azure-conv")
    full = parse_workload("sharegpt: rate=0.5, requests=7, seed=9, max_total=100")
    assert full == Workload("sharegpt", rate=0.5, requests=7, seed=9, max_total=100)
    assert str(full) == "sharegpt:rate=0.5,requests=7,seed=9,max_total=100"
    assert str(parse_workload("arxiv:rate=0.1,duration=1e3")) == "arxiv:rate=0.1,duration=1000,seed=0"
    for text in ("azure-code", "arxiv:rate=0.30000000000000004,duration=0.1", str(full)):
        assert str(parse_workload(str(parse_workload(text)))) == str(parse_workload(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sharegpt", "workload sharegpt has no rate of its own: give one, as in sharegpt:rate=4"),
        ("bard:rate=4", "unknown workload 'bard'; choose from sharegpt, azure-conv, azure-code, mooncake-conv, arxiv"),
        ("arxiv:rate=nan", "rate(=nan) must be a finite number > 0"),
        ("arxiv:rate=inf", "rate(=inf) must be a finite number > 0"),
        ("arxiv:rate=0", "rate(=0.0) must be a finite number > 0"),
        ("arxiv:rate=-1", "rate(=-1.0) must be a finite number > 0"),
        ("arxiv:rate=fast", "rate(='fast') of workload arxiv must be a number"),
        ("arxiv:rate=4,duration=0", "duration(=0.0) must be a finite number > 0"),
        ("arxiv:rate=4,requests=0", "requests(=0) must be a whole number >= 1"),
        ("arxiv:rate=4,requests=2.5", "requests(='2.5') of workload arxiv must be a whole number"),
        ("arxiv:rate=4,seed=-1", "seed(=-1) must be a whole number >= 0"),
        ("arxiv:rate=4,max_total=1", "max_total(=1) must be a whole number >= 2"),
        ("arxiv:rate=4,requests=5,duration=5", "workload arxiv takes duration or requests, not both"),
        ("arxiv:f=4", "unknown option 'f' of workload arxiv; choose from rate, duration, requests, seed, max_total"),
        ("arxiv:rate", "'rate' in 'arxiv:rate' must read key=value, as in name:key=value,key=value"),
        (
            "arxiv:rate=1e9,duration=1e9",
            "workload arxiv:rate=1000000000,duration=1000000000,seed=0 asks for 1e+18 requests; "
            "100,000,000 is the most",
        ),
        (
            f"arxiv:rate=1,requests={MAX_REQUESTS + 1}",
            "workload arxiv:rate=1,requests=100000001,seed=0 asks for 100,000,001 requests; 100,000,000 is the most",
        ),
    ],
)
def test_bad_workloads(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_workload(text)
    assert str(caught.value) == message


def test_bad_arguments() -> None:
    for rate in (True, "4", float("nan")):
        with pytest.raises(InputError, match="must be a finite number > 0"):
            Trace.workload("sharegpt", rate=rate)  # type: ignore[arg-type]
    assert len(Trace.workload("sharegpt", rate=np.float64(4), requests=np.int64(3))) == 3  # type: ignore[arg-type]


def test_workloads_without_arrivals_or_with_too_distant_ones() -> None:
    with pytest.raises(InputError, match="has no request: no arrival in 1 s; raise rate or duration"):
        Trace.workload("sharegpt", rate=1e-9, duration_s=1)
    for rate in (1e-9, 1e-300):
        with pytest.raises(InputError, match="must be higher: arrivals go beyond 9e"):
            Trace.workload("sharegpt", rate=rate, requests=1_000)


def test_profiles_say_what_they_are() -> None:
    for name, profile in profiles().items():
        assert isinstance(profile, Profile)
        assert profile.name == name
        assert profile.description
