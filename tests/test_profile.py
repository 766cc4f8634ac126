"""Length profiles of one's own: made from a trace, drawn from like those that come with the package."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocators import InputError
from simulator.traces.trace import Trace, open_trace
from simulator.traces.workload.lengths import Sample, draw_lengths
from simulator.traces.workload.profile import is_profile, measure_profile, parse_profiles, profiles
from simulator.traces.workload.workload import Workload, parse_workload


def made(trace: Trace, rate: float | None = None) -> dict[str, Any]:
    return measure_profile("mine", trace.prompt_tokens, trace.output_tokens, rate, None, "a test")


def test_a_profile_draws_what_it_was_made_of(tmp_path: Path) -> None:
    trace = Trace.workload("mooncake-conv", rate=4, requests=20_000)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(made(trace, rate=4.0)))
    drawn = open_trace(f"{path}:requests=50000,seed=5")
    assert drawn.name == "mine.json:rate=4,requests=50000,seed=5"
    for one, two in ((trace.prompt_tokens, drawn.prompt_tokens), (trace.output_tokens, drawn.output_tokens)):
        assert two.mean() == pytest.approx(one.mean(), rel=0.015)
        values = np.union1d(one, two)
        shares = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (one, two)]
        assert np.abs(shares[0] - shares[1]).max() < 0.015
    assert len(open_trace(str(path))) == pytest.approx(3600, rel=0.1)
    assert open_trace(str(path)).sha256 == Trace.workload(str(path)).sha256


@pytest.mark.parametrize(("name", "file"), [("azure-code", "code"), ("azure-conv", "conv")])
def test_the_profiles_of_the_package_are_made_so(name: str, file: str) -> None:
    folder = os.environ.get("KVFRAG_TRACES")
    if not folder:
        pytest.skip("KVFRAG_TRACES does not name a folder with the public traces")
    mine = made(Trace.read(Path(folder) / f"AzureLLMInferenceTrace_{file}.csv"))["profiles"]["mine"]
    theirs = profiles()[name]
    for part in ("prompt", "output"):
        cells = np.array([cell[part] for cell in mine["cells"]])
        assert (cells == np.rint(np.exp(getattr(theirs, part)))).all()
    assert (mine["rows"], mine["mean_prompt"], mine["mean_output"]) == (
        theirs.rows,
        theirs.mean_prompt,
        theirs.mean_output,
    )


@pytest.mark.parametrize("rows", [1, 2, 25])
def test_profiles_of_few_requests(rows: int) -> None:
    trace = Trace.from_columns(range(rows), range(1, rows + 1), range(7, 7 + rows))
    profile = parse_profiles(json.dumps(made(trace)).encode())["mine"]
    prompt, output = draw_lengths(profile, 2_000, None, np.random.default_rng(0))
    assert set(prompt.tolist()) == set(range(1, rows + 1))
    assert (output - prompt).tolist().count(6) == 2_000 or rows == 25


def test_lengths_may_come_from_the_requests_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a:b.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,6\n1,7,8\n2,900,1\n")
    drawn = open_trace(f"{path}:duration=300,seed=1")  # at the file's own rate
    pairs = set(zip(drawn.prompt_tokens.tolist(), drawn.output_tokens.tolist(), strict=True))
    assert pairs == {(5, 6), (7, 8), (900, 1)}
    assert len(drawn) == pytest.approx(450, rel=0.15)
    tight = open_trace(f"{path}:rate=1,requests=500,max_total=15")
    assert set(tight.prompt_tokens.tolist()) == {5, 7}
    with pytest.raises(InputError, match=r"max_total\(=10\) must be larger: under 1 % of the pairs of a:b\.csv fit"):
        open_trace(f"{path}:rate=1,requests=500,max_total=10")
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("prompt_tokens,output_tokens\n5,6\n")
    assert set(open_trace(f"{lengths}:rate=1,requests=9").prompt_tokens.tolist()) == {5}
    with pytest.raises(InputError, match=r"has no rate of its own: give one, as in .*lengths\.csv:rate=4"):
        parse_workload(f"{lengths}:requests=9")
    lengths.write_text("prompt_tokens,output_tokens\n50,6\n")  # and is read again
    os.utime(lengths, ns=(0, 0))
    assert set(open_trace(f"{lengths}:rate=1,requests=9").prompt_tokens.tolist()) == {50}


def test_options_of_reading_are_not_for_workloads() -> None:
    with pytest.raises(InputError, match="format and rate is for a file of requests, and 'arxiv:rate=1' is a workload"):
        open_trace("arxiv:rate=1", format="azure", rate=4.0)


def test_outputs_are_dealt_again_within_a_cell() -> None:
    """Under its own limit a sample keeps both its distributions: no prompt and no output is drawn anew."""
    tokens = np.arange(1, 1001)
    free = Sample("s", tokens, tokens[::-1].copy(), None)
    prompt, output = draw_lengths(free, 10_000, None, np.random.default_rng(0))
    own = Sample("s", tokens, np.full(1000, 10), None, max_total_tokens=1010)
    assert (draw_lengths(own, 10_000, 1010, np.random.default_rng(0))[0] == prompt).all()
    assert (output == 1001 - prompt).all()


GOOD = {
    "probabilities": [0, 1],
    "profiles": {"p": {"rows": 5, "mean_prompt": 1, "mean_output": 2, "cells": [{"prompt": [1, 2], "output": [3, 4]}]}},
}


def test_the_least_a_profile_can_hold() -> None:
    assert is_profile(json.dumps(GOOD).encode())
    assert is_profile(b'\xef\xbb\xbf\n{ "probabilities" :')
    assert not is_profile(b'{"timestamp": 0}')
    profile = parse_profiles(json.dumps(GOOD).encode())["p"]
    assert (profile.rate, profile.max_total_tokens, profile.description) == (None, None, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probabilities": [0, 0.5]}, "probabilities must rise from 0 to 1"),
        ({"probabilities": [0, 0.5, 1]}, "each cell of p must have a quantile for each of the 3 probabilities"),
        ({"probabilities": [0]}, "quantiles must be two or more numbers that do not fall"),
        ({"probabilities": "all"}, "quantile\\(='a'\\) must be a number from 0"),
        ({"probabilities": [0, True]}, "quantile\\(=True\\) must be a number"),
        ({"profiles": {}}, "must hold one profile; it holds 0: none"),
        ({"profiles": GOOD["profiles"] | {"q": GOOD["profiles"]["p"]}}, "must hold one profile; it holds 2: p, q"),  # type: ignore[index,operator]
        ({"profiles": [1]}, "is no length profile"),
        ({"profiles": {"p": {}}}, "is no length profile: it lacks 'cells'"),
        ({"rows": 0}, "rows\\(=0\\) must be a number from 1"),
        ({"mean_prompt": float("nan")}, "mean_prompt\\(=nan\\) must be a number from 1"),
        ({"max_total_tokens": 1}, "max_total_tokens\\(=1\\) must be a number from 2"),
        ({"arrival_rate_per_s": "many"}, "arrival_rate_per_s\\(='many'\\) must be"),
        ({"cells": []}, "is no length profile"),
        ({"cells": [{"prompt": [2, 1], "output": [1, 1]}]}, "do not fall, from 1 to 1,000,000,000"),
        ({"cells": [{"prompt": [0, 1], "output": [1, 1]}]}, "quantile\\(=0\\) must be a number from 1"),
    ],
)
def test_bad_profiles(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    data = json.loads(json.dumps(GOOD))
    (data if set(change) & set(data) else data["profiles"]["p"]).update(change)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=message) as caught:
        Workload(str(path), rate=1)
    assert str(caught.value).startswith(f"profile '{path}': ")
    assert len(str(caught.value).splitlines()) == 1


def test_a_profile_that_breaks_off(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for text in ('{"probabilities": [0', '{"probabilities": ' + "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError, match="is no length profile"):
            open_trace(f"{path}:rate=4")
