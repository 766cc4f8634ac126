"""Results on disk: what was written is found again, whatever cut it off, and nothing of another's is lost."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocators import InputError
from simulator.jobs import Outcome, figure_types
from simulator.journal import Journal

FAILED = Outcome(error='boom, "bang"')
NUMBERS = {int: st.integers(0, 2**60), float: st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))}


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
        st.fixed_dictionaries({name: NUMBERS[kind] for name, kind in figure_types().items()}), min_size=1, max_size=3
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
    outcomes = {"a": Outcome(figures(3)), "b": FAILED, "c": Outcome(figures(4) | {"used_saturated": None})}
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


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gone" / "t.csv")
    with pytest.raises(InputError, match=r"t\.csv\.partial cannot be written: No such file"):
        journal.add("a", FAILED)
