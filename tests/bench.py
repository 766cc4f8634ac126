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
from allocators import Reserving, make_allocator, parse_spec
from simulator import Run, StepCost, Trace, open_trace, simulate, sweep
from simulator.server.settings import SettingsFields

CAPACITY, MAX_MODEL_LEN, MAX_BATCH = 60_000, 8192, 256
COST = StepCost(base="25ms", prefill_token="100us", sequence="200us", kv_token="1us")
SPECS = ("contiguous:reserve=max", "buddy:reserve=oracle", "paged:block_size=16")
OWN = "slab:slab=4096"
"""The README's allocator in plain Python, with slabs that hold nearly every request of the trace."""
LOADS = {"light": 0.5, "saturated": 20.0}
"""Requests a second of the workload azure-conv: next to none waits, and nearly all do, whichever the allocator."""
SIZES = (10_000, 100_000, 1_000_000)
MANY = 27_000_000
"""As many requests as a public trace of 225 days has."""
BATCHES = (64, 256, 1024)
KVFRAG = str(Path(sys.executable).with_name("kvfrag"))
COMMANDS = (
    "--help",
    "run azure-conv:rate=5.4,requests=19366 -a contiguous:reserve=max -a buddy:reserve=oracle -a paged:block_size=16"
    " --capacity 60000 --max-model-len 8192 --max-batch 256",
    "size azure-conv:rate=5.4,requests=19366 -a contiguous:reserve=max -a buddy:reserve=oracle -a paged:block_size=16"
    " --max-refused 1% --max-model-len 8192 --max-batch 256 --model llama-3-8b",
)


class Slab(Reserving):
    """As in the README."""

    def __init__(self, capacity: int, slab: int) -> None:
        super().__init__(capacity, reserve="oracle")
        self.slab, self.most_slots, self.tail_slots = slab, slab, capacity % slab
        self.free = [(start, slab) for start in range(0, capacity - slab + 1, slab)]

    @property
    def spec(self) -> str:
        return f"slab:slab={self.slab}"

    @property
    def largest_free_slots(self) -> int:
        return self.slab if self.free else 0

    def _place(self, slots: int) -> tuple[int, int] | None:
        return self.free.pop() if self.free and slots <= self.slab else None

    def _give_back(self, start: int, slots: int) -> None:
        self.free.append((start, slots))


class SteppedSlab(reference.Reserving):
    """The same for the reference."""

    def __init__(self, capacity: int, limit: int | None, slab: int) -> None:
        super().__init__(capacity, limit, "oracle")
        self.slab, self.tail = slab, capacity % slab
        self.free = [(start, slab) for start in range(0, capacity - slab + 1, slab)]

    def never_fits(self, request: reference.Request) -> bool:
        return request.asked > self.slab

    def place(self, slots: int) -> reference.Extent | None:
        return self.free.pop() if self.free and slots <= self.slab else None

    def put_back(self, extent: reference.Extent) -> None:
        self.free.append(extent)


reference.ALLOCATORS["slab"] = SteppedSlab  # type: ignore[assignment]


def azure_conv() -> Trace:
    """The Azure conversation trace, or as many requests drawn from its profile."""
    folder = os.environ.get("KVFRAG_TRACES")
    if folder is not None:
        return Trace.read(Path(folder) / "AzureLLMInferenceTrace_conv.csv")
    return Trace.workload("azure-conv", requests=19_366)


def engine(trace: Trace, spec: str, timeline_bins: int = 0) -> Run:
    """One run at the benchmark's settings; without a timeline beside the reference, which makes none."""
    allocator = Slab(CAPACITY, 4096) if spec == OWN else make_allocator(spec, CAPACITY, MAX_MODEL_LEN)
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
    for spec in (*SPECS, OWN):
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


def timelines(trace: Trace, rounds: int = 7) -> None:
    """How much longer it takes with a timeline of 1,000 bins."""
    print("\n| with a timeline of 1,000 bins | times the time without (median of 7) |\n|---|---|")
    for spec in (*SPECS, OWN):
        times = [[seconds(lambda b=bins: engine(trace, spec, b)) for bins in (0, 1000)] for _ in range(rounds)]  # type: ignore[misc] # noqa: B023
        ratio = sorted(after / before for before, after in times)[rounds // 2]
        print(f"| {spec} | {ratio:.2f} |")


def commands(rounds: int = 3) -> None:
    """Processor seconds of commands of the README, from start to end: the least of some runs after a first one."""
    print("\n| command | processor seconds, the least of 3 |\n|---|---|")
    for command in COMMANDS:
        taken = []
        for _ in range(rounds + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([KVFRAG, *command.split()], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        print(f"| kvfrag {command} | {min(taken[1:]):.2f} |")


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


def many() -> None:
    """27 million requests, all of whose time is the loop's; ``python tests/bench.py many``."""
    trace = Trace.workload("azure-conv", rate=LOADS["saturated"], requests=MANY)
    taken = seconds(lambda: engine(trace, "paged:block_size=16", 1000).summary())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"| {MANY:,} requests, saturated, timeline on | seconds | microseconds a request | peak memory, GiB |")
    print("|---|---|---|---|")
    print(f"| paged:block_size=16 | {taken:.0f} | {taken / MANY * 1e6:.2f} | {peak:.2f} |")


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
    if sys.argv[1:] == ["many"]:
        many()
        return
    if sys.argv[1:]:
        growth(*sys.argv[1:])
        return
    trace = azure_conv()
    print(f"{trace.name}: {len(trace):,} requests, {CAPACITY:,} slots, max_batch {MAX_BATCH}, cost {COST}")
    print(f"{processor()}, {os.cpu_count()} cores; {versions()}\n")
    ratios(trace)
    timelines(trace)
    doubled_outputs(trace)
    commands()
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
        [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in ("numpy", "numba", "simpy"))]
    )


if __name__ == "__main__":
    main()
