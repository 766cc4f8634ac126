"""Runs that are worth saving, and what they are compared by."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from allocators import Paged
from simulator import Run, StepCost, Trace, simulate

COST = StepCost(base="3ms", prefill_token="7us", sequence="11us", kv_token="13ns")


def small(**options: Any) -> Run:
    """Requests of every status, an allocator that grows, preemptions, memory maps in and behind the run."""
    trace = Trace.from_columns(
        [0, 0, 10**6, 2 * 10**6, 3 * 10**6, 3 * 10**6, 10**12], [3, 30, 5, 40, 9, 50, 1], [9, 20, 30, 30, 97, 50, 1]
    )
    return simulate(
        trace,
        Paged(98, block_size=3, watermark="0.1"),
        max_model_len=105,
        cost=COST,
        window_s=("0.0001", "0.1"),
        timeline_bins=13,
        layout_times_s=[0.01, 0.05, 77],
        decisions=True,
        **options,
    )


def bits(frame: pd.DataFrame | None) -> list[tuple[str, str, bytes | list[Any]]]:
    """Every column's name, type and values, floats to the bit."""
    if frame is None:
        return []
    return [
        (str(name), repr(column.dtype), column.to_numpy().tobytes() if column.dtype.kind in "if" else column.tolist())
        for name, column in frame.items()
    ]


def everything(run: Run) -> dict[str, Any]:
    return {
        field.name: bits(value) if isinstance(value := getattr(run, field.name), pd.DataFrame) else value
        for field in fields(run)
    }


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


EXAMPLE, SMALL = small(), small(max_batch=2)
