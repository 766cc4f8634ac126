"""``kvfrag gpu check`` as one types it, in Triton's interpreter; and what is said without torch."""

import json
import sys
from pathlib import Path

import pytest

from gpu import cli
from gpu.decisions import Log, log_of
from simulator import Run, StepCost, Trace, simulate
from simulator.__main__ import main

TRACE = "arrival_s,prompt_tokens,output_tokens\n0,5,6\n0.1,17,3\n0.2,3,9\n"
CPU = ["--device", "cpu", "--heads", "2/1", "--head-dim", "16"]
SMALL = [*CPU, "--samples", "4"]


def kvfrag(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["kvfrag", "gpu", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), *capsys.readouterr()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "trace.csv").write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_of_a_trace_counts_what_the_ledger_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = ["-a", "paged:block_size=4", "-a", "contiguous:reserve=max", "-a", "buddy:reserve=oracle"]
    pool = ["--capacity", "64", "--max-model-len", "32", "--logs", "logs", "--json", "out.json"]
    code, out, _ = kvfrag(monkeypatch, capsys, "check", "trace.csv", *specs, *pool, *SMALL)
    assert code == 0
    assert out.count("every counted slot equals the ledger in 4 samples") == 3
    checks = json.loads((folder / "out.json").read_text())["checks"]
    assert [len(one["samples"]) for one in checks] == [4, 4, 4]
    assert all(sample["used"] == sample["counted"] > 0 for one in checks for sample in one["samples"])
    # The logs that were written give the same check, without a simulator.
    again = kvfrag(monkeypatch, capsys, "check", "logs/1-paged.jsonl", *CPU)
    assert again[0] == 0
    assert again[1] in out


def test_check_of_a_saved_run_and_of_one_that_was_tampered_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from allocators import Paged

    trace, times = Trace.read(folder / "trace.csv"), [0.2, 0.3, 0.4]
    run = simulate(trace, Paged(40, 4), cost=StepCost("50ms"), layout_times_s=times, decisions=True)
    run.save(folder / "run")
    code, out, _ = kvfrag(monkeypatch, capsys, "check", "run", *CPU)
    assert (code, "equals the ledger in 3 samples" in out) == (0, True)
    # A ledger that claims one slot more than was written is found out.
    log = log_of(Run.load(folder / "run"))
    log.write(folder / "good.jsonl")
    lines = (folder / "good.jsonl").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith('["sample"'))
    sample = json.loads(lines[at])
    sample[2] += 1
    lines[at] = json.dumps(sample)
    (folder / "bad.jsonl").write_text("\n".join(lines) + "\n")
    assert Log.read(folder / "bad.jsonl") != log
    code, out, _ = kvfrag(monkeypatch, capsys, "check", "bad.jsonl", *CPU)
    assert (code, "1 differences in 3 samples" in out) == (1, True)


@pytest.mark.usefixtures("folder")
def test_what_run_saved_with_decisions_can_be_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "run trace.csv -a paged:block_size=4 -a buddy:reserve=oracle --capacity 40 --max-model-len 32 --save runs"
    monkeypatch.setattr(sys, "argv", ["kvfrag", *line.split(), "--decisions"])
    with pytest.raises(SystemExit, match="0"):
        main()
    capsys.readouterr()
    code, out, _ = kvfrag(monkeypatch, capsys, "check", "runs", *CPU)
    assert (code, out.count("every counted slot equals the ledger")) == (0, 2)
    monkeypatch.setattr(sys, "argv", ["kvfrag", *line.split()])
    with pytest.raises(SystemExit, match="0"):
        main()
    capsys.readouterr()
    code, out, err = kvfrag(monkeypatch, capsys, "check", "runs", *CPU)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "kvfrag run --decisions --save FOLDER keeps both" in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["check", "trace.csv", *CPU], "trace.csv, row 1: not a row of a decision log"),
        (["check", "nowhere", *CPU], "nowhere is neither a saved run nor a decision log; a trace needs"),
        (["check", "trace.csv", "-a", "paged", *SMALL], "how large is the pool? --capacity SLOTS\n"),
        (["check", "log", *CPU, "--capacity", "64"], "--capacity(=64) is for a trace with -a SPEC"),
        (["check", "log", *CPU, "--max-batch", "6"], "--max-batch(=6) is for a trace with -a SPEC"),
        (["check", "log", *CPU, "--cost", "prefill=1ms"], "--cost(=prefill=1ms) is for a trace with -a SPEC"),
        (["check", "log", *SMALL], "--samples(=4) is for a trace with -a SPEC"),
        (
            ["check", "never-read", "-a", "paged", "--capacity", "64", *SMALL, "--logs", "trace.csv"],
            "--logs(=trace.csv)",
        ),
        (
            ["check", "never-read", "-a", "paged", "--capacity", "64", *SMALL, "--logs", "trace.csv/x"],
            "must be a folder",
        ),
        (["check", "trace.csv", "-a", "pagd", "--capacity", "64", *SMALL], "unknown allocator 'pagd'"),
        (["check", "trace.csv", "-a", "paged", "--capacity", "64", *SMALL, "--heads", "3/2"], "heads(='3/2')"),
        (["check", "trace.csv", "-a", "paged", "--capacity", "64", "--device", "tpu"], "device(='tpu')"),
    ],
)
def test_bad_input_is_one_line(
    args: list[str], says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = kvfrag(monkeypatch, capsys, *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert folder.exists()


@pytest.mark.parametrize("command", [["check", "trace.csv", "-a", "paged"], ["bench"], ["compile"]])
def test_without_torch_it_says_what_to_install(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "find_spec", dict[str, object]().get)
    code, _, err = kvfrag(monkeypatch, capsys, *command)
    assert (code, err) == (2, "kvfrag: kvfrag gpu needs torch and triton: pip install 'torch>=2.11' 'triton>=3.6'\n")
    assert folder.exists()


def test_a_run_without_decisions_is_refused(folder: Path) -> None:
    from allocators import InputError, Paged

    with pytest.raises(InputError, match="has no decisions or no memory maps"):
        log_of(simulate(Trace.read(folder / "trace.csv"), Paged(40, 4)))
