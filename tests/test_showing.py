"""Results show themselves in a few lines, in a notebook as a safe table; runs of one name are told apart."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from allocators import Contiguous, Paged
from simulator import Advice, Fit, Run, Size, Trace, advise, backlog, fit, plots, simulate, size
from simulator.messages.showing import Shown, apart, labels

TRACE = Trace.from_columns([0, 10**9], [10, 20], [5, 6], name="<b>two</b>")
RUN = simulate(TRACE, Paged(64, 16))


def test_a_run_says_what_it_was_and_where_its_pool_went() -> None:
    lines = repr(RUN).splitlines()
    share = RUN.summary()["share"]
    assert lines[0] == "Run of <b>two</b>"
    assert lines[1:3] == ["  allocator  paged:block_size=16,watermark=0", "  capacity   64 slots"]
    assert lines[3].startswith(f"  pool       used {100 * share['used']:.1f} %, reservation ")
    assert lines[4] == f"  time       {RUN.duration_ps / 1e12:,.1f} s; memory refused in 0.0 % of it"
    assert lines[5:] == ["  finished   2 of 2 requests"]
    assert str(RUN) == repr(RUN)
    labelled = repr(replace(RUN, label="mine"))
    assert "  allocator  mine, that is paged:block_size=16,watermark=0\n" in labelled
    turned_away = simulate(TRACE, Paged(16, 16))
    assert repr(turned_away).endswith("  finished   1 of 2 requests; rejected 1")
    nothing = simulate(TRACE, Paged(1, 1))
    assert "  pool       nothing ran\n" in repr(nothing)


def shown() -> list[Shown]:
    lengths = backlog("sharegpt", 500, 256)
    return [
        RUN,
        TRACE,
        advise(TRACE),
        advise(TRACE, capacity=16, seeds=None),
        fit(lengths, "paged", 500, 256),
        size(TRACE, "paged", max_refused="1%"),
    ]


class Texts(HTMLParser):
    """The tags and the texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_results_show_themselves_in_a_few_lines_and_as_the_same_table() -> None:
    kinds = [type(one) for one in shown()]
    assert kinds == [Run, Trace, Advice, Advice, Fit, Size]
    for one in shown():
        lines = repr(one).splitlines()
        assert 4 <= len(lines) <= 9 and "array(" not in repr(one) and "DataFrame" not in repr(one)
        page = Texts()
        page.feed(one._repr_html_())
        assert set(page.tags) <= {"table", "caption", "b", "tbody", "tr", "th", "td"}
        title, facts = one.told()
        assert page.texts == [title, *(text for fact in facts.items() for text in fact)]
        assert page.tags.count("b") == 1 and page.tags.count("tr") == len(facts) == len(lines) - 1


def test_an_answer_tells_its_figures() -> None:
    _, _, of_lengths, of_pool, fitted, sized = map(repr, shown())
    assert of_lengths.startswith("Advice: blocks of 1\n") and "1: 100.00 %" in of_lengths
    assert "32: larger than the pool" in of_pool
    assert fitted.startswith("Fit of paged:block_size=16,watermark=0 in 500 slots\n")
    assert sized.startswith("Size for paged:block_size=16,watermark=0: 32 slots\n")


def test_runs_of_one_name_are_told_apart() -> None:
    smaller = simulate(TRACE, Paged(48, 16))
    other = simulate(TRACE, Contiguous(64, "oracle"))
    name = RUN.allocator
    assert labels([RUN, other]) == [name, other.allocator]
    assert labels([RUN, smaller, other]) == [f"{name}, 64 slots", f"{name}, 48 slots", other.allocator]
    assert labels([RUN, RUN]) == [f"{name} (1)", f"{name} (2)"]
    assert labels([RUN, replace(smaller, label="paged")]) == [name, "paged"]
    assert apart(["a", "b", "a"]) == ["a (1)", "b", "a (2)"]
    for draw in (plots.waste_bars, plots.waits):
        ax = draw([RUN, smaller])
        panels = ax.figure.axes
        ticks = {"".join(tick.get_text().split()) for panel in panels for tick in panel.get_xticklabels()}
        assert {"".join(label.split()) for label in labels([RUN, smaller])} <= ticks


@pytest.mark.parametrize("count", [2, 9])
def test_labels_that_would_be_cut_alike_are_numbered(count: int) -> None:
    long = "package.module.Allocator:" + "option=1," * 30
    runs = [replace(RUN, label=f"{long}last={nth}") for nth in range(count)]
    ticks = [tick.get_text() for tick in plots.waste_bars(runs).get_xticklabels()]
    assert len(set(ticks)) == count and [tick.split()[0] for tick in ticks] == [str(nth + 1) for nth in range(count)]
