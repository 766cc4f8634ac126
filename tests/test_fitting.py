"""How many fit at once: what must come out where it can be counted by hand, and what lengths alone say of the rest."""

from typing import Any

import numpy as np
import pytest

from allocators import InputError, Paged, make_allocator
from simulator import StepCost, Trace, advise, fit, simulate
from simulator.answers.fitting import ALLOCATORS, FILLS, backlog, count_longest

LIMIT = 2048


@pytest.fixture(scope="module")
def sharegpt() -> Trace:
    return backlog("sharegpt", 30_000, LIMIT)


def alike(prompt: int, output: int, count: int = 3000) -> Trace:
    return Trace.from_columns([0] * count, [prompt] * count, [output] * count)


@pytest.mark.parametrize(
    ("spec", "prompt", "output", "expected"),
    [
        ("contiguous:reserve=max", 10, 30, 1000 // 50),
        ("contiguous:reserve=oracle", 10, 30, 1000 // 39),
        ("contiguous:reserve=pow2", 10, 30, 1000 // (10 + 32 - 1)),
        ("buddy:reserve=oracle", 10, 30, 512 // 64 + 256 // 64 + 128 // 64 + 64 // 64),
        ("paged:block_size=16", 20, 1, 62 // 2),
        ("paged:block_size=1", 20, 1, 1000 // 20),
        ("paged:block_size=1,watermark=0.1", 20, 1, 900 // 20),
    ],
)
def test_requests_that_are_all_alike_are_counted_by_hand(spec: str, prompt: int, output: int, expected: int) -> None:
    found = fit(alike(prompt, output), spec, 1000, 50)
    assert found.mean == pytest.approx(expected, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((expected, expected))


@pytest.mark.parametrize("spec", ALLOCATORS)
def test_what_a_running_request_has_written_is_the_mean_over_all_iterations(spec: str, sharegpt: Trace) -> None:
    """Whoever looks at a full pool sees long requests more often: each as often as it has iterations."""
    found = fit(sharegpt, spec, 30_000, LIMIT)
    lengths = advise(sharegpt, [16]).table.loc[16]
    written = lengths["table_mean"] * 16 - lengths["lost_slots"]
    assert found.written_slots == pytest.approx(written, rel=0.05)
    if spec.startswith("paged"):
        assert found.held_slots == pytest.approx(lengths["table_mean"] * 16, rel=0.05)
        assert found.mean == pytest.approx(30_000 / (lengths["table_mean"] * 16), rel=0.06)


def test_neither_the_beginning_nor_the_end_counts(sharegpt: Trace) -> None:
    """The same from a window of the run; from its beginning on, when all are young, the mean is another."""
    settings: dict[str, Any] = {"cost": StepCost("1s", "0", "0"), "max_model_len": LIMIT}
    last_s = simulate(sharegpt, Paged(30_000), **settings).requests["admitted_s"].max()
    means = [
        simulate(sharegpt, Paged(30_000), window_s=(start_s, last_s), **settings).summary()["mean_batch"]
        for start_s in (last_s / 4, 0)
    ]
    assert fit(sharegpt, "paged", 30_000, LIMIT).mean == pytest.approx(means[0], rel=1e-3)
    assert means[1] != pytest.approx(means[0], rel=5e-3)


@pytest.mark.parametrize("spec", [*ALLOCATORS, "contiguous:reserve=oracle"])
def test_the_parts_of_the_pool_sum_to_it(spec: str, sharegpt: Trace) -> None:
    found = fit(sharegpt, spec, 30_000, LIMIT)
    assert sum(found.share.values()) == pytest.approx(1, rel=1e-12)
    free = sum(found.share[part] for part in ("external", "residual", "idle"))
    assert found.mean * found.held_slots == pytest.approx(30_000 * (1 - free))
    assert found.low <= found.mean <= found.high
    assert found.share["idle"] < 0.01  # somebody always waits


def test_the_answer_hardly_depends_on_the_draw() -> None:
    means = [fit(backlog(f"sharegpt:seed={seed}", 30_000, LIMIT), "paged", 30_000, LIMIT).mean for seed in range(4)]
    assert np.std(means) < 0.04 * np.mean(means)


@pytest.mark.parametrize("capacity", [100, 1000, 4097])
@pytest.mark.parametrize("limit", [2, 17, 64, 100])
def test_at_worst_is_what_division_says(capacity: int, limit: int) -> None:
    final = limit - 1
    power = 1 << (final - 1).bit_length()
    arenas = [1 << k for k in range(capacity.bit_length()) if capacity >> k & 1]
    expected = {
        "contiguous:reserve=max": capacity // limit,
        "contiguous:reserve=oracle": capacity // final,
        "contiguous:reserve=pow2": capacity // min(power, limit),
        "buddy:reserve=oracle": sum(arena // power for arena in arenas),
        "paged:block_size=16": capacity // 16 // -(-final // 16),
        "paged:block_size=1": capacity // final,
    }
    assert expected == {spec: count_longest(make_allocator(spec, capacity, limit), limit) for spec in expected}


def test_a_backlog_fills_the_pool_over_and_over_with_lengths_within_the_limit() -> None:
    drawn = backlog("azure-conv:seed=3", 200_000, 1000)
    total = drawn.prompt_tokens + drawn.output_tokens
    assert total.max() <= 1000
    assert (total - 1).sum() == pytest.approx(FILLS * 200_000, rel=0.05)
    assert not drawn.arrival_ns.any()
    assert drawn.name.startswith("azure-conv:requests=")
    assert drawn.sha256 == backlog("azure-conv:rate=9,seed=3", 200_000, 1000).sha256
    assert len(backlog("azure-conv:requests=77", 200_000, 1000)) == 77
    assert (
        backlog("sharegpt", 1000, 10**6).prompt_tokens + backlog("sharegpt", 1000, 10**6).output_tokens
    ).max() < 2048


def test_a_trace_may_be_the_workload(tmp_path: Any) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n0,20,6\n")
    drawn = backlog(str(path), 1000, 100)
    assert set(zip(drawn.prompt_tokens.tolist(), drawn.output_tokens.tolist(), strict=True)) == {(10, 5), (20, 6)}


def test_who_never_fits_is_left_out_and_counted() -> None:
    mixed = Trace.from_columns([0] * 2000, [10, 300] * 1000, [10] * 2000)
    found = fit(mixed, "contiguous:reserve=oracle", 190)
    assert (found.mean, found.never_fits, found.all_longest) == (10, 1000, 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((alike(10, 10, 5), "paged", 1000), r"columns: too few requests \(5 that fit\) to keep 1,000 slots full"),
        ((alike(100, 10), "paged", 50), r"no request fits in 50 slots at all \(0 too_long, 3,000 never_fits\)"),
        ((alike(10, 10), "contiguous", 50, 60), r"max_model_len\(=60\) must be <= 50"),
        ((alike(10, 10), "paged", 50, 1), r"max_model_len\(=1\) must be a whole number >= 2"),
    ],
)
def test_what_is_wrong_is_told(arguments: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        fit(*arguments)


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        ("nope", "unknown workload 'nope'; choose from sharegpt"),
        ("sharegpt:speed=1", "unknown option 'speed'"),
        ("sharegpt:seed", "must read key=value"),
        ("sharegpt:requests=0", "requests"),
    ],
)
def test_what_is_wrong_with_a_workload_is_told(workload: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        backlog(workload, 1000, 100)
