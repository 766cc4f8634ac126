"""Results on disk: what was written is found again, whatever cut it off, and nothing of another's is lost."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocators import InputError
from simulator.results.ledger import CATEGORIES
from simulator.sweeps.jobs import Outcome, figure_types
from simulator.sweeps.journal import Journal

FAILED = Outcome(error='boom, "bang"')
NUMBERS = {int: st.integers(0, 2**60), float: st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))}


def consistent(row: dict[str, Any]) -> dict[str, Any]:
    """Means have no value where there is no time, and nowhere else."""
    lacking = {
        of: any(row[name] is None for name in row if name.endswith("_saturated") == (of == "saturated_s"))
        for of in ("duration_s", "saturated_s")
    }
    may = {*CATEGORIES, "mean_largest_free", *(f"{name}_saturated" for name in CATEGORIES)}
    row = {name: value if value is not None or name in may else 0.5 for name, value in row.items()}
    return row | {of: 0.0 if some else row[of] for of, some in lacking.items()}


def figures(fill: int) -> dict[str, Any]:
    return {name: kind(fill) if kind is int else fill / 7 for name, kind in figure_types().items()}


def table(outcomes: dict[str, Outcome]) -> pd.DataFrame:
    rows = [{**(one.figures or {}), "error": one.error, "run": key} for key, one in outcomes.items()]
    frame = pd.DataFrame(rows, columns=[*figure_types(), "error", "run"])
    types = {name: float if kind is float or frame[name].isna().any() else int for name, kind in figure_types().items()}
    return frame.astype(types)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    rows=st.lists(
        st.fixed_dictionaries({name: NUMBERS[kind] for name, kind in figure_types().items()}).map(consistent),
        min_size=1,
        max_size=3,
    )
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_figures_are_the_same_to_the_bit_when_they_are_read_again(
    ending: str, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / f"table.{ending}"
    path.unlink(missing_ok=True)
    written = {f"{nth:016x}": row for nth, row in enumerate(rows)}
    journal = Journal(path)
    for key, row in written.items():
        journal.add(key, Outcome(figures=row))
    journal.close()
    assert Journal(path).finished == written
    journal.finish(table({key: Outcome(figures=row) for key, row in written.items()}))
    assert not journal.partial.exists()
    assert Journal(path).finished == written


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_finished_file_is_read_again_and_failed_runs_are_not_in_it(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{ending}"
    outcomes = {
        "a": Outcome(figures(3)),
        "b": FAILED,
        "c": Outcome(figures(4) | {"saturated_s": 0.0, "used_saturated": None}),
    }
    Journal(path).finish(table(outcomes))
    found = Journal(path)
    assert found.finished == {"a": outcomes["a"].figures, "c": outcomes["c"].figures}
    assert all(type(value) is figure_types()[name] for name, value in found.finished["a"].items())
    found.check(["a", "b", "c", "d"])
    for keys in (["a", "c"], ["b", "c"], []):
        with pytest.raises(InputError, match=r"table\.\w+\) was made by another sweep: . of its 3 runs"):
            found.check(keys)
    if ending == "csv":
        whole = path.read_text().splitlines()[1].split(",")[list(figure_types()).index("iterations")]
        assert whole == "3"  # a gap in the column makes no 3.0 of it


def test_a_line_that_was_cut_off_anywhere_is_dropped_and_written_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "t.csv")
    for nth in range(3):
        journal.add(f"{nth}", Outcome(figures(nth)))
    journal.close()
    content = journal.partial.read_bytes()
    edges = [0, *(nth + 1 for nth, byte in enumerate(content) if byte == ord("\n"))]
    for cut in range(len(content) + 1):
        journal.partial.write_bytes(content[:cut])
        found = Journal(tmp_path / "t.csv")
        lines = sum(edge <= cut for edge in edges) - 1
        assert list(found.finished) == [f"{nth}" for nth in range(lines - 1)]
        if cut % 97 == 0:
            found.add("new", FAILED)
            found.close()
            again = Journal(tmp_path / "t.csv")
            assert again.finished == found.finished
            assert all(json.loads(line) for line in journal.partial.read_bytes().splitlines())


def test_what_is_no_sweep_is_told_and_left_alone(tmp_path: Path) -> None:
    for name, content in (("a.csv", b"x,y\n1,2\n"), ("b.csv", b"\xff\xfe"), ("c.parquet", b"no"), ("d.csv", b"\n")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"out\(=.*{name}\) holds no sweep of this version"):
            Journal(path)
        assert path.read_bytes() == content
    for content, line in ((b"hello\n", 1), (b'{"format": "kvfrag sweep 1"}\n[]\n', 2), (b'{"format": "other"}\n', 1)):
        (tmp_path / "e.csv.partial").write_bytes(content)
        with pytest.raises(InputError, match=rf"e\.csv\.partial: line {line} is not of a sweep of this version"):
            Journal(tmp_path / "e.csv")
    with pytest.raises(InputError, match=r"must end in one of \.csv, \.parquet"):
        Journal(tmp_path / "f.json")
    (tmp_path / "g.csv").mkdir()
    with pytest.raises(InputError, match=r"g\.csv"):
        Journal(tmp_path / "g.csv")
    empty = tmp_path / "h.csv"
    empty.touch()
    assert Journal(empty).finished == {}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("used", "x"),
        ("used", ""),
        ("duration_s", ""),
        ("used", "-3e400"),
        ("used", "nan"),
        ("iterations", "4.5"),
        ("iterations", "-1"),
        ("finished", ""),
        ("used_saturated", ""),
    ],
)
def test_a_figure_that_is_none_is_told_with_file_row_and_column(column: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    Journal(path).finish(table({key: Outcome(figures(3)) for key in "abc"}))
    rows = pd.read_csv(path, dtype=object)
    rows.loc[1, column] = value
    rows.to_csv(path, index=False)
    content = path.read_bytes()
    told = rf"t\.csv\): row 2: {column}\(=.*\) must be a"
    with pytest.raises(InputError, match=told):
        Journal(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("line", ['{"run": "b"}', '{"run": "b", "duration_s": Infinity}', '{"run": "b", "error": ""}'])
def test_a_line_without_figures_is_told(line: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv.partial"
    path.write_text(f'{{"format": "kvfrag sweep 1"}}\n{line}\n')
    with pytest.raises(InputError, match=r"t\.csv\.partial: line 2: duration_s\(=.*\) must be a"):
        Journal(tmp_path / "t.csv")


def test_a_table_that_was_cut_off_anywhere_is_said_to_be_so_and_is_no_other_sweeps(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    keys = [f"{nth:016x}" for nth in range(3)]
    Journal(path).finish(table({key: FAILED if key == keys[1] else Outcome(figures(3)) for key in keys}))
    content = path.read_bytes()
    edges = [nth for nth, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(edges[0] + 1, len(content) + 1, 7):
        path.write_bytes(content[:cut])
        if any(cut in (edge, edge + 1) for edge in edges):
            Journal(path).check(keys)
        else:
            with pytest.raises(InputError, match=r"t\.csv\) is cut off in its last row, [123]; remove that row"):
                Journal(path)


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gone" / "t.csv")
    with pytest.raises(InputError, match=r"t\.csv\.partial cannot be written: No such file"):
        journal.add("a", FAILED)


def test_a_disk_that_fills_up_loses_one_result_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "t.csv", os.write
    journal = Journal(path)
    journal.add(f"{0:016x}", Outcome(figures=figures(0)))

    def nearly_full(descriptor: int, content: memoryview) -> int:
        if len(content) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content[: len(content) // 2])

    with monkeypatch.context() as patched:
        patched.setattr("simulator.files.writing.os.write", nearly_full)
        with pytest.raises(InputError, match=r"t\.csv\.partial cannot be written: No space left on device$"):
            journal.add(f"{1:016x}", Outcome(figures=figures(1)))
        journal.close()
    assert not journal.partial.read_bytes().endswith(b"\n")
    again = Journal(path)
    assert again.finished == {f"{0:016x}": figures(0)}
    again.add(f"{1:016x}", Outcome(figures=figures(1)))
    again.close()
    assert Journal(path).finished == {f"{nth:016x}": figures(nth) for nth in (0, 1)}
