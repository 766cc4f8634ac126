"""Synthetic traces: lengths as measured on real traces, arrivals as random as one asks for.

The lengths come from a profile, by name or from a file of one's own, or from the requests of a file.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict

from numpy.random import Generator

from allocators.base import InputError, whole
from allocators.spec import parse_spec
from simulator.messages.words import short
from simulator.traces.public.catalogue import find_file
from simulator.traces.reading import read_file
from simulator.traces.schema import Reading
from simulator.traces.text.fields import MAX_ROWS, IntArray
from simulator.traces.text.opening import open_text
from simulator.traces.workload.arrivals import arrivals_of, positive
from simulator.traces.workload.lengths import Sample, draw_lengths
from simulator.traces.workload.profile import Profile, is_profile, parse_profiles, profiles


class WorkloadOptions(TypedDict, total=False):
    """The less frequent arguments of :class:`Workload`."""

    requests: int | None
    max_total: int | None
    cv: float | None
    on_s: float | None
    off_s: float | None


DEFAULT_DURATION_S = 900.0
MAX_REQUESTS = MAX_ROWS
_LEAST_CV, _MOST_CV = 0.01, 100.0
_LEAST_PHASES = 1e-3  # of a mean gap; phases shorter than that average out, and there would be millions of them


@dataclass(frozen=True)
class Workload:
    """A synthetic trace to be drawn.

    ``profile``: whose lengths; the name of a profile, or a file, which may be a profile of one's own or a trace.
    ``rate``: requests a second; None takes the profile's own, if it has one. Arrivals fill ``duration_s`` seconds, or
    there are so many ``requests`` (neither given: 900 s). ``max_total``: no request has more prompt + output tokens;
    None takes the profile's own limit. Arrivals are a Poisson process; with ``cv`` gaps have that standard deviation /
    mean (gamma); with ``on_s`` and ``off_s`` arrivals come in phases that long, that far apart (means, in seconds).
    Raises InputError on a value that is not allowed.
    """

    profile: str
    rate: float | None = None
    duration_s: float | None = None
    requests: int | None = None
    seed: int = 0
    max_total: int | None = None
    cv: float | None = None
    on_s: float | None = None
    off_s: float | None = None

    def __post_init__(self) -> None:
        own_rate = self._source.rate
        if self.rate is None and own_rate is None:
            raise InputError(f"workload {self.profile} has no rate of its own: give one, as in {self.profile}:rate=4")
        if self.requests is not None and self.duration_s is not None:
            raise InputError(f"workload {self.profile} takes duration or requests, not both")
        positive("rate", self.rate_per_s)
        positive("duration", self.seconds)
        whole("seed", self.seed, at_least=0)
        self._check_arrivals()
        expected = self.rate_per_s * self.seconds if self.requests is None else whole("requests", self.requests)
        if expected > MAX_REQUESTS:
            raise InputError(f"workload {self} asks for {expected:,.10g} requests; {MAX_REQUESTS:,} is the most")
        if self.max_total is not None:
            whole("max_total", self.max_total, at_least=2)

    def _check_arrivals(self) -> None:
        if self.cv is not None:
            positive("cv", self.cv)
            if not _LEAST_CV <= self.cv <= _MOST_CV:
                raise InputError(f"cv(={self.cv:g}) must be {_LEAST_CV:g} to {_MOST_CV:g}")
            if self.on_s is not None or self.off_s is not None:
                raise InputError(f"workload {self.profile} takes cv, or on and off, not both")
        if (self.on_s is None) != (self.off_s is None):
            raise InputError(f"workload {self.profile} takes on and off together, as in {self.profile}:on=5,off=20")
        if self.on_s is not None and self.off_s is not None:
            positive("on", self.on_s)
            positive("off", self.off_s)
            if (self.on_s + self.off_s) * self.rate_per_s < _LEAST_PHASES:
                raise InputError(f"on + off(={self.on_s + self.off_s:g} s) must be >= {_LEAST_PHASES:g} / rate")

    def __str__(self) -> str:
        """The workload in the command line's mini-language, defaults filled in; of a file only its name."""
        shown = {
            "rate": self.rate_per_s,
            "duration": self.seconds if self.requests is None else None,
            "requests": self.requests,
            "seed": self.seed,
            "max_total": self.max_total,
            "cv": self.cv,
            "on": self.on_s,
            "off": self.off_s,
        }
        options = (f"{key}={_plain(value)}" for key, value in shown.items() if value is not None)
        return f"{Path(self.profile).name}:{','.join(options)}"

    @property
    def _source(self) -> Profile | Sample:
        return profiles().get(self.profile) or _of_file(self.profile)

    @property
    def rate_per_s(self) -> float:
        """Requests a second: ``rate``, or else the profile's."""
        return self.rate if self.rate is not None else self._source.rate or math.nan

    @property
    def seconds(self) -> float:
        """``duration_s``, or else the default."""
        return DEFAULT_DURATION_S if self.duration_s is None else self.duration_s

    @property
    def limit_tokens(self) -> int | None:
        """The most prompt + output tokens of a request: ``max_total``, or else the profile's own; None: no limit."""
        return self.max_total if self.max_total is not None else self._source.max_total_tokens

    def draw(self, generator: Generator) -> tuple[IntArray, IntArray, IntArray]:
        """Arrivals in nanoseconds, prompt tokens and output tokens, a row a request.

        Arrivals and lengths have a stream of random numbers each, and both are used in order of the requests. So
        another rate changes no length, and a longer trace begins with the shorter one.
        """
        arrivals, lengths = generator.spawn(2)
        process = arrivals_of(self.rate_per_s, self.cv, self.on_s, self.off_s)
        arrival_ns = process(self.requests, self.seconds, arrivals)
        if not len(arrival_ns):
            raise InputError(
                f"workload {self} has no request: no arrival in {self.seconds:g} s; raise rate or duration"
            )
        prompt, output = draw_lengths(self._source, len(arrival_ns), self.limit_tokens, lengths)
        return arrival_ns, prompt, output


def _of_file(name: str) -> Profile | Sample:
    """The lengths of a file: a profile, or any trace. Raises InputError where there is none, or no good one."""
    path = find_file(name)
    if path is None:
        raise InputError(f"unknown workload {short(name)}; choose from {', '.join(profiles())}, or a file")
    seen = Path(path).stat()
    return _read_lengths(path, seen.st_mtime_ns, seen.st_size)


@lru_cache(maxsize=4)
def _read_lengths(name: str, modified_ns: int, size: int) -> Profile | Sample:
    # The time and the size are there for the cache: a file that changed is read again.
    del modified_ns, size
    if is_profile_file(name):
        try:
            found = parse_profiles(Path(name).read_bytes())
            if len(found) != 1:
                raise InputError(f"must hold one profile; it holds {len(found)}: {', '.join(found) or 'none'}")
        except InputError as error:
            raise InputError(f"profile {short(name)}: {error}") from None
        return next(iter(found.values()))
    reading = Reading(lengths_only=True)
    try:
        columns, report = read_file(name, None, reading)
    except InputError as error:
        way = "; kvfrag trace convert takes that, and lengths can be drawn from what it writes"
        raise InputError(f"{error}{way if '--columns' in str(error) else ''}") from None
    if reading.counter.guesses:
        raise InputError(
            f"workload {short(name)} is drawn from texts, whose tokens must be counted first: "
            f"kvfrag trace convert FILE --tokenizer tokenizer.json -o counted.csv, and --rate 1 if it has no arrivals"
        )
    span_s = int(columns.time_ns.max() - columns.time_ns.min()) / 1e9
    return Sample(
        Path(name).name, columns.prompt_tokens, columns.output_tokens, report.kept / span_s if span_s else None
    )


def is_profile_file(name: str) -> bool:
    """Whether a file that can be read is a length profile. What can be read only once, a pipe, is none."""
    try:
        return Path(name).is_file() and is_profile(open_text(name).head)
    except InputError:
        return False


_NUMBERS = {"rate": "rate", "duration": "duration_s", "cv": "cv", "on": "on_s", "off": "off_s"}
_WHOLE = {"requests": "requests", "seed": "seed", "max_total": "max_total"}
_OPTIONS = ("rate", "duration", "requests", "seed", "max_total", "cv", "on", "off")


def split_workload(text: str) -> tuple[str, str]:
    """The name and the options of a text in the command line's mini-language. The name of a file may hold colons."""
    name, colon, options = text.partition(":")
    if name.strip() in profiles() or not colon:
        return name.strip(), options
    name, _, options = text.rpartition(":")
    return name, options


def parse_workload(text: str) -> Workload:
    """The workload of a text in the command line's mini-language: ``sharegpt:rate=4,duration=900,seed=0``.

    Options are rate (requests a second), duration (seconds), requests, seed, max_total (tokens), cv, on and off
    (seconds). Raises InputError for a name, an option or a value that is not allowed.
    """
    name, options = split_workload(text)
    _, given = parse_spec(f"{Path(name).name.rpartition(':')[2]}:{options}")
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in _OPTIONS:
            raise InputError(f"unknown option {key!r} of workload {name}; choose from {', '.join(_OPTIONS)}")
        try:
            if key in _NUMBERS:
                values[_NUMBERS[key]] = float(value)
            else:
                values[_WHOLE[key]] = int(value)
        except ValueError:
            kind = "number" if key in _NUMBERS else "whole number"
            raise InputError(f"{key}(={value!r}) of workload {name} must be a {kind}") from None
    return Workload(name, **values)


def _plain(value: float) -> str:
    """A number as short as it can be written without changing it."""
    return str(value) if isinstance(value, int) else str(float(value)).removesuffix(".0")
