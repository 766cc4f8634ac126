"""docs/architecture.md names what is there: the picture, the rooms, the files and tables that something new goes to."""

import importlib.util
import re
from typing import Any

from test_architecture import LEVELS, ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "architecture.md").read_text("utf-8")
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


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:allocators|simulator|gpu|docs|tests|traces)/[\w./]+)`", PAGE))
    assert len(named) > 20
    assert [name for name in sorted(named) if "NAME" not in name and not (ROOT / name).exists()] == []


def test_every_table_that_the_page_names_is_there() -> None:
    tables = re.findall(r"`(\w+)` in `([\w./]+\.py)`", PAGE)
    assert len(tables) >= 8
    for name, file in tables:
        source = (ROOT / file).read_text("utf-8")
        assert re.search(rf"^(class )?{name}\b.*( = |:$)|^    {name},$", source, re.M), (name, file)


def test_every_room_is_on_the_page() -> None:
    rooms = {room.replace(".", "/") for level in LEVELS for room in level} - {"simulator/locks"}
    assert [room for room in sorted(rooms) if f"`{room}`" not in PAGE and f"`{room}.py`" not in PAGE] == []
