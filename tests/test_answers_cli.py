"""``kvfrag size``, ``fit`` and ``advise``: what is wrong is told in one line; tables, reasons and JSON say the same."""

import json
import re
from pathlib import Path

import pytest

from simulator import Trace, advise, fit, size
from simulator.__main__ import INPUT_WRONG
from simulator.answers.fitting import ALLOCATORS, backlog
from simulator.cli.tables.answers_report import compared
from test_cli import Kvfrag, content
from test_cli import folder as folder
from test_cli import kvfrag as kvfrag

SIZE = "size good.csv -a paged:block_size=4 --max-refused 1%"
FIT = "fit --workload sharegpt --max-model-len 512 --capacity 2000"
LOAD = "sharegpt:rate=8,duration=20"

BAD: list[tuple[str, ...]] = [
    ("size", "TRACE", "kvfrag size --help"),
    ("size good.csv --max-refused 1%", "which allocator? -a SPEC (--allocator)"),
    ("size good.csv -a paged", "--max-refused, such as 1%", "--max-wait-p99, such as 2s"),
    ("size good.csv -a paged --max-refused 1", "--max-refused(='1')", "from 0 to below 1, such as 1% or 0.01"),
    ("size good.csv -a paged --max-refused -1%", "--max-refused(='-1%')"),
    ("size good.csv -a paged --max-wait-p99 2", "--max-wait-p99(='2')", "ps, ns, us, ms, s"),
    (f"{SIZE} --checks few", "'--checks'", "'few'", "whole number"),
    (f"{SIZE} --checks -1", "--checks(=-1)", ">= 0"),
    (f"{SIZE} -a pagd", "-a pagd", "unknown allocator 'pagd'"),
    (f"{SIZE} -a contiguous", "max_model_len(=None)", "reserve=max"),
    (f"{SIZE} -a buddy:reserve=oracle,max_block=8", "some request fits in no pool"),
    (f"{SIZE} --max-model-len 2", "no request of good.csv is within max_model_len(=2)"),
    (f"{SIZE} --model nope", "unknown model 'nope'"),
    (f"{SIZE} --gpu H100", "--gpu needs --model"),
    (f"{SIZE} --window 500 600", "window(=500.0 600.0)"),
    (f"{SIZE} --capacity 5", "--capacity"),
    (f"{SIZE} --json none/x.json", "--json(=none/x.json)", "no folder none"),
    (f"{SIZE} --json good.csv", "an input, good.csv"),
    ("size none.csv -a paged --max-refused 1%", "none.csv", "neither a file nor a workload"),
    (
        "size good.csv -a paged --max-wait-p99 1us --max-batch 1 --cost base=9s",
        "that 99 % wait at most 1us is out of reach for paged",
    ),
    ("fit", "--workload", "kvfrag fit --help"),
    ("fit --workload sharegpt --capacity 2000", "--max-model-len"),
    ("fit --workload sharegpt --max-model-len 512", "--capacity SLOTS", "--memory SIZE with --model NAME"),
    ("fit --workload nope --max-model-len 512 --capacity 2000", "unknown workload 'nope'"),
    (f"{FIT} -a contiguous -a pagd", "unknown allocator 'pagd'"),
    ("fit --workload sharegpt --max-model-len 512 --capacity 500", "max_model_len(=512) must be <= 500"),
    ("fit --workload sharegpt --max-model-len 1 --capacity 500 -a paged", "max_model_len(=1)", ">= 2"),
    ("fit --workload sharegpt:requests=9 --max-model-len 512 --capacity 2000 -a paged", "too few requests"),
    (f"{FIT} --memory 1GiB --model opt-13b", "--capacity", "--memory"),
    (f"{FIT} --json folder", "--json(=folder)", "directory"),
    ("fit --workload good.csv --max-model-len 50 --capacity 2000 --json good.csv", "an input, good.csv"),
    ("advise", "TRACE"),
    ("advise good.csv --within 2", "--within(='2')"),
    ("advise good.csv --max-batch 5", "--max-batch is for a replay, which needs a pool"),
    ("advise good.csv --model opt-13b", "--model is for a replay", "--memory and --model"),
    ("advise good.csv --memory 1GiB", "--memory needs --model"),
    ("advise good.csv --capacity 2", "no request of good.csv fits in 2 slots, not even alone"),
    ("advise good.csv --capacity 0", "--capacity(=0)"),
    ("advise good.csv --capacity 100 --window 500 600", "before the window began"),
    ("advise good.csv --max-model-len 3", "max_model_len(=3)"),
    ("advise good.csv --json good.csv", "an input, good.csv"),
    ("advise good.csv --seeds 3", "seeds are for workloads", "good.csv has arrivals of its own"),
    ("advise sharegpt:rate=4,duration=9 --seeds 0", "--seeds(=0)", ">= 1"),
    ("advise sharegpt:rate=4,duration=9 --seeds few", "--seeds"),
    ("advise sharegpt:rate=4,duration=9,seed=1 --seeds 3,7", "seed is given twice", "seeds(=3,7)"),
]


@pytest.mark.parametrize(("line", "told"), [(line, told) for line, *told in BAD], ids=lambda value: str(value)[:80])
def test_bad_input_is_told_in_one_line_and_nothing_is_written(
    line: str, told: list[str], kvfrag: Kvfrag, folder: Path
) -> None:
    before = content(folder)
    ended = kvfrag(line)
    assert (ended.code, ended.out, ended.err.count("\n")) == (INPUT_WRONG, "", 1), ended.err
    assert ended.err.startswith("kvfrag: ")
    assert [part for part in told if part not in ended.err] == [], ended.err
    assert content(folder) == before


def test_size_prints_what_python_finds(kvfrag: Kvfrag) -> None:
    options = "--max-model-len 2048 --max-batch 64 --max-refused 5% --max-wait-p99 20s"
    line = f"size {LOAD} -a paged -a contiguous:reserve=oracle {options} --model opt-13b"
    ended = kvfrag(f"{line} --json found.json")
    cost_of = "OPT-13B on one H100, from peak rates (assumed)"
    assert ended.code == 0
    assert ended.err == f"note: no GPU is named: the cost is that of {cost_of}; --gpu or --cost says another\n"
    assert f"\n  cost of an iteration: {cost_of}\n" in ended.out
    trace = Trace.workload("sharegpt", rate=8, duration_s=20)
    settings = {"max_model_len": 2048, "max_batch": 64, "model": "opt-13b"}
    found = json.loads(Path("found.json").read_text())
    assert found["target"] == {"max_refused": 0.05, "max_wait_p99_s": 20}
    assert found["trace"]["sha256"] == trace.sha256
    assert found["settings"]["max_batch"] == 64
    assert (found["settings"]["cost_of"], found["pool"]) == (cost_of, None)
    assert found["warnings"] == [ended.err[len("note: ") : -1]]
    for spec, given in zip(["paged", "contiguous:reserve=oracle"], found["sizes"], strict=True):
        one = size(trace, spec, max_refused="5%", max_wait_p99="20s", **settings)  # type: ignore[arg-type]
        assert given.pop("bytes") == one.capacity * 819_200
        assert given.pop("warnings") == found["warnings"]
        told = one.to_dict()
        assert [text.replace("gpu or cost", "--gpu or --cost") for text in told.pop("warnings")] == found["warnings"]
        assert given == told
        assert f"{one.capacity:,}" in ended.out
        assert f"{one.capacity * 819_200 / 2**30:.2f}" in ended.out
        assert one.below is not None
        assert f"{spec}: with {one.below.capacity:,} slots, the next smaller pool, " in ended.out
    assert " times the pool of paged." in ended.out
    assert json.loads(kvfrag(f"{line} --json -").out)["sizes"] == json.loads(Path("found.json").read_text())["sizes"]


def test_size_says_where_more_is_not_better(kvfrag: Kvfrag) -> None:
    line = "size sharegpt:rate=30,duration=5,seed=4 -a buddy:reserve=oracle --max-refused 30% --checks 200"
    ended = kvfrag(f"{line} --json found.json")
    found = json.loads(Path("found.json").read_text())["sizes"][0]
    failing = [trial["capacity"] for trial in found["trials"] if not trial["meets"]]
    assert not found["monotone"]
    assert found["capacity"] < max(failing) < found["safe"]
    assert f"fail, the largest of {max(failing):,} slots; from {found['safe']:,} on all meet" in ended.out


def test_fit_prints_what_python_finds(kvfrag: Kvfrag) -> None:
    ended = kvfrag(f"{FIT} --json found.json")
    assert (ended.code, ended.err) == (0, "")
    trace = backlog("sharegpt", 2000, 512)
    fits = [fit(trace, spec, 2000, 512) for spec in ALLOCATORS]
    found = json.loads(Path("found.json").read_text())
    assert found["fits"] == [vars(one) | {"warnings": list(one.warnings)} for one in fits]
    assert (found["capacity"], found["max_model_len"]) == (2000, 512)
    for one in fits:
        assert f" {one.mean:,.1f} " in ended.out
    times = max(one.mean for one in fits) / min(one.mean for one in fits)
    assert f"paged:block_size=16 fits {times:.1f} times as many as contiguous:reserve=max" in ended.out
    assert json.loads(kvfrag(f"{FIT} --json -").out) == found


def test_one_request_and_one_pool_are_one(kvfrag: Kvfrag) -> None:
    Path("one.csv").write_text("arrival_s,prompt_tokens,output_tokens\n1,10,5\n")
    ended = kvfrag("size one.csv -a paged --max-refused 1% --checks 0")
    assert ended.out.startswith("one.csv: 1 request; ")
    assert "paged: no smaller pool can hold the largest request. No other pool was tried." in ended.out
    assert "better" not in ended.out


def test_fit_says_which_options_of_a_workload_make_no_difference(kvfrag: Kvfrag) -> None:
    line = "fit --workload sharegpt:rate=4,seed=1{} --max-model-len 512 --capacity 2000 -a paged"
    told = kvfrag(line.format(",duration=9"))
    assert told.err.startswith(
        "rate and duration of sharegpt:rate=4,seed=1,duration=9 make no difference: all requests"
    )
    assert told.out == kvfrag("fit --workload sharegpt:seed=1 --max-model-len 512 --capacity 2000 -a paged").out
    assert kvfrag(line.format("") + " --quiet").err == ""


def test_fit_takes_memory_of_a_model_and_allocators_of_ones_own_choice(kvfrag: Kvfrag) -> None:
    line = "fit --workload sharegpt --max-model-len 2048 --memory 1GiB --model Llama-3-8B -a paged:block_size=1"
    ended = kvfrag(line)
    assert ended.code == 0
    assert "8,192 token slots\n  1.00 GiB of Llama-3-8B, 131,072 bytes per slot\n" in ended.out
    assert ended.out.count("paged:block_size=1 ") == 2
    assert "contiguous" not in ended.out


@pytest.mark.parametrize("pool", ["", " --capacity 5000 --max-batch 64"])
def test_advise_prints_what_python_finds(pool: str, kvfrag: Kvfrag) -> None:
    line = f"advise {LOAD} --max-model-len 2048{pool}"
    ended = kvfrag(f"{line} --json found.json")
    assert (ended.code, ended.err) == (0, "")
    one = advise(LOAD, max_model_len=2048, capacity=5000 if pool else None, max_batch=64 if pool else None)
    found = json.loads(Path("found.json").read_text())
    assert (found["best"], found["by"], found["rule"]) == (one.best, one.share, one.rule)
    assert [trace["seed"] for trace in found["traces"]] == [0, 1, 2, 3, 4]
    assert [trace["sha256"] for trace in found["traces"]] == [trace.sha256 for trace in one.traces.values()]
    assert [row["block_size"] for row in found["block_sizes"]] == list(one.table.index)
    assert [row["written"] for row in found["block_sizes"]] == list(one.table["written"])
    assert [row["half"]["written"] for row in found["block_sizes"]] == list(one.bands["written"])
    assert [row["below_best"] for row in found["block_sizes"]] == list(one.below["mean"])
    share, band = (100 * frame[one.share][one.best] for frame in (one.table, one.bands))
    assert f"* Blocks of {one.best}: {share:.2f} ± {band:.2f} %" in ended.out
    assert f"Rule: {one.rule}." in ended.out and ended.out.count("below best") == 1
    assert ended.out.count(f"\n {one.best} * ") == (2 if pool else 1)
    assert json.loads(kvfrag(f"{line} --json -").out) == found


def test_advise_with_a_pool_that_is_never_full_decides_from_lengths(kvfrag: Kvfrag) -> None:
    """It said 256, as each of nine replays wrote 1.83 % of the pool."""
    ended = kvfrag(f"advise {LOAD} --max-model-len 2048 --capacity 800000 --seeds 1 --json found.json")
    assert ended.code == 0 and "* Blocks of 8: 99.13 % of the slots held are written" in ended.out
    assert "The pool is never full: memory was never refused, so lengths decide." in ended.out
    found = json.loads(Path("found.json").read_text())
    assert (found["best"], found["by"]) == (8, "written") and "never full" in found["reason"]
    assert found["best"] == json.loads(kvfrag(f"advise {LOAD} --max-model-len 2048 --seeds 1 --json -").out)["best"]


def test_advise_draws_a_workload_with_as_many_seeds_as_it_is_told(kvfrag: Kvfrag) -> None:
    for options, seeds in (
        (LOAD, [0, 1, 2, 3, 4]),
        (f"{LOAD},seed=3 --seeds 2", [3, 4]),
        (f"{LOAD} --seeds 7,2", [7, 2]),
        ("lengths.csv --rate 2 --seeds 3", [0, 1, 2]),
        ("good.csv", [None]),
    ):
        Path("lengths.csv").write_text("prompt_tokens,output_tokens\n10,5\n20,6\n")
        ended = kvfrag(f"advise {options} --json -")
        assert ended.code == 0 and ended.err.count("\n") == options.startswith("lengths.csv")  # noted once
        assert [trace["seed"] for trace in json.loads(ended.out)["traces"]] == seeds


def test_advise_counts_and_tells_the_block_sizes_it_leaves_out(kvfrag: Kvfrag) -> None:
    Path("two.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,60,20\n1,90,11\n")
    ended = kvfrag("advise two.csv --capacity 190 --json found.json")
    assert "1 block size left out, 256: larger than the pool." in ended.out
    ended = kvfrag("advise two.csv --capacity 100 --json found.json")
    assert "2 block sizes left out, 128, 256: larger than the pool." in ended.out
    assert "1 block size left out, 64: no request fits in the pool, not even alone." in ended.out
    assert "since they turn away requests that others serve: blocks of 8, 16, 32." in ended.out
    found = json.loads(Path("found.json").read_text())
    assert [one["block_size"] for one in found["left_out"]] == [64, 128, 256]
    rows = {row["block_size"]: row for row in found["block_sizes"]}
    assert [size for size, row in rows.items() if row["below_best"] is None] == [8, 16, 32]
    assert rows[16]["rejected"] == 1 and rows[4]["rejected"] == 0


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (17.84, "17.8 times as many as"),
        (1.5, "1.5 times as many as"),
        (1.499, "49.9 % more than"),
        (1.041, "4.1 % more than"),
        (1.0004, "0.04 % more than"),
        (1.0000001, "less than 0.01 % more than"),
    ],
)
def test_a_small_factor_is_told_in_percent(ratio: float, told: str) -> None:
    assert compared(ratio, "times as many as", "more than") == told


def test_no_answer_says_1_0_times(kvfrag: Kvfrag) -> None:
    fitted = kvfrag(f"{FIT} -a paged:block_size=16 -a paged:block_size=1").out
    assert re.search(r"  paged:block_size=1 fits \d\.\d % more than paged:block_size=16: ", fitted)
    sized = kvfrag(f"size {LOAD} -a paged:block_size=1 -a paged:block_size=4 --max-refused 1%").out
    assert re.search(r"  paged:block_size=4 needs 0\.\d\d % more slots than paged:block_size=1\.", sized)
    Path("long.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,2000,1\n1,2000,1\n")
    advised = kvfrag("advise long.csv --within 0").out
    assert "1.0 times" not in fitted + sized + advised


@pytest.mark.parametrize("line", [SIZE, FIT, "advise good.csv"])
def test_explain_says_what_the_columns_mean_and_a_line_says_so(line: str, kvfrag: Kvfrag) -> None:
    short, long = kvfrag(line).out, kvfrag(f"{line} --explain").out
    assert short.endswith("  --explain says what the columns mean.\n")
    common = short.removesuffix("  --explain says what the columns mean.\n")
    meanings = long.removeprefix(common).splitlines()
    assert long.startswith(common) and len(meanings) >= 4
    assert all(re.match(r"  \S.*?  +\S", meaning) for meaning in meanings)
