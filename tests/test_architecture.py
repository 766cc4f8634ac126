"""The arrows between the packages point one way, and importing is cheap."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
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


def importers(*names: str) -> set[str]:
    """The modules of the project that import one of ``names``, or anything in it."""
    return {m for m in MODULES if any(f"{i}.".startswith(f"{name}.") for i in imports(m) for name in names)}


def test_allocators_import_the_standard_library_and_numpy() -> None:
    tops = {name.partition(".")[0] for module in NAMES if module.startswith("allocators.") for name in imports(module)}
    assert tops - sys.stdlib_module_names <= {"allocators", "numpy"}


@pytest.mark.parametrize(
    ("names", "allowed"),
    [
        (["simpy"], {"simulator.engine"}),
        (["matplotlib"], {module for module in NAMES if module.startswith("simulator.plots")}),
        (["kvfrag"], {module for module in NAMES if module.startswith("kvfrag.")}),
        (["gpu", "torch", "triton"], {module for module in NAMES if module.startswith("gpu.")}),
        (["simulator"], {module for module in NAMES if not module.startswith("allocators.")}),
        # The engine, and the names in ``simulator`` that lead to it.
        (
            ["simulator.engine", "simulator.replay", "simulator.simulate"],
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


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import allocators", {"simulator", "numpy", "pandas", "simpy", "matplotlib", "torch"}),
        ("import simulator", {"pandas", "simpy", "matplotlib", "torch"}),
        ("import kvfrag; dir(kvfrag)", {"pandas", "simpy", "matplotlib", "torch"}),
        ("from simulator import Run", {"simulator.engine", "simpy", "matplotlib", "torch"}),
        ("from simulator import simulate", {"matplotlib", "torch"}),
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


def test_no_module_is_long() -> None:
    lines = {module: path.read_text("utf-8").count("\n") for module, path in MODULES.items()}
    assert {module: count for module, count in lines.items() if count > 450} == {}
