"""The coarser views of the ledger that others report, and the one colour of each category and cause of waiting.

The ledger says where every slot is (docs/semantics.md, section 4). A view adds categories up; none
drops or invents a slot, so every view sums to the whole pool.
"""

from collections.abc import Mapping

from allocators.base import one_of
from simulator.results.ledger import CATEGORIES

VIEWS: dict[str, dict[str, tuple[str, ...]]] = {
    "ledger": {category: (category,) for category in CATEGORIES},
    "textbook": {
        "used": ("used",),
        "reservation": ("reservation",),
        "internal": ("overprovision", "rounding"),
        "external": ("external",),
        "free": ("residual", "idle"),
    },
    # Figure 2 of the PagedAttention paper (Kwon et al., SOSP 2023).
    "paper": {
        "token states": ("used",),
        "reservation": ("reservation",),
        "internal": ("overprovision",),
        "external & others": ("rounding", "external", "residual", "idle"),
    },
}
"""View -> its name for a category -> the ledger's categories in it."""

COLORS = {
    "used": "#0a305e",
    "reservation": "#93c0e4",
    "overprovision": "#cf5f12",
    "rounding": "#fcd383",
    "external": "#8c1230",
    "residual": "#9b9b9b",
    "idle": "#f2f2f2",
}
"""Blue for what requests hold and write, orange for internal waste, red for external, grey for free.

Lightness differs by 8 or more (CIE L*) between any two and by 20 or more between neighbours in a stack,
so they stay apart in grey print and for the colour-blind.
"""

WAIT_COLORS = {
    "external": COLORS["external"],
    "too_little_free": COLORS["residual"],
    "max_batch": "#007d76",
    "max_batch_tokens": "#9adfd3",
    "preempted": "#3b1f66",
    "iteration": "#d2ad3c",
    "behind": "#ececec",
}
"""Why requests waited, in stack order. The two reasons to be refused memory look as the free memory does meanwhile;
green for the caps, violet for who had memory and lost it. Lightness as far apart as that of ``COLORS``."""

_LEADING = {"internal": "overprovision", "external & others": "external", "free": "idle"}


def view_shares(share: Mapping[str, float], view: str) -> dict[str, float]:
    """The ledger's shares added up as a view has them, in the view's order and the unit of ``share``.

    Raises InputError for an unknown view.
    """
    parts = VIEWS[one_of("view", view, list(VIEWS))]
    return {name: sum(share[category] for category in categories) for name, categories in parts.items()}


def view_colors(view: str) -> dict[str, str]:
    """The view's names in stack order, each with its colour: that of its first or its best known category.

    Raises InputError for an unknown view.
    """
    parts = VIEWS[one_of("view", view, list(VIEWS))]
    return {name: COLORS[_LEADING.get(name, categories[0])] for name, categories in parts.items()}


def lightness(color: str) -> float:
    """CIE L* of ``#rrggbb`` (sRGB, D65), 0 black to 100 white: the grey that is left of it in print."""
    luminance = 0.0
    for start, weight in ((1, 0.2126), (3, 0.7152), (5, 0.0722)):
        level = int(color[start : start + 2], 16) / 255
        luminance += weight * (level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4)
    return 116 * luminance ** (1 / 3) - 16 if luminance > 216 / 24389 else luminance * 24389 / 27
