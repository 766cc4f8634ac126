"""The stages of ``python -m gpu.suite``, which says what they are."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from json import dumps
from pathlib import Path
from typing import Any

import torch

from gpu import bench, caching
from gpu.check import check_log
from gpu.decisions import Log
from gpu.report import markdown
from gpu.rivals import OURS
from gpu.shapes import Layout
from simulator.files.writing import write_whole

RESULTS = Path(__file__).parent / "results"
TESTS = Path(__file__).parent.parent / "tests"
TOTAL_S = 190
TEST_FILES = ("kernels", "pool", "check", "caching")
SHARDS = 8
CHECKED = Layout(kv_heads=2, head_dim=64)
BYTES_PER_TOKEN = 2 * 2**10 * 2  # of the tensors that grow without a pool: one layer, 8 kv heads of 128, fp16


class Suite:
    """One pass over the stages on one device. ``results`` is what goes into the JSON file."""

    def __init__(self, device: torch.device, logs: Sequence[Log], folder: Path = RESULTS, total_s: float = TOTAL_S):
        self.device, self.logs, self.folder = device, logs, folder
        self.begin_s = time.monotonic()
        self.end_s = self.begin_s + total_s
        self.results: dict[str, Any] = {"environment": bench.environment(device), "stages": {}}
        self._rows: list[bench.Row] = []

    def run(self) -> bool:
        """All stages. Whether none of them found an error; a missed bar of speed is a result, not an error."""
        stages = (self.bench_bars, self.check, self.caching, self.tests, self.bench_rest)
        good = True
        for stage in stages:
            name = stage.__name__
            if time.monotonic() > self.end_s:
                self._say(f"{name}: left out, no time was left")
                continue
            try:
                good = stage() and good
            except Exception as error:  # the stages behind it are worth having all the same
                self._say(f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
                good = False
            self.results["stages"][name] = round(time.monotonic() - self.begin_s, 1)
            self.write()
            self._say(f"{name}: ended at {self.results['stages'][name]} s")
        return good

    def bench_bars(self) -> bool:
        """Ceilings, and the kernel where there are bars."""
        self.results["ceilings_tb_per_s"] = bench.ceilings(self.device)
        self._say(f"ceilings (TB/s): {self.results['ceilings_tb_per_s']}")
        return self._time(bench.loads_with_bars(), until_s=self.begin_s + 0.5 * (self.end_s - self.begin_s))

    def bench_rest(self) -> bool:
        """Whatever of the table there is time for."""
        simulated = max((log.lengths() for log in self.logs), key=len, default=())
        return self._time(bench.other_loads(simulated), until_s=self.end_s)

    def check(self) -> bool:
        """Each log's decisions on device memory."""
        self.results["check"] = []
        if not self.logs:
            self._say("check: no decision log was given")
        for log in self.logs:
            check = check_log(log, CHECKED, 4 * CHECKED.kv_heads, self.device, self._say)
            self.results["check"].append(check.to_dict())
        return all(check["equal"] for check in self.results["check"])

    def caching(self) -> bool:
        """torch's caching allocator beside its model, for the requests of the first log without a pool."""
        if not self.logs:
            return True
        events = list(caching.events_of(self.logs[0].decisions, BYTES_PER_TOKEN))[:20_000]
        every = max(1, len(events) // 20)
        modelled, measured = caching.model(events, every), caching.measure_in_fresh_process(events, every)
        self.results["caching"] = {"events": len(events), "every": every, "model": modelled, "memory_stats": measured}
        worst = max(abs(m[name] - t[name]) for m, t in zip(modelled, measured, strict=True) for name in m)
        self._say(
            f"caching allocator: model and memory_stats differ by at most {worst} bytes in {len(measured)} samples"
        )
        return worst == 0

    def tests(self) -> bool:
        """The tests of kernels, pool, check and caching on the device."""
        if find_spec("pytest") is None:
            self._say("tests: left out, pytest is not installed")
            return True
        files = [str(TESTS / f"test_gpu_{name}.py") for name in TEST_FILES]
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "filterwarnings=default", *files]
        running = [
            subprocess.Popen(
                command, cwd=TESTS.parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=os.environ | {"KVFRAG_DEVICE": self.device.type, "KVFRAG_SHARD": f"{shard}/{SHARDS}"},
            )
            for shard in range(SHARDS)
        ]  # fmt: skip
        counts = dict.fromkeys(("passed", "failed", "skipped", "error", "cut off"), 0)
        for process in running:
            try:
                output = process.communicate(timeout=max(1.0, self.end_s - time.monotonic() - 10))[0]
            except subprocess.TimeoutExpired:
                process.kill()
                output = process.communicate()[0]
                counts["cut off"] += 1
            for number, outcome in re.findall(
                r"(\d+) (passed|failed|skipped|error)", " ".join(output.splitlines()[-1:])
            ):
                counts[outcome] += int(number)
            for line in re.findall(r"^(?:FAILED|ERROR) .*", output, re.MULTILINE):
                self._say(line)
        self.results["tests"] = counts
        self._say(f"tests: {counts}")
        return counts["passed"] > 0 and not (counts["failed"] or counts["error"])

    def write(self) -> None:
        """The results so far, as JSON and as a Markdown table."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^a-z0-9]+", "-", self.results["environment"]["device"].lower()).strip("-")
        self.results |= {"bench": [asdict(row) for row in self._rows], "bars": bench.bars(self._rows)}
        write_whole(self.folder / f"{name}.json", (dumps(self.results, indent=1) + "\n").encode())
        write_whole(self.folder / f"{name}.md", markdown(self.results).encode())

    def _time(self, plans: bench.Plans, until_s: float) -> bool:
        good = True
        for row in bench.rows(plans, self.device, self.results["ceilings_tb_per_s"]["copy"], until_s):
            self._rows.append(row)
            self._say(str(row))
            good = good and not (row.implementation.startswith(OURS) and row.note.startswith(("wrong", "refused")))
        return good

    def _say(self, text: str) -> None:
        print(text, flush=True)
