"""A saved run that is damaged is refused in one line that names what is wrong."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allocators import InputError
from saved_runs import EXAMPLE
from scenarios import Scenario, aligned_scenario, random_scenario
from simulator import Run
from simulator.results.storage.soundness import check_run


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], object]:
    """Change the head's entry of that name."""
    return whole_head(lambda head: head | {name: change(head[name])})


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda entries: {key: value for key, value in entries.items() if key != name}


def lacking(name: str) -> Callable[[Path], object]:
    """Remove the head's entry of that name."""
    return whole_head(without(name))


def added(name: str, value: Any) -> Callable[[Path], object]:
    """Give the head one entry more."""
    return whole_head(lambda head: head | {name: value})


def whole_head(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], object]:
    return lambda folder: (folder / "run.json").write_text(
        json.dumps(change(json.loads((folder / "run.json").read_text())))
    )


def cut(name: str, keep: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


def entry(name: str, key: str, value: Any) -> Callable[[Path], object]:
    """Set one number or text within the head's entry of that name; a sum that depends on it is not adjusted."""
    return edit(name, lambda entries: entries | {key: value})


def cell(table: str, column: str, row: int, value: str) -> Callable[[Path], object]:
    """Set one field of a table, and its checksum with it."""

    def change(lines: list[str]) -> None:
        fields = lines[row].split(",")
        fields[lines[0].split(",").index(column)] = value
        lines[row] = ",".join(fields)

    return rewrite(table, change)


def rewrite(table: str, change: Callable[[list[str]], None]) -> Callable[[Path], object]:
    """Change the lines of a table, the first of which are its names, and its checksum with it."""

    def damage(folder: Path) -> None:
        lines = (folder / table).read_text().splitlines()
        change(lines)
        content = "".join(f"{line}\n" for line in lines).encode()
        (folder / table).write_bytes(content)
        edit("sha256", lambda sums: sums | {table: hashlib.sha256(content).hexdigest()})(folder)

    return damage


def without_column(table: str, column: str) -> Callable[[Path], object]:
    def change(lines: list[str]) -> None:
        at = lines[0].split(",").index(column)
        lines[:] = [",".join(field for n, field in enumerate(line.split(",")) if n != at) for line in lines]

    return rewrite(table, change)


def first_allocation(at: int, value: Any) -> Callable[[Path], object]:
    """Set a field of the first request in the first memory map."""

    def change(layouts: list[Any]) -> list[Any]:
        layouts[0][2][0][at] = value
        return layouts

    return edit("layouts", change)


def layout(at: int, value: Any) -> Callable[[Path], object]:
    """Set a field of the first memory map."""
    return edit("layouts", lambda layouts: [[*layouts[0][:at], value, *layouts[0][at + 1 :]], *layouts[1:]])


R, T, D = "requests.csv", "timeline.csv", "decisions.csv"

DAMAGES: list[tuple[str, Callable[[Path], object]]] = [
    # Files.
    ("No such file or directory", lambda folder: (folder / "run.json").unlink()),
    ("No such file or directory", lambda folder: (folder / T).unlink()),
    ("No such file or directory", lambda folder: (folder / D).unlink()),
    ("JSONDecodeError", cut("run.json", 500)),
    ("JSONDecodeError", cut("run.json", 0)),
    ("UnicodeDecodeError", lambda folder: (folder / "run.json").write_bytes(b"\xff\xff\xff")),
    ("", lambda folder: (folder / "run.json").write_text("[" * 100_000)),
    ("run.json lacks 'sha256'", lambda folder: (folder / "run.json").write_text("[]")),
    ("run.json lacks 'sha256'", lambda folder: (folder / "run.json").write_text("{}")),
    (f"{T} is not what was saved", cut(T, 700)),
    (f"{R} is not what was saved", cut(R, 0)),
    (f"{D} is not what was saved", cut(D, 100)),
    ("sha256 lacks 'timeline.csv'", edit("sha256", without(T))),
    ("sha256 names an unknown table '../mine.csv'", entry("sha256", "../mine.csv", "0" * 64)),
    ("the sha256 of 'timeline.csv' must be 64 hexadecimal digits", entry("sha256", T, "0")),
    # The head.
    ("its format is 'kvfrag run 9', and this version reads 'kvfrag run 4'", edit("format", lambda _: "kvfrag run 9")),
    *((f"run.json lacks '{name}'", lacking(name)) for name in ("capacity", "counts", "label", "layouts")),
    ("its format is None, and this version reads", lacking("format")),
    ("run.json has an unknown 'speed'", added("speed", 3)),
    ("run.json: integrals lacks 'used'", edit("integrals", without("used"))),
    ("run.json: integrals has an unknown 'more'", entry("integrals", "more", 1)),
    ("run.json: counts lacks 'finished'", edit("counts", without("finished"))),
    ("run.json: counts must have names and values; it is a list", edit("counts", lambda _: [])),
    ("run.json: trace lacks 'sha256'", edit("trace", without("sha256"))),
    ("run.json: trace has an unknown 'path'", entry("trace", "path", "/home")),
    ("run.json: settings must have names and values; it is a list", edit("settings", lambda _: [])),
    ("run.json: settings has an unknown 'speed'", entry("settings", "speed", 3)),
    ("run.json: settings lacks 'max_batch'", edit("settings", without("max_batch"))),
    ("cost(=5) must be a text", entry("settings", "cost", 5)),
    ("max_batch(=0) must be", entry("settings", "max_batch", 0)),
    ("window(=", entry("settings", "window_s", [5, 1])),
    ("window(=nan 1) must be", entry("settings", "window_s", [float("nan"), 1])),
    *(
        (f"capacity(={value}) must be a whole number >= 1", edit("capacity", lambda _, value=value: value))  # type: ignore[misc]
        for value in (0, -98, 98.0, "98", None, True, float("nan"))
    ),
    ("capacity(=99999999999) must be a whole number from 1 to", edit("capacity", lambda _: 99_999_999_999)),
    ("integrals: the categories add up to", edit("capacity", lambda _: 97)),
    ("duration_ps(=-1) must be a whole number >= 0", edit("duration_ps", lambda _: -1)),
    ("duration_ps(=1.5) must be a whole number", edit("duration_ps", lambda _: 1.5)),
    ("integrals: idle(=many) must be a whole number", entry("integrals", "idle", "many")),
    ("integrals: idle(=-1) must be a whole number", entry("integrals", "idle", -1)),
    ("integrals: the categories add up to", entry("integrals", "idle", 1)),
    ("integrals: the saturated categories add up to", entry("integrals", "saturated_used", 1)),
    ("integrals: external_ps(=1000000000000000) must be <= saturated_ps", entry("integrals", "external_ps", 10**15)),
    ("integrals: iteration_ps(=1000000000000000) must be <= duration_ps", entry("integrals", "iteration_ps", 10**15)),
    ("integrals: largest(=1000000000000000000) must be <=", entry("integrals", "largest", 10**18)),
    ("integrals: running(=1000000000000000000) must be <=", entry("integrals", "running", 10**18)),
    ("counts: finished(=None) must be a whole number", entry("counts", "finished", None)),
    ("counts: finished(=77) must be 3, as requests.csv says", entry("counts", "finished", 77)),
    ("counts: too_long(=0) must be 1, as requests.csv says", entry("counts", "too_long", 0)),
    ("counts: preemptions(=0) must be", entry("counts", "preemptions", 0)),
    ("counts: peak_batch(=8) must be from 1 to 7", entry("counts", "peak_batch", 8)),
    ("counts: peak_batch(=4) must be from 0 to 0", entry("counts", "iterations", 0)),
    ("trace: requests(=0) must be a whole number >= 1", entry("trace", "requests", 0)),
    ("requests.csv has 7 rows, and the trace 8 requests", entry("trace", "requests", 8)),
    ("trace: name(=5) must be a text", entry("trace", "name", 5)),
    ("allocator(=5) must be a text", edit("allocator", lambda _: 5)),
    ("label(=5) must be a text", edit("label", lambda _: 5)),
    # Memory maps.
    ("layouts[0] must be time_ps, iteration,", edit("layouts", lambda _: [[1]])),
    ("layouts[0] must be time_ps, iteration,", layout(2, [[1]])),
    ("layouts[0] must be time_ps, iteration,", layout(2, 5)),
    ("layouts must be a list", edit("layouts", lambda _: 5)),
    ("layouts[0]: time_ps(=-1) must be", layout(0, -1)),
    ("layouts[0]: time_ps(=0.5) must be", layout(0, 0.5)),
    ("layouts[0]: iteration(=1000000) must be", layout(1, 1_000_000)),
    ("layouts[0]: used_slots(=99) must be", layout(3, 99)),
    ("layouts[0]: held_slots(=99) must be a whole number from 0 to 98", layout(4, 99)),
    ("layouts[0]: request(=7) must be a whole number from 0 to 6", first_allocation(0, 7)),
    ("layouts[0]: start of an extent(=98) must be", first_allocation(1, [[98, 1]])),
    ("layouts[0]: slots of an extent(=3) must be a whole number from 1 to 2", first_allocation(1, [[96, 3]])),
    ("layouts[0]: slots of an extent(=0) must be", first_allocation(1, [[96, 0]])),
    ("layouts[0]: written_tokens(=-1) must be", first_allocation(2, -1)),
    ("layouts[0]: final_tokens(=1.0) must be", first_allocation(3, 1.0)),
    ("layouts[0]: overprovision_slots(=None) must be", first_allocation(4, None)),
    # Tables.
    *((f"the header of {R} lacks '{name}'", without_column(R, name)) for name in ("arrival_s", "status", "wait_ps")),
    (f"the header of {T} lacks 'idle'", without_column(T, "idle")),
    (f"the header of {D} lacks 'slots'", without_column(D, "slots")),
    (f"the header of {R} has an unknown 'speed'", cell(R, "arrival_s", 0, "arrival_s,speed")),
    (f"{R} has 6 rows, and the trace 7 requests", rewrite(R, lambda lines: lines.__delitem__(3))),
    ("ParserError", rewrite(R, lambda lines: lines.append("1,2,3,4" * 20))),
    (f"{R}, column prompt_tokens: invalid literal for int() with base 10: 'many'", cell(R, "prompt_tokens", 2, "many")),
    (f"{R}, column prompt_tokens: invalid literal for int() with base 10: '3.5'", cell(R, "prompt_tokens", 2, "3.5")),
    (f"{R}, column prompt_tokens: invalid literal for int() with base 10: ''", cell(R, "prompt_tokens", 2, "")),
    (f"{R}, column prompt_tokens: row 2 is below 1", cell(R, "prompt_tokens", 2, "0")),
    (f"{R}, column prompt_tokens: Python int too large", cell(R, "prompt_tokens", 2, str(2**63))),
    (f"{R}, column output_tokens: row 1 is below 1", cell(R, "output_tokens", 1, "-4")),
    (f"{R}, column preemptions: row 1 is below 0", cell(R, "preemptions", 1, "-1")),
    (f"{R}, column status: unknown 'gone'; known are finished,", cell(R, "status", 1, "gone")),
    (f"{R}, column status: unknown ''", cell(R, "status", 1, "")),
    (f"{R}, column arrival_s: could not convert string to float: 'x'", cell(R, "arrival_s", 1, "x")),
    (f"{R}, column arrival_s: row 1 is no time from 0 on", cell(R, "arrival_s", 1, "")),
    (f"{R}, column arrival_s: row 1 is no time from 0 on", cell(R, "arrival_s", 1, "-1.0")),
    (f"{R}, column arrival_s: row 7 is no time from 0 on", cell(R, "arrival_s", 7, "inf")),
    (f"{R}, column arrival_s: row 2 is before that of the row above", cell(R, "arrival_s", 1, "0.001")),
    (f"{R}, column admitted_s: row 1 does not go with the status", cell(R, "admitted_s", 1, "")),
    (f"{R}, column admitted_s: row 7 does not go with the status", cell(R, "admitted_s", 7, "5.0")),
    (f"{R}, column admitted_s: row 3 is before the arrival", cell(R, "admitted_s", 3, "0.0")),
    (f"{R}, column finished_s: row 1 does not go with the status", cell(R, "finished_s", 1, "")),
    (f"{R}, column finished_s: row 7 does not go with the status", cell(R, "finished_s", 7, "5.0")),
    (f"{R}, column finished_s: row 1 is before the admission", cell(R, "finished_s", 1, "-5.0")),
    (f"{R}, column finished_s: row 1 is before the admission", cell(R, "finished_s", 1, "inf")),
    (f"{R}, column wait_ps: row 1 is below 0", cell(R, "wait_ps", 1, "-1")),
    (f"{R}, column wait_s: row 1 is not what wait_ps says", cell(R, "wait_s", 1, "5.0")),
    (f"{R}, column wait_s: row 1 is not what wait_ps says", cell(R, "wait_ps", 1, str(10**30))),
    (f"{R}, column wait_behind_ps: invalid literal", cell(R, "wait_behind_ps", 1, "0.0")),
    (f"{R}, column wait_behind_s: row 1 is not what wait_behind_ps says", cell(R, "wait_behind_ps", 1, "7")),
    (f"{T}, column start_s: row 3 is not that of 13 equal bins", cell(T, "start_s", 3, "0.0")),
    (f"{T}, column end_s: row 13 is not that of 13 equal bins", cell(T, "end_s", 13, "")),
    (f"{T}, column used: row 3 is no number from 0 on", cell(T, "used", 3, "")),
    (f"{T}, column waiting: row 3 is no number from 0 on", cell(T, "waiting", 3, "-0.5")),
    (f"{T}, column used: row 3 and its other slots are not the capacity", cell(T, "used", 3, "97.5")),
    (f"{T}, column running adds up to", cell(T, "running", 3, "97.5")),
    (f"{T}, column largest_free adds up to", cell(T, "largest_free", 3, "97.5")),
    (f"{T}, column preemptions adds up to", cell(T, "preemptions", 3, "97.0")),
    (f"{T}, column start_s: row 2 is not that of 12 equal bins", rewrite(T, lambda lines: lines.__delitem__(3))),
    (f"{D}, column iteration: row 2 is not one of the run", cell(D, "iteration", 2, "-1")),
    (f"{D}, column iteration: row 2 is below that of the row above", cell(D, "iteration", 1, "9")),
    (f"{D}, column time_s: row 2 is no time from 0 on", cell(D, "time_s", 2, "")),
    (f"{D}, column time_s: row 2 is before that of the row above", cell(D, "time_s", 1, "1.0")),
    (f"{D}, column kind: unknown 'swap'", cell(D, "kind", 1, "swap")),
    (f"{D}, column request: row 1 is no row of the trace", cell(D, "request", 1, "7")),
    (f"{D}, column index: row 1 is not from -1 to below the capacity", cell(D, "index", 1, "-2")),
    (f"{D}, column start: row 1 and its slots are no extent of the pool", cell(D, "start", 1, "98")),
    (f"{D}, column start: row 1 and its slots are no extent of the pool", cell(D, "slots", 1, str(2**63 - 1))),
    (f"{D}, column tokens: row 1 is not from 0 to the capacity", cell(D, "tokens", 1, "99")),
]


@pytest.mark.parametrize(("told", "damage"), DAMAGES)
def test_damage_is_told_in_one_line(told: str, damage: Callable[[Path], object], tmp_path: Path) -> None:
    EXAMPLE.save(tmp_path / "run")
    damage(tmp_path / "run")
    with pytest.raises(InputError) as refused:
        Run.load(tmp_path / "run")
    assert str(refused.value).startswith(f"{tmp_path / 'run'} is not a saved run")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("what", ["none", "file", "folder"])
def test_what_is_no_run_is_told(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=rf"{what} is not a saved run: (No such file|Not a directory)"):
        Run.load(tmp_path / what)


@pytest.mark.parametrize("scenario", [random_scenario, aligned_scenario])
def test_what_was_simulated_is_sound(scenario: Callable[[int], Scenario]) -> None:
    for seed in range(100):
        check_run(scenario(seed).engine([], timeline_bins=seed % 9))
