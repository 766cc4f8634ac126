"""What the README shows works as it stands."""

import re
from pathlib import Path

import pytest

from allocators import check_allocator

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[block.strip().splitlines()[0] for block in BLOCKS])
def test_python_of_the_readme(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    if "Slab" in names:
        slab = names["Slab"]
        check_allocator(lambda: slab(4096))  # type: ignore[operator]
    pictures = re.findall(r'savefig\("(.*?)"\)', code)
    assert all((tmp_path / picture).stat().st_size > 10_000 for picture in pictures)


def test_every_file_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
