"""CSV cut into columns: the same cells as pandas finds, and headers as spreadsheets write them."""

import io

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allocators import InputError
from simulator.traces.text.csvtext import csv_header, csv_tables
from simulator.traces.text.opening import Text


def cells(text: str, size: int = 1 << 20) -> tuple[list[str], list[list[str]], list[int]]:
    """Names, rows and the line of each row; rows that do not fit are left out."""
    raw = text.encode()
    head = csv_header(raw)
    pieces = [raw[place : place + size] for place in range(0, len(raw), size)]
    names = [f"{place} {name}" for place, name in enumerate(head.names)]
    found, lines = [], []
    for table in csv_tables(Text(raw, iter(pieces)), {name: place for place, name in enumerate(names)}):
        columns = [table.columns[name].texts() for name in names]
        found += [list(row) for row, bad in zip(zip(*columns, strict=True), table.misfit, strict=True) if not bad]
        assert table.line is not None
        lines += table.line[~table.misfit].tolist()
    return head.names, found, lines


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ('"time, s",a,b', ["time, s", "a", "b"]),
        ('"time\n(s)",a,b', ["time\n(s)", "a", "b"]),
        ('a,"b\r\nc, ""d""",e', ["a", 'b\nc, "d"', "e"]),
        ('\n\n "a", b ,', ["a", "b", ""]),
        ('a "x",b', ['a "x"', "b"]),
        ('"a,b\n\n",c', ["a,b", "c"]),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_header_may_be_quoted_with_commas_and_newlines_in_it(header: str, names: list[str], size: int) -> None:
    row = ",".join(map(str, range(len(names))))
    found = cells(f"{header}\n{row}\r\n{row}", size)
    first = header.count("\n") + 2
    assert found == (names, [row.split(",")] * 2, [first, first + 1])


def test_a_header_whose_quote_is_not_closed_is_an_error() -> None:
    for header in ('"a,b\n1,2\n', '"a"x,b\n1,2\n'):
        with pytest.raises(InputError, match=r"line 1: the header cannot be read \(.*\)"):
            csv_header(header.encode())


CELLS = st.sampled_from(["", "0", "7.5", "x y", 'say ""hi""', "a,b", "two\nlines", "ü", " padded ", '""'])


@given(
    st.lists(st.lists(st.tuples(CELLS, st.booleans()), min_size=3, max_size=3), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(3, 40),
)
@example([[("a,b", True), ("", False), ("x", False)], [("1", False), ("2", False), ("", False)]], "\n", 5)
def test_the_same_cells_as_pandas(table: list[list[tuple[str, bool]]], end: str, size: int) -> None:
    def written(cell: str, quoted: bool) -> str:
        return f'"{cell}"' if quoted or any(mark in cell for mark in ',\n"') else cell

    # A row of nothing but blanks is a blank line to us, and pandas sees cells in it.
    rows = [row for row in table if any(cell.strip() or quoted for cell, quoted in row)]
    if not rows:
        return
    header = [(f"{cell}{place}", quoted) for place, (cell, quoted) in enumerate(rows[0])]
    text = end.join(",".join(written(*cell) for cell in row) for row in [header, *rows])
    oracle = pd.read_csv(io.StringIO(text, newline=""), dtype=object, keep_default_na=False, skip_blank_lines=True)
    names, found, _ = cells(text, size)
    assert names == [str(name).strip() for name in oracle.columns]
    assert found == oracle.to_numpy().tolist()
