"""Synthetic traces: lengths as measured on real traces, arrivals as random as a Poisson process makes them.

A length profile keeps no requests, only quantiles: 24 equally likely cells in order of prompt length, each with
quantiles of prompt and output tokens. Lengths are drawn by picking a cell and reading both off its quantiles.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from numbers import Real
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from allocators.base import InputError, whole
from allocators.spec import parse_spec
from simulator.fields import MAX_TIME_NS, IntArray

DEFAULT_DURATION_S = 900.0
MAX_REQUESTS = 100_000_000
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Profile:
    """The lengths of one real workload.

    ``prompt`` and ``output``: the logarithm of tokens, a row for each cell, a column for each of ``probabilities``.
    ``mean_prompt`` and ``mean_output``: of the real requests, in tokens. ``max_total_tokens``: no real request has more
    prompt + output tokens (None: no limit). ``rate``: real requests a second (None: their times are not known).
    """

    name: str
    description: str
    probabilities: NDArray[np.float64]
    prompt: NDArray[np.float64]
    output: NDArray[np.float64]
    mean_prompt: float
    mean_output: float
    max_total_tokens: int | None
    rate: float | None


@cache
def profiles() -> Mapping[str, Profile]:
    """The length profiles that come with the package, by name."""
    text = files("simulator").joinpath("profiles/length_profiles.json").read_text(encoding="utf-8")
    data = json.loads(text)
    probabilities = np.array(data["probabilities"])
    return {
        name: Profile(
            name,
            profile["description"],
            probabilities,
            np.log([cell["prompt"] for cell in profile["cells"]]),
            np.log([cell["output"] for cell in profile["cells"]]),
            profile["mean_prompt"],
            profile["mean_output"],
            profile.get("max_total_tokens"),
            profile["arrival_rate_per_s"],
        )
        for name, profile in data["profiles"].items()
    }


@dataclass(frozen=True)
class Workload:
    """A synthetic trace to be drawn.

    ``profile``: whose lengths. ``rate``: requests a second; None takes the profile's own, if it has one. Arrivals fill
    ``duration_s`` seconds, or there are so many ``requests`` (neither given: 900 s). ``max_total``: no request has more
    prompt + output tokens; None takes the profile's own limit. Raises InputError on a value that is not allowed.
    """

    profile: str
    rate: float | None = None
    duration_s: float | None = None
    requests: int | None = None
    seed: int = 0
    max_total: int | None = None

    def __post_init__(self) -> None:
        if self.profile not in profiles():
            raise InputError(f"unknown workload {self.profile!r}; choose from {', '.join(profiles())}")
        if self.rate is None and self._own.rate is None:
            raise InputError(f"workload {self.profile} has no rate of its own: give one, as in {self.profile}:rate=4")
        if self.requests is not None and self.duration_s is not None:
            raise InputError(f"workload {self.profile} takes duration or requests, not both")
        _positive("rate", self.rate_per_s)
        _positive("duration", self.seconds)
        whole("seed", self.seed, at_least=0)
        expected = self.rate_per_s * self.seconds if self.requests is None else whole("requests", self.requests)
        if expected > MAX_REQUESTS:
            raise InputError(f"workload {self} asks for {expected:,.10g} requests; {MAX_REQUESTS:,} is the most")
        if self.max_total is not None:
            whole("max_total", self.max_total, at_least=2)

    def __str__(self) -> str:
        """The workload in the command line's mini-language, defaults filled in."""
        length = f"duration={_plain(self.seconds)}" if self.requests is None else f"requests={self.requests}"
        limit = "" if self.max_total is None else f",max_total={self.max_total}"
        return f"{self.profile}:rate={_plain(self.rate_per_s)},{length},seed={self.seed}{limit}"

    @property
    def _own(self) -> Profile:
        return profiles()[self.profile]

    @property
    def rate_per_s(self) -> float:
        """Requests a second: ``rate``, or else the profile's."""
        return self.rate if self.rate is not None else self._own.rate or math.nan

    @property
    def seconds(self) -> float:
        """``duration_s``, or else the default."""
        return DEFAULT_DURATION_S if self.duration_s is None else self.duration_s

    def draw(self, generator: Generator) -> tuple[IntArray, IntArray, IntArray]:
        """Arrivals in nanoseconds, prompt tokens and output tokens, a row a request.

        Arrivals and lengths have a stream of random numbers each, and both are used in order of the requests. So
        another rate changes no length, and a longer trace begins with the shorter one.
        """
        arrivals, lengths = generator.spawn(2)
        arrival_ns = poisson_arrivals(self.rate_per_s, self.requests, self.seconds, arrivals)
        if not len(arrival_ns):
            raise InputError(
                f"workload {self} has no request: no arrival in {self.seconds:g} s; raise rate or duration"
            )
        limit = self.max_total if self.max_total is not None else self._own.max_total_tokens
        prompt, output = draw_lengths(self._own, len(arrival_ns), limit, lengths)
        return arrival_ns, prompt, output


def poisson_arrivals(rate: float, requests: int | None, seconds: float, generator: Generator) -> IntArray:
    """Arrivals of a Poisson process in whole nanoseconds: so many ``requests``, or (None) all before ``seconds``.

    Raises InputError when they lie too far apart for nanoseconds to be counted.
    """
    parts: list[IntArray] = []
    count, now = 0, 0.0
    while now < seconds if requests is None else count < requests:
        times = now + np.cumsum(generator.standard_exponential(_CHUNK)) / rate
        now = float(times[-1])
        times = times[times < seconds] if requests is None else times[: requests - count]
        count += len(times)
        if count and times[-1:].max(initial=0) >= MAX_TIME_NS / 1e9:
            raise InputError(f"rate(={rate:g}) must be higher: arrivals go beyond {MAX_TIME_NS / 1e9:g} s")
        parts.append(np.rint(times * 1e9).astype(np.int64))
    return np.concatenate(parts)


def draw_lengths(profile: Profile, count: int, limit: int | None, generator: Generator) -> tuple[IntArray, IntArray]:
    """Prompt and output tokens of ``count`` requests, prompt + output at most ``limit`` (None: any).

    A pair beyond the limit is drawn again. The profile's own limit held for the real requests too, so every cell keeps
    its share: the pair is drawn from the same cell (from any, the mean prompt of sharegpt would fall by 4 %, not 1 %).
    A tighter limit selects among the profile's requests, so the cell is drawn again as well.

    Raises InputError when the limit leaves next to no pairs.
    """
    selects = limit is not None and limit < (profile.max_total_tokens or math.inf)
    most = math.inf if limit is None else limit
    parts: list[NDArray[np.int64]] = []
    for _ in range(0, count, _CHUNK):
        # Always whole chunks: a longer trace then begins with the shorter one.
        pairs = np.zeros((2, _CHUNK), np.int64)
        cells = np.zeros(_CHUNK, np.int64)
        again = np.arange(_CHUNK)
        while again.size:
            if selects or again.size == _CHUNK:
                cells[again] = generator.integers(len(profile.prompt), size=again.size)
            for row, logarithms in enumerate((profile.prompt, profile.output)):
                points = generator.random(again.size)
                pairs[row, again] = _between(profile.probabilities, logarithms, cells[again], points)
            tried = again.size
            again = again[pairs[:, again].sum(axis=0) > most]
            if tried == _CHUNK and again.size > 0.99 * _CHUNK:
                raise InputError(f"max_total(={limit}) must be larger: under 1 % of the pairs of {profile.name} fit")
        parts.append(pairs)
    prompt, output = np.concatenate(parts, axis=1)[:, :count]
    return prompt, output


def _between(
    probabilities: NDArray[np.float64], logarithms: NDArray[np.float64], cells: IntArray, points: NDArray[np.float64]
) -> IntArray:
    """Tokens at ``points`` (0 to 1) of the distributions of ``cells``: geometric between quantiles, whole, >= 1."""
    left = np.searchsorted(probabilities, points, side="right") - 1
    part = (points - probabilities[left]) / (probabilities[left + 1] - probabilities[left])
    low, high = logarithms[cells, left], logarithms[cells, left + 1]
    return np.maximum(np.rint(np.exp(low + part * (high - low))), 1).astype(np.int64)


_OPTIONS = {"rate": "rate", "duration": "duration_s", "requests": "requests", "seed": "seed", "max_total": "max_total"}


def parse_workload(text: str) -> Workload:
    """The workload of a text in the command line's mini-language: ``sharegpt:rate=4,duration=900,seed=0``.

    Options are rate (requests a second), duration (seconds), requests, seed, max_total (tokens). Raises InputError for
    a name, an option or a value that is not allowed.
    """
    name, options = parse_spec(text)
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in _OPTIONS:
            raise InputError(f"unknown option {key!r} of workload {name}; choose from {', '.join(_OPTIONS)}")
        try:
            values[_OPTIONS[key]] = float(value) if key in ("rate", "duration") else int(value)
        except ValueError:
            kind = "number" if key in ("rate", "duration") else "whole number"
            raise InputError(f"{key}(={value!r}) of workload {name} must be a {kind}") from None
    return Workload(name, **values)


def _plain(value: float) -> str:
    """A number as short as it can be written without changing it."""
    return str(float(value)).removesuffix(".0")


def _positive(name: str, value: object) -> None:
    """Raise InputError unless the value is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise InputError(f"{name}(={value!r}) must be a finite number > 0")
