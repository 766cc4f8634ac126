"""The PagedAttention paper's Figure 2 (Kwon et al., SOSP 2023), simulated and beside what was measured there.

OPT-13B on one A100-40GB has 12 GiB for the KV cache: 15,728 slots, 983 blocks of 16. Requests with ShareGPT's
lengths arrive at 4 a second, more than any of the allocators can take; the window is 300 to 900 s. The three Orca
baselines are a buddy allocator under three reservation rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from allocators.base import Allocator
from allocators.buddy import Buddy
from allocators.paged import Paged
from simulator.replay import simulate
from simulator.results.run import Run
from simulator.results.views import view_shares
from simulator.server.cache import slots_for
from simulator.server.cost import StepCost, parse_bytes
from simulator.server.models import load_model
from simulator.server.settings import SettingsFields
from simulator.traces.trace import Trace

MAX_MODEL_LEN = 2048
CAPACITY_SLOTS = slots_for(parse_bytes("12GiB"), load_model("opt-13b"))
SETTINGS = SettingsFields(
    cost=StepCost(base="25ms", prefill_token="100us", sequence="200us", kv_token="0"),
    max_model_len=MAX_MODEL_LEN,
    max_batch=256,
    max_batch_tokens=2560,
    window_s=(300, 900),
)

PAPER: dict[str, dict[str, float]] = {
    "Orca (Max)": {"token states": 20.4, "reservation": 13.3, "internal": 57.3, "external & others": 8.9},
    "Orca (Pow2)": {"token states": 26.8, "reservation": 17.9, "internal": 13.6, "external & others": 41.6},
    "Orca (Oracle)": {"token states": 38.2, "reservation": 25.2, "internal": 0.0, "external & others": 36.6},
    "vLLM (paged)": {"token states": 96.3},
}
"""Percent of the pool, as printed in the figure; for vLLM it gives only the token states."""

ALLOCATORS: dict[str, Callable[[], Allocator]] = {
    "Orca (Max)": lambda: _buddy("max"),
    "Orca (Pow2)": lambda: _buddy("pow2"),
    "Orca (Oracle)": lambda: _buddy("oracle"),
    "vLLM (paged)": lambda: Paged(CAPACITY_SLOTS, block_size=16, watermark="0.01"),
}


def _buddy(reserve: str) -> Buddy:
    return Buddy(CAPACITY_SLOTS, reserve, min_block=16, max_block=MAX_MODEL_LEN, max_model_len=MAX_MODEL_LEN)


@dataclass(frozen=True)
class Bar:
    """One allocator of the figure, over several seeds. It can be drawn like a run: the mean of its runs."""

    name: str
    runs: tuple[Run, ...]

    def percents(self) -> pd.DataFrame:
        """The paper's categories in percent of the pool, a row a seed."""
        shares = [view_shares(run.summary()["share"], "paper") for run in self.runs]
        return pd.DataFrame(shares) * 100

    def summary(self) -> dict[str, Any]:
        """The mean share of each category of the ledger."""
        return {"share": pd.DataFrame([run.summary()["share"] for run in self.runs]).mean().to_dict()}

    @property
    def capacity(self) -> int:
        """Slots."""
        return CAPACITY_SLOTS

    @property
    def timeline(self) -> pd.DataFrame:
        """The first seed's."""
        return self.runs[0].timeline


def workload(seed: int) -> Trace:
    """ShareGPT's lengths with prompt + output < 2048, at 4 requests a second for 900 s."""
    return Trace.workload("sharegpt", rate=4.0, duration_s=900, seed=seed, max_total=MAX_MODEL_LEN - 1)


def figure2(seeds: Sequence[int], on_run: Callable[[], object] = lambda: None) -> list[Bar]:
    """Simulate the figure for each seed. ``on_run`` is called whenever a run ends."""
    runs: dict[str, list[Run]] = {name: [] for name in ALLOCATORS}
    for seed in seeds:
        trace = workload(seed)
        for name, make in ALLOCATORS.items():
            runs[name].append(simulate(trace, make(), progress=False, **SETTINGS))
            on_run()
    return [Bar(name, tuple(several)) for name, several in runs.items()]
