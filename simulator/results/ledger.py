"""Where a slot can be, by name (docs/semantics.md, 4), and the exact integrals of a run from the sums of its bins."""

from typing import Any

from numpy.typing import NDArray

from simulator.engine.bins import SUMS

CATEGORIES = ("used", "reservation", "overprovision", "rounding", "external", "residual", "idle")
"""Where a slot can be. In every iteration they sum to the capacity."""

SATURATED = tuple(f"saturated_{category}" for category in CATEGORIES)
"""The categories again, over the iterations with a refusal only."""

INTEGRALS = (*CATEGORIES, *SATURATED, "iteration_ps", "saturated_ps", "external_ps", "running", "largest")
"""What is integrated over time: slots (or requests) times picoseconds; those in ``_ps`` are times."""


def integrals_of(sums: NDArray[Any], tail_slots: int) -> dict[str, list[int]]:
    """For each of INTEGRALS an int per bin, from exact sums of shape (bins, groups, sums), see ``engine.bins``."""
    idle, refused, external = (dict(zip(SUMS, sums[:, group].T, strict=True)) for group in range(3))
    saturated = {name: refused[name] + external[name] for name in SUMS}
    total = {name: idle[name] + saturated[name] for name in SUMS}
    tail = tail_slots * external["time"]
    free = {"external": external["free"] - tail, "residual": refused["free"] + tail}
    integrals: dict[str, NDArray[Any]] = {}
    for prefix, part, idle_free in (("", total, idle["free"]), ("saturated_", saturated, 0 * tail)):
        held = {name: part[name] for name in ("used", "overprovision", "rounding")}
        categories = held | free | {"reservation": part["covered"] - part["used"], "idle": idle_free}
        integrals |= {prefix + name: categories[name] for name in CATEGORIES}
    times = (total["iteration"], saturated["time"], external["time"], total["running"], total["largest"])
    integrals |= dict(zip(INTEGRALS[len(integrals) :], times, strict=True))
    return {name: values.tolist() for name, values in integrals.items()}
