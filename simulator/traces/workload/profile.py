"""Length profiles: how long the requests of a workload are, without the requests.

A profile keeps quantiles only: equally likely cells (24 of them) in order of prompt length, each with the quantiles of
its prompts and outputs at the same probabilities. ``profiles/length_profiles.json`` has five; a file of one's own has
the same shape, made by ``kvfrag trace profile``.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocators.base import InputError
from simulator.traces.text.fields import MAX_TOKENS, IntArray

CELLS = 24
_BEGINNING = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"probabilities"\s*:')


@dataclass(frozen=True)
class Profile:
    """The lengths of one real workload.

    ``rows``: how many real requests. ``prompt`` and ``output``: the logarithm of tokens, a row for each cell, a column
    for each of ``probabilities``. ``mean_prompt`` and ``mean_output``: of the real requests, in tokens.
    ``max_total_tokens``: no real request has more prompt + output tokens (None: no limit). ``rate``: real requests a
    second (None: their times are not known).
    """

    name: str
    description: str
    rows: int
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
    return parse_profiles(files("simulator.traces.workload").joinpath("profiles/length_profiles.json").read_bytes())


def is_profile(beginning: bytes) -> bool:
    """Whether a file that begins so is a length profile."""
    return _BEGINNING.match(beginning) is not None


def parse_profiles(text: bytes) -> dict[str, Profile]:
    """The profiles of a JSON text, by name. Raises InputError, one line, on anything else."""
    try:
        data = json.loads(text)
        probabilities = _column(data["probabilities"], 0, 1)
        return {str(name): _parsed(str(name), one, probabilities) for name, one in data["profiles"].items()}
    except KeyError as error:
        raise InputError(f"is no length profile: it lacks {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"is no length profile: {' '.join(str(error).split())[:200]}") from None


def _parsed(name: str, data: Mapping[str, Any], probabilities: NDArray[np.float64]) -> Profile:
    cells = {
        key: np.array([_column(cell[key], 1, MAX_TOKENS) for cell in data["cells"]]) for key in ("prompt", "output")
    }
    if probabilities[0] != 0 or probabilities[-1] != 1 or (np.diff(probabilities) <= 0).any():
        raise ValueError("probabilities must rise from 0 to 1")
    if {column.shape[1:] for column in cells.values()} != {probabilities.shape}:
        raise ValueError(f"each cell of {name} must have a quantile for each of the {len(probabilities)} probabilities")
    total, rate = data.get("max_total_tokens"), data.get("arrival_rate_per_s")
    return Profile(
        name,
        str(data.get("description", "")),
        _checked("rows", data["rows"], 1),
        probabilities,
        np.log(cells["prompt"]),
        np.log(cells["output"]),
        float(_checked("mean_prompt", data["mean_prompt"], 1)),
        float(_checked("mean_output", data["mean_output"], 1)),
        None if total is None else int(_checked("max_total_tokens", total, 2)),
        None if rate is None else float(_checked("arrival_rate_per_s", rate, 0)),
    )


def _checked(name: str, value: Any, least: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise ValueError(f"{name}(={value!r}) must be a number from {least}")
    return value


def _column(values: Any, least: float, most: float) -> NDArray[np.float64]:
    """Numbers that do not fall."""
    column = np.array([_checked("quantile", value, least) for value in values], np.float64)
    if len(column) < 2 or (np.diff(column) < 0).any() or column[-1] > most:
        raise ValueError(f"quantiles must be two or more numbers that do not fall, from {least} to {most:,}")
    return column


def measure_profile(
    name: str, prompt: IntArray, output: IntArray, rate: float | None, cv: float | None, description: str
) -> dict[str, Any]:
    """The profile of these requests in the shape of its JSON file, to be read by :func:`parse_profiles`.

    As the profiles that come with the package were made: requests in order of (prompt, row), cut into cells whose sizes
    differ by one at most, and of each its quantiles on the straight line between neighbours in rank, to whole tokens.
    """
    probabilities = [float(p) for p in next(iter(profiles().values())).probabilities]
    order = np.argsort(prompt, kind="stable")
    cells = np.array_split(order, min(CELLS, len(order)))
    return {
        "probabilities": probabilities,
        "profiles": {
            name: {
                "description": description,
                "rows": len(order),
                "mean_prompt": round(float(prompt.mean()), 2),
                "mean_output": round(float(output.mean()), 2),
                "arrival_rate_per_s": None if rate is None else float(f"{rate:.6g}"),
                "interarrival_cv": None if cv is None else float(f"{cv:.6g}"),
                "cells": [
                    {
                        "prompt": _quantiles(prompt[cell], probabilities),
                        "output": _quantiles(output[cell], probabilities),
                    }
                    for cell in cells
                ],
            }
        },
    }


def _quantiles(tokens: IntArray, probabilities: Sequence[float]) -> list[int]:
    return [int(value) for value in np.rint(np.quantile(tokens, probabilities))]
