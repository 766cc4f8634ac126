"""How a result shows itself: a few lines at a Python prompt, a small table in a notebook."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Protocol

Facts = Mapping[str, str]
"""What is told of a result: name -> value, both as they are shown."""

_LEFT = 'style="text-align: left"'


class Named(Protocol):
    """A run, or what can be shown like one. Its ``capacity``, where it has one, is its pool in slots."""

    @property
    def name(self) -> str: ...


def labels(runs: Sequence[Named]) -> list[str]:
    """What runs beside each other are called: their names; where two have the same, their pools or numbers after it."""
    pools: dict[str, set[int]] = {}
    for run in runs:
        pools.setdefault(run.name, set()).add(_pool(run))
    return apart([f"{run.name}, {_pool(run):,} slots" if len(pools[run.name]) > 1 else run.name for run in runs])


def _pool(run: Named) -> int:
    return getattr(run, "capacity", 0)


def apart(texts: Sequence[str]) -> list[str]:
    """The texts, with a number after those that are there several times: ``paged (1)``, ``paged (2)``."""
    times, seen, told = Counter(texts), Counter[str](), list[str]()
    for text in texts:
        seen[text] += 1
        told.append(f"{text} ({seen[text]})" if times[text] > 1 else text)
    return told


class Shown(ABC):
    """A result that shows itself in words; a dataclass that is one leaves its repr to it, with ``repr=False``."""

    @abstractmethod
    def told(self) -> tuple[str, Facts]:
        """A title, and what is told of the result."""

    def __repr__(self) -> str:
        title, facts = self.told()
        width = max(map(len, facts), default=0)
        return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in facts.items())])

    def _repr_html_(self) -> str:
        """The same for a notebook, names and values as text that no browser takes for tags."""
        title, facts = self.told()
        rows = "".join(f"<tr>{_cell('th', name)}{_cell('td', value)}</tr>" for name, value in facts.items())
        return f"<table><caption {_LEFT}><b>{escape(title)}</b></caption><tbody>{rows}</tbody></table>"


def _cell(tag: str, text: str) -> str:
    return f"<{tag} {_LEFT}>{escape(text)}</{tag}>"


def percents(shares: Mapping[str, float]) -> str:
    """Shares of a pool in words: ``used 97.2 %, free 2.8 %``."""
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items())
