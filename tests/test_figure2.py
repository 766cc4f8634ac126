"""The PagedAttention paper's Figure 2 comes out: the mean of five seeds within 2 points, each seed within 3.5."""

import numpy as np
import pytest

from simulator.examples import figure2
from simulator.examples.figure2 import ALLOCATORS, CAPACITY_SLOTS, PAPER, SETTINGS, Bar, workload
from simulator.results.ledger import CATEGORIES
from simulator.results.views import VIEWS

SEEDS = 5
ended: list[None] = []


@pytest.fixture(scope="module")
def bars() -> dict[str, Bar]:
    return {bar.name: bar for bar in figure2.figure2(range(SEEDS), lambda: ended.append(None))}


def test_the_setting_is_that_of_the_paper() -> None:
    assert CAPACITY_SLOTS == 15_728
    assert CAPACITY_SLOTS // 16 == 983
    assert {name: make().spec for name, make in ALLOCATORS.items()} == {
        "Orca (Max)": "buddy:reserve=max,min_block=16,max_block=2048,split=smallest",
        "Orca (Pow2)": "buddy:reserve=pow2,min_block=16,max_block=2048,split=smallest",
        "Orca (Oracle)": "buddy:reserve=oracle,min_block=16,max_block=2048,split=smallest",
        "vLLM (paged)": "paged:block_size=16,watermark=0.01",
    }
    assert {make().capacity for make in ALLOCATORS.values()} == {CAPACITY_SLOTS}
    assert str(SETTINGS["cost"]) == "base=25ms,prefill_token=100us,sequence=200us,kv_token=0,swapped_token=0"
    rest = {name: value for name, value in SETTINGS.items() if name != "cost"}
    assert rest == {"max_model_len": 2048, "max_batch": 256, "max_batch_tokens": 2560, "window_s": (300, 900)}


def test_the_load_is_that_of_the_paper() -> None:
    trace = workload(3)
    assert trace.name == "sharegpt:rate=4,duration=900,seed=3,max_total=2047"
    assert (trace.prompt_tokens + trace.output_tokens).max() < 2048
    assert len(trace) / 900 == pytest.approx(4, rel=0.1)
    assert trace.sha256 != workload(4).sha256
    assert trace.sha256 == workload(3).sha256


@pytest.mark.parametrize("name", PAPER)
def test_every_number_is_near_the_papers(name: str, bars: dict[str, Bar]) -> None:
    percents = bars[name].percents()
    assert list(percents) == list(VIEWS["paper"])
    assert len(percents) == SEEDS
    for part, printed in PAPER[name].items():
        assert abs(percents[part].mean() - printed) < 2, part
        assert (percents[part] - printed).abs().max() < 3.5, part
    assert percents.sum(axis=1).to_numpy() == pytest.approx(np.full(SEEDS, 100))


def test_orca_max_runs_seven_and_leaves_87_blocks(bars: dict[str, Bar]) -> None:
    for run in bars["Orca (Max)"].runs:
        figures = run.summary()
        assert figures["peak_batch"] == 7
        assert figures["mean_batch"] == pytest.approx(7, abs=1e-3)
        # 983 - 7 x 128 = 87 blocks, of the whole pool.
        assert figures["share_saturated"]["residual"] == pytest.approx(87 * 16 / CAPACITY_SLOTS, abs=1e-12)
        assert round(100 * figures["share_saturated"]["residual"], 2) == 8.85
        assert figures["saturated_s"] > 595  # now and then it is max_batch_tokens that the next one waits for


def test_all_runs_of_a_seed_have_the_same_requests(bars: dict[str, Bar]) -> None:
    assert list(bars) == list(PAPER) == list(ALLOCATORS)
    assert len(ended) == SEEDS * len(ALLOCATORS)
    for seed in range(SEEDS):
        assert {bar.runs[seed].trace.sha256 for bar in bars.values()} == {workload(seed).sha256}
        assert {bar.runs[seed].summary()["duration_s"] for bar in bars.values()} == {600}


def test_a_bar_is_drawn_as_the_mean_of_its_runs(bars: dict[str, Bar]) -> None:
    bar = bars["Orca (Pow2)"]
    share = bar.summary()["share"]
    assert list(share) == list(CATEGORIES)
    for category in CATEGORIES:
        assert share[category] == pytest.approx(np.mean([run.summary()["share"][category] for run in bar.runs]))
    assert bar.capacity == CAPACITY_SLOTS
    assert bar.timeline is bar.runs[0].timeline
