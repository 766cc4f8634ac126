"""``kvfrag trace``, run in this process on the sample traces: what is printed, what is written, what is refused."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from make_samples import COMMAND, SAMPLES, WORKLOAD
from make_samples import main as make_samples
from simulator import Trace
from simulator.__main__ import FAILED, INPUT_WRONG, main
from simulator.plots import trace_overview
from simulator.traces.formats import FORMATS
from simulator.traces.public.catalogue import CATALOGUE, PublicTrace

TRACES = Path(__file__).parents[1] / "traces"
LENGTHS_ONLY = (
    "vidur-lengths.csv",
    "lengths.csv",
    "sharegpt.json",
    "sglang-bench.jsonl",
    "vllm-bench-old.json",
    "llmperf.json",
)


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Kvfrag = Callable[[str], Ended]


@pytest.fixture
def kvfrag(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Kvfrag:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "traces").symlink_to(TRACES)
    (tmp_path / "mine.py").write_text("def letters(text):\n    return len(text)\nnumber = 3\n")
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(line: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["kvfrag", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Ended(code, out, err)

    return run


def good(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err
    return ended


# The samples.


def test_the_samples_are_what_their_command_makes(tmp_path: Path, kvfrag: Kvfrag) -> None:
    make_samples(tmp_path)
    for name in ("neutral.csv", *SAMPLES):
        assert (tmp_path / name).read_bytes() == (TRACES / name).read_bytes(), name
    good(kvfrag(COMMAND.removeprefix("kvfrag ")))
    assert (tmp_path / "neutral.csv").read_bytes() == (TRACES / "neutral.csv").read_bytes()
    good(kvfrag("trace convert traces/qwen-bailian.jsonl -o again.parquet"))
    assert Trace.read("again.parquet").sha256 == Trace.read(TRACES / "neutral.parquet").sha256
    assert COMMAND.replace("neutral.csv", "traces/neutral.csv") in (TRACES / "README.md").read_text("utf-8")


def test_there_is_a_sample_of_each_format_and_all_are_the_same_requests() -> None:
    expected = Trace.read(TRACES / "neutral.csv")
    found = set()
    for path in TRACES.iterdir():
        if path.suffix in (".py", ".md") or path.name == "__pycache__":
            continue
        trace = Trace.read(path, rate=0.5 if path.name in LENGTHS_ONLY else None)
        assert trace.report is not None
        found.add(trace.report.format)
        assert f"`{path.name}`" in (TRACES / "README.md").read_text("utf-8")
        if path.name == "sharegpt.json":
            assert trace.prompt_tokens.tolist() == [1 + p // 20 for p in expected.prompt_tokens[:12].tolist()]
            continue
        sizes = [
            sorted(zip(t.prompt_tokens.tolist(), t.output_tokens.tolist(), strict=True)) for t in (trace, expected)
        ]
        assert sizes[0] == sizes[1], path.name
        clock_ns = {"mooncake.jsonl": 3 * 10**9}.get(path.name, trace.report.resolution_ns)
        if path.name not in (*LENGTHS_ONLY, "aiperf.jsonl"):
            assert np.abs(trace.arrival_ns - expected.arrival_ns).max() <= clock_ns, path.name
    assert found == {form.name for form in FORMATS}


@pytest.mark.parametrize("name", ["neutral.csv", "neutral.parquet", *SAMPLES])
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_every_sample_survives_convert(kvfrag: Kvfrag, name: str, ending: str) -> None:
    rate = " --rate 2" if name in LENGTHS_ONLY else ""
    good(kvfrag(f"trace convert traces/{name} -o out.{ending}{rate}"))
    before = Trace.read(TRACES / name, rate=2.0 if rate else None)
    after = Trace.read(f"out.{ending}", strict=True)
    assert after.sha256 == before.sha256
    for column in ("session", "block_hashes"):
        one, two = getattr(before, column), getattr(after, column)
        assert (None if one is None else one.tolist()) == (None if two is None else two.tolist())


# Commands.


def test_info_says_what_was_read(kvfrag: Kvfrag) -> None:
    shown = good(kvfrag("trace info traces/burstgpt-1.csv")).out.splitlines()
    assert shown[:4] == [
        "burstgpt-1.csv: 40 requests over 76.0 s",
        "  format burstgpt: 41 rows read, 40 kept; dropped: output below 1 (1)",
        "  the first arrives at 5270414 s; times are whole 1 s",
        "  note: arrivals are quantised: 40 requests share 27 times, mostly 2 s apart; bursts within a step are the "
        "clock's",
    ]
    ended = good(kvfrag("trace info traces/ragpulse.jsonl --json - --plot overview.svg"))
    read = json.loads(ended.out)["read"]
    assert (read["out_of_order"], read["origin"], read["resolution_ns"]) == (4, "0 s", 10**9)
    assert len(read["notes"]) == 2
    assert "not prefix blocks" in read["notes"][1]
    facts = json.loads(ended.out)
    assert facts["rows_with_blocks"] is None
    assert facts["sessions"] == len(set(Trace.read(TRACES / "ragpulse.jsonl").to_frame()["session"]))
    assert Path("overview.svg").read_text().count("requests a second") == 1
    assert "ragpulse.jsonl: 4 rows out of order, sorted\n" in ended.err
    assert "drew overview.svg\n" in ended.err


def test_info_tells_blocks_and_sessions(kvfrag: Kvfrag) -> None:
    sessions = len(set(Trace.read(TRACES / "qwen-bailian.jsonl").to_frame()["session"]))
    shown = good(kvfrag("trace info traces/qwen-bailian.jsonl")).out
    assert f"\n  40 rows with prefix blocks of 16 tokens (a run ignores them); {sessions} sessions\n" in shown
    assert "prefix blocks" not in good(kvfrag("trace info traces/blis.csv")).out


def test_info_shows_small_rates_and_no_deviation_of_one_gap(kvfrag: Kvfrag) -> None:
    Path("slow.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n800,1,1\n")
    assert "\n  0.00250 requests/s\n" in good(kvfrag("trace info slow.csv")).out
    assert json.loads(good(kvfrag("trace info slow.csv --json -")).out)["gap_cv"] is None
    Path("fast.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n0.0005,1,1\n0.001,1,1\n")
    assert "\n  3,000 requests/s; standard" in good(kvfrag("trace info fast.csv")).out


def test_run_takes_what_trace_info_takes(kvfrag: Kvfrag) -> None:
    ended = good(kvfrag("run traces/vidur-lengths.csv --rate 2 -a paged --capacity 20000"))
    assert ended.out.startswith("vidur-lengths.csv: 40 requests")
    assert "Poisson ones, 2 a second, seed 0" in ended.err
    assert kvfrag("run traces/blis.csv --format azure -a paged --capacity 20000").code == INPUT_WRONG
    ended = good(kvfrag("run traces/azure-2023.csv:rate=9,requests=30 -a paged --capacity 20000"))
    assert ended.out.startswith("azure-2023.csv:rate=9,requests=30,seed=0: 30 requests")


def test_slice(kvfrag: Kvfrag) -> None:
    whole = Trace.read(TRACES / "qwen-bailian.jsonl")
    ended = good(kvfrag("trace slice traces/qwen-bailian.jsonl --time 10 40.5 -o part.csv"))
    part = Trace.read("part.csv")
    assert part.sha256 == whole.between(10, 40.5).sha256
    assert part.block_hashes is not None
    assert "not that a block has 16 tokens" in ended.err
    assert "not that a block has 16 tokens" in good(kvfrag("trace convert traces/qwen-bailian.jsonl -o all.csv")).err
    assert "a block has" not in good(kvfrag("trace convert traces/neutral.parquet -o all.csv")).err
    assert ended.out == (
        f"{len(part)} requests over {part.duration_s:.1f} s ({len(part) / part.duration_s:.4g}/s), "
        "a part of qwen-bailian.jsonl: 40 requests over 76.4 s (0.5237/s)\n"
    )
    good(kvfrag("trace slice traces/qwen-bailian.jsonl --requests 3 4 -o part.csv --quiet"))
    assert Trace.read("part.csv").prompt_tokens.tolist() == whole.prompt_tokens[3:4].tolist()


def test_scale(kvfrag: Kvfrag) -> None:
    whole = Trace.read(TRACES / "mooncake.jsonl")
    ended = good(kvfrag("trace scale traces/mooncake.jsonl --rate 2 --lengths 0.5 -o scaled.csv"))
    assert "block hashes are left out" in ended.err
    scaled = Trace.read("scaled.csv")
    assert scaled.arrival_ns.tolist() == (whole.arrival_ns // 2).tolist()
    assert scaled.prompt_tokens.tolist() == np.maximum(np.rint(whole.prompt_tokens / 2), 1).tolist()
    before, after = [
        f"{t.prompt_tokens.mean():,.1f} (prompt) and {t.output_tokens.mean():,.1f} (output) tokens"
        for t in (whole, scaled)
    ]
    assert ended.out.endswith(
        f"scaled from mooncake.jsonl: 40 requests over 75.0 s (0.5333/s)\nmean lengths {after}, scaled from {before}\n"
    )
    assert "raised to 1" not in ended.err
    outputs = int((np.rint(whole.output_tokens * 0.005) < 1).sum())
    assert outputs
    ended = good(kvfrag("trace scale traces/mooncake.jsonl --lengths 0.005 -o scaled.csv"))
    assert f"{outputs} of 40 outputs" in ended.err
    assert "mean lengths" not in good(kvfrag("trace scale traces/mooncake.jsonl --rate 2 -o scaled.csv")).out


def test_generate_and_profile(kvfrag: Kvfrag) -> None:
    ended = good(kvfrag(f"trace generate {WORKLOAD},cv=3 -o g.csv.gz"))
    assert ended == (0, "", f"wrote g.csv.gz: {ended.err.removeprefix('wrote g.csv.gz: ')}")
    assert len(Trace.read("g.csv.gz")) == 40
    assert "wrote my.json" in good(kvfrag("trace profile traces/azure-2023.csv -o my.json")).err
    data = json.loads(Path("my.json").read_text())
    assert list(data["profiles"]) == ["my"]
    assert data["profiles"]["my"]["arrival_rate_per_s"] == pytest.approx(0.5237, rel=1e-3)
    good(kvfrag("trace generate my.json:requests=500 -o h.parquet"))
    real, drawn = Trace.read(TRACES / "azure-2023.csv"), Trace.read("h.parquet")
    assert set(drawn.prompt_tokens.tolist()) <= set(range(real.prompt_tokens.min(), real.prompt_tokens.max() + 1))
    good(kvfrag("trace profile traces/lengths.csv -o lengths.json"))
    assert json.loads(Path("lengths.json").read_text())["profiles"]["lengths"]["arrival_rate_per_s"] is None
    assert "has no rate of its own" in kvfrag("trace info lengths.json").err
    good(kvfrag("trace info lengths.json:rate=3"))


def test_every_command_that_reads_a_trace_takes_a_tokenizer(kvfrag: Kvfrag) -> None:
    options = "traces/sharegpt.json --tokenizer mine.letters"
    pool = "-a paged --capacity 4000 --max-model-len 4000"
    expected = [len(c["conversations"][0]["value"]) for c in json.loads((TRACES / "sharegpt.json").read_text())]
    for line in (
        f"trace info {options} --rate 2",
        f"trace slice {options} --rate 2 --requests 0 5 -o a.csv",
        f"trace profile {options} -o p.json",
        f"run {options} --rate 2 {pool}",
        f"size {options} --rate 2 -a paged --max-refused 1% --max-model-len 4000",
        f"advise {options} --rate 2",
        f"sweep {options} --rate 2 {pool} --workers 1",
    ):
        told = good(kvfrag(line))
        assert "for want of a tokenizer" not in told.out + told.err, line
    assert Trace.read("a.csv").prompt_tokens.tolist() == expected[:5]
    for command in ("run", "size", "advise", "sweep", "trace convert", "trace scale"):
        assert "--tokenizer" in good(kvfrag(f"{command} --help")).out
    kept = good(kvfrag(f"run traces/sharegpt.json --rate 2 {pool}")).err
    assert "sharegpt.json: for want of a tokenizer, tokens are words between blanks (texts: 24)" in kept
    unused = good(kvfrag("trace convert traces/blis.csv --tokenizer mine.letters -o b.csv")).err
    assert "the tokenizer was not used: the file says how many tokens there are" in unused


def test_a_workload_is_not_drawn_from_guessed_tokens(kvfrag: Kvfrag) -> None:
    for line in (
        "trace generate traces/sharegpt.json:rate=4 -o out.csv",
        "fit --workload traces/sharegpt.json --max-model-len 512 --capacity 2000",
    ):
        ended = kvfrag(line)
        assert (ended.code, len(ended.err.splitlines())) == (INPUT_WRONG, 1)
        assert "drawn from texts, whose tokens must be counted first: kvfrag trace convert" in ended.err


def test_convert_counts_with_any_tokenizer(kvfrag: Kvfrag) -> None:
    good(kvfrag("trace convert traces/sharegpt.json --rate 2 --tokenizer mine.letters -o letters.csv"))
    texts = [c["conversations"][0]["value"] for c in json.loads((TRACES / "sharegpt.json").read_text())]
    assert sorted(Trace.read("letters.csv").prompt_tokens.tolist()) == sorted(map(len, texts))


@pytest.mark.parametrize(
    "line",
    [
        "run {} -a paged --capacity 2000",
        "size {} -a paged --max-refused 1%",
        "advise {}",
        "sweep {} -a paged --capacity 2000 --workers 1",
        "trace info {}",
        "trace convert {} -o out.csv",
        "trace slice {} --requests 0 1 -o out.csv",
        "trace scale {} --rate 2 -o out.csv",
        "trace profile {} -o out.json",
    ],
)
def test_every_command_that_reads_a_trace_takes_columns(kvfrag: Kvfrag, line: str) -> None:
    Path("odd.csv").write_text("moment,p,o\n2026-11-30 10:15:00Z,3,4\n2026-11-30 10:15:01.5Z,5,6\n")
    ended = kvfrag(line.format("odd.csv"))
    assert ended.code == INPUT_WRONG
    assert "its columns are 'moment, p, o'; say which is which: --columns arrival=" in ended.err
    ended = kvfrag(f"{line.format('odd.csv')} --columns arrival=moment,prompt=p,output=q")
    assert ended.code == INPUT_WRONG
    assert ended.err.endswith(
        "columns: output=q: there is no such column; the columns of the file are 'moment, p, o'\n"
    )
    good(kvfrag(f"{line.format('odd.csv')} --columns arrival=moment,prompt=p,output=o"))


def test_a_log_with_usual_names_and_dates_works_at_the_first_try(kvfrag: Kvfrag) -> None:
    Path("LOG.csv").write_text("time,input_len,output_len\n2026-11-30T10:15:00Z,812,95\n2026-11-30T10:15:01.5Z,10,5\n")
    ended = good(
        kvfrag("run LOG.csv -a paged:block_size=16 -a contiguous:reserve=max --capacity 20000 --max-model-len 8192")
    )
    assert ended.out.startswith("LOG.csv: 2 requests, a pool of 20,000 token slots\n")
    assert "LOG.csv: columns by their usual names: arrival=time, prompt=input_len, output=output_len\n" in ended.err


def test_lengths_of_a_file_with_other_names_come_by_way_of_convert(kvfrag: Kvfrag) -> None:
    Path("odd.csv").write_text("moment,p,o\n0,3,4\n1,5,6\n")
    told = kvfrag("trace generate odd.csv:rate=4,requests=3 -o out.csv").err
    assert "; kvfrag trace convert takes that, and lengths can be drawn from what it writes" in told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trace convert traces/blis.csv", ["--output"]),
        ("trace convert traces/blis.csv -o out.txt", ["--output(=out.txt)", ".csv, .csv.gz, .parquet"]),
        ("trace convert traces/blis.csv -o none/out.csv", ["there is no folder none"]),
        ("trace convert traces/neutral.csv -o traces/neutral.csv", ["must not be the same file as an input"]),
        ("trace convert traces/blis.csv -o out.csv --rate 2", ["has arrivals of its own"]),
        ("trace convert traces/lengths.csv -o out.csv", ["give a rate in requests a second, --rate 4"]),
        ("trace convert traces/lengths.csv -o out.csv --rate many", ["'many' must be a number"]),
        ("trace convert traces/blis.csv -o out.csv --format exe", ["format(='exe') must be one of neutral, azure"]),
        ("trace convert traces/burstgpt-1.csv -o out.csv --strict", ["row 41 (line 42)", "Response tokens(='0')"]),
        (
            "trace convert traces/blis.csv -o out.csv --tokenizer letters",
            ["must be a tokenizer.json, or package.module.function"],
        ),
        ("trace convert traces/blis.csv -o out.csv --tokenizer no.where", ["no cannot be imported"]),
        (
            "trace convert traces/blis.csv -o out.csv --tokenizer mine.number",
            ["must be a tokenizer.json, or package.module.function"],
        ),
        ("trace slice traces/blis.csv -o out.csv", ["--time START END", "--requests FIRST END"]),
        ("trace slice traces/blis.csv -o out.csv --time 0 1 --requests 0 1", ["which part?"]),
        ("trace slice traces/blis.csv -o out.csv --time 100 200", ["no request of blis.csv arrives from 100 to 200 s"]),
        ("trace slice traces/blis.csv -o out.csv --time soon 200", ["start(=soon) must be a number of seconds"]),
        ("trace slice traces/blis.csv -o out.csv --requests 5 5", ["--requests(=5 5)", "0 <= FIRST < END"]),
        ("trace slice traces/blis.csv -o out.csv --requests 50 60", ["no request of blis.csv is among"]),
        ("trace scale traces/blis.csv -o out.csv", ["scale what? --rate FACTOR, --lengths FACTOR, or both"]),
        ("trace scale traces/blis.csv -o out.csv --rate 0", ["rate(=0) must be a finite factor > 0"]),
        ("trace generate bard:rate=4 -o out.csv", ["unknown workload 'bard'"]),
        ("trace generate arxiv:rate=4,on=1 -o out.csv", ["on and off together"]),
        ("trace profile traces/none.csv -o out.json", ["neither a file nor a workload"]),
        ("trace info traces/blis.csv --plot overview.txt", ["--plot(=overview.txt)", ".png, .svg, .pdf"]),
        ("trace info arxiv:rate=1 --format azure", ["format is for a file of requests"]),
        ("trace info azure-2023-conv", ["is not here yet: kvfrag trace download azure-2023-conv"]),
        ("run azure-2023-conv -a paged --capacity 100", ["is not here yet: kvfrag trace download azure-2023-conv"]),
        ("trace download azure", ["NAME(='azure') must be one of azure-2023-code, azure-2023-conv"]),
    ],
)
def test_what_is_wrong_is_told_in_one_line(kvfrag: Kvfrag, line: str, words: Iterable[str]) -> None:
    ended = kvfrag(line)
    assert (ended.code, ended.out) == (INPUT_WRONG, "")
    assert len(ended.err.splitlines()) == 1
    for word in words:
        assert word in ended.err
    assert not Path("out.csv").exists()


def test_download_and_then_run_by_name(kvfrag: Kvfrag, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = (TRACES / "azure-2023.csv").as_uri()  # tests/test_download.py has a server
    one = PublicTrace(address, "CC0", "nobody", "a test")
    monkeypatch.setitem(CATALOGUE, "tiny", one)
    ended = good(kvfrag("trace download tiny"))
    place = tmp_path / "cache" / "kvfrag" / "traces" / "azure-2023.csv"
    assert ended.out == f"tiny is in {place}\nlicence CC0; cite nobody\n"
    assert ended.err == ("tiny is not verified: the publisher gives no checksum; --force fetches it again\n")
    place.write_text("half of it")
    assert good(kvfrag("trace download tiny --force")).out.startswith(f"tiny is in {place}\n")
    assert good(kvfrag("trace download tiny")).out.startswith(f"tiny is in {place} (it was there already)\n")
    assert good(kvfrag("run tiny -a paged --capacity 20000")).out.startswith("azure-2023.csv: 40 requests")
    assert good(kvfrag("trace info tiny:rate=3,requests=7")).out.startswith("tiny:rate=3,requests=7,seed=0: 7 requests")
    listed = good(kvfrag("trace download")).out
    assert all(name in listed for name in CATALOGUE)
    place.unlink()
    monkeypatch.setitem(CATALOGUE, "tiny", PublicTrace("http://127.0.0.1:9/t.csv", "CC0", "nobody", "a test"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    ended = kvfrag("trace download tiny")
    assert (ended.code, ended.out) == (FAILED, "")
    assert ended.err.startswith("kvfrag: cannot download tiny: the server cannot be reached")
    assert len(ended.err.splitlines()) == 1


def test_progress_of_reading_and_writing_on_a_terminal(kvfrag: Kvfrag, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, float]] = []

    class Bar:
        def __init__(self, total: int, **options: object) -> None:
            made.append((options["desc"], total))
            self.done, self.total = 0, total

        def update(self, count: int) -> None:
            self.done += count

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *error: object) -> None:
            assert self.done == self.total

    monkeypatch.setattr("simulator.messages.progress.tqdm", Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    good(kvfrag("trace convert traces/neutral.csv -o out.csv"))
    assert made == [("reading", (TRACES / "neutral.csv").stat().st_size), ("writing", 40)]


def test_an_overview_of_requests_all_at_once() -> None:
    trace = Trace.from_columns([0, 0, 0], [1, 2, 3], [4, 5, 6])
    left, right = trace_overview(trace).figure.axes
    (stairs,) = left.patches
    assert stairs.get_data().values.tolist() == [3]  # type: ignore[attr-defined]
    assert left.get_xlim() == (0, 1)
    legend = right.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["prompt", "output"]
