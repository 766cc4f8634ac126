"""When each iteration of a run ran, from its decision log: exact, although the log has only those with a decision."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.results.record import Record

_MOST_PS = 2.0**62  # beyond it times are computed in Python's integers

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Clock:
    """The iterations of ``run``, which has the decision log ``log`` and ends at ``end_s``."""

    def __init__(self, run: Record, log: pd.DataFrame, end_s: float) -> None:
        self.run, self.log, self.end_s = run, log, end_s

    def iterations(self, times_s: Sequence[float] | Floats) -> Ints:
        """The iteration that runs at each of these times, from 0; -1 in a gap and behind the end."""
        times = np.asarray(times_s, float)
        found = np.full(len(times), -1, np.int64)
        columns = [self.anchors[name].tolist() for name in ("iteration", "time_s", "running", "used", "first_ps")]
        anchors = list(zip(*columns, strict=True))
        rows = np.searchsorted(columns[1], times, "right") - 1
        cost = self.run.settings.cost
        for place, (row, time_s) in enumerate(zip(rows.tolist(), times.tolist(), strict=True)):
            if row < 0 or time_s >= self.end_s or not anchors[row][2]:
                continue
            iteration, since_s, batch, used, first_ps = anchors[row]
            slack_ps = 0.5 + 2e12 * float(np.spacing(time_s))  # what a time in seconds is rounded by
            left_ps = (time_s - since_s) * 1e12 - first_ps + slack_ps
            if left_ps >= 0:
                step_ps = cost.kv_token * batch
                iteration += 1 + _whole_steps(
                    left_ps, cost.base + cost.sequence * batch + step_ps + cost.kv_token * used, step_ps
                )
            after = anchors[row + 1][0] if row + 1 < len(anchors) else self.run.counts["iterations"]
            found[place] = min(iteration, after - 1)
        return found

    @cached_property
    def anchors(self) -> pd.DataFrame:
        """What runs from each time of decisions on: iteration, time_s, running, used (its first iteration's token
        states), first_ps (how long that takes)."""
        log = self.log[self.log["index"] <= 0]
        admits = log["kind"] == "admit"
        ends = log["kind"].isin(["finish", "preempt"])
        first = np.zeros(len(self.run.requests), np.int64)
        # What is written of a batch in iteration i is the sum of (tokens - first iteration) of each, plus i for each.
        weights = []
        kinds, requests = log["kind"].tolist(), log["request"].tolist()
        for kind, request, value in zip(kinds, requests, (log["tokens"] - log["iteration"]).tolist(), strict=True):
            if kind == "admit":
                first[request] = value
            weights.append({"admit": first[request], "grow": 0}.get(kind, -first[request]))
        rows = pd.DataFrame(
            {
                "iteration": log["iteration"].to_numpy(),
                "time_s": log["time_s"].to_numpy(),
                "running": (admits.astype(int) - ends.astype(int)).to_numpy().cumsum(),
                "weight": np.cumsum(weights),
                "prefill": np.where(admits, log["tokens"], 0),
            }
        )
        moved = rows.groupby("time_s", sort=False)["prefill"].sum()
        anchors = rows.drop_duplicates("time_s", keep="last").reset_index(drop=True)
        anchors["used"] = anchors["weight"] + anchors["running"] * anchors["iteration"]
        anchors["first_ps"] = self._first_ps(anchors, moved.to_numpy())
        return anchors

    def _first_ps(self, anchors: pd.DataFrame, prefilled: Ints) -> Floats:
        """How long the first iteration behind each anchor takes: what the others leave of the time to the next one.

        Behind the last anchor it is what its prefill costs: nobody knows there what was swapped.
        """
        cost = self.run.settings.cost
        batch, used = anchors["running"].to_numpy(), anchors["used"].to_numpy()
        count = np.diff(anchors["iteration"].to_numpy())
        longest, most, states = (float(values.max(initial=0)) for values in (count, batch, used))
        step_ps = cost.kv_token * most * longest
        if longest * (cost.base + cost.sequence * most + cost.kv_token * states + step_ps) > _MOST_PS:
            batch, used, count = (values.astype(object) for values in (batch, used, count))
        alone = cost.base + cost.sequence * batch + cost.kv_token * used
        expected: Floats = (alone + cost.prefill_token * prefilled).astype(float)
        later = (count - 1) * (alone[:-1] + cost.kv_token * batch[:-1])
        later = later + cost.kv_token * batch[:-1] * ((count - 1) * (count - 2) // 2)
        expected[:-1] = np.where(count > 0, np.diff(anchors["time_s"]) * 1e12 - later, expected[:-1])
        return expected


def _whole_steps(time_ps: float, first_ps: float, step_ps: float) -> int:
    """How many iterations end within ``time_ps``, the first of them ``first_ps`` long and each ``step_ps`` longer."""
    if step_ps == 0:
        return int(time_ps // first_ps) if first_ps else 0
    slope = 2 * first_ps - step_ps
    return int((np.sqrt(slope * slope + 8 * step_ps * time_ps) - slope) // (2 * step_ps))
