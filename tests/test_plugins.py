"""Commands of installed packages: added once, and one that is broken takes nothing from the others."""

import sys
from importlib.metadata import EntryPoint

import pytest
import typer

from simulator.__main__ import main
from simulator.cli import plugins
from simulator.cli.app import app


def names(application: typer.Typer) -> list[str | None]:
    return [group.name for group in application.registered_groups]


def ended(*arguments: str) -> int:
    before, sys.argv = sys.argv, ["kvfrag", *arguments]
    try:
        main()
    except SystemExit as error:
        return int(error.code or 0)
    finally:
        sys.argv = before
    return 0


def test_every_call_of_main_leaves_the_application_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--version") == 0
    once = names(app)
    assert once.count("gpu") == 1 and len(set(once)) == len(once)
    assert ended("--version") == 0
    assert names(app) == once
    assert capsys.readouterr().err == ""


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    offers = [
        EntryPoint("absent", "no_such_module_of_ours:app", plugins.GROUP),
        EntryPoint("lacking", "json:app", plugins.GROUP),
        EntryPoint("gpu", "gpu.cli:app", plugins.GROUP),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: [one for one in offers if one.group == group])


@pytest.mark.usefixtures("offered")
def test_a_broken_command_says_why_when_it_is_called_and_the_others_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "registered_groups", list(app.registered_groups))
    monkeypatch.setattr(app, "registered_commands", list(app.registered_commands))
    assert ended("absent", "--any", "thing") == 1
    told = "kvfrag: the command absent (no_such_module_of_ours:app) cannot be imported: ModuleNotFoundError: No module "
    assert capsys.readouterr().err.startswith(f"{told}named 'no_such_module_of_ours'")
    assert ended("lacking", "--help") == 1
    assert "AttributeError: module 'json' has no attribute 'app'" in capsys.readouterr().err
    assert ended("gpu", "--help") == 0
    assert ended("--help") == 0
    shown = capsys.readouterr()
    assert shown.err == "" and "Installed, but broken." in shown.out
