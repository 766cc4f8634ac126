"""The options of pool, hardware and server on the command line: what they give, and what contradicts itself."""

import json
from pathlib import Path

import pytest

from allocators import InputError
from simulator import Run
from simulator.cli.server_options import AllocatorOptions, as_option
from simulator.sweeps.grid import expand
from test_cli import Kvfrag
from test_cli import folder as folder
from test_cli import kvfrag as kvfrag

H100 = "--model llama-3-8b --gpu h100"
ASSUMED = "Llama-3-8B on one H100, from peak rates (assumed)"


def test_a_pool_from_two_gpus_at_the_first_try(kvfrag: Kvfrag) -> None:
    line = f"run good.csv -a paged:block_size=16 -a contiguous:reserve=max {H100} --tensor-parallel-size 2"
    ended = kvfrag(f"{line} --gpu-memory-utilization 0.9 --max-model-len 8192")
    assert (ended.code, ended.err) == (0, "")
    head = " ".join(ended.out[: ended.out.index("Where the memory was")].split())
    for part in (
        "H100: 79.18 GiB x 0.9 = 71.26 GiB on each GPU",
        "- 7.48 GiB weights of Llama-3-8B on each GPU",
        "for activations on each GPU: 39 bytes x max_num_seqs 1,024",
        "for the KV cache on 2 GPUs together",
        "cost of an iteration: Llama-3-8B on 2 H100, from peak rates",
    ):
        assert part in head
    found = json.loads(kvfrag(f"{line} --gpu-memory-utilization 0.9 --max-model-len 8192 --json -").out)
    assert found["settings"]["cost_of"] == "Llama-3-8B on 2 H100, from peak rates"
    assert found["pool"]["tensor_parallel_size"] == 2 and found["pool"]["gpu"] == "H100"
    assert {run["capacity"] for run in found["runs"]} == {found["pool"]["slots"]}
    assert f"a pool of {found['pool']['slots']:,} token slots" in head


def test_notes_are_in_the_json_whatever_is_said(kvfrag: Kvfrag) -> None:
    line = "run good.csv -a paged:block_size=4 -a contiguous:reserve=oracle --capacity 25 --max-batch-tokens 15"
    line += " --model llama-3-8b --json out.json"
    loud, quiet = kvfrag(line), kvfrag(f"{line} --quiet")
    found = json.loads(Path("out.json").read_text())
    assert quiet.err == "" and loud.out == quiet.out
    assert loud.err.splitlines() == [f"note: {text}" for text in found["warnings"]]
    assert found["warnings"][1:] == [
        "paged:block_size=4: 1 of 3 requests rejected, and in no other figure: 1 more than the empty pool can hold",
        "contiguous:reserve=oracle: 1 prompt is longer than max_batch_tokens: such a request is admitted only when no "
        "other runs, and all that arrive after it wait until then; a budget above the longest prompt avoids that",
        "not all rejected the same requests, and their figures are of different work; rejected were: "
        "paged:block_size=4 1, contiguous:reserve=oracle 0",
    ]
    assert f"  cost of an iteration: {ASSUMED}\n" in loud.out
    for run in found["runs"]:
        assert run["warnings"][0] == f"no GPU is named: the cost is that of {ASSUMED}; --gpu or --cost says another"


def test_a_saved_run_knows_what_its_cost_stands_for(kvfrag: Kvfrag) -> None:
    assert kvfrag("run good.csv -a paged --capacity 100 --model llama-3-8b --save saved").code == 0
    run = Run.load("saved")
    assert run.settings.cost.of == ASSUMED and "(assumed)" in run.warnings[0]


def test_vllm_names_are_the_same_options(kvfrag: Kvfrag) -> None:
    pool = "run good.csv --capacity 100 --json -"
    ours = kvfrag(f"{pool} -a paged:block_size=8 --max-batch 2 --max-batch-tokens 64")
    theirs = kvfrag(f"{pool} --block-size 8 --max-num-seqs 2 --max-num-batched-tokens 64")
    assert ours.code == 0 and ours.out == theirs.out


@pytest.mark.parametrize("line", ["run good.csv -a paged", "fit --workload sharegpt --max-model-len 512 -a paged"])
def test_a_model_that_does_not_fit_is_an_error_with_the_sum(line: str, kvfrag: Kvfrag) -> None:
    ended = kvfrag(f"{line} --model llama-3-70b --gpu h100")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "Llama-3-70B does not fit one H100: 79.18 GiB x 0.92 - 131.42 GiB weights" in ended.err
    ended = kvfrag(f"{line} --memory 300GiB --model llama-3-70b --gpu a100-40gb")
    assert (ended.code, ended.out) == (2, "") and "are 431.42 GiB; one A100-40GB has 39.39 GiB" in ended.err


def test_fit_and_advise_take_a_gpu(kvfrag: Kvfrag) -> None:
    ended = kvfrag(f"fit --workload sharegpt:requests=5000 --max-model-len 512 -a contiguous {H100} --json -")
    found = json.loads(ended.out)
    assert found["fits"][0]["all_longest"] == found["pool"]["slots"] // 512 == found["capacity"] // 512
    assert found["settings"]["cost_of"] == "every iteration takes the same time: what counts is memory, not speed"
    ended = kvfrag(f"advise good.csv {H100} --json -")
    found = json.loads(ended.out)
    assert found["capacity"] == found["pool"]["slots"] > 400_000
    assert found["settings"]["cost_of"] == "Llama-3-8B on one H100, from peak rates"


def test_figure2_says_what_its_cost_stands_for(kvfrag: Kvfrag, monkeypatch: pytest.MonkeyPatch) -> None:
    import simulator.examples.figure2 as module
    from simulator import Trace

    short = Trace.workload("sharegpt", rate=4.0, duration_s=310, max_total=2047)
    monkeypatch.setattr(module, "workload", lambda _: short)
    ended = kvfrag("figure2 --seeds 1 --quiet")
    assert "  cost of an iteration: OPT-13B on one A100-40GB, the costs behind the PagedAttention paper's" in ended.out


def test_help_is_in_sections_and_fits_80_columns(kvfrag: Kvfrag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command, titles in {
        "run": ["Allocators:", "Pool:", "Server:", "Trace:", "Output:"],
        "size": ["Target:", "Allocators:", "Pool:", "Server:", "Trace:", "Output:"],
        "fit": ["Requests:", "Allocators:", "Pool:", "Output:"],
        "advise": ["Target:", "Pool:", "Server:", "Trace:", "Output:"],
        "sweep": ["Allocators:", "Pool:", "Server:", "Trace:", "Output:", "Machines:"],
    }.items():
        shown = kvfrag(f"{command} --help").out
        assert [line for line in shown.splitlines() if line in titles] == titles
        assert max(map(len, shown.splitlines())) <= 80
        for option in ("--gpu NAME", "--tensor-parallel-size N", "--kv-cache-dtype auto|bf16|fp16|fp8", "0.92]"):
            assert option in shown


def test_a_block_size_goes_into_the_specs_that_name_none() -> None:
    def specs(*given: str, block_size: int | None = 8) -> list[str]:
        return AllocatorOptions(list(given) or None, block_size).specs(expanded=expand)

    assert specs() == ["paged:block_size=8"]
    assert specs("paged") == ["paged:block_size=8"]
    assert specs("buddy", "paged:watermark=0.01", "paged:block_size=8") == [
        "buddy",
        "paged:block_size=8,watermark=0.01",
        "paged:block_size=8",
    ]
    assert specs("paged:watermark={0,0.01}") == ["paged:block_size=8,watermark=0", "paged:block_size=8,watermark=0.01"]
    assert specs("buddy", block_size=None) == ["buddy"]
    assert AllocatorOptions().specs(["paged"]) == ["paged"]
    for given, told in (
        (["paged:block_size=16"], r"--block-size\(=8\) and -a paged:block_size=16 say two block sizes"),
        (["paged:block_size={8,16}"], "say two block sizes"),
        (["buddy", "contiguous"], r"makes no difference: none of -a buddy, contiguous is paged"),
    ):
        with pytest.raises(InputError, match=told):
            specs(*given)
    with pytest.raises(InputError, match=r"--block-size\(=0\) must be a whole number >= 1"):
        specs(block_size=0)
    with pytest.raises(InputError, match="which allocator"):
        AllocatorOptions().specs()


def test_a_keyword_is_told_as_the_option_that_it_is() -> None:
    assert [as_option(name) for name in ("max_batch", "window_s")] == ["--max-batch", "--window"]


@pytest.mark.parametrize("command", ["run -a paged --capacity 99", "size -a paged", "advise", "sweep -a paged"])
@pytest.mark.parametrize(
    ("given", "ours", "theirs"),
    [
        ("--max-batch 4 --max-num-seqs=8", "--max-batch", "--max-num-seqs"),
        ("--max-num-batched-tokens 9000 --max-batch-tokens 100", "--max-batch-tokens", "--max-num-batched-tokens"),
    ],
)
def test_two_names_of_one_setting_are_an_error(
    command: str, given: str, ours: str, theirs: str, kvfrag: Kvfrag
) -> None:
    ended = kvfrag(f"{command} good.csv {given}")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"kvfrag: {theirs} and {ours} are two names of one setting; give one of them\n"


def test_of_an_option_given_twice_the_last_counts(kvfrag: Kvfrag) -> None:
    line = "run good.csv -a paged --capacity 99 --json -"
    assert kvfrag(f"{line} --max-batch 1 --max-batch 2").out == kvfrag(f"{line} --max-num-seqs 2").out


def test_short_and_long_name_of_one_file_are_an_error(kvfrag: Kvfrag) -> None:
    ended = kvfrag("sweep good.csv -a paged --capacity 99 -o one.csv --output=two.csv")
    assert ended.code == 2 and "--output" in ended.err and "two names of one setting" in ended.err
    assert not list(Path().glob("*.csv.*")) and not Path("two.csv").exists()
