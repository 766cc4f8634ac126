"""The colours of a memory map: a hue a request, a lightness for what its slots hold.

Lightness alone (CIE L*) says what a slot holds, so a map reads the same in grey print and for the colour-blind; the
hue only tells neighbours apart, and consecutive requests get hues that are far from each other.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.results.cells import HOLE, KINDS, NEVER_USED, RESERVED, ROUNDING, TAIL, WRITTEN

LIGHTNESS = {WRITTEN: 38.0, RESERVED: 66.0, NEVER_USED: 82.0, ROUNDING: 92.0}
CHROMA = {WRITTEN: 46.0, RESERVED: 42.0, NEVER_USED: 28.0, ROUNDING: 13.0}
HOLE_GREY, TAIL_GREY = 1.0, 0.49  # the tail: CIE L* 52, between written and reserved
HUES = 12
"""Hues that are told apart. A request has that of its row modulo this; a step of 5 twelfths keeps neighbours apart."""


@lru_cache(maxsize=1)
def palette() -> NDArray[np.float64]:
    """``[kind, hue, 3]``: sRGB from 0 to 1."""
    colors = np.zeros((len(KINDS), HUES, 3))
    colors[HOLE], colors[TAIL] = HOLE_GREY, TAIL_GREY
    for kind, level in LIGHTNESS.items():
        for hue in range(HUES):
            colors[kind, hue] = _srgb(level, CHROMA[kind], 2 * np.pi * ((5 * hue) % HUES + 0.6) / HUES)
    return colors


def colors_of(kind: NDArray[np.uint8], request: NDArray[np.int32]) -> NDArray[np.float64]:
    """The colour of each cell, ``[..., 3]``."""
    found: NDArray[np.float64] = palette()[kind, np.maximum(request, 0) % HUES]
    return found


def key_color(kind: int) -> tuple[float, float, float]:
    """The colour that stands for what a slot holds, whoever has it: its grey."""
    if kind in (HOLE, TAIL):
        grey = HOLE_GREY if kind == HOLE else TAIL_GREY
        return grey, grey, grey
    red, green, blue = _srgb(LIGHTNESS[kind], 0, 0).tolist()
    return red, green, blue


def _srgb(lightness: float, chroma: float, angle: float) -> NDArray[np.float64]:
    """A colour of CIE L*C*h (D65) in sRGB, its chroma cut down where a screen cannot show it."""
    while True:
        y = (lightness + 16) / 116
        xyz = np.array([y + chroma * np.cos(angle) / 500, y, y - chroma * np.sin(angle) / 200])
        xyz = np.where(xyz > 6 / 29, xyz**3, 3 * (6 / 29) ** 2 * (xyz - 4 / 29)) * [0.95047, 1.0, 1.08883]
        linear = _TO_RGB @ xyz
        if chroma <= 0 or (linear.min() >= -1e-6 and linear.max() <= 1 + 1e-6):
            linear = linear.clip(0, 1)
            found: NDArray[np.float64] = np.where(
                linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055
            )
            return found
        chroma -= 1


_TO_RGB = np.array([[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.2040, 1.0570]])
