"""Schedulers by name and by path, the order of the queue, and one of a user's own beside the reference."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocators import InputError, Paged
from scenarios import aligned_scenario, compare, random_scenario
from simulator import Run, Settings, StepCost, Trace, check_scheduler, simulate, size, sweep
from simulator.engine.queue import head_of, new_queue, place_of, put_back, returning, take
from simulator.engine.schedulers import (
    BATCH,
    NOBODY,
    PREEMPTED,
    SCHEDULERS,
    UNTIL_ARRIVAL,
    State,
    admit,
    grow,
    head,
    row_at,
    waiting,
)
from simulator.server.hardware import server_of
from test_cli import Kvfrag
from test_cli import folder as folder
from test_cli import kvfrag as kvfrag

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
CODE = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]


def of_the_page() -> Callable[[State], int]:
    """The scheduler that the page shows, as it stands."""
    names: dict[str, Any] = {"__name__": "mine"}
    exec(compile(CODE, "mine.py", "exec"), names)
    function: Callable[[State], int] = names["shortest_prompt_first"]
    return function


SHORTEST = of_the_page()


class InPython:
    """The same, and not a function: it cannot be compiled."""

    def __call__(self, state: State) -> int:
        return SHORTEST(state)


def last_come_first(state: State) -> int:
    """Whoever came last is next: with a helper, and a number of the module."""
    if grow(state):
        return PREEMPTED
    while waiting(state):
        stopped = admit(state, _last(state))
        if stopped:
            return stopped
    return NOBODY


BEFORE = 1


def _last(state: State) -> int:
    return row_at(state, max(waiting(state) - BEFORE, 0))


def in_order(state: State) -> int:
    """First come, first served, asked in each iteration."""
    if grow(state):
        return PREEMPTED
    while head(state) >= 0:
        stopped = admit(state, head(state))
        if stopped:
            return stopped
    return NOBODY


def test_the_scheduler_of_the_page_has_less_than_twenty_lines() -> None:
    assert len(CODE[CODE.index("def ") :].strip().splitlines()) < 20


@pytest.mark.parametrize("scheduler", [SHORTEST, InPython()], ids=["compiled", "in Python"])
@pytest.mark.parametrize(("make", "seeds"), [(random_scenario, range(7000, 7240)), (aligned_scenario, range(120))])
def test_shortest_prompt_first_equals_the_reference(scheduler: Any, make: Callable[[int], Any], seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds if scheduler is SHORTEST else seeds[::4]:
        scenario = make(seed)
        scenario = replace(scenario, settings=replace(scenario.settings, scheduler="shortest prompt"))
        expected = scenario.reference()
        try:
            run = scenario.engine(scheduler=scheduler)
            compare(run, expected)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {scenario}") from error
        in_turn = replace(scenario, settings=replace(scenario.settings, scheduler="fcfs")).reference()
        admitted = [[one.admitted_ps for one in outcome.requests] for outcome in (expected, in_turn)]
        seen["another order"] += admitted[0] != admitted[1]
        seen["preempted"] += expected.preemptions > 0
        seen["refused"] += expected.saturated_ps > 0
        seen["compiled"] += not any("plain Python" in note for note in run.warnings)
    assert min(seen[kind] for kind in ("another order", "preempted", "refused")) >= 3, seen
    # An allocator of a user's own is asked through Python, and the scheduler is compiled all the same.
    assert seen["compiled"] == (len(seeds) if scheduler is SHORTEST else 0)


@pytest.mark.parametrize("seed", range(0, 80, 2))
def test_a_scheduler_that_does_what_fcfs_does_gives_its_run_though_it_is_asked_in_each_iteration(seed: int) -> None:
    scenario = random_scenario(seed)
    compare(scenario.engine(scheduler=in_order), scenario.reference())


def test_those_who_wait_longer_for_another_are_behind_and_the_next_one_waits_for_what_stops_it() -> None:
    # One runs at a time, 1 s for each token; the second to come is the longest, and heads the queue when it is alone.
    trace = Trace.from_columns([0, 10**8, 2 * 10**8], [1, 9, 3], [2, 1, 1])
    cost = StepCost("1s", "0", "0")
    run = simulate(trace, Paged(100, 1), cost=cost, max_batch=1, scheduler=SHORTEST)
    assert run.requests["admitted_s"].tolist() == [0, 3, 2]
    assert run.requests["wait_max_batch_s"].tolist() == [0, 1, 1]
    assert run.requests["wait_behind_s"].tolist() == [0, 1, 0]
    assert run.requests["wait_iteration_s"].tolist() == [0, 0.9, 0.8]


def test_a_helper_and_a_number_of_ones_own_module_are_compiled_too() -> None:
    trace = Trace.from_columns([0, 1, 2, 3], [5, 5, 5, 5], [3, 3, 3, 3])
    run = simulate(trace, Paged(100, 4), cost=StepCost("1s", "0", "0"), max_batch=1, scheduler=last_come_first)
    assert run.requests["admitted_s"].tolist() == [0, 9, 6, 3]
    assert run.warnings == ()
    check_scheduler(last_come_first, cases=20)


def test_what_numba_does_not_understand_runs_as_it_is_and_says_so() -> None:
    def odd(state: State) -> int:
        sorted({"a": open})
        return in_order(state)

    trace = Trace.from_columns([0, 1], [5, 5], [3, 3])
    run = simulate(trace, Paged(100, 4), scheduler=odd)
    (note,) = run.warnings
    assert "odd runs as plain Python, many times as slow: numba says: " in note
    assert "(test_schedulers.py, line " in note and "\n" not in note
    assert run.requests.equals(simulate(trace, Paged(100, 4)).requests)


BUDGET = {"requests": 1}
"""What may change between two runs, and no machine code would see."""


def within_a_budget(state: State) -> int:
    """At most so many run."""
    if grow(state):
        return PREEMPTED
    while head(state) >= 0:
        if state.batch.now.count >= BUDGET["requests"]:
            state.clock.head = head(state)
            return BATCH
        stopped = admit(state, head(state))
        if stopped:
            return stopped
    return NOBODY


def test_what_may_change_unseen_is_looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace.from_columns([0] * 4, [5] * 4, [3] * 4)
    peaks = []
    for most in (1, 3, 2):
        monkeypatch.setitem(BUDGET, "requests", most)
        run = simulate(trace, Paged(100, 4), scheduler=within_a_budget)
        peaks.append(run.counts["peak_batch"])
    assert peaks == [1, 3, 2]
    (note,) = run.warnings
    assert note.endswith("many times as slow: within_a_budget names BUDGET, a dict, which may change unseen")


def test_a_number_that_a_compiled_scheduler_names_is_that_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace.from_columns([0, 1, 2, 3], [5, 5, 5, 5], [3, 3, 3, 3])
    admitted = []
    for before in (1, 2, 1):
        monkeypatch.setitem(globals(), "BEFORE", before)
        run = simulate(trace, Paged(100, 4), cost=StepCost("1s", "0", "0"), max_batch=1, scheduler=last_come_first)
        assert run.warnings == ()
        admitted.append(run.requests["admitted_s"].tolist())
    assert admitted == [[0, 9, 6, 3], [0, 6, 3, 9], [0, 9, 6, 3]]


def test_the_line_keeps_its_order_whoever_is_taken_out_of_it() -> None:
    clock = type("Clock", (), {"now": 25})()
    queue = new_queue(np.array([0, 10, 20, 30]), np.array([5, 5, 5, 5]), np.array([9, 9, 9, 9]))
    assert [place_of(queue, clock, row) for row in (-1, 0, 1, 2, 3, 4)] == [-1, 0, 1, 2, -1, -1]
    take(queue, clock, place_of(queue, clock, 1))
    assert queue.line[queue.now.first :].tolist() == [0, 2, 3]
    assert queue.admitted.tolist() == [-1, 25, -1, -1]
    put_back(queue, clock, 1, 7)  # it had written 7 tokens, and produced 3
    assert queue.line[queue.now.first :].tolist() == [1, 0, 2, 3]
    assert (head_of(queue, clock), queue.prompt[1], queue.output[1]) == (1, 8, 6)
    take(queue, clock, place_of(queue, clock, 2))
    assert returning(queue).tolist() == [1]
    take(queue, clock, place_of(queue, clock, 1))
    assert (returning(queue).tolist(), queue.line[queue.now.first :].tolist()) == ([], [0, 3])


BAD = [
    ("fcfz", "unknown scheduler 'fcfz' (did you mean fcfs?); choose from fcfs, or name your own as package.module:fun"),
    ("", "unknown scheduler ''; choose from fcfs"),
    ("no.such:thing", "unknown scheduler 'no.such:thing'; choose from fcfs"),
    ("allocators:nothing", "(allocators has no function nothing)"),
    ("allocators:Paged", "scheduler allocators:Paged must be a plain function of one argument, the state of a server"),
    ("allocators:make_allocator", "scheduler allocators:make_allocator must be a plain function of one argument"),
    (7, "scheduler(=7) must be a name, such as fcfs, or a function"),
    (lambda: 0, "must be a plain function of one argument"),
]


@pytest.mark.parametrize(("scheduler", "told"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_what_names_no_scheduler_is_told_in_one_line(scheduler: Any, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)) as raised:
        server_of({"capacity": 100, "scheduler": scheduler})
    assert "\n" not in str(raised.value)


def test_settings_of_a_path_import_nothing_and_keep_it() -> None:
    settings = Settings(scheduler="not.there:yet")
    assert settings.to_dict()["scheduler"] == "not.there:yet"
    assert Settings.from_dict(settings.to_saved()) == settings
    assert "scheduler" not in Settings().to_saved()
    assert Settings.from_dict(Settings().to_saved()).scheduler == "fcfs"


def test_a_saved_run_keeps_its_scheduler(tmp_path: Path) -> None:
    run = simulate(Trace.from_columns([0], [5], [3]), Paged(100, 4), scheduler=in_order)
    run.save(tmp_path / "own")
    assert Run.load(tmp_path / "own").settings.scheduler == "test_schedulers:in_order"
    simulate(Trace.from_columns([0], [5], [3]), Paged(100, 4)).save(tmp_path / "fcfs")
    assert "scheduler" not in json.loads((tmp_path / "fcfs" / "run.json").read_text())["settings"]
    assert Run.load(tmp_path / "fcfs").settings.scheduler == "fcfs"


def test_every_command_of_a_server_takes_a_scheduler(kvfrag: Kvfrag, folder: Path) -> None:
    (folder / "mine_first.py").write_text(CODE)
    mine = "--scheduler mine_first:shortest_prompt_first"
    assert json.loads(kvfrag("run good.csv -a paged --capacity 100 --json -").out)["settings"]["scheduler"] == "fcfs"
    ended = kvfrag(f"run good.csv -a paged --capacity 100 {mine}")
    assert ended.code == 0 and "scheduler: mine_first:shortest_prompt_first" in ended.out
    found = json.loads(kvfrag(f"run good.csv -a paged --capacity 100 {mine} --json -").out)
    assert found["settings"]["scheduler"] == "mine_first:shortest_prompt_first"
    found = json.loads(kvfrag(f"size good.csv -a paged --max-refused 1% {mine} --json -").out)
    assert found["settings"]["scheduler"] == "mine_first:shortest_prompt_first"
    found = json.loads(kvfrag(f"advise good.csv --capacity 100 {mine} --json -").out)
    assert found["settings"]["scheduler"] == "mine_first:shortest_prompt_first"
    ended = kvfrag(f"sweep good.csv -a paged --capacity 100 {mine} -o out.csv --workers 1 --quiet")
    assert ended.code == 0 and "mine_first:shortest_prompt_first" in (folder / "out.csv").read_text()
    for command in ("run good.csv -a paged --capacity 100", "size good.csv -a paged --max-refused 1%"):
        ended = kvfrag(f"{command} --scheduler fcfz")
        assert ended.code == 2 and "unknown scheduler 'fcfz' (did you mean fcfs?)" in ended.err


def test_in_python_size_and_sweep_take_a_function() -> None:
    trace = Trace.from_columns([0, 1, 2], [5, 6, 7], [3, 3, 3])
    assert size(trace, "paged", max_refused=0.01, scheduler=in_order).capacity > 0
    table = sweep(trace, "paged", capacity=100, scheduler=["fcfs", in_order], workers=1, progress=False)
    assert table["scheduler"].tolist() == ["fcfs", "test_schedulers:in_order"]
    assert table["used"].nunique() == 1
    with pytest.raises(InputError, match=r"must be a function of a module, package\.module:function"):
        sweep(trace, "paged", capacity=100, scheduler=SHORTEST, workers=1)


def test_a_broken_promise_ends_the_run_with_one_line(kvfrag: Kvfrag, folder: Path) -> None:
    (folder / "mine_broken.py").write_text("def lazy(state):\n    return 0\n")
    ended = kvfrag("run good.csv -a paged --capacity 100 --scheduler mine_broken:lazy")
    assert ended.code == 1
    assert "scheduler mine_broken:lazy broke a promise: it returns NOBODY, and 1 still wait (iteration 0)" in ended.err


def test_the_table_holds_every_scheduler_of_the_project() -> None:
    package = Path(SCHEDULERS["fcfs"].__module__.replace(".", "/")).parent
    folder = Path(__file__).parents[1] / package
    none_is = {"__init__", "seam", "steps", "named", "own", "faults", "asking"}
    assert {path.stem for path in folder.glob("*.py")} - none_is == set(SCHEDULERS)
    for name in SCHEDULERS:
        check_scheduler(name, cases=10)


def test_one_that_looks_at_arrivals_may_skip_until_the_next() -> None:
    asked: list[int] = []

    class Counting:
        def __call__(self, state: State) -> int:
            asked.append(int(state.clock.iteration))
            state.clock.alike = UNTIL_ARRIVAL
            if not state.batch.now.count:
                admit(state, head(state))
            state.clock.head = head(state)
            return BATCH if waiting(state) else NOBODY

    trace = Trace.from_columns([0, 5 * 10**9, 7 * 10**9], [1, 1, 1], [10, 5, 1])
    run = simulate(trace, Paged(100, 100), cost=StepCost("1s", "0", "0"), scheduler=Counting(), timeline_bins=0)
    # From the start to the first arrival, to the second, to the end of each.
    assert asked == [0, 5, 7, 10, 15]
    assert run.counts["iterations"] == 16
