"""The page to scrub through: what is in it, and in a real browser what it shows and answers."""

import base64
import gzip
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocators import Buddy, InputError, Paged
from lesson_runs import SECOND, busy, figure6
from simulator import Trace, simulate
from simulator.page import html as page
from simulator.page.html import page_of, write_page
from simulator.results.history import History

pytest.importorskip("plotly", reason="plotly is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def head_of(text: str) -> tuple[dict[str, Any], bytes]:
    """The head of a page's data, and the columns behind it."""
    found = re.search(r'id="data">([^<]*)<', text)
    assert found is not None
    content = gzip.decompress(base64.b64decode(found[1]))
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def column(place: dict[str, Any], rest: bytes) -> list[float]:
    values: list[float] = np.frombuffer(rest, place["type"], place["count"], place["at"]).tolist()
    return values


def test_the_page_is_whole_and_small() -> None:
    runs = [busy("max"), busy("oracle"), busy()]
    text = page_of(runs)
    assert "{{" not in text.split("<script>")[0] and len(text) < 8_000_000
    assert "src=" not in text.split("<script>")[0] and '<link rel="icon" href="data:,">' in text
    head, rest = head_of(text)
    assert [run["name"] for run in head["runs"]] == [run.name for run in runs]
    assert column(head["requests"]["prompt_tokens"], rest) == runs[0].requests["prompt_tokens"].to_list()
    log = head["runs"][2]["log"]
    history = History(runs[2])
    assert column(log["stay_request"], rest) == history.stays["request"].to_list()
    assert sorted(column(log["extent_start"], rest)) == sorted(history.extents["start"].to_list())
    waste = head["runs"][1]["waste"]
    total = sum(np.array(column(waste[category["name"]], rest)) for category in head["categories"])
    assert np.allclose(total, 100, atol=1e-3)
    assert page_of(runs) == text  # no clock and no random ids


def test_no_name_can_end_the_script_or_turn_the_text_around() -> None:
    hostile = "</script><b>\x1b[31m\u202e&amp;\n"
    run = busy()
    text = page_of([replace(run, label=hostile, trace=replace(run.trace, name=hostile))])
    shown = r"</script><b>\x1b[31m\u202e&amp;\n"
    assert hostile not in text and shown not in text  # the data travel packed
    assert r"<title>kvfrag: &lt;/script>&lt;b>\x1b[31m\u202e&amp;amp;\n</title>" in text
    head, _ = head_of(text)
    assert (head["trace"], head["runs"][0]["name"]) == (shown, shown)


def test_a_log_that_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_OWN_BYTES", 0)
    full = len(page_of([busy("max"), busy()]))
    for most_bytes in range(full, full - 60_000, -2_000):  # until the longer one does not fit any more
        monkeypatch.setattr(page, "MOST_BYTES", most_bytes)
        head, rest = head_of(page_of([busy("max"), busy()]))
        if head["runs"][1]["log"] is None:
            break
    assert [run["log"] is None for run in head["runs"]] == [False, True]
    assert len(column(head["runs"][1]["map"]["offset"], rest)) == head["runs"][1]["map"]["rows"] * 800
    assert "offset" not in head["runs"][0]["map"]


def test_what_cannot_be_a_page_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = simulate(Trace.from_columns([0], [7], [4]), Paged(16, 4), cost=SECOND, decisions=True)
    with pytest.raises(InputError, match=r"runs\(=\[\]\) must hold at least one run"):
        page_of([])
    with pytest.raises(InputError, match="is of another trace than"):
        figure6().to_html(tmp_path / "map.html", other)
    with pytest.raises(InputError, match="there is no folder"):
        other.to_html(tmp_path / "none" / "map.html")
    nothing = simulate(Trace.from_columns([0], [50], [1]), Paged(34, 4), decisions=True)
    with pytest.raises(InputError, match="covers no time"):
        page_of([nothing])
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(InputError, match=r"a page needs plotly: pip install 'kvfrag\[notebooks\]'"):
        page_of([other])


def test_the_command_line_writes_a_page(tmp_path: Path) -> None:
    command = "run sharegpt:rate=2,duration=5,seed=0 -a paged -a buddy:reserve=oracle --capacity 4096 --plot map.html"
    done = subprocess.run(
        [sys.executable, "-m", "simulator", *command.split(), "--max-model-len", "2048"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(page.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "wrote map.html: open it in a browser\n")
    head, _ = head_of((tmp_path / "map.html").read_text("utf-8"))
    assert [run["name"] for run in head["runs"]] == ["paged", "buddy:reserve=oracle"]


# In a browser.


class Watched:
    """A page in a browser, and what it said and asked for."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab
        self.said: list[str] = []
        self.asked: list[str] = []
        tab.on("console", lambda message: self.said.append(message.text))
        tab.on("pageerror", lambda error: self.said.append(str(error)))
        tab.on("request", lambda request: self.asked.append(request.url))

    def hover(self, run: int, time_s: float, address: float) -> str:
        """The tip at a slot of a map."""
        x, y = self.tab.evaluate(f"kvfrag.place({run}, {time_s}, {address})")
        self.tab.mouse.move(x - 3, y)
        self.tab.mouse.move(x, y)
        self.tab.wait_for_selector("#tip:not([hidden])")
        self.tab.wait_for_timeout(200)
        text: str = self.tab.inner_text("#tip")
        return text


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    options = (
        "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync"
    )
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=options.split())
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def watched(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    path = tmp_path_factory.mktemp("page") / "map.html"
    write_page([busy("max"), busy("oracle"), busy()], path)
    context = browser.new_context(viewport={"width": 1400, "height": 1400}, offline=True)
    found = Watched(context.new_page())
    found.tab.goto(path.as_uri())
    found.tab.wait_for_selector("body[data-ready]")
    yield found
    context.close()


def test_it_loads_alone_and_in_silence(watched: Watched) -> None:
    assert watched.said == []
    assert [url for url in watched.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert watched.tab.inner_text("h1").endswith(f"{len(busy().requests)} requests")
    assert "Maps are binned: a cell is" in watched.tab.inner_text("#note")
    assert "exact at every instant" in watched.tab.inner_text("#note")
    drawn = watched.tab.evaluate("document.querySelectorAll('#maps image').length")
    assert drawn == 3


@pytest.mark.parametrize(("nth", "spec"), [(0, "max"), (1, "oracle"), (2, "paged")])
def test_a_hover_says_whose_slot_it_is(watched: Watched, nth: int, spec: str) -> None:
    run = busy(spec)
    history = History(run)
    end_s = max(History(busy(one)).end_s for one in ("max", "oracle", "paged"))
    time_s = (int(0.3 * history.end_s / end_s * 800) + 0.5) * end_s / 800  # the middle of a column
    layout = history.layout(time_s)
    text = watched.hover(nth, time_s, layout.allocations[0].extents[0].start + 8)
    found = re.search(r"address ([\d,]+) at ", text)
    assert found is not None
    address = int(found[1].replace(",", ""))
    held, logical, extent = next(
        (one, index, extent)
        for one in layout.allocations
        for index, extent in enumerate(one.extents)
        if extent.start <= address < extent.end
    )
    prompt, output = (int(run.requests[name][held.request]) for name in ("prompt_tokens", "output_tokens"))
    assert text.startswith(f"request {held.request}: prompt {prompt}, output {output} tokens\n")
    slot = address - extent.start
    offset = slot + 16 * logical
    if spec == "paged":
        assert f"logical block {logical}, slot {slot + 1} of 16 (physical block {extent.start // 16})" in text
    else:
        assert f"offset {slot} in its extent" in text
    words = "written" if offset < held.written_tokens else "reserved" if offset < held.final_tokens else "never used"
    assert words in text


def test_the_slider_moves_everything(watched: Watched) -> None:
    tab = watched.tab
    tab.evaluate("slider.value = 500; slider.dispatchEvent(new Event('input'))")
    middle = tab.evaluate("(kvfrag.data.start_s + kvfrag.data.end_s) / 2")
    tab.wait_for_function(f"Math.abs(maps.layout.shapes[0].x0 - {middle}) < 0.1")
    assert tab.inner_text("#time") == f"{middle:,.2f} s" or tab.inner_text("#time") == f"{middle:,.1f} s"
    shown = tab.inner_text("#ledger")
    tab.evaluate("slider.value = 100; slider.dispatchEvent(new Event('input'))")
    tab.wait_for_function("maps.layout.shapes[0].x0 < 20")
    assert tab.inner_text("#ledger") != shown


def test_play_goes_on_by_itself(watched: Watched) -> None:
    tab = watched.tab
    before = tab.evaluate("kvfrag.state.time")
    tab.click("#play")
    tab.wait_for_function(f"kvfrag.state.time > {before}")
    assert tab.inner_text("#play") == "■"
    tab.click("#play")
    assert tab.inner_text("#play") == "▶"


def test_a_picked_request_shows_its_block_table(watched: Watched) -> None:
    history = History(busy())
    time_s = 0.4 * history.end_s
    held = max(history.layout(time_s).allocations, key=lambda one: len(one.extents))
    tab = watched.tab
    tab.evaluate(f"kvfrag.chooseRun(2).then(() => kvfrag.setTime({time_s})).then(() => kvfrag.pick({held.request}))")
    tab.wait_for_selector("#table tr:nth-child(2)")
    rows = tab.evaluate("[...table.rows].slice(1).map((row) => [...row.cells].map((cell) => cell.textContent))")
    left = held.written_tokens
    for logical, (row, extent) in enumerate(zip(rows, held.extents, strict=True)):
        filled = min(16, max(0, left - 16 * logical))
        assert row[:3] == [str(logical), str(extent.start // 16), f"{filled} of 16"]
    assert f"{held.written_tokens} of {held.final_tokens} tokens written" in tab.inner_text("#picked")

    tab.fill("#request", "99999")
    tab.dispatch_event("#request", "change")
    assert tab.inner_text("#picked") == "There is no request 99999."
    assert watched.said == []


def test_the_page_knows_the_same_as_python(watched: Watched) -> None:
    for nth, spec in enumerate(["max", "oracle", "paged"]):
        history = History(busy(spec))
        for part in (0.05, 0.2, 0.55, 0.9):
            time_s = part * history.end_s
            found = watched.tab.evaluate(f"kvfrag.layoutAt(kvfrag.data.runs[{nth}], {time_s})")
            expected = [
                (one.request, one.written_tokens, [extent.start for extent in one.extents])
                for one in history.layout(time_s).allocations
            ]
            assert [
                (one["request"], one["written"], [extent["start"] for extent in one["extents"]]) for one in found
            ] == expected


def test_a_page_without_a_log_reads_its_cells(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_BYTES", 0)
    write_page([busy()], tmp_path / "map.html")
    tab = Watched(browser.new_page())
    tab.tab.goto((tmp_path / "map.html").as_uri())
    tab.tab.wait_for_selector("body[data-ready]")
    assert "too long for this page: its pool is read off the map's cells" in tab.tab.inner_text("#note")
    time_s = 0.4 * History(busy()).end_s
    held = History(busy()).layout(time_s).allocations[0]
    assert tab.hover(0, time_s, held.extents[0].start + 8).startswith("request ")
    assert tab.said == []
    tab.tab.close()


def beside_nothing() -> list[Any]:
    """A run in which nothing ran, as its only request never fits, and one in which it did."""
    trace = Trace.from_columns([0], [390], [5])
    options: dict[str, Any] = {"max_model_len": 400, "decisions": True, "cost": SECOND}
    return [
        simulate(trace, Buddy(400, "oracle", max_model_len=400), **options),
        simulate(trace, Paged(400, 16), **options),
    ]


def test_a_run_in_which_nothing_ran_stands_beside_the_others() -> None:
    runs = beside_nothing()
    assert runs[0].duration_ps == 0 < runs[1].duration_ps
    head, rest = head_of(page_of(runs))
    nothing, other = head["runs"]
    assert nothing["share"] is None and other["share"]["used"] > 0.9
    assert column(nothing["waste"]["edges_s"], rest) == [0.0, 5.0] and column(nothing["waste"]["idle"], rest) == [100.0]
    assert set(column(nothing["map"]["request"], rest)) == {0}
    assert page_of(runs[::-1])


def test_the_page_says_what_is_not_exact(browser: Any, tmp_path: Path) -> None:
    write_page([*beside_nothing()], tmp_path / "map.html")
    found = Watched(browser.new_page())
    found.tab.goto((tmp_path / "map.html").as_uri())
    found.tab.wait_for_selector("body[data-ready]")
    assert "nothing ran" in found.tab.inner_text("#maps") and found.tab.inner_text("#bin") == "Nothing ran."
    assert "a cell is 1 slot ×" in found.tab.inner_text("#note")
    found.tab.evaluate("kvfrag.chooseRun(1)")
    assert re.match(r"Means from [\d.]+ s to [\d.]+ s; below, the pool slot by slot", found.tab.inner_text("#bin"))

    trace = Trace.from_columns([0], [3], [3])
    options: dict[str, Any] = {"decisions": True, "cost": SECOND}
    write_page([simulate(trace, Paged(slots, 1), **options) for slots in (3, 5000)], tmp_path / "map.html")
    found.tab.goto((tmp_path / "map.html").as_uri())
    found.tab.wait_for_selector("body[data-ready]")
    note = found.tab.inner_text("#note")
    assert "a cell is 1, 13 slots (from the first map to the last)" in note
    assert "the pool at an instant shows the middles of its cells" in note and "pool and the block" not in note
    ticks = "[...document.querySelectorAll('#maps .ytick text')].map((text) => text.textContent)"
    first = found.tab.evaluate(ticks)[:4]
    assert first == ["0", "1", "2", "3"]  # whole slots, each once
    assert found.said == []
    found.tab.close()


@pytest.mark.parametrize("typed", ["1.5", "99999", "-3"])
def test_nothing_pales_for_a_request_that_is_not_there(watched: Watched, typed: str) -> None:
    tab = watched.tab
    tab.evaluate("kvfrag.pick(-1)")
    plain = tab.evaluate("maps.data[0].source")
    tab.fill("#request", typed)
    tab.dispatch_event("#request", "change")
    assert tab.inner_text("#picked") == f"There is no request {typed}."
    assert tab.evaluate("maps.data[0].source") == plain
    tab.evaluate("kvfrag.pick(0)")
    assert tab.evaluate("maps.data[0].source") != plain
    assert watched.said == []
