"""Place labels next to points so that they overlap neither points nor each other."""

from __future__ import annotations

from collections.abc import Sequence

# Offsets in points from a marker's centre, with alignments; the first free place is used.
PLACES = (
    (7, 0, "left", "center"), (-7, 0, "right", "center"), (0, 7, "center", "bottom"), (0, -7, "center", "top"),
    (6, 6, "left", "bottom"), (6, -6, "left", "top"), (-6, 6, "right", "bottom"), (-6, -6, "right", "top"),
    (7, 14, "left", "bottom"), (7, -14, "left", "top"), (-7, 14, "right", "bottom"), (-7, -14, "right", "top"),
    (0, 24, "center", "bottom"), (0, -24, "center", "top"),
)  # fmt: skip
MARKER, CHARACTER, LINE = 4.5, 0.58, 1.15  # half a marker in points; width and height of a letter over the font size


def place_labels(
    axis, points: Sequence[tuple[float, float]], texts: Sequence[str], colours: Sequence[str], size: float = 8.5
) -> None:
    """Annotate each point of an axis with its text, at the place with least overlap."""
    from matplotlib.patheffects import withStroke

    figure = axis.get_figure()
    figure.draw_without_rendering()  # fixes the layout, which pixels depend on
    scale = 72 / figure.dpi
    places = axis.transData.transform(points) * scale
    taken = [(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in places]
    frame = [edge * scale for edge in axis.get_window_extent().extents]
    for (x, y), point, text, colour in zip(places, points, texts, colours):
        lines = text.split("\n")
        width, height = max(map(len, lines)) * CHARACTER * size, len(lines) * LINE * size
        boxes = [_box(x + dx, y + dy, across, along, width, height) for dx, dy, across, along in PLACES]
        costs = [sum(_overlap(box, other) for other in taken) + _outside(box, frame) for box in boxes]
        best = min(range(len(PLACES)), key=costs.__getitem__)
        dx, dy, across, along = PLACES[best]
        axis.annotate(text, point, (dx, dy), textcoords="offset points", ha=across, va=along, fontsize=size, color=colour,
                      path_effects=[withStroke(linewidth=2.5, foreground="white")])  # fmt: skip
        taken.append(boxes[best])


def _box(x: float, y: float, across: str, along: str, width: float, height: float) -> tuple[float, float, float, float]:
    left = x - {"left": 0.0, "center": 0.5, "right": 1.0}[across] * width
    bottom = y - {"bottom": 0.0, "center": 0.5, "top": 1.0}[along] * height
    return left, bottom, left + width, bottom + height


def _overlap(a, b) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _outside(box, frame) -> float:
    width, height = box[2] - box[0], box[3] - box[1]
    return 3 * (width * height - _overlap(box, frame))
