"""The rooms: imports point downward, in no circle; modules and packages stay small; importing is cheap."""

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for package in ("allocators", "simulator", "gpu", "kvfrag")
    for path in sorted((ROOT / package).rglob("*.py"))
}
NAMES = MODULES.keys()

LEVELS = (
    ("allocators",),
    ("simulator.files", "simulator.messages"),
    ("simulator.engine",),
    ("simulator.traces",),
    ("simulator.server",),
    ("simulator.results",),
    ("simulator.inputs",),
    ("simulator.replay",),
    ("simulator.conformance",),
    ("simulator.sweeps",),
    ("simulator.answers", "simulator.examples"),
    ("simulator.plots", "simulator.page"),
    ("simulator.cli",),
    ("simulator.__main__",),
    ("simulator.__init__",),
    ("gpu",),
    ("kvfrag",),
)
"""From low to high, as in docs/architecture.md. A room imports from those below it, never from one beside it."""

UPWARD = {("simulator.results.run", "simulator.page.html")}
"""``Run.to_html`` is where people look for the page of a run; it is imported when it is called."""


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Dotted names: ``a.b`` and ``a.b.c`` for ``from a.b import c``, which may be a module too."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, "relative imports hide where an arrow points"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(module: str) -> set[str]:
    """All that a module imports, wherever it stands."""
    return set(imported(ast.walk(ast.parse(MODULES[module].read_text("utf-8")))))


def arrows() -> dict[str, set[str]]:
    """Module -> the modules of the project that it imports, wherever that stands, functions and types included."""
    found = {}
    for module in MODULES:
        named = {name if name in MODULES else f"{name}.__init__" for name in imports(module)}
        # ``from a.b import c`` names a.b too, which is meant only if c is no module.
        packages = {f"{name.rpartition('.')[0]}.__init__" for name in named if name in MODULES}
        found[module] = {name for name in named - packages if name in MODULES and name != module}
    return found


def room(module: str) -> tuple[int, str]:
    """The level of a module, and the room it is in."""
    rooms = [
        (level, name) for level, names in enumerate(LEVELS) for name in names if f"{module}.".startswith(f"{name}.")
    ]
    assert len(rooms) == 1, f"{module} is in no room of LEVELS"
    return rooms[0]


def importers(*names: str) -> set[str]:
    """The modules of the project that import one of ``names``, or anything in it."""
    return {m for m in MODULES if any(f"{i}.".startswith(f"{name}.") for i in imports(m) for name in names)}


def test_arrows_between_rooms_point_downward() -> None:
    up = {
        (module, other)
        for module, others in arrows().items()
        for other in others
        if room(other)[1] != room(module)[1] and room(other)[0] >= room(module)[0]
    }
    assert up == UPWARD


def test_there_are_no_circles() -> None:
    TopologicalSorter(arrows()).prepare()  # raises CycleError, which names one


def test_allocators_import_the_standard_library_and_numpy() -> None:
    tops = {name.partition(".")[0] for module in NAMES if module.startswith("allocators.") for name in imports(module)}
    assert tops - sys.stdlib_module_names <= {"allocators", "numpy"}


@pytest.mark.parametrize(
    ("names", "allowed"),
    [
        (["simpy"], {"simulator.engine.clock"}),
        (["numba"], {module for module in NAMES if module.startswith("simulator.engine.")}),
        (["matplotlib"], {module for module in NAMES if module.startswith("simulator.plots.")}),
        (["kvfrag"], {module for module in NAMES if module.startswith("kvfrag.")}),
        (["gpu", "torch", "triton"], {module for module in NAMES if module.startswith("gpu.")}),
        (["simulator"], {module for module in NAMES if not module.startswith("allocators.")}),
        # What simulates, and the names in ``simulator`` that lead to it.
        (
            ["simulator.engine.clock", "simulator.engine.loop", "simulator.replay", "simulator.simulate"],
            {module for module in NAMES if module.startswith("simulator.")},
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_who_may_import_what(names: list[str], allowed: set[str]) -> None:
    assert importers(*names) - allowed == set()


def test_pyplot_is_imported_by_no_module_on_its_own_import() -> None:
    """At module level, a class body or a branch of an ``if`` included; in a function it is up to the caller."""

    def on_import(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from chain.from_iterable(on_import(child) for child in ast.iter_child_nodes(node))

    for module, path in MODULES.items():
        found = set(imported(on_import(ast.parse(path.read_text("utf-8")))))
        assert not {"matplotlib.pyplot", "pylab"} & found, module


def printed(code: str, **environment: str) -> list[str]:
    """The words that a fresh interpreter prints."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout.split()


SIMULATING = ("numba", "simpy", "simulator.engine.loop")
"""What a simulation needs, and takes long to import."""

KVFRAG = "from simulator.cli.app import app; from functools import partial; partial(app, standalone_mode=False)"


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import allocators", {"simulator", "numpy", *SIMULATING, "pandas", "matplotlib", "torch"}),
        ("import simulator", {*SIMULATING, "numpy", "pandas", "matplotlib", "torch"}),
        ("import kvfrag; dir(kvfrag)", {*SIMULATING, "pandas", "matplotlib", "torch"}),
        ("from simulator import Run, Trace", {*SIMULATING, "matplotlib", "torch"}),
        ("from simulator import Run, Trace, plots", {*SIMULATING, "torch"}),
        ("from simulator import simulate", {"matplotlib", "torch"}),
        (f"{KVFRAG}(['--help'])", {*SIMULATING, "pandas", "matplotlib", "torch"}),
        (f"{KVFRAG}(['run', '--help'])", {*SIMULATING, "matplotlib", "torch"}),
        (f"{KVFRAG}(['trace', 'info', '--quiet', 'traces/azure-2023.csv'])", {*SIMULATING, "matplotlib", "torch"}),
    ],
)
def test_an_import_loads_no_more_than_it_needs(statement: str, absent: set[str]) -> None:
    loaded = set(printed(f"{statement}\nimport sys\nprint(*sys.modules)"))
    assert absent & loaded == set()


def test_importing_plots_chooses_no_backend() -> None:
    code = (
        "import sys, simulator.plots, matplotlib as m; print(m.rcParams['backend'], 'matplotlib.pyplot' in sys.modules)"
    )
    assert printed(code, MPLBACKEND="svg") == ["svg", "False"]


def test_rooms_and_modules_are_small() -> None:
    lines = {module: path.read_text("utf-8").count("\n") for module, path in MODULES.items()}
    own = ("allocators.", "simulator.")
    assert {module: count for module, count in lines.items() if count > 250 and module.startswith(own)} == {}
    assert {module: count for module, count in lines.items() if count > 450} == {}
    modules = Counter(module.rpartition(".")[0] for module in MODULES)
    assert modules["simulator"] <= 6
    assert {package: count for package, count in modules.items() if count > 18} == {}


def test_no_function_of_the_engine_is_long() -> None:
    long = {
        f"{module}.{node.name}": lines
        for module, path in MODULES.items()
        if module.startswith("simulator.engine")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and (lines := (node.end_lineno or 0) - node.lineno + 1) > 60
    }
    assert long == {}
