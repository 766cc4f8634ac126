"""Standard output and standard error of the command line: what they cannot show, and what cannot be written to them."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path

from simulator.messages.words import printable

STANDARD_OUTPUT = "standard output"
"""The ``filename`` of an OSError that was raised by it: any other is of another file."""


class _Output(TextIOWrapper):
    """Standard output whose errors say that they are its own."""

    def __init__(self, stream: TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            stream.encoding,
            "replace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._stream = stream  # which would close the buffer that both write to, if nobody had it any more

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def prepare_output() -> None:
    """Output that is closed goes nowhere, and a character that its encoding lacks is shown as '?'."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    stream = sys.stdout
    if type(stream) is TextIOWrapper:  # not what a test or a notebook put in its place
        sys.stdout = _Output(stream)
    elif isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")


def say(text: str) -> None:
    """A line on standard error, whatever is in it."""
    print(printable(text), file=sys.stderr)
