"""What tests of pictures share: the texts that a figure shows, and that they are inside it and do not collide."""

from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.text import Text


def texts_of(*several: Axes) -> list[Text]:
    """All texts that are shown, ticks, axis labels and titles included."""
    several[0].figure.canvas.figure.draw_without_rendering()
    found: list[Text] = []
    for ax in several:
        shown = [*ax.texts, *ax.get_children()[-4:-1]]
        found += [text for text in shown if isinstance(text, Text)]
        if ax.axison:
            for axis in (ax.xaxis, ax.yaxis):
                low, high = sorted(axis.get_view_interval())
                found += [axis.label]
                found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return list(dict.fromkeys(text for text in found if text.get_text() and text.get_visible()))


def words_of(*several: Axes) -> list[str]:
    """The same as plain strings."""
    return [text.get_text() for text in texts_of(*several)]


def assert_labels_are_inside_and_apart(*several: Axes) -> None:
    """No text leaves the figure, and none covers another."""
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts_of(*several)]
    figure = several[0].figure.canvas.figure.bbox
    for text, box in boxes:
        assert box.x0 >= figure.x0 - 1 and box.x1 <= figure.x1 + 1, text
        assert box.y0 >= figure.y0 - 1 and box.y1 <= figure.y1 + 1, text
    for (text, box), (other_text, other) in combinations(boxes, 2):
        across = min(box.x1, other.x1) - max(box.x0, other.x0)
        along = min(box.y1, other.y1) - max(box.y0, other.y0)
        # A bounding box is taller than its digits: a fifth of a line may be shared.
        assert across <= 0 or along <= 0.2 * min(box.height, other.height), (text, other_text)
