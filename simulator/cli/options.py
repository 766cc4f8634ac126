"""What the commands of ``kvfrag`` share: options, reading the trace they name, notes, progress and pictures."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from tqdm import tqdm

from allocators.base import InputError
from simulator.cli.option_groups import OUTPUT, OptionGroup
from simulator.cli.standard import say
from simulator.files.writing import write_whole
from simulator.messages.progress import progress_bar
from simulator.messages.words import short

if TYPE_CHECKING:
    from simulator.traces.trace import Trace

PICTURES = (".png", ".svg", ".pdf")
PAGE = ".html"


class StoppedError(Exception):
    """The user interrupted a command that says more about it, in one line, than that."""


def whole_number(metavar: str, help: str, *names: str, section: str | None = None) -> Any:
    """An option that takes a whole number; ``names``: those it has besides its parameter's."""
    return _parsed(int, "a whole number", metavar, help, names, section)


def number(metavar: str, help: str) -> Any:
    """An option that takes a number."""
    return _parsed(float, "a number", metavar, help)


def _parsed(
    kind: type[int | float], what: str, metavar: str, help: str, names: Sequence[str] = (), section: str | None = None
) -> Any:
    def parse(text: str) -> int | float:
        try:
            return kind(text)
        except ValueError:
            raise typer.BadParameter(f"{short(text)} must be {what}") from None

    return typer.Option(*names, metavar=metavar, help=help, parser=parse, rich_help_panel=section)


TraceArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help="A trace file, - for standard input, the name of a public trace that was downloaded, or a workload "
        "such as sharegpt:rate=4,duration=900,seed=0.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The file's format, if not the one it looks like; or package.module.reader, whose code is run.",
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Counts the tokens in a file of texts: a tokenizer.json; or package.module.function (text -> number), "
        "whose code is run. Default: words, or characters where a text hardly has blanks.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="KEY=NAME,...",
        help="Which column is which, where a file is not recognised: arrival=time,prompt=input_len,output=output_len; "
        "session and block_hashes too. arrival=time:ms tells the unit: s, ms, us, ns, date.",
    ),
]
Rate = Annotated[
    float | None, number("R", "Requests a second, for a file of lengths only: Poisson arrivals, each row once.")
]
Strict = Annotated[bool, typer.Option("--strict", help="A row that cannot be used is an error; else it is counted.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="No progress and no notes on standard error.", rich_help_panel=OUTPUT)
]
Explain = Annotated[
    bool,
    typer.Option("--explain", help="Say below the tables what their columns mean.", rich_help_panel=OUTPUT),
]
Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE|-",
        help="Write all figures as JSON; - for standard output.",
        rich_help_panel=OUTPUT,
    ),
]


@dataclass(frozen=True)
class TraceOptions(OptionGroup):
    """How the trace is read."""

    section: ClassVar[str] = "Trace"
    format: Format = None
    rate: Rate = None
    strict: Strict = False
    columns: Columns = None
    tokenizer: Tokenizer = None

    def read(self, text: str, quiet: bool, seed: int = 0) -> "Trace":
        """The trace that an argument names, see :func:`read_trace`."""
        return read_trace(text, self.strict, quiet, self.format, self.rate, self.tokenizer, seed, self.columns)


def json_file(json_to: str | None) -> Path | None:
    """The file that ``--json`` names, if it names one."""
    return None if json_to in (None, "-") else Path(json_to)


def read_trace(
    text: str,
    strict: bool = False,
    quiet: bool = False,
    format: str | None = None,
    rate: float | None = None,
    tokenizer: str | None = None,
    seed: int = 0,
    columns: str | None = None,
) -> "Trace":
    """The trace that an argument names, with a progress bar; what is odd about it is noted."""
    from simulator.traces.public.catalogue import find_file
    from simulator.traces.schema import listed
    from simulator.traces.text.tokenizer import token_counter
    from simulator.traces.trace import open_trace

    count_tokens = None if tokenizer is None else token_counter(tokenizer, "--tokenizer")
    path = find_file(text)
    size = os.stat(path).st_size if path is not None else 0  # noqa: PTH116
    with progress(size, "reading", "B", quiet) as bar:
        trace = open_trace(
            text,
            strict,
            format=format,
            rate=rate,
            seed=seed,
            count_tokens=count_tokens,
            columns=columns,
            advance=bar.update,
        )
    report = trace.report
    if report is not None:
        if report.dropped:
            dropped = f"{report.rows - report.kept:,} of {report.rows:,} rows dropped"
            note(quiet, f"{trace.name}: {dropped}: {listed(report.dropped)}; --strict names the first")
        if report.out_of_order:
            note(quiet, f"{trace.name}: {report.out_of_order:,} rows out of order, sorted")
        for line in report.notes:
            note(quiet, f"{trace.name}: {line}")
    return trace


def check_picture(path: Path, *more: str) -> None:
    """Raise InputError unless a picture can be drawn, as this kind of file, or it is one of ``more``."""
    allowed = (*PICTURES, *more)
    if path.suffix.lower() not in allowed:
        raise InputError(f"--plot(={path}) must end in one of {', '.join(allowed)}")
    if path.suffix.lower() in PICTURES:
        import simulator.plots  # noqa: F401  # whatever is wrong with matplotlib shows here


def draw(axes: Any, path: Path, quiet: bool) -> None:
    """Write a picture to a file."""
    from simulator.plots import drawn

    write_whole(path, drawn(axes, path.suffix[1:].lower()))
    note(quiet, f"drew {path}")


@contextmanager
def progress(total: int, name: str, unit: str, quiet: bool) -> Iterator["tqdm[Any]"]:
    """A progress bar, on a terminal and after two seconds."""
    with progress_bar(total, name, unit, not quiet and sys.stderr.isatty()) as bar:
        yield bar


def note(quiet: bool, text: str) -> None:
    """A line on standard error."""
    if not quiet:
        say(text)


def note_all(quiet: bool, texts: Iterable[str]) -> None:
    """A line on standard error for each of these."""
    for text in texts:
        note(quiet, f"note: {text}")
