"""Synthetic traces: as long and as frequent as their profiles say, and the same for the same seed."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from allocators import InputError
from simulator.traces.statistics import describe
from simulator.traces.trace import Trace
from simulator.traces.workload.arrivals import onoff_cv, poisson_arrivals
from simulator.traces.workload.profile import Profile, profiles
from simulator.traces.workload.workload import MAX_REQUESTS, Workload, parse_workload

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
    assert output == pytest.approx(profiles()[name].mean_output, rel=0.015)


@pytest.mark.parametrize("name", profiles())
def test_the_lengths_are_distributed_as_in_the_profile(name: str) -> None:
    """Also under the profile's own limit: sharegpt and arxiv have one."""
    drawn = Trace.workload(name, rate=1, requests=50_000)
    profile = profiles()[name]
    points = (np.arange(20_000) + 0.5) / 20_000
    for tokens, quantiles in ((drawn.prompt_tokens, profile.prompt), (drawn.output_tokens, profile.output)):
        expected = [np.exp(np.interp(points, profile.probabilities, cell)) for cell in quantiles]
        assert distance(np.rint(np.concatenate(expected)).astype(np.int64), tokens) < 0.015


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


@pytest.mark.parametrize("cv", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_gamma_arrivals_have_the_cv_asked_for(cv: float) -> None:
    trace = Trace.workload("azure-conv", rate=7, requests=100_000, cv=cv)
    numbers = describe(trace)
    assert numbers["gap_cv"] == pytest.approx(cv, rel=0.05)
    assert numbers["rate_per_s"] == pytest.approx(7, rel=0.02 * max(cv, 1))
    assert trace.name == f"azure-conv:rate=7,requests=100000,seed=0,cv={cv:g}"


def test_on_off_arrivals_come_in_phases() -> None:
    trace = Trace.workload("azure-conv", rate=5, duration_s=200_000, on_s=2, off_s=8)
    numbers = describe(trace)
    assert numbers["rate_per_s"] == pytest.approx(5, rel=0.05)
    assert numbers["gap_cv"] == pytest.approx(onoff_cv(5, 2, 8), rel=0.05)
    gaps = np.diff(trace.arrival_ns) / 1e9
    assert gaps[gaps < 1].mean() == pytest.approx(1 / 25, rel=0.05)
    assert trace.name == "azure-conv:rate=5,duration=200000,seed=0,on=2,off=8"
    assert Trace.of_workload(parse_workload(trace.name)).sha256 == trace.sha256


@pytest.mark.parametrize("options", [{"cv": 3.0}, {"on_s": 0.5, "off_s": 3.0}])
def test_longer_bursty_traces_begin_with_the_shorter(options: Any) -> None:
    short, long = (Trace.workload("azure-conv", rate=40, requests=n, **options) for n in (1_000, 100_000))
    assert long[:1_000].sha256 == short.sha256
    by_time = Trace.workload("azure-conv", rate=40, duration_s=2_000, **options)
    common = min(len(by_time), len(long))
    assert by_time[:common].sha256 == long[:common].sha256


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
        (
            "bard:rate=4",
            "unknown workload 'bard'; choose from sharegpt, azure-conv, azure-code, mooncake-conv, arxiv, or a file",
        ),
        ("arxiv:rate=4,cv=0", "cv(=0.0) must be a finite number > 0"),
        ("arxiv:rate=4,cv=200", "cv(=200) must be 0.01 to 100"),
        ("arxiv:rate=4,cv=2,on=1,off=1", "workload arxiv takes cv, or on and off, not both"),
        ("arxiv:rate=4,on=1", "workload arxiv takes on and off together, as in arxiv:on=5,off=20"),
        ("arxiv:rate=4,on=-1,off=1", "on(=-1.0) must be a finite number > 0"),
        ("arxiv:rate=4,on=1e-5,off=1e-5", "on + off(=2e-05 s) must be >= 0.001 / rate"),
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
        (
            "arxiv:f=4",
            "unknown option 'f' of workload arxiv; choose from rate, duration, requests, seed, max_total, cv, on, off",
        ),
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
