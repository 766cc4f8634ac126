"""Options in groups: spelled out for the command line, handed over as one, and in sections of the help."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
import typer

from simulator.cli.option_groups import OptionGroup, SectionedCommand, with_groups


@dataclass(frozen=True)
class Size(OptionGroup):
    """Options of a test."""

    section: ClassVar[str] = "How large"
    width: Annotated[int, typer.Option(help="Across.")]
    height: Annotated[int, typer.Option("--height", "--tall", help="Upwards.")] = 3


SEEN: list[object] = []
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(cls=SectionedCommand)
@with_groups
def draw(
    name: Annotated[str, typer.Argument(help="Which one.")],
    size: Size,
    plain: Annotated[bool, typer.Option("--plain", help="Without colours.")] = False,
) -> None:
    """Draw something."""
    SEEN[:] = [name, size, plain]


def test_a_group_arrives_as_one() -> None:
    app(["box", "--width", "5", "--tall", "7"], standalone_mode=False)
    assert ["box", Size(5, 7), False] == SEEN
    app(["box", "--width", "5", "--plain"], standalone_mode=False)
    assert ["box", Size(5), True] == SEEN


def test_a_missing_option_of_a_group_is_told() -> None:
    with pytest.raises(Exception, match="width"):
        app(["box"], standalone_mode=False)


def test_the_help_has_a_section_for_each_group(capsys: pytest.CaptureFixture[str]) -> None:
    app(["--help"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "\033" not in shown
    parts = ["Draw something.", "Arguments:", "Which one.", "How large:", "--width", "--height, --tall", "[default: 3]"]
    places = [shown.index(part) for part in [*parts, "Other options:", "--plain", "--help"]]
    assert places == sorted(places)
