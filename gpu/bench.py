"""Is the kernel as fast as the memory allows? One table, one process, one run.

Ceilings come first: how fast this device, now, copies, fills and reads 4 GiB. A kernel that reads each key and value
once and computes little can be no faster than that. Then every implementation on every load: its output is checked
against float64, then CUDA-graph replays of it are timed with device events. A rival that refuses a load is a row that
says so; a load for which no time is left is one too.
"""

import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
import triton

from allocators.base import InputError
from gpu.loads import BLOCK_SIZES, LLAMA_8, LLAMA_64, OTHERS, Load, Problem, plans_to_try
from gpu.reference import BARS
from gpu.rivals import FLEX, OURS, SDPA, Call, Make, ours, ours_with

GIB = 2**30


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call over all replays."""

    median_us: float
    p10_us: float
    p90_us: float


Timer = Callable[[Call], Timing]


@dataclass(frozen=True)
class Row:
    """One implementation on one load. Where ``note`` says why it was not timed, the numbers are None.

    ``bytes`` must move; ``tb_per_s`` is 1e12 bytes a second; ``percent_of_copy`` relates it to this run's copy."""

    load: str
    block_size: int
    implementation: str
    bytes: int
    median_us: float | None = None
    p10_us: float | None = None
    p90_us: float | None = None
    tb_per_s: float | None = None
    percent_of_copy: float | None = None
    error: float | None = None
    note: str = ""

    def __str__(self) -> str:
        what = f"{self.load}, block size {self.block_size}, {self.implementation}: "
        if self.note:
            return what + self.note
        return what + (
            f"{self.median_us:.1f} us ({self.p10_us:.1f} .. {self.p90_us:.1f}), {self.tb_per_s:.3f} TB/s,"
            f" {self.percent_of_copy:.1f}% of copy, error {self.error:.1e}"
        )


def graph_timing(call: Call, seconds: float = 0.4) -> Timing:
    """Replay a CUDA graph of the call for some ``seconds``; calls below a millisecond share a graph."""
    event = partial(torch.cuda.Event, enable_timing=True)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        begin, end = event(), event()
        begin.record()
        call()
        end.record()
        end.synchronize()
    torch.cuda.current_stream().wait_stream(stream)
    once_ms = max(begin.elapsed_time(end), 1e-3)
    calls = max(1, min(20, round(1 / once_ms)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    replays = max(20, min(200, round(1e3 * seconds / (once_ms * calls))))
    events = [[event(), event()] for _ in range(replays + 3)]
    for first, last in events:
        first.record()
        graph.replay()
        last.record()
    torch.cuda.synchronize()
    times = sorted(1e3 * first.elapsed_time(last) / calls for first, last in events[3:])
    return Timing(statistics.median(times), times[len(times) // 10], times[-1 - len(times) // 10])


def ceilings(device: torch.device, timer: Timer = graph_timing, size_bytes: int = 4 * GIB) -> dict[str, float]:
    """TB/s at which the device copies (bytes read and bytes written), fills and reads ``size_bytes``."""
    source = torch.zeros(size_bytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    calls: dict[str, tuple[Call, int]] = {
        "copy": (lambda: target.copy_(source), 2),
        "fill": (lambda: target.fill_(1.0), 1),
        "read": (lambda: source.sum(), 1),
    }
    return {name: passes * size_bytes / timer(call).median_us / 1e6 for name, (call, passes) in calls.items()}


def measure(problem: Problem, name: str, make: Make, copy_tb_per_s: float, timer: Timer = graph_timing) -> Row:
    """Check one implementation on one load, then time it. What it raises, and a wrong output, end up in the note.

    So does what the timer raises: a call that works may still refuse to be captured in a graph.
    """
    load = problem.load
    row = Row(load.name, load.block_size, name, load.bytes)
    try:
        call = make(problem)
        error = problem.error(call())
    except Exception as refused:
        return Row(**asdict(row) | {"note": f"refused: {reason_of(refused)}"})
    if not error < BARS[load.dtype]:
        return Row(**asdict(row) | {"note": f"wrong: {error:.1e} away from float64"})
    try:
        timing = timer(call)
    except Exception as refused:
        return Row(**asdict(row) | {"error": error, "note": f"refused to be timed: {reason_of(refused)}"})
    speed = load.bytes / timing.median_us / 1e6
    numbers = {"tb_per_s": speed, "percent_of_copy": 100 * speed / copy_tb_per_s, "error": error}
    return Row(**asdict(row) | asdict(timing) | numbers)


def reason_of(refused: Exception) -> str:
    """The first line of what was raised, short enough for a table."""
    return (str(refused).strip().splitlines() or [type(refused).__name__])[0][:120]


Plans = Sequence[tuple[Load, dict[str, Make]]]


def loads_with_bars() -> Plans:
    """The loads for which there are bars and what runs on them."""
    sizes = [Load(**vars(LLAMA_64) | {"block_size": size}) for size in BLOCK_SIZES]
    return [(LLAMA_64, {OURS: ours} | SDPA), (LLAMA_8, {OURS: ours} | SDPA), *((load, {OURS: ours}) for load in sizes)]


def other_loads(simulated: Sequence[int] = ()) -> Plans:
    """The rest of the table. ``simulated``: lengths of running requests, from a simulated run."""
    run = [Load(f"{len(simulated)} requests of a simulated run, 32/8 heads", tuple(simulated))] if simulated else []
    rest = [(load, {OURS: ours} | SDPA) for load in (*run, *OTHERS)]
    return [*rest, (LLAMA_64, FLEX), (LLAMA_8, FLEX), (LLAMA_64, tries(LLAMA_64))]


def rows(
    plans: Plans, device: torch.device, copy_tb_per_s: float, deadline: float, timer: Timer = graph_timing
) -> Iterator[Row]:
    """The table, row by row; from ``deadline`` (of time.monotonic) on nothing more is timed.

    A load that cannot be built, for want of memory say, is a row for each implementation; the next load goes on.
    """
    for load, implementations in plans:
        problem, unbuilt = None, ""
        for name, make in implementations.items():
            if time.monotonic() > deadline:
                yield Row(load.name, load.block_size, name, load.bytes, note="left out: no time was left")
                continue
            if problem is None and not unbuilt:
                try:
                    problem = Problem(load, device)
                except Exception as refused:
                    unbuilt = f"refused: the load cannot be built: {reason_of(refused)}"
            if problem is None:
                yield Row(load.name, load.block_size, name, load.bytes, note=unbuilt)
                continue
            yield measure(problem, name, make, copy_tb_per_s, timer)


def tries(load: Load) -> dict[str, Make]:
    """The kernel with other plans than its own."""
    return {
        f"{OURS}; tile {p.tile_tokens}, chunk {p.chunk_tokens}, {p.warps} warps, {p.stages} stages": ours_with(p)
        for p in plans_to_try(load)
    }


def bars(table: Iterable[Row]) -> list[dict[str, Any]]:
    """What must be reached, what was measured (None: not timed) and whether it is met; % of copy, or of SDPA's time."""
    table = list(table)
    percent = {(r.load, r.block_size): r.percent_of_copy for r in table if r.implementation == OURS}
    result = []
    for load, least, sizes in ((LLAMA_64, 90, (16,)), (LLAMA_8, 90, (16,)), (LLAMA_64, 80, (8, 32, 64, 128))):
        for size in sizes:
            measured = percent.get((load.name, size))
            what = f"{load.name}, block size {size}: >= {least}% of copy"
            result.append({"bar": what, "measured": measured, "met": measured is not None and measured >= least})
    for load in (LLAMA_64, LLAMA_8):
        mine = [r.median_us for r in table if (r.load, r.block_size, r.implementation) == (load.name, 16, OURS)]
        theirs = [r.median_us for r in table if r.load == load.name and r.implementation in SDPA and r.median_us]
        measured = 100 * mine[0] / min(theirs) if mine and mine[0] and theirs else None
        what = f"{load.name}: <= 105% of the best SDPA's time on contiguous K/V"
        result.append({"bar": what, "measured": measured, "met": measured is not None and measured <= 105})
    return result


def cuda_device(name: str = "cuda", who: str = "gpu bench") -> torch.device:
    """A CUDA device, or an InputError: timings of an interpreter would mean nothing."""
    device = torch.device(name)
    if device.type != "cuda" or not torch.cuda.is_available():
        raise InputError(f"{who} needs a CUDA device, and torch sees none; gpu check --device cpu runs without one")
    return device


def environment(device: torch.device) -> dict[str, Any]:
    """What the numbers were measured on, and when."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        driver = None
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu", "driver": driver,
        "cuda": torch.version.cuda, "torch": torch.__version__, "triton": triton.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
