"""What stands on a terminal of any width: nothing is wider, no number is folded or left out."""

import re
import sys
from collections.abc import Callable

import pytest

from simulator.cli.tables.printing import console, print_table, say, table
from test_cli import Kvfrag
from test_cli import folder as folder
from test_cli import kvfrag as kvfrag

LOAD = "sharegpt:rate=8,duration=10 --max-model-len 2048"
NUMBER = re.compile(r"\d[\d,.]*")
COMMANDS = [
    f"run {LOAD} --capacity 6000 -a contiguous:reserve=max -a paged",
    f"run {LOAD} --capacity 6000 -a buddy:reserve=oracle --view ledger --explain",
    f"size {LOAD} -a contiguous:reserve=max -a paged --max-refused 5% --checks 0 --model opt-13b",
    "fit --workload sharegpt --max-model-len 512 --capacity 2000",
    f"advise {LOAD} --capacity 6000 --seeds 2",
    f"advise {LOAD} --seeds 2 --explain",
    "trace info sharegpt:rate=8,duration=10",
    "trace download",
]

OnTerminal = Callable[[str, int], str]


@pytest.fixture
def on_terminal(kvfrag: Kvfrag, monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    """What a command prints on a terminal that is so many columns wide."""

    def run(line: str, columns: int) -> str:
        with monkeypatch.context() as patched:
            patched.setenv("COLUMNS", str(columns))
            patched.setenv("TERM", "dumb")
            patched.setattr(sys.stdout, "isatty", lambda: True)
            ended = kvfrag(f"{line} --quiet")
        assert ended.code == 0, ended.err
        return ended.out

    return run


@pytest.mark.parametrize("line", COMMANDS)
def test_every_number_is_there_and_nothing_is_wider_than_the_terminal(
    line: str, kvfrag: Kvfrag, on_terminal: OnTerminal
) -> None:
    wanted = set(NUMBER.findall(kvfrag(f"{line} --quiet").out))
    assert len(wanted) > 5
    for columns in (40, 60, 80, 120, 160):
        shown = on_terminal(line, columns)
        too_wide = [text for text in shown.splitlines() if len(text.rstrip()) > columns]
        # Only a name that has no blank to break at may be wider.
        assert all(" " not in text.strip() for text in too_wide), too_wide
        assert wanted - set(NUMBER.findall(shown)) == set(), columns


@pytest.mark.parametrize("columns", range(20, 100, 7))
def test_a_table_is_broken_between_its_columns(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = table("A title of some words", "name", *(f"column {nth}" for nth in range(7)))
    for row in range(3):
        shown.add_row(f"row {row}", *(f"{1000 * row + nth:,} ± 1" for nth in range(7)))
    monkeypatch.setattr("simulator.cli.tables.printing._PIPE_COLUMNS", columns)
    print_table(console(), shown)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(" row"):
            found.setdefault(line[1:6], []).extend(re.findall(r"[\d,]+ ± 1", line[6:]))
    assert found == {f"row {row}": [f"{1000 * row + nth:,} ± 1" for nth in range(7)] for row in range(3)}


def test_a_paragraph_is_one_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    text = "word " * 100
    say(console(), text.strip())
    assert capsys.readouterr().out == f"  {text.strip()}\n"
