"""``kvfrag figure2`` and ``kvfrag lesson``: a paper's figure reproduced, and worked examples."""

from pathlib import Path
from typing import Annotated

import typer

from allocators.base import one_of, whole
from simulator.cli.options import Quiet, check_picture, draw, progress, whole_number
from simulator.cli.tables.printing import console, print_table, say, table
from simulator.files.writing import check_outputs
from simulator.results.views import VIEWS
from simulator.server.hardware import cost_line


def figure2(
    seeds: Annotated[int, whole_number("N", "How many random workloads.")] = 5,
    plot: Annotated[Path, typer.Option(metavar="FILE", help="Where to draw it: .png, .svg or .pdf.")] = Path(
        "figure2.png"
    ),
    quiet: Quiet = False,
) -> None:
    """The PagedAttention paper's Figure 2 beside this simulator: a table and a picture."""
    from simulator.examples.figure2 import ALLOCATORS, PAPER
    from simulator.examples.figure2 import figure2 as bars_of
    from simulator.plots import waste_bars

    whole("--seeds", seeds)
    check_picture(plot)
    check_outputs({"--plot": plot})
    with progress(seeds * len(ALLOCATORS), "figure2", "run", quiet) as bar:
        bars = bars_of(range(seeds), bar.update)
    shown = table("Figure 2 of the PagedAttention paper (SOSP 2023): % of the KV cache", "", *VIEWS["paper"])
    for one in bars:
        percents, paper = one.percents(), PAPER[one.name]
        shown.add_row(one.name, *(f"{mean:.1f}" for mean in percents.mean()))
        shown.add_row("  paper", *(f"{paper[part]:.1f}" if part in paper else "-" for part in VIEWS["paper"]))
        if seeds > 1:
            shown.add_row("  ±", *(f"{deviation:.1f}" for deviation in percents.std(ddof=1)), style="dim")
    out = console()
    print_table(out, shown)
    say(out, "OPT-13B on one A100-40GB, ShareGPT lengths, 4 requests/s, from 300 s to 900 s")
    say(out, cost_line(bars[0].runs[0].settings.cost))
    if seeds > 1:
        say(out, f"mean of {seeds} seeds, the paper's number, standard deviation between the seeds")
    draw(waste_bars(bars, "paper", reference=PAPER, reference_name="paper"), plot, quiet)


def lesson(
    name: Annotated[str, typer.Argument(metavar="buddy|figure3|figure6|waste", help="Which one.")],
) -> None:
    """A worked example, step by step: buddy blocks, the PagedAttention paper's Figures 3 and 6, the wastes compared."""
    from simulator.examples.lessons import LESSONS, tell

    one_of("lesson", name, list(LESSONS))
    out = console()
    for paragraph in tell(name):
        out.print(paragraph, end="\n\n", soft_wrap=True)
