"""``kvfrag size``, ``fit`` and ``advise``: what is wrong is told in one line; tables, reasons and JSON say the same."""

import json
from pathlib import Path

import pytest

from simulator import Trace, advise, fit, size
from simulator.__main__ import INPUT_WRONG
from simulator.fitting import ALLOCATORS, backlog
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
    trace = Trace.workload("sharegpt", rate=8, duration_s=20)
    one = advise(trace, max_model_len=2048, capacity=5000, max_batch=64) if pool else advise(trace, max_model_len=2048)
    found = json.loads(Path("found.json").read_text())
    assert found["best"] == one.best
    assert [row["block_size"] for row in found["block_sizes"]] == list(one.table.index)
    assert [row["written"] for row in found["block_sizes"]] == list(one.table["written"])
    assert f"* Blocks of {one.best}: {100 * one.table[one.share][one.best]:.2f} %" in ended.out
    assert ended.out.count(f"\n {one.best} * ") == (2 if pool else 1)
    assert json.loads(kvfrag(f"{line} --json -").out) == found
