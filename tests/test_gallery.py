"""The gallery has every kind of picture, and one line each on how to read it."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from simulator import plots

_PARTS = ("arrivals_over_time", "length_distributions")  # of trace_overview
DOCS = Path(__file__).parents[1] / "docs"
_spec = importlib.util.spec_from_file_location("make_gallery", DOCS / "make_gallery.py")
assert _spec is not None and _spec.loader is not None
gallery: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gallery)


def test_every_kind_of_picture_is_in_it() -> None:
    page = (DOCS / "gallery" / "README.md").read_text("utf-8")
    shown = re.findall(r"!\[\w+\]\(([\w.]+)\)", page)
    assert shown == [*(f"{name}.png" for name in gallery.PICTURES), "film.gif"]
    assert sorted(path.name for path in (DOCS / "gallery").iterdir()) == sorted([*shown, "README.md"])
    assert all(reading in page for _, reading in gallery.PICTURES.values())
    source = (DOCS / "make_gallery.py").read_text("utf-8")
    drawn_by = {name for name in plots.__all__ if name not in ("drawn", "spread", *_PARTS)}
    assert all(f"plots.{name}(" in source for name in drawn_by)
    for name in shown:
        with Image.open(DOCS / "gallery" / name) as picture:
            assert picture.width > 500 and picture.height > 150


def test_it_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {name: gallery.PICTURES[name] for name in ("map_instant", "block_table")}
    monkeypatch.setattr(gallery, "PICTURES", kept)
    animate = plots.animate
    monkeypatch.setattr(plots, "animate", lambda run, **_: animate(run, frames=2))
    gallery.main(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README.md",
        "block_table.png",
        "film.gif",
        "map_instant.png",
    ]
