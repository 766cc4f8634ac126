"""What the check and the suite tell people, in plain text: a GPU machine may have no library for tables."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from allocators.base import InputError

CHECK_HEADER = (
    f"{'time (s)':>10} {'running':>8} {'used':>8} {'counted':>8} {'held':>8} {'used %':>7} {'counted %':>9}"
    f" {'attention':>10}"
)


@dataclass(frozen=True)
class Row:
    """One sample, both sides: slots by the ledger and by the scan, shares of the capacity, the worst relative error
    of attention (0 with nothing running), and how many differences were found."""

    time_s: float
    running: int
    used: int
    counted: int
    held: int
    utilization: float
    counted_utilization: float
    attention_error: float
    differences: int

    def to_dict(self) -> dict[str, Any]:
        """The row for ``--json``, which has no word for a NaN in the attention: there the error is null."""
        row = asdict(self)
        return row if math.isfinite(self.attention_error) else row | {"attention_error": None}


def check_line(row: Row) -> str:
    """A row under CHECK_HEADER, with a ! at its end where the two sides differ."""
    return (
        f"{row.time_s:10.3f} {row.running:8} {row.used:8} {row.counted:8} {row.held:8}"
        f" {100 * row.utilization:7.2f} {100 * row.counted_utilization:9.2f} {row.attention_error:10.1e}"
        f"{' !' * (row.differences > 0)}"
    )


def recorded_checks(folder: Path) -> list[dict[str, Any]]:
    """What ``make gpu`` recorded of its checks: a row a device and allocator, none where nothing was recorded.

    Slots used and counted are sums over the samples; ``attention_error`` is the worst, None where it was no number.
    Raises InputError for a file that is no such record.
    """
    rows = []
    for path in sorted(folder.glob("*.json")):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
            for check in results.get("check", []):
                samples = check["samples"]
                errors = [sample["attention_error"] for sample in samples]
                rows.append(
                    {
                        "device": results["environment"]["device"],
                        "allocator": check["allocator"],
                        "samples": len(samples),
                        "used": sum(sample["used"] for sample in samples),
                        "counted": sum(sample["counted"] for sample in samples),
                        "equal": check["equal"],
                        "attention_error": None if None in errors else max(errors, default=None),
                    }
                )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is not a record of make gpu: {type(error).__name__} {error}") from None
    return rows


def markdown(results: dict[str, Any]) -> str:
    """The table for the README: what it ran on, the bars, and every row that was timed or says why not."""
    where = results["environment"]
    lines = [
        ", ".join(f"{name} {value}" for name, value in where.items()) + ".",
        " ".join(f"{name} {speed:.2f} TB/s." for name, speed in results.get("ceilings_tb_per_s", {}).items()),
        "", "| load | block size | implementation | median µs | p10 | p90 | TB/s | % of copy | error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in results["bench"]:
        numbers = [row[name] for name in ("median_us", "p10_us", "p90_us", "tb_per_s", "percent_of_copy", "error")]
        forms = ("{:.1f}", "{:.1f}", "{:.1f}", "{:.3f}", "{:.1f}", "{:.1e}")
        cells = [form.format(number) for form, number in zip(forms, numbers, strict=True) if number is not None]
        cells = cells if not row["note"] else [row["note"].replace("|", "/"), *[""] * 5]
        lines.append(f"| {row['load']} | {row['block_size']} | {row['implementation']} | {' | '.join(cells)} |")
    lines += ["", "| bar | measured | met |", "|---|---|---|"]
    for bar in results["bars"]:
        measured = "not measured" if bar["measured"] is None else f"{bar['measured']:.1f}"
        lines.append(f"| {bar['bar']} | {measured} | {'yes' if bar['met'] else 'no'} |")
    return "\n".join(lines) + "\n"
