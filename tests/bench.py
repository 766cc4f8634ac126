"""``make bench``: how fast the engine is, as ratios to the token-stepped reference in the same process.

Seconds differ from machine to machine and from minute to minute; ratios taken in turns do so much less. Prints
Markdown. ``KVFRAG_TRACES`` names the folder of real traces; without it the workload azure-conv stands in.
"""

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import reference
from allocators import make_allocator, parse_spec
from simulator import Run, StepCost, Trace, open_trace, simulate, sweep
from simulator.server.settings import SettingsFields

CAPACITY, MAX_MODEL_LEN, MAX_BATCH = 60_000, 8192, 256
COST = StepCost(base="25ms", prefill_token="100us", sequence="200us", kv_token="1us")
SPECS = ("contiguous:reserve=max", "buddy:reserve=oracle", "paged:block_size=16")
LOADS = {"light": 0.5, "saturated": 20.0}
"""Requests a second of the workload azure-conv: next to none waits, and nearly all do, whichever the allocator."""
SIZES = (10_000, 100_000, 1_000_000)
BATCHES = (64, 256, 1024)


def azure_conv() -> Trace:
    """The Azure conversation trace, or as many requests drawn from its profile."""
    folder = os.environ.get("KVFRAG_TRACES")
    if folder is not None:
        return Trace.read(Path(folder) / "AzureLLMInferenceTrace_conv.csv")
    return Trace.workload("azure-conv", requests=19_366)


def engine(trace: Trace, spec: str, timeline_bins: int = 0) -> Run:
    """One run at the benchmark's settings; without a timeline beside the reference, which makes none."""
    allocator = make_allocator(spec, CAPACITY, MAX_MODEL_LEN)
    settings = SettingsFields(cost=COST, max_model_len=MAX_MODEL_LEN, max_batch=MAX_BATCH)
    return simulate(trace, allocator, timeline_bins=timeline_bins, **settings)


def stepped(trace: Trace, spec: str) -> reference.Outcome:
    """The same by the reference."""
    name, options = parse_spec(spec)
    columns = (trace.arrival_ns.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist())
    settings = reference.Settings(
        capacity=CAPACITY,
        max_model_len=MAX_MODEL_LEN,
        max_batch=MAX_BATCH,
        base_ps=COST.base,
        prefill_token_ps=COST.prefill_token,
        sequence_ps=COST.sequence,
        kv_token_ps=COST.kv_token,
    )
    plain = {key: int(value) if value.isdigit() else value for key, value in options.items()}
    return reference.replay(list(zip(*columns, strict=True)), name, plain, settings)


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Processor time of one call: what else runs on the machine counts less than in wall-clock time."""
    start = clock()
    work()
    return clock() - start


def ratios(trace: Trace, rounds: int = 3) -> None:
    """Engine and reference in turns; the median ratio of the rounds."""
    print(f"| allocator | engine, requests/s | reference, requests/s | ratio, median of {rounds} | integers equal |")
    print("|---|---|---|---|---|")
    for spec in SPECS:
        run, outcome = engine(trace, spec), stepped(trace, spec)
        equal = all(run.integrals[name] == value for name, value in outcome.slot_ps.items())
        equal = equal and run.duration_ps == outcome.duration_ps and run.counts["iterations"] == outcome.iterations
        pairs = []
        for _ in range(rounds):
            fast = min(seconds(lambda: engine(trace, spec)) for _ in range(3))  # noqa: B023
            pairs.append((fast, seconds(lambda: stepped(trace, spec))))  # noqa: B023
        fast, slow = sorted(pairs, key=lambda pair: pair[1] / pair[0])[rounds // 2]
        rate = len(trace)
        print(f"| {spec} | {rate / fast:,.0f} | {rate / slow:,.0f} | {slow / fast:.1f} | {'yes' if equal else 'NO'} |")


def doubled_outputs(trace: Trace, rounds: int = 7) -> None:
    """How much longer it takes when every output is twice as long."""
    longer = replace(trace, output_tokens=trace.output_tokens * 2)
    print("\n| every output twice as long | time (median of 7) |\n|---|---|")
    for spec in SPECS:
        times = [[seconds(lambda t=one: engine(t, spec)) for one in (trace, longer)] for _ in range(rounds)]  # type: ignore[misc] # noqa: B023
        ratio = sorted(after / before for before, after in times)[rounds // 2]
        print(f"| {spec} | {100 * (ratio - 1):+.1f} % |")


def growth(spec: str, load: str) -> None:
    """A row: time a request for more and more requests, the timeline on, in this process; and its peak memory."""
    times_us = []
    for requests in SIZES:
        trace = Trace.workload("azure-conv", rate=LOADS[load], requests=requests)
        rounds = max(1, 300_000 // requests)
        times_us.append(min(seconds(lambda: engine(trace, spec, 1000)) for _ in range(rounds)) / requests * 1e6)  # noqa: B023
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    shown = " | ".join(f"{time_us:.1f}" for time_us in times_us)
    print(f"| {load} | {spec} | {shown} | {times_us[-1] / times_us[0]:.2f} | {1e6 / times_us[-1]:,.0f} | {peak:.2f} |")


def batches() -> None:
    """Time a request for larger and larger batches, which the pool has room for."""
    trace = Trace.workload("azure-conv", rate=LOADS["saturated"], requests=20_000)
    print("\n| microseconds a request, saturated | " + " | ".join(f"max_batch {size:,}" for size in BATCHES) + " |")
    print("|---|" + "---|" * len(BATCHES))
    for spec in SPECS:
        shown = []
        for size in BATCHES:
            made = partial(make_allocator, spec, size * MAX_MODEL_LEN, MAX_MODEL_LEN)
            settings = SettingsFields(cost=COST, max_model_len=MAX_MODEL_LEN, max_batch=size)
            taken = min(seconds(lambda: simulate(trace, made(), timeline_bins=0, **settings)) for _ in range(3))  # noqa: B023
            shown.append(f"{taken / len(trace) * 1e6:.1f}")
        print(f"| {spec} | " + " | ".join(shown) + " |")


def sweep_rows(rounds: int = 3) -> None:
    """A sweep of 64 runs on two cores beside the same runs one after another in this process, in turns."""
    sizes, workload = (1, 2, 4, 8, 16, 32, 64, 128), "sharegpt:rate=4,duration=900"
    spec = f"paged:block_size={{{','.join(map(str, sizes))}}}"

    def alone() -> None:
        for seed in range(8):
            trace = open_trace(f"{workload},seed={seed}")
            for size in sizes:
                simulate(trace, make_allocator(f"paged:block_size={size}", CAPACITY), timeline_bins=0)

    def beside() -> None:
        assert len(sweep(workload, spec, capacity=CAPACITY, seeds=8, workers=2)) == 64

    pairs = sorted(
        ((seconds(alone, time.perf_counter), seconds(beside, time.perf_counter)) for _ in range(rounds)),
        key=lambda pair: pair[1] / pair[0],
    )
    one, two = pairs[rounds // 2]
    print("\n| 64 runs | one after another, s | swept by two processes, s | ratio |\n|---|---|---|---|")
    print(f"| {spec}, 8 seeds | {one:.1f} | {two:.1f} | {two / one:.2f} |")


def main() -> None:
    """Print all tables."""
    if sys.argv[1:]:
        growth(*sys.argv[1:])
        return
    trace = azure_conv()
    print(f"{trace.name}: {len(trace):,} requests, {CAPACITY:,} slots, max_batch {MAX_BATCH}, cost {COST}")
    print(f"{processor()}, {os.cpu_count()} cores; {versions()}\n")
    ratios(trace)
    doubled_outputs(trace)
    batches()
    sweep_rows()
    sizes = " | ".join(f"{size:,}" for size in SIZES)
    print("\nWorkload azure-conv, timeline on, microseconds a request for so many requests; a process a row\n")
    print(f"| load | allocator | {sizes} | the last / the first | requests/s | peak memory, GiB |")
    print("|---|---|---|---|---|---|---|---|")
    for load in LOADS:
        for spec in SPECS:
            subprocess.run([sys.executable, __file__, spec, load], check=True)


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions() -> str:
    """Of Python and of the libraries that matter to the speed."""
    return ", ".join(
        [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in ("numpy", "simpy"))]
    )


if __name__ == "__main__":
    main()
