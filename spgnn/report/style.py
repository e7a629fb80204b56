"""Style of all pictures: colours and markers by method and scheme, axes, files.

Colours are those of Okabe & Ito (2008) and Paul Tol, which colour-blind readers can distinguish; markers differ too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from ..atomic import new_file
from ..errors import ResourceError, UsageError

# Name -> colour, marker, line, the same in every picture; metis with options is lighter.
METHODS = {
    "block": ("#9A9A9A", "s", ":"),
    "random": ("#4D4D4D", "X", ":"),
    "metis": ("#0072B2", "o", "-"),
    "volume": ("#D55E00", "D", "-"),
    "spring": ("#44AA99", "^", "--"),
    "spring+": ("#117733", "^", "-"),
    "dbh": ("#CC79A7", "v", "-."),
    "greedy": ("#AA4499", "P", "-."),
    "hdrf": ("#882255", "p", "-."),
    "2psl": ("#E69F00", "h", "-."),
    "entropy": ("#332288", "*", "-"),
}
SCHEMES = {"broadcast": ("#4D4D4D", "o", "-"), "columns": ("#E69F00", "s", "-"), "cover": ("#009E73", "D", "-")}
OTHERS = (
    ("#56B4E9", "o", "--"),
    ("#DDAA33", "D", "--"),
    ("#88CCEE", "<", "--"),
    ("#999933", ">", "--"),
    ("#661100", "d", "--"),
)
QUIET, INK = "#C9CDD2", "#222222"
LINE = 1.25  # height of a line over the font size
FORMATS = (".png", ".svg")


def styles(names: list[str], known: dict[str, tuple] = METHODS) -> dict[str, tuple[str, str, str]]:
    """Return colour, marker and line of each name; unknown names get those of OTHERS in order."""
    unknown = [name for name in names if name not in known]
    return {name: known[name] if name in known else OTHERS[unknown.index(name) % len(OTHERS)] for name in names}


def lines(count: int) -> list[tuple[str, str]]:
    """Return a colour and a line style for each of `count` curves."""
    colours = list(dict.fromkeys(colour for colour, _, _ in (*METHODS.values(), *OTHERS)))[2:]  # without greys
    return [(colours[i % len(colours)], ("-", "--", "-.", ":")[i % 4]) for i in range(count)]


def new_figure(width: float, height: float):
    """Return an empty figure of this size in inches, with $ as plain text; ResourceError without matplotlib."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.text import Text
    except ImportError:
        raise ResourceError("drawing needs matplotlib: pip install 'spgnn[plot]'") from None

    class PlainFigure(Figure):
        def draw(self, renderer) -> None:
            for text in self.findobj(Text):
                text.set_parse_math(False)  # names of users may look like a formula
            super().draw(renderer)

    return PlainFigure(figsize=(width, height), dpi=150, layout="constrained")


def panels(count: int, across: int, width: float, height: float):
    """Return a figure and `count` axes, at most `across` in a row, each width x height inches."""
    across = min(across, count)
    down = -(-count // across)
    figure = new_figure(width * across, height * down + 0.5)  # the headline
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def finish(axis, x: str = "", y: str = "", title: str = "") -> None:
    """Label an axis, remove the upper and right line of its frame, and draw a light grid behind."""
    axis.set_xlabel(x, fontsize=9)
    axis.set_ylabel(y, fontsize=9)
    axis.set_title(title, fontsize=10, loc="left")
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color="#E8E8E8", linewidth=0.6)
    axis.set_axisbelow(True)


def shades():
    """Return the colours of densities, from light to dark, in greyscale too."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # Without its lightest yellow, which looks like white.
    return ListedColormap(colormaps["YlGnBu"]([0.12 + 0.88 * i / 31 for i in range(32)]))


def headline(figure, title: str, below: str = "") -> None:
    """Write the title of a figure, and a subtitle; the figure grows by each line beyond two."""
    width, height = figure.get_size_inches()
    text = wrap(title + (f"\n{below}" if below else ""), 0.94 * width, 11)
    figure.set_size_inches(width, height + max(0, text.count("\n") - 1) * 11 * LINE / 72)
    figure.suptitle(text, x=0.01, ha="left", fontsize=11, color=INK)


def wrap(text: str, inches: float, size: float) -> str:
    """Break the text into lines of at most this width, after a space or one of : , = if possible."""
    lines = []
    for line in text.split("\n"):
        width = lambda letters: text_inches(line[:letters], size)
        while (most := max(1, bisect_right(range(1, len(line) + 1), inches, key=width))) < len(line):
            # A space at the end may exceed the width.
            end = max(line.rfind(" ", 0, most + 1), *(line.rfind(mark, 0, most) for mark in ":,=")) + 1 or most
            lines.append(line[:end].rstrip())
            line = line[end:].lstrip()
        lines.append(line)
    return "\n".join(lines)


def text_inches(text: str, size: float) -> float:
    """Return the width of a line of text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)[0] / 72


def lines_inches(texts: Sequence[str], size: float) -> float:
    """Return the height in inches that the longest of the texts needs beyond one line."""
    return max(text.count("\n") for text in texts) * size * LINE / 72


def plain_log(axis, letter: str, ticks=None) -> None:
    """Label a logarithmic axis with 1, 20, 3,000, at the given ticks or at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    own = axis.xaxis if letter == "x" else axis.yaxis
    low, high = axis.get_xlim() if letter == "x" else axis.get_ylim()
    subs = (1, 2, 3, 5, 7) if high < 8 * low else (1, 2, 5) if high < 3000 * low else (1,)
    text, locator = number, LogLocator(subs=subs)
    if ticks is not None:
        locator = FixedLocator(ticks)
    elif high < 4 * low:  # over two octaves, linear ticks suffice
        locator, text = MaxNLocator(5), "{:,.5g}".format
    own.set_major_locator(locator)
    own.set_minor_locator(NullLocator())
    own.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def thousands(axis, letter: str, is_whole: bool = False) -> None:
    """Label a linear axis with thousands separators; is_whole: integers only, such as epochs."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    own = axis.xaxis if letter == "x" else axis.yaxis
    own.set_major_locator(MaxNLocator(4, integer=is_whole))
    own.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def byte_unit(largest_mb: float) -> tuple[float, str]:
    """Return (units per MB, unit) for amounts up to largest_mb: kB, MB or GB."""
    return (1e3, "kB") if largest_mb < 0.5 else (1e-3, "GB") if largest_mb >= 2e4 else (1.0, "MB")


def number(value: float) -> str:
    """Format as 12,300, 45.6 or 0.0123: three digits, separators, no exponent."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.1e}"


def save(figure, path: str | Path) -> Path:
    """Write a figure as .png or .svg, atomically; equal figures give equal bytes."""
    from matplotlib import rc_context

    path = Path(path)
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: expected a file name ending in {' or '.join(FORMATS)}")
    with new_file(path) as file:
        if path.suffix == ".png":
            file.write(png_bytes(figure))
        else:
            with rc_context({"svg.hashsalt": "spgnn"}):
                figure.savefig(file, format="svg", metadata={"Date": None})
    return path


def png_bytes(figure) -> bytes:
    """Return a figure as a PNG of at most 256 colours, a third of the size of matplotlib's."""
    from PIL import Image  # a dependency of matplotlib

    drawn, packed = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", facecolor="white")
    Image.open(drawn).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        packed, format="png", optimize=True
    )
    return packed.getvalue()
