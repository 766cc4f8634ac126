"""What is worth a word about runs is said with the right counts, and nothing else is."""

from dataclasses import replace
from pathlib import Path

import pytest

from allocators import Paged
from simulator import Run, Trace, simulate, sweep
from simulator.results.run_notes import all_warnings, merged, table_warnings

TRACE = Trace.from_columns([0, 1, 2, 3], [10, 200, 50, 30], [5, 6, 1, 90])


def test_a_run_that_serves_everyone_has_no_warnings() -> None:
    assert simulate(TRACE, Paged(400), max_model_len=300, max_batch_tokens=200).warnings == ()


def test_rejected_requests_are_counted_by_reason() -> None:
    run = simulate(TRACE, Paged(64), max_model_len=65)
    reasons = "2 longer than max_model_len"
    assert run.warnings == (f"2 of 4 requests rejected, and in no other figure: {reasons}",)
    both = simulate(TRACE, Paged(48), max_model_len=190)
    assert both.warnings[0].endswith(": 1 longer than max_model_len, 2 more than the empty pool can hold")
    assert both.summary()["warnings"] == list(both.warnings)


@pytest.mark.parametrize(("slots", "small"), [(3_664, True), (4_080, True), (4_096, False)])
def test_a_pool_below_max_model_len_is_said(slots: int, small: bool) -> None:
    told = "the pool is too small for max_model_len: a request of 4,096 tokens does not fit in"
    assert simulate(TRACE, Paged(slots), max_model_len=4_096).warnings == (
        (f"{told} {slots:,} slots, even alone",) if small else ()
    )


def test_prompts_over_the_token_budget_are_counted_and_what_it_means_is_told() -> None:
    run = simulate(TRACE, Paged(400), max_batch_tokens=49)
    assert run.prompts_over_budget() == run.summary()["prompts_over_budget"] == 2
    (told,) = run.warnings
    assert told.startswith("2 prompts are longer than max_batch_tokens: such a request is admitted only when no other")
    # It is so: the long ones run alone, and those after them wait.
    long = Trace.from_columns([0, 1, 2], [10, 200, 10], [50, 5, 5])
    alone = simulate(long, Paged(400), max_batch_tokens=100)
    assert alone.requests["admitted_s"][1] >= alone.requests["finished_s"][0]
    assert alone.requests["admitted_s"][2] > alone.requests["admitted_s"][1]
    assert simulate(TRACE, Paged(400), max_batch_tokens=100).warnings[0].startswith("1 prompt is longer")
    # A request that is rejected waits for nothing.
    assert simulate(TRACE, Paged(400), max_batch_tokens=100, max_model_len=150).prompts_over_budget() == 0


def test_a_window_after_the_end_is_said() -> None:
    assert simulate(TRACE, Paged(400), window_s=(500, 600)).warnings == (
        "the run was over before the window began; nothing was measured",
    )


def test_several_runs_say_what_they_share_once_and_what_they_do_not_by_name() -> None:
    runs = [simulate(TRACE, Paged(slots), max_batch_tokens=100) for slots in (400, 128)]
    shared, own = runs[0].warnings[0], "3 prompts"
    assert all_warnings(runs[:1]) == [shared]
    told = all_warnings(runs)
    assert own not in told
    assert told == [
        f"paged:block_size=16,watermark=0: {shared}",
        f"paged:block_size=16,watermark=0: {runs[1].warnings[0]}",
        "not all rejected the same requests, and their figures are of different work; rejected were: "
        "paged:block_size=16,watermark=0 0, paged:block_size=16,watermark=0 1",
    ]


def test_the_same_number_of_other_requests_is_told_too() -> None:
    first, second = (simulate(TRACE, Paged(400), max_model_len=limit) for limit in (206, 206))
    assert all_warnings([first, second]) == []
    status = second.requests["status"].copy()
    one = replace(first, requests=first.requests.assign(status=status.where(status.index != 0, "too_long")))
    other = replace(first, requests=first.requests.assign(status=status.where(status.index != 1, "too_long")))
    assert len(all_warnings([one, other])) == 1


def test_merged_keeps_the_order_and_says_nothing_twice() -> None:
    assert merged([]) == []
    assert merged([("a", ["x", "y"]), ("b", ["y", "z", "z"])]) == ["y", "a: x", "b: z"]


def test_warnings_are_saved_with_a_run(tmp_path: Path) -> None:
    run = simulate(TRACE, Paged(64), max_model_len=65, model="llama-3-8b")
    run.save(tmp_path / "run")
    again = Run.load(tmp_path / "run")
    assert again.warnings == run.warnings and len(run.warnings) == 2
    assert again.settings.cost.of == "Llama-3-8B on one H100, from peak rates (assumed)"


def test_a_sweep_says_it_of_all_its_rows() -> None:
    table = sweep(TRACE, "paged", capacity="64,400", max_batch_tokens=100, max_model_len=207, workers=1)
    assert table["prompts_over_budget"].tolist() == [0, 1]
    assert (
        table.attrs["warnings"]
        == table_warnings(table)
        == [
            "1 of 2 runs rejected requests, up to 2; see rejected_too_long and rejected_never_fits",
            "not all runs rejected the same requests, and their figures are of different work",
            "in 1 of 2 runs the pool is smaller than max_model_len",
            "in 1 of 2 runs up to 1 prompt is longer than max_batch_tokens: such a request is admitted only when no "
            "other runs, and all that arrive after it wait until then; see prompts_over_budget",
        ]
    )
    assert sweep(TRACE, "paged", capacity=400, workers=1).attrs["warnings"] == []
    assert sweep(TRACE, "paged", capacity=9, workers=1).attrs["warnings"] == []  # it failed
