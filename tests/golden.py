"""What the first engine (version 27ac883) answered, as digests: of every file of a saved run, byte for byte.

KVFRAG_TRACES=folder python tests/golden.py     # writes tests/golden.json again, when what an answer is has changed
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from scenarios import Scenario, aligned_scenario, moments_of, random_scenario
from simulator import Run, StepCost, Trace, simulate

FILE = Path(__file__).with_suffix(".json")

RANDOM, ALIGNED = range(5000, 5090), range(5000, 5060)
"""Seeds: none of those that test_engine.py compares with the reference."""

TRACES = ("AzureLLMInferenceTrace_conv.csv", "AzureLLMInferenceTrace_code.csv", "mooncake_conversation_trace.jsonl")
SPECS = (
    "contiguous",
    "contiguous:reserve=pow2,fit=best",
    "buddy:reserve=oracle",
    "paged:block_size=16,watermark=0.01",
    "paged:block_size=1",
)
CAPACITY, LONGEST = 400_000, 131_072
"""Of the pool for a public trace, in slots, and of a request, in tokens."""


def scenario_runs() -> Iterator[tuple[str, Callable[[], Run]]]:
    """Random scenarios, with memory maps at moments inside and after the run, and a decision log."""
    for kind, make, seeds in (("random", random_scenario, RANDOM), ("aligned", aligned_scenario, ALIGNED)):
        for seed in seeds:
            yield f"{kind} {seed}", partial(_scenario_run, make, seed)


def _scenario_run(make: Callable[[int], Scenario], seed: int) -> Run:
    scenario = make(seed)
    moments = sorted({0, *moments_of(scenario.reference())})
    times = sorted(min(time, 10**22) for time in Random(seed).choices(moments, k=4))
    return scenario.engine(times, timeline_bins=Random(seed).choice([0, 1, 7, 30]), decisions=True)


def trace_runs(folder: Path) -> Iterator[tuple[str, Callable[[], Run]]]:
    """The public traces, once under a window and once whole."""
    for name in TRACES:
        for number, spec in enumerate(SPECS):
            yield f"{name} {spec}", partial(_trace_run, folder / name, spec, number)


def _trace_run(path: Path, spec: str, number: int) -> Run:
    trace = Trace.read(path)
    return simulate(
        trace,
        spec,
        capacity=CAPACITY,
        cost=StepCost("20ms", "30us", "10us", "1us", "2us"),
        timeline_bins=(200, 1000, 0, 37, 1)[number],
        layout_times_s=(0, 77.7, 600),
        decisions=number in (0, 3),
        max_model_len=LONGEST,
        max_batch=(256, None, 32, 256, 100)[number],
        max_batch_tokens=(None, None, None, 150_000, None)[number],
        preemption=("recompute", "swap")[number % 2],
        swap_slots=20_000,
        window_s=(100, 1000) if number == 1 else None,
    )


def digests(run: Run) -> dict[str, str]:
    """SHA-256, its first 16 digits, of the run's summary and of each file that saving it writes."""
    with tempfile.TemporaryDirectory() as folder:
        run.save(folder)
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    files["summary"] = json.dumps(run.summary(), sort_keys=True).encode()
    return {name: hashlib.sha256(content).hexdigest()[:16] for name, content in files.items()}


if __name__ == "__main__":
    runs = [*scenario_runs(), *trace_runs(Path(os.environ["KVFRAG_TRACES"]))]
    FILE.write_text(json.dumps({name: digests(make()) for name, make in runs}, indent=0) + "\n")
