"""The pages in docs/ name what is there: the picture, the rooms, files, tables, other pages, and each decision."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from test_architecture import LEVELS, ROOT

DOCS = ROOT / "docs"
PAGES = {path.relative_to(ROOT): path.read_text("utf-8") for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))}
PAGE = PAGES[Path("docs/architecture.md")]
_spec = importlib.util.spec_from_file_location("make_architecture", DOCS / "make_architecture.py")
assert _spec is not None and _spec.loader is not None
drawing: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(drawing)


def test_the_picture_is_the_one_that_is_drawn_now() -> None:
    assert (DOCS / "architecture.svg").read_text("utf-8") == drawing.picture()


def test_every_room_in_the_picture_is_there() -> None:
    boxes = [box for value in vars(drawing).values() for box in (value if isinstance(value, tuple) else [value])]
    rooms = {room for box in boxes if isinstance(box, drawing.Box) for room in box.room.split(", ")}
    assert len(rooms) > 10
    assert [room for room in sorted(rooms) if not any((ROOT / top / room).exists() for top in ("", "simulator"))] == []


def files_named_in(text: str) -> set[str]:
    return set(re.findall(r"`((?:allocators|simulator|gpu|docs|tests|traces)/[\w./]+)`", text))


@pytest.mark.parametrize("page", [page for page in PAGES if page.parts[0] == "docs"], ids=str)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = {name for name in files_named_in(PAGES[page]) if "NAME" not in name}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_page_names_files() -> None:
    assert len(files_named_in(PAGE)) > 20


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_page_that_a_page_links_to_is_there(page: Path) -> None:
    links = {link for link in re.findall(r"\]\(([^)#:]+)\)", PAGES[page]) if link.endswith(".md")}
    assert [link for link in sorted(links) if not (ROOT / page.parent / link).exists()] == []


def test_every_decision_is_listed_and_is_short() -> None:
    folder = Path("docs/adr")
    decisions = {page: text for page, text in PAGES.items() if page.parent == folder and page.name != "README.md"}
    assert len(decisions) >= 8
    index = PAGES[folder / "README.md"]
    assert [page.name for page in decisions if page.name not in index] == []
    assert [page.name for page, text in decisions.items() if text.count("\n") > 40] == []


def test_every_table_that_the_page_names_is_there() -> None:
    tables = re.findall(r"`(\w+)` in `([\w./]+\.py)`", PAGE)
    assert len(tables) >= 8
    for name, file in tables:
        source = (ROOT / file).read_text("utf-8")
        assert re.search(rf"^(class )?{name}\b.*( = |:$)|^    {name},$", source, re.M), (name, file)


def test_every_room_is_on_the_page() -> None:
    rooms = {room.replace(".", "/") for level in LEVELS for room in level} - {"simulator/locks"}
    assert [room for room in sorted(rooms) if f"`{room}`" not in PAGE and f"`{room}.py`" not in PAGE] == []
