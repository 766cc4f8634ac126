"""``make bench``: how fast a large trace is read, and in how much memory. Prints Markdown.

The file has the shape of the Azure 2024 week: 27 million rows, 1.1 GB. It is written to the temporary folder and
removed. ``KVFRAG_BENCH_ROWS`` asks for another number of rows.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from simulator import Trace
from simulator.traces.statistics import describe

ROWS = 27_000_000
WEEK_US = 7 * 86_400 * 10**6
_ROWS_AT_ONCE = 500_000


def write_week(path: Path, rows: int) -> None:
    """A CSV as Azure's of 2024: dates with six digits of a second, or none where it is whole, and a UTC offset."""
    generator = np.random.default_rng(0)
    now = np.datetime64("2024-05-10T00:00:00", "us").astype(np.int64)
    with path.open("w", newline="") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for first in range(0, rows, _ROWS_AT_ONCE):
            some = min(_ROWS_AT_ONCE, rows - first)
            times = now + np.cumsum(generator.exponential(WEEK_US / ROWS, some)).astype(np.int64)
            now = times[-1]
            dates = [
                date.replace("T", " ").removesuffix(".000000") for date in times.astype("M8[us]").astype(str).tolist()
            ]
            tokens = (generator.integers(1, most, some).tolist() for most in (8_000, 900))
            file.write("".join(f"{d}+00:00,{p},{g}\n" for d, p, g in zip(dates, *tokens, strict=True)))


def measure(path: str) -> None:
    """Read the file in this process and print a row of the table."""
    start = time.perf_counter()
    trace = Trace.read(path)
    taken = time.perf_counter() - start
    describe(trace)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"| {len(trace):,} | {Path(path).stat().st_size / 1e9:.2f} | {len(trace) / taken:,.0f} | {peak:.2f} |")


def main() -> None:
    """Write the file, read it in a process of its own, remove it."""
    if sys.argv[1:]:
        measure(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "week.csv"
        write_week(path, int(os.environ.get("KVFRAG_BENCH_ROWS", ROWS)))
        print("\nReading an Azure 2024 week, one core\n")
        print("| rows | GB | rows/s | peak memory, GiB |\n|---|---|---|---|", flush=True)
        subprocess.run([sys.executable, __file__, str(path)], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
