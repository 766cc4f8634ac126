"""The command line, run in this process: what is wrong is told in one line before anything is written; what is right
gives tables that fit, and JSON that has interface.md's keys."""

import errno
import json
import math
import os
import shlex
import stat
import sys
from collections.abc import Callable
from importlib.metadata import version
from io import BufferedWriter, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tqdm import tqdm

from allocators import ALLOCATORS
from simulator import Run, StepCost, plots
from simulator.__main__ import FAILED, INPUT_WRONG, INTERRUPTED, main
from simulator.cli.run import MAPS
from simulator.examples.figure2 import SETTINGS
from simulator.results.history import History
from simulator.results.ledger import CATEGORIES

GOOD = "arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,20,6\n2.5,5,1\n"
FILES = {
    "good.csv": GOOD,
    "empty.csv": "",
    "blank.csv": " \n\n",
    "header.csv": "arrival_s,prompt_tokens,output_tokens\n",
    "lacking.csv": "arrival_s,prompt_tokens\n0,1\n",
    "unusable.csv": "arrival_s,prompt_tokens,output_tokens\nx,20,6\n2,0,1\n",
    "partly.csv": "arrival_s,prompt_tokens,output_tokens\n0,10,5\nsoon,20,6\n2,0,1\n",
    "binary.csv": "\0\1\2\3",
    "[red]x[.csv": GOOD,
    ":smile:.csv": GOOD,
    "config.json": '{"model_type": "gpt2", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 4}',
    "notjson.json": "{",
    "other/notes.txt": "mine",
    "otherrun/run.json": "{}",
    "mine.py": '''
import os, signal
from allocators import Paged

class Mine(Paged):
    """A user's own: blocks of 4."""
    def __init__(self, capacity: int, arg: int = 1) -> None:
        if arg == 13:
            raise ValueError("arg(=13) must not be 13")
        if arg == 14:
            raise RuntimeError("the constructor\\nis broken")
        super().__init__(capacity, 4)
        self.arg = arg

    @property
    def spec(self) -> str:
        return f"mine.Mine:arg={self.arg}"

class Broken(Mine):
    def admit(self, *request):
        raise KeyError("admit is broken")

class Leaky(Mine):
    def release(self, request_id):
        return 4

class Interrupts(Mine):
    def admit(self, *request):
        os.kill(os.getpid(), signal.SIGINT)
        return super().admit(*request)

class NoAllocator:
    def __init__(self, capacity):
        self.capacity = self.spec = capacity

number = 3
''',
    "syntax.py": "def f(:\n",
    "raises.py": "raise OSError(99, 'no luck')\n",
}


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Kvfrag = Callable[[str], Ended]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with FILES in it and nothing of them imported."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for name in ("mine", "syntax", "raises"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.fixture
def kvfrag(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Kvfrag:
    def run(line: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["kvfrag", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, *capsys.readouterr())

    assert Path.cwd() == folder
    return run


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, with its content; folders end in a slash."""
    return {
        f"{path.relative_to(folder)}{'/' if path.is_dir() else ''}": path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


OUTPUTS = " --json out.json --save saved --plot bars.png"
RUN = "run good.csv -a paged --capacity 100"
LIMITED = "run good.csv --capacity 100 --max-model-len 50 -a"
LONG = "x" * 300

BAD_RUNS: list[tuple[str, ...]] = [
    # what is missing
    ("run", "TRACE", "kvfrag run --help"),
    ("run good.csv", "which allocator? -a SPEC (--allocator)", "--block-size N"),
    ("run good.csv -a paged", "--capacity SLOTS", "--memory SIZE with --model NAME"),
    ("run good.csv -a paged --capacity", "--capacity"),
    ("run good.csv more.csv -a paged --capacity 100", "more.csv"),
    (f"{RUN} --nope", "--nope"),
    # the trace
    ("run none.csv -a paged --capacity 100", "none.csv", "neither a file nor a workload", "sharegpt, azure-conv"),
    ("run '' -a paged --capacity 100", "''", "neither a file nor a workload"),
    (f"run {LONG} -a paged --capacity 100", "xxx...", "neither a file nor a workload"),
    ("run folder -a paged --capacity 100", "folder", "directory"),
    ("run empty.csv -a paged --capacity 100", "empty.csv", "is empty"),
    ("run blank.csv -a paged --capacity 100", "blank.csv", "is empty"),
    ("run header.csv -a paged --capacity 100", "header.csv", "no rows"),
    ("run lacking.csv -a paged --capacity 100", "lacking.csv", "output_tokens"),
    ("run binary.csv -a paged --capacity 100", "binary.csv", "binary"),
    ("run unusable.csv -a paged --capacity 100", "unusable.csv", "no usable row among 2", "prompt below 1 (1)"),
    ("run partly.csv -a paged --capacity 100 --strict", "partly.csv", "row 2 (line 3)", "arrival_s(='soon')"),
    # workloads
    ("run azure:rate=4 -a paged --capacity 100", "azure:rate=4", "sharegpt, azure-conv"),
    ("run sharegpt -a paged --capacity 100", "sharegpt", "rate"),
    ("run sharegpt:rate=nan -a paged --capacity 100", "rate(=nan)", "finite number > 0"),
    ("run sharegpt:rate=0 -a paged --capacity 100", "rate(=0.0)", "> 0"),
    ("run sharegpt:rate=fast -a paged --capacity 100", "rate(='fast')", "number"),
    ("run sharegpt:rate=4,duration=nan -a paged --capacity 100", "duration(=nan)", "> 0"),
    ("run sharegpt:rate=4,seed=-1 -a paged --capacity 100", "seed(=-1)", ">= 0"),
    ("run sharegpt:rate=4,seed=0.5 -a paged --capacity 100", "seed(='0.5')", "whole number"),
    ("run sharegpt:speed=4 -a paged --capacity 100", "'speed'", "rate, duration, requests, seed, max_total"),
    # the pool
    ("run good.csv -a paged --capacity 0", "--capacity(=0)", "1 to 1,000,000,000"),
    ("run good.csv -a paged --capacity -5", "--capacity(=-5)", "1 to 1,000,000,000"),
    ("run good.csv -a paged --capacity 1000000001", "--capacity(=1000000001)", "1 to 1,000,000,000"),
    (f"run good.csv -a paged --capacity {'9' * 40}", "1 to 1,000,000,000"),
    (f"run good.csv -a paged --capacity {'9' * 5000}", "'--capacity'", "...", "whole number"),
    ("run good.csv -a paged --capacity 1e5", "'--capacity'", "'1e5'", "whole number"),
    ("run good.csv -a paged --capacity 9", "capacity(=9)", ">= block_size(=16)"),
    ("run good.csv -a paged --capacity 9 --memory 1GiB --model opt-13b", "--capacity", "--memory", "one of them"),
    ("run good.csv -a paged --memory 1GiB", "--memory", "--model"),
    ("run good.csv -a paged --memory much --model opt-13b", "--memory(='much')", "KiB, MiB, GiB"),
    ("run good.csv -a paged --memory 1KB --model opt-13b", "1000", "819200 bytes"),
    ("run good.csv -a paged --memory 1024PiB --model config.json", "--memory(=1024PiB)", "1 to 1,000,000,000"),
    ("run good.csv -a paged --memory 1GiB --model gpt", "'gpt'", "OPT-13B", "config.json"),
    ("run good.csv -a paged --memory 1GiB --model folder", "'folder'", "directory"),
    ("run good.csv -a paged --memory 1GiB --model notjson.json", "notjson.json", "not JSON"),
    # allocators
    ("run good.csv -a pagd --capacity 100", "'pagd'", "buddy, contiguous, paged"),
    ("run good.csv -a '' --capacity 100", "''", "name"),
    (f"{LIMITED} paged:block_size=0", "block_size(=0)", ">= 1"),
    (f"{LIMITED} paged:block_size=big", "'big'", "whole number"),
    (f"{LIMITED} paged:block_size", "'block_size'", "key=value"),
    (f"{LIMITED} paged:size=16", "'size'", "block_size, watermark"),
    (f"{LIMITED} paged:watermark=1", "watermark(='1')", "< 1"),
    (f"{LIMITED} paged:watermark=nan", "watermark(='nan')", ">= 0"),
    (f"{LIMITED} paged -a pagd", "'pagd'", "buddy, contiguous, paged"),
    (f"{LIMITED} contiguous:fit=any", "fit(='any')", "first, best, worst, next"),
    (f"{LIMITED} contiguous:reserve=all", "reserve(='all')", "max, pow2, oracle"),
    (f"{LIMITED} buddy:split=half", "split(='half')", "smallest, largest"),
    (f"{LIMITED} buddy:min_block=16,max_block=50", "max_block(=50)", "min_block(=16)"),
    ("run good.csv -a contiguous --capacity 100", "max_model_len", "reserve=max"),
    ("run good.csv -a contiguous --capacity 100 --max-model-len 101", "max_model_len(=101)", "100"),
    ("run good.csv -a buddy --capacity 100 --max-model-len 65", "max_model_len(=65)", "64"),
    # the user's own
    (f"{LIMITED} nowhere.Mine", "'nowhere.Mine'", "No module named 'nowhere'"),
    (f"{LIMITED} mine.Yours", "'mine.Yours'", "mine has no class Yours"),
    (f"{LIMITED} mine.number", "'mine.number'"),
    (f"{LIMITED} mine.Mine:arg=one", "mine.Mine", "'one'", "whole number"),
    (f"{LIMITED} mine.Mine:args=1", "'args'", "choose from arg"),
    (f"{LIMITED} mine.Mine:arg=13", "mine.Mine:arg=13", "arg(=13) must not be 13"),
    (f"{LIMITED} mine.NoAllocator", "mine.NoAllocator", "lacks contiguous, grow_slots, tail_slots", "admit"),
    # settings
    (f"{RUN} --max-model-len 0", "max_model_len(=0)", ">= 1"),
    (f"{RUN} --max-model-len ten", "'--max-model-len'", "'ten'", "whole number"),
    (f"{RUN} --max-batch 0", "max_batch(=0)", ">= 1"),
    (f"{RUN} --max-batch-tokens -1", "max_batch_tokens(=-1)", ">= 1"),
    (f"{RUN} --too-long cut", "too_long(='cut')", "reject, truncate"),
    (f"{RUN} --too-long truncate", "max_model_len", "truncate"),
    (f"{RUN} --preemption stop", "preemption(='stop')", "recompute, swap"),
    (f"{RUN} --preemption swap", "--swap-slots"),
    (f"{RUN} --swap-slots 5", "--swap-slots", "--preemption swap"),
    (f"{RUN} --preemption swap --swap-slots -1", "swap_slots(=-1)", ">= 0"),
    (f"{RUN} --view wide", "--view(='wide')", "ledger, textbook, paper"),
    # costs
    (f"{RUN} --cost base=0.5ps", "base(='0.5ps')", "whole picoseconds"),
    (f"{RUN} --cost base=25", "base(='25')", "ps, ns, us, ms, s"),
    (f"{RUN} --cost base=nan", "base(='nan')", "ps, ns, us, ms, s"),
    (f"{RUN} --cost base=-1ms", "base(='-1ms')"),
    (f"{RUN} --cost base", "'base'", "KEY=TIME"),
    (f"{RUN} --cost ''", "''", "KEY=TIME"),
    (f"{RUN} --cost speed=1ms", "'speed'", "base, prefill_token"),
    (f"{RUN} --cost base=1ms,base=2ms", "'base'", "twice"),
    (f"{RUN} --gpu H100", "--gpu needs --model"),
    (f"{RUN} --gpu Z80 --model opt-13b", "'Z80'", "A100-40GB"),
    (
        "run good.csv -a contiguous:reserve=oracle --capacity 100000000 --cost kv_token=1s",
        "kv_token=1s",
        "100,000,000 slots",
        "4,611,686 s is the most",
    ),
    # the window
    (f"{RUN} --window 5 1", "window(=5 1)", "0 <= START < END"),
    (f"{RUN} --window 5 5", "window(=5 5)", "START < END"),
    (f"{RUN} --window -1 5", "window(=-1 5)", "0 <= START"),
    (f"{RUN} --window nan 5", "window(=nan 5)"),
    (f"{RUN} --window 0 inf", "window(=0 inf)"),
    (f"{RUN} --window 0 1e400", "window(=0 1e400)", "1e+10"),
    (f"{RUN} --window 0 soon", "window(=0 soon)"),
    (f"{RUN} --window 0 1e-13", "window(=0 1e-13)"),
]

BAD_OUTPUTS: list[tuple[str, ...]] = [
    (f"{RUN} --json none/out.json", "--json(=none/out.json)", "no folder none"),
    (f"{RUN} --json folder", "--json(=folder)", "directory"),
    (f"{RUN} --json ''", "--json", "directory"),
    (f"{RUN} --json good.csv/out.json", "--json(=good.csv/out.json)", "Not a directory"),
    (f"{RUN} --json {LONG}", "--json", "too long"),
    (f"{RUN} --json ./good.csv", "--json(=good.csv)", "an input, good.csv"),
    (f"{RUN} --model config.json --cost base=1ms --json config.json", "--json(=config.json)", "an input, config.json"),
    (f"{RUN} --json same.png --plot folder/../same.png", "--plot", "same file as --json"),
    (f"{RUN} --plot bars.jpg", "--plot(=bars.jpg)", ".png, .svg, .pdf, .html"),
    (f"{RUN} --plot bars", "--plot(=bars)", ".png, .svg, .pdf, .html"),
    (f"{RUN} --plot none/bars.png", "--plot(=none/bars.png)", "no folder none"),
    (f"{RUN} --plot {LONG}.png", "--plot", "too long"),
    (f"{RUN} --save good.csv", "good.csv", "Not a directory"),
    (f"{RUN} --save good.csv/saved", "good.csv/saved", "Not a directory"),
    (f"{RUN} --save other", "other must be new or empty", "notes.txt"),
    (f"{RUN} --save otherrun", "otherrun must be new or empty", "run.json"),
    (f"{RUN} --save .", "must be new or empty"),
    (f"{RUN} --save {LONG}", "too long"),
    (f"{RUN} --decisions", "--decisions needs --save FOLDER"),
    (f"{RUN} -a paged:block_size=8 --save other", "other must be new, empty", "notes.txt"),
    (f"{RUN} -a paged:block_size=8 --save good.csv", "good.csv/1-paged", "Not a directory"),
]

BAD_OTHERS: list[tuple[str, ...]] = [
    (f"{RUN} --window 5", "--window", "2"),
    ("nope", "'nope'", "kvfrag --help"),
    ("--nope", "--nope", "kvfrag --help"),
    ("trace", "command", "kvfrag trace --help"),
    ("trace info", "TRACE", "kvfrag trace info --help"),
    ("trace info none.csv", "none.csv", "neither a file nor a workload"),
    ("trace info partly.csv --strict", "row 2 (line 3)"),
    ("trace info good.csv --json none/x.json", "--json(=none/x.json)", "no folder none"),
    ("trace info good.csv --json good.csv", "--json(=good.csv)", "an input"),
    ("figure2 --seeds 0", "--seeds(=0)", ">= 1"),
    ("figure2 --seeds few", "'--seeds'", "'few'", "whole number"),
    ("figure2 --plot figure2", "--plot(=figure2)", ".png, .svg, .pdf"),
    ("figure2 --plot none/figure2.png", "--plot(=none/figure2.png)", "no folder none"),
]


@pytest.mark.parametrize(
    ("line", "told"),
    [(line + OUTPUTS, told) for line, *told in BAD_RUNS] + [(line, told) for line, *told in BAD_OUTPUTS + BAD_OTHERS],
    ids=lambda value: value[:80] if isinstance(value, str) else "",
)
def test_bad_input_is_told_in_one_line_and_nothing_is_written(
    line: str, told: list[str], kvfrag: Kvfrag, folder: Path
) -> None:
    before = content(folder)
    ended = kvfrag(line)
    assert (ended.code, ended.out) == (INPUT_WRONG, ""), ended.err
    assert ended.err.startswith("kvfrag: ")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("\n")
    assert [part for part in told if part not in ended.err] == [], ended.err
    assert content(folder) == before


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{LIMITED} mine.Mine:arg=14", "RuntimeError: the constructor is broken (mine.py, line 11)"),
        (f"{LIMITED} mine.Broken", "KeyError: 'admit is broken' (mine.py, line 21)"),
        (f"{LIMITED} mine.Leaky", "AssertionError: mine.Mine:arg=1: the slots do not sum to the capacity 100"),
        (f"{LIMITED} syntax.Mine", "SyntaxError: invalid syntax (syntax.py, line 1)"),
        (f"{LIMITED} raises.Mine", "OSError: [Errno 99] no luck (raises.py, line 1)"),
    ],
)
def test_what_fails_in_a_users_own_code_is_told_in_one_line(line: str, told: str, kvfrag: Kvfrag, folder: Path) -> None:
    before = content(folder)
    ended = kvfrag(line + OUTPUTS)
    assert (ended.code, ended.out, ended.err.count("\n")) == (FAILED, "", 1)
    assert told in ended.err
    assert content(folder) == before


@pytest.mark.usefixtures("folder")
def test_kvfrag_traceback_shows_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVFRAG_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["kvfrag", *shlex.split(f"{LIMITED} mine.Broken")])
    with pytest.raises(KeyError, match="admit is broken"):
        main()


def test_an_interrupt_stops_with_one_line_and_nothing_written(kvfrag: Kvfrag, folder: Path) -> None:
    before = content(folder)
    assert kvfrag(f"{LIMITED} mine.Interrupts{OUTPUTS}") == (INTERRUPTED, "", "kvfrag: interrupted\n")
    assert content(folder) == before


def test_a_users_own_allocator_is_replayed_like_ours(kvfrag: Kvfrag) -> None:
    ended = kvfrag(f"{LIMITED} mine.Mine:arg=5 -a paged:block_size=4 --json -")
    own, ours = json.loads(ended.out)["runs"]
    assert own.pop("allocator") == "mine.Mine:arg=5"
    assert ours.pop("allocator") == "paged:block_size=4,watermark=0"
    assert own == ours


class Failing(RawIOBase):
    """What standard output writes to, on a disk that is full, or with nobody at its other end; until that is mended."""

    def __init__(self, error: OSError, file: Path) -> None:
        super().__init__()
        self.error: OSError | None = error
        self.file = file.open("w")

    def writable(self) -> bool:
        return True

    def write(self, content: Any, /) -> int:
        if self.error is not None:
            raise self.error
        return len(content)

    def fileno(self) -> int:
        return self.file.fileno()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ""),
        (OSError(errno.ENOSPC, "No space"), "kvfrag: standard output cannot be written: No space\n"),
    ],
)
@pytest.mark.parametrize("line", [RUN, f"{RUN} --json -", "trace info good.csv"])
def test_standard_output_that_fails_ends_in_at_most_one_line(
    line: str,
    error: OSError,
    told: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched, pytest.raises(SystemExit) as ended:
        output = Failing(error, folder / "standard output")
        patched.setattr(sys, "stdout", TextIOWrapper(BufferedWriter(output)))
        patched.setattr(sys, "argv", ["kvfrag", *shlex.split(line)])
        main()
    output.error = None
    assert ended.value.code == FAILED
    assert capsys.readouterr().err == told
    # What Python writes on its way out goes nowhere, so that it does not fail once more.
    output.file.write("the rest")
    output.file.close()
    assert not told or (folder / "standard output").read_text() == ""


def test_outputs_that_are_closed_are_done_without(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        for name in ("stdout", "stderr"):
            patched.setattr(sys, name, None)
        patched.setattr(sys, "argv", ["kvfrag", *shlex.split(RUN + OUTPUTS)])
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.close()
        sys.stderr.close()
    assert ended.value.code == 0
    assert capsys.readouterr() == ("", "")
    assert Run.load(folder / "saved").counts["finished"] == 3


# What comes out.

RUN_KEYS = [
    *("allocator", "capacity", "duration_s", "saturated_s", "iterations", "peak_batch", "mean_batch", "preemptions"),
    *(
        "finished",
        "rejected",
        "prompts_over_budget",
        "share",
        "share_saturated",
        "mean_largest_free",
        "refused_although_free_s",
        "mean_wait",
        "warnings",
    ),
]
SETTINGS_KEYS = [
    *(
        "cost",
        "cost_of",
        "max_model_len",
        "max_batch",
        "max_batch_tokens",
        "too_long",
        "preemption",
        "swap_slots",
        "scheduler",
        "window_s",
    ),
]


def as_json(text: str) -> Any:
    """JSON without NaN and infinity, which are none."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_has_the_keys_of_the_interface(kvfrag: Kvfrag) -> None:
    ended = kvfrag(
        "run sharegpt:rate=8,duration=20 --capacity 4096 --max-model-len 2048"
        " -a contiguous -a buddy:reserve=oracle -a paged:watermark=0.01 --json - --window 1.5 1000"
    )
    assert (ended.code, ended.err) == (0, "")
    told = as_json(ended.out)
    assert list(told) == ["trace", "settings", "pool", "warnings", "runs"]
    assert list(told["trace"]) == ["name", "requests", "sha256"]
    assert told["trace"]["name"] == "sharegpt:rate=8,duration=20,seed=0"
    assert list(told["settings"]) == SETTINGS_KEYS
    assert told["settings"]["window_s"] == [1.5, 1000]
    assert [run["allocator"] for run in told["runs"]] == [
        "contiguous:reserve=max,fit=first",
        "buddy:reserve=oracle,min_block=1,max_block=none,split=smallest",
        "paged:block_size=16,watermark=0.01",
    ]
    for run in told["runs"]:
        assert list(run) == RUN_KEYS
        assert list(run["rejected"]) == ["too_long", "never_fits"]
        for share in (run["share"], run["share_saturated"]):
            assert list(share) == list(CATEGORIES)
            assert all(0 <= part <= 1 for part in share.values())
            assert abs(math.fsum(share.values()) - 1) < 1e-12
        assert 0 < run["saturated_s"] <= run["duration_s"]
        assert run["finished"] + sum(run["rejected"].values()) <= told["trace"]["requests"]


FREE_COST = " --cost base=0,prefill_token=0,sequence=0"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # never saturated
        (RUN, {"share_saturated": None, "saturated_s": 0, "finished": 3}),
        # all rejected: nothing runs
        (
            f"{RUN} --max-model-len 5",
            {"share": None, "share_saturated": None, "mean_batch": None, "mean_largest_free": None, "duration_s": 0}
            | {"iterations": 0, "peak_batch": 0, "rejected": {"too_long": 3, "never_fits": 0}},
        ),
        (
            "run good.csv -a paged:block_size=4 --capacity 4",
            {"share": None, "rejected": {"too_long": 0, "never_fits": 3}},
        ),
        # a window behind the end of the run, and one in a gap
        (f"{RUN} --window 1000 2000", {"share": None, "mean_batch": None, "duration_s": 0, "finished": 3}),
        (f"{RUN} --window 0.6 0.9", {"mean_batch": None, "duration_s": 0.3, "finished": 1, "mean_largest_free": 96.0}),
        # iterations that take no time
        (RUN + FREE_COST, {"mean_batch": None, "duration_s": 2.5, "iterations": 12, "finished": 3}),
        (f"{RUN}{FREE_COST} --window 0 2", {"mean_batch": None, "duration_s": 2, "iterations": 11, "finished": 2}),
    ],
)
def test_what_did_not_happen_is_null_and_the_tables_show_a_dash(
    line: str, expected: dict[str, Any], kvfrag: Kvfrag
) -> None:
    told = as_json(kvfrag(f"{line} --json -").out)["runs"][0]
    assert {key: told[key] for key in expected} == expected
    ended = kvfrag(line)
    assert ended.code == 0
    assert ("  -  " in ended.out) == (None in (told["share"], told["mean_batch"]))


def test_json_to_standard_output_stands_alone(kvfrag: Kvfrag) -> None:
    ended = kvfrag(f"{RUN} --json - --save saved --plot bars.svg")
    as_json(ended.out)
    assert ended.err == "saved paged in saved\ndrew bars.svg\n"
    assert kvfrag(f"{RUN} --json - --save saved --plot bars.svg --quiet").err == ""


def test_all_outputs_of_one_run_agree(kvfrag: Kvfrag, folder: Path) -> None:
    shown = kvfrag(RUN).out
    assert kvfrag(RUN + OUTPUTS) == (0, shown, "saved paged in saved\ndrew bars.png\n")
    told = as_json((folder / "out.json").read_text())
    assert [Run.load("saved").summary()] == told["runs"]
    assert (folder / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert as_json(kvfrag(f"{RUN} --json -").out) == told


def test_several_runs_are_saved_in_a_folder_each(kvfrag: Kvfrag, folder: Path) -> None:
    line = f"{LIMITED} contiguous:reserve=oracle -a paged --save saved"
    for _ in range(2):  # the second replaces what the first has saved
        assert kvfrag(line).code == 0
        assert [run.name for run in map(Run.load, sorted((folder / "saved").iterdir()))] == [
            "contiguous:reserve=oracle",
            "paged",
        ]
    # Neither other runs nor a single one may be mixed with them.
    for other in (f"{LIMITED} paged -a paged --save saved", f"{RUN} --save saved", f"{line}/1-contiguous"):
        before = content(folder)
        assert kvfrag(other).code == INPUT_WRONG
        assert content(folder) == before


@pytest.mark.parametrize("window", ["", " --window 0.02 0.05", " --window 100 200"])
def test_decisions_are_saved_with_maps_that_the_log_rebuilds(window: str, kvfrag: Kvfrag, folder: Path) -> None:
    line = f"{LIMITED} contiguous:reserve=max -a paged:block_size=4 --save saved{window}"
    plain = kvfrag(line)
    assert all(run.decisions is None and not run.layouts for run in map(Run.load, (folder / "saved").iterdir()))
    assert kvfrag(f"{line} --decisions") == plain
    for run in map(Run.load, sorted((folder / "saved").iterdir())):
        start_s = float(run.settings.window_s[0]) if run.settings.window_s else 0.0
        times_s = [start_s + run.duration_ps / 10**12 * (number + 0.5) / MAPS for number in range(MAPS)]
        assert [layout.time_s for layout in run.layouts] == pytest.approx(times_s)
        history = History(run)
        assert [history.layout(layout.time_s).allocations for layout in run.layouts] == [
            layout.allocations for layout in run.layouts
        ]


def test_a_saved_run_has_the_log_that_a_page_was_drawn_from(kvfrag: Kvfrag, folder: Path) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    ended = kvfrag(f"{RUN} --save saved --plot map.html")
    assert ended.err == "saved paged in saved\nwrote map.html: open it in a browser\n"
    page = (folder / "map.html").read_text("utf-8")
    Run.load("saved").to_html("again.html")
    assert (folder / "again.html").read_text("utf-8") == page


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_picture_has_the_same_bytes(suffix: str, kvfrag: Kvfrag, folder: Path) -> None:
    pictures = []
    for name in ("one", "two"):
        assert kvfrag(f"{RUN} --plot {name}.{suffix} --quiet").err == ""
        pictures.append((folder / f"{name}.{suffix}").read_bytes())
    assert pictures[0] == pictures[1]
    assert len(pictures[0]) > 1000


DROPPED = "partly.csv: 2 of 3 rows dropped: prompt below 1 (1), time unreadable (1); --strict names the first\n"


def test_dropped_rows_are_told_on_standard_error(kvfrag: Kvfrag) -> None:
    ended = kvfrag("run partly.csv -a paged --capacity 100")
    assert ended.err == DROPPED
    assert ended.out.startswith("partly.csv: 1 request, a pool of 100 token slots\n")
    assert kvfrag("run partly.csv -a paged --capacity 100 --quiet").err == ""


def test_trace_info_tells_what_was_read(kvfrag: Kvfrag) -> None:
    ended = kvfrag("trace info partly.csv")
    assert (ended.code, ended.err) == (0, "")
    assert "partly.csv: 1 request over 0.0 s\n" in ended.out
    assert "neutral: 3 rows read, 1 kept; dropped: prompt below 1 (1), time unreadable (1)" in ended.out
    assert "requests/s" not in ended.out  # one request has no rate
    table = kvfrag("trace info good.csv").out
    assert "3 requests over 2.5 s" in table
    assert "1.20 requests/s; standard deviation / mean of the gaps 0.20 (Poisson: 1)" in table
    assert [line.split() for line in table.splitlines() if "prompt" in line] == [["prompt", "12", "10", "20", "20"]]
    assert kvfrag("trace info sharegpt:rate=4,duration=9").out.startswith("sharegpt:rate=4,duration=9,seed=0: ")


def test_trace_info_as_json(kvfrag: Kvfrag, folder: Path) -> None:
    ended = kvfrag("trace info partly.csv --json -")
    assert ended.err == DROPPED
    told = as_json(ended.out)
    assert (told["name"], told["rows"], told["rate_per_s"]) == ("partly.csv", 1, None)
    assert told["read"]["dropped"] == {"prompt below 1": 1, "time unreadable": 1}
    assert kvfrag("trace info sharegpt:rate=4,duration=9 --json out.json").code == 0
    assert "read" not in as_json((folder / "out.json").read_text())


def test_version_is_a_line(kvfrag: Kvfrag) -> None:
    assert kvfrag("--version") == (0, f"kvfrag {version('kvfrag')}\n", "")


@pytest.mark.parametrize("line", ["", "--help"])
def test_help_lists_the_commands(line: str, kvfrag: Kvfrag) -> None:
    ended = kvfrag(line)
    assert (ended.code, ended.err) == (0, "")
    assert [word for word in ("run ", "figure2 ", "trace ") if f"\n  {word}" not in ended.out] == []


def test_help_of_run_shows_every_allocator_with_its_options(kvfrag: Kvfrag) -> None:
    shown = kvfrag("run --help").out
    assert "\n    buddy:reserve=max,min_block=1,max_block=none,split=smallest\n" in shown
    assert "\n    contiguous:reserve=max,fit=first\n" in shown
    assert "\n    paged:block_size=16,watermark=0\n" in shown


def test_every_allocator_that_help_shows_can_be_typed_like_that(kvfrag: Kvfrag) -> None:
    shown = [line.strip() for line in kvfrag("run --help").out.splitlines() if line.startswith("    ")]
    specs = [line for line in shown if line.split(":")[0] in ALLOCATORS]
    assert len(specs) == len(ALLOCATORS)
    for spec in specs:
        assert kvfrag(f"{LIMITED} {spec}").code == 0


def test_memory_and_model_give_the_capacity_and_gpu_the_cost(kvfrag: Kvfrag) -> None:
    line = "run good.csv -a paged --memory 12GiB --model opt-13b --gpu a100-40gb --json -"
    told = as_json(kvfrag(line).out)
    assert told["runs"][0]["capacity"] == 15_728
    assert told["settings"]["cost"] == str(StepCost.from_hardware("OPT-13B", "A100-40GB"))


# What it looks like.

THREE = (
    "run sharegpt:rate=4,duration=20 --capacity 6000 --max-model-len 2048 -a contiguous:reserve=max"
    " -a buddy:reserve=max,min_block=16,max_block=2048,split=smallest -a paged:block_size=16,watermark=0.01"
)


@pytest.mark.parametrize("view", ["textbook", "paper", "ledger"])
@pytest.mark.parametrize("width", [80, 120, 160])
def test_tables_fit_the_screen_without_cutting_a_name_or_number(
    width: int, view: str, kvfrag: Kvfrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.cli.tables.printing._PIPE_COLUMNS", width)
    shown = kvfrag(f"{THREE} --view {view}").out
    lines = shown.splitlines()
    paragraphs = [line for line in lines if line.startswith("  cost of an iteration: ")]  # one line each in a pipe
    assert len(paragraphs) == 1 and max(len(line) for line in lines if line not in paragraphs) <= width
    assert "…" not in shown
    for spec in shlex.split(THREE)[7::2]:  # each is shown whole, in the tables or in front of them
        assert spec in shown
    rows = [line for line in lines if "contiguous" in line]
    # Where the specs do not fit, they stand in front of the tables, numbered.
    if width < 160:
        assert rows[0] == "  1 contiguous:reserve=max"
    if view != "ledger" or width > 80:
        assert len(rows) == 4 + (width < 160)
        assert all(row.split()[:2] == ["1", "contiguous"] for row in rows[1:] if width < 160)


def test_the_tables_show_the_figures(kvfrag: Kvfrag) -> None:
    shown = kvfrag(f"{THREE} --explain").out
    runs = as_json(kvfrag(f"{THREE} --json -").out)["runs"]
    names = shlex.split(THREE)[7::2]
    rows = [line.split() for line in shown.splitlines()]
    for name, run in zip(names, runs, strict=True):
        whole, refused, served, waited = [row[1:] for row in rows if row[:1] == [name]]
        for row, share in ((whole, run["share"]), (refused, run["share_saturated"])):
            parts = [share["used"], share["reservation"], share["overprovision"] + share["rounding"], share["external"]]
            parts.append(share["residual"] + share["idle"])
            assert row == [f"{100 * part:.1f}" for part in parts]
        figures = [run["duration_s"], 100 * run["saturated_s"] / run["duration_s"], run["mean_batch"]]
        assert served[:3] == [f"{figure:.1f}" for figure in figures]
        rejected = sum(run["rejected"].values())
        assert served[3:] == [
            f"({run['peak_batch']})",
            *(str(run[key]) for key in ("finished", "preemptions")),
            str(rejected),
        ]
        waits = run["mean_wait"]
        shown_causes = ("behind", "too_little_free", "iteration", "preempted")
        assert waited == [
            f"{wait:,.2f}" for wait in (sum(waits.values()), *(waits[f"{cause}_s"] for cause in shown_causes))
        ]
    # Every column is explained.
    for word in (
        "used",
        "reservation",
        "internal",
        "external",
        "free",
        "refused (%)",
        "running",
        "preempted",
        "rejected",
        "wait: behind",
    ):
        assert any(line.startswith(f"  {word}  ") for line in shown.splitlines()), word


def test_names_are_shown_as_they_are(kvfrag: Kvfrag) -> None:
    assert kvfrag("run '[red]x[.csv' -a paged --capacity 100").out.startswith("[red]x[.csv: 3 requests, ")
    assert kvfrag("trace info '[red]x[.csv'").out.startswith("[red]x[.csv: 3 requests over ")
    assert kvfrag("trace info :smile:.csv").out.startswith(":smile:.csv: 3 requests over ")


def test_figure2_shows_the_papers_numbers_below_ours(kvfrag: Kvfrag, folder: Path) -> None:
    ended = kvfrag("figure2 --seeds 2")
    assert (ended.code, ended.err) == (0, "drew figure2.png\n")
    assert (folder / "figure2.png").read_bytes().startswith(b"\x89PNG")
    rows = [line.split() for line in ended.out.splitlines()]
    paper = [row[1:] for row in rows if row[:1] == ["paper"]]
    assert paper == [
        ["20.4", "13.3", "57.3", "8.9"],
        ["26.8", "17.9", "13.6", "41.6"],
        ["38.2", "25.2", "0.0", "36.6"],
        ["96.3", "-", "-", "-"],
    ]
    names = [row for row in rows if row[:1] in (["Orca"], ["vLLM"])]
    assert [row[:2] for row in names] == [
        ["Orca", "(Max)"],
        ["Orca", "(Pow2)"],
        ["Orca", "(Oracle)"],
        ["vLLM", "(paged)"],
    ]
    assert len([row for row in rows if row[:1] == ["±"]]) == 4
    assert "mean of 2 seeds" in ended.out


def test_figure2_of_one_seed_has_no_spread(kvfrag: Kvfrag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "window_s", (0, 5))  # a short one
    ended = kvfrag("figure2 --seeds 1 --plot f.svg --quiet")
    assert (ended.code, ended.err) == (0, "")
    assert "±" not in ended.out


# Progress.


@pytest.mark.parametrize("flag", ["", " --quiet"])
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("line", [RUN, f"{RUN} --save saved --decisions", "figure2 --seeds 1"])
def test_progress_only_on_a_terminal_after_two_seconds_and_never_when_quiet(
    line: str, terminal: bool, flag: str, kvfrag: Kvfrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "window_s", (0, 5))  # figure2 in short
    bars = []

    class Bar(tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            bars.append(options)
            super().__init__(*args, **options)

    monkeypatch.setattr("simulator.messages.progress.tqdm", Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    ended = kvfrag(line + flag)
    assert ended.code == 0
    shown = [options for options in bars if not options["disable"]]
    # A run has one for reading the file, too, and with decisions it is made twice.
    wanted = 1 if line.startswith("figure2") else 3 if "--decisions" in line else 2
    assert len(shown) == wanted * (terminal and not flag)
    assert all(options["delay"] == 2.0 for options in shown)
    assert "%" not in ended.err  # over before two seconds: no bar


# Files that are written.


def test_an_earlier_file_stays_when_the_new_one_cannot_be_finished(
    kvfrag: Kvfrag, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "out.json").write_text("earlier")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    ended = kvfrag(f"{RUN} --json out.json")
    assert ended == (INPUT_WRONG, "", "kvfrag: out.json cannot be written: No space left on device\n")
    assert (folder / "out.json").read_text() == "earlier"
    assert content(folder).keys() == {*FILES, "out.json", "folder/", "other/", "otherrun/"}


def test_the_picture_is_drawn_before_its_file_is_touched(
    kvfrag: Kvfrag, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bars.png").write_text("earlier")

    def fail(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(plots, "waste_bars", fail)
    ended = kvfrag(f"{RUN} --plot bars.png")
    assert (ended.code, ended.out) == (FAILED, "")
    assert "RuntimeError: no ink" in ended.err
    assert (folder / "bars.png").read_text() == "earlier"


def test_a_pipe_is_written_to_and_stays_a_pipe(kvfrag: Kvfrag, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        assert kvfrag(f"{RUN} --json pipe").code == 0
        assert len(as_json(os.read(reader, 1 << 16).decode())["runs"]) == 1
    finally:
        os.close(reader)
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)
