"""``kvfrag trace download``: fetch public traces, or list them."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table
from tqdm import tqdm

from allocators.base import one_of
from simulator.cli.options import (
    Quiet,
    note,
    progress,
)
from simulator.cli.tables.printing import console, print_table, table
from simulator.messages.words import printable
from simulator.traces.public.catalogue import CATALOGUE
from simulator.traces.public.download import DownloadError, download


def fetch(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which; without it, what there is.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch it again, even if it is here.")] = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a public trace from its publisher into the cache folder; kvfrag run NAME then finds it."""
    if name is None:
        print_table(console(), _catalogue())
        return
    one_of("NAME", name, list(CATALOGUE))
    source = CATALOGUE[name]
    try:
        with progress(0, name, "B", quiet) as bar:
            fetched = download(name, source, _watched(bar), force)
    except DownloadError as error:
        # Neither the options nor an input of theirs are wrong: exit code 1, not 2.
        note(False, f"kvfrag: {error}")
        raise typer.Exit(1) from None
    print(f"{name} is in {printable(str(source.path))}{'' if fetched else ' (it was there already)'}")
    if source.sha256 is None:
        note(quiet, f"{name} is not verified: the publisher gives no checksum; --force fetches it again")
    print(f"licence {source.licence}; cite {source.citation}")


def _catalogue() -> Table:
    shown = table("Public traces", "name", "licence", "what it is", "here")
    for name, source in CATALOGUE.items():
        shown.add_row(name, source.licence, source.about, "yes" if source.path.is_file() else "-")
    shown.columns[2].justify = "left"
    return shown


def _watched(bar: "tqdm[Any]") -> Callable[[int, int | None], None]:
    def watch(done: int, total: int | None) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return watch
