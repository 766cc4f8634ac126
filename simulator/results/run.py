"""A run, to be kept as plain files and shown as a page."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from simulator.results.record import Record
from simulator.results.storage.saved import load_run, save_run


@dataclass(frozen=True, eq=False, repr=False)
class Run(Record):
    """One replay of a trace against one allocator; what it says is described in :class:`Record`."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``run.json`` and one CSV per table (timeline, requests, decisions) into a folder.

        The folder is made; a run that it holds is replaced, and until then stays there whole: at no instant is there
        anything but the one or the other. Raises InputError for a folder that holds anything else, or that cannot be
        written.
        """
        save_run(self, Path(folder))

    def to_html(self, path: str | os.PathLike[str], *others: "Run") -> None:
        """Write one page to scrub through the run, and ``others`` of the same trace beside it.

        Raises InputError when one of them has no decision log, plotly is missing, or the file cannot be written.
        """
        from simulator.page.html import write_page

        write_page([self, *others], path)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote. Raises InputError when it is not there, is not a run, or is damaged."""
        return load_run(Path(folder), cls)
