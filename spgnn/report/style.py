"""Style of all pictures: colours and markers by method and scheme, axes, files, and SVG for light and dark pages.

Colours are those of Okabe & Ito (2008) and Paul Tol, which colour-blind readers can distinguish; markers differ too.
"""

from __future__ import annotations

import colorsys
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from ..atomic import new_file
from ..errors import ResourceError, UsageError

# Name -> colour, marker, line, the same in every picture; metis with options is lighter.
METHODS = {
    "block": ("#9A9A9A", "s", ":"), "random": ("#4D4D4D", "X", ":"), "metis": ("#0072B2", "o", "-"),
    "volume": ("#D55E00", "D", "-"), "spring": ("#44AA99", "^", "--"), "spring+": ("#117733", "^", "-"),
    "dbh": ("#CC79A7", "v", "-."), "greedy": ("#AA4499", "P", "-."), "hdrf": ("#882255", "p", "-."),
    "2psl": ("#E69F00", "h", "-."), "entropy": ("#332288", "*", "-"),
}  # fmt: skip
SCHEMES = {
    "broadcast": ("#4D4D4D", "o", "-"), "columns": ("#E69F00", "s", "-"), "cover": ("#009E73", "D", "-"),
    "two-tier": ("#0072B2", "^", "-"),
}  # fmt: skip
OTHERS = tuple(zip(("#56B4E9", "#DDAA33", "#88CCEE", "#999933", "#661100"), "oD<>d", ["--"] * 5))
INK = "#222222"
EM = 0.62  # mean width of a letter over the font size, at most
FORMATS = (".png", ".svg")
# Of every figure. Names of users may look like a formula; ids of an SVG repeat.
LOOK = {
    "axes.axisbelow": True, "axes.grid": True, "axes.labelsize": 9, "axes.spines.right": False, "axes.spines.top": False,
    "axes.titlelocation": "left", "axes.titlesize": 10, "grid.color": "#E8E8E8", "grid.linewidth": 0.6,
    "legend.fontsize": 8.5, "legend.frameon": False, "savefig.dpi": 150, "svg.hashsalt": "spgnn", "text.parse_math": False,
    "xtick.labelsize": 8, "ytick.labelsize": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: in a file under its title, on a page under its heading and how to read it.

    draw  panels in a row -> matplotlib figure.
    """

    draw: Callable[[int], Any]
    title: str
    heading: str
    reading: str

    def svg(self, across: int) -> str:
        """Return the figure for a page, whose colours follow the reader's choice of light or dark."""
        with look():
            drawn = BytesIO()
            self.draw(across).savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
        text = drawn.getvalue().decode()
        text = re.sub(r"(fill|stroke): #([0-9a-f]{6})", r"\1: var(--c\2)", text[text.index("<svg") :])
        colours = sorted({"000000", *re.findall(r"var\(--c([0-9a-f]{6})", text)})  # text without a colour is black
        light, dark = ("".join(f"--c{colour}:{of(colour)};" for colour in colours) for of in ("#{}".format, _on_dark))
        rules = f":root{{{light}fill:var(--c000000)}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
        return text.replace("<defs>", f"<style>{rules}</style><defs>", 1)

    def save(self, path: str | Path) -> Path:
        """Write the figure as .png or .svg, atomically; equal figures give equal bytes."""
        path = Path(path)
        if path.suffix not in FORMATS:
            raise UsageError(f"{path}: expected a file name ending in {' or '.join(FORMATS)}")
        with look(), new_file(Path(os.path.realpath(path))) as file:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            self.titled().savefig(file, format=path.suffix[1:], metadata=metadata)
        return path

    def titled(self):
        """Return the figure under its title, for a file."""
        figure = self.draw(2)
        width, height = figure.get_size_inches()
        text = wrap(self.title, 0.94 * width, 11)
        figure.set_size_inches(width, height + 0.2 * (text.count("\n") + 1))
        figure.suptitle(text, x=0.01, ha="left", fontsize=11, color=INK)
        return figure


@contextmanager
def look() -> Iterator[None]:
    """Draw with LOOK inside the block; ResourceError without matplotlib."""
    try:
        import matplotlib.figure
    except ImportError:
        raise ResourceError("drawing needs matplotlib: pip install 'spgnn[plot]'") from None
    with matplotlib.rc_context(LOOK):
        yield


def _on_dark(colour: str) -> str:
    """Return the colour that replaces one on a dark page: greys are inverted, dark colours are made lighter."""
    hue, light, vivid = colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)))
    light = max(light, 0.62) if vivid > 0.1 else 0.92 - 0.78 * light
    return "#" + "".join(f"{round(255 * value):02x}" for value in colorsys.hls_to_rgb(hue, light, vivid))


def styles(names: list[str], known: dict[str, tuple] = METHODS) -> dict[str, tuple[str, str, str]]:
    """Return colour, marker and line of each name; unknown names get those of OTHERS in order."""
    unknown = [name for name in names if name not in known]
    return {name: known[name] if name in known else OTHERS[unknown.index(name) % len(OTHERS)] for name in names}


def lines(count: int) -> list[tuple[str, str]]:
    """Return a colour and a line style for each of `count` curves."""
    colours = list(dict.fromkeys(colour for colour, _, _ in (*METHODS.values(), *OTHERS)))[2:]  # without greys
    return [(colours[i % len(colours)], ("-", "--", "-.", ":")[i % 4]) for i in range(count)]


def panels(count: int, across: int):
    """Return a figure and `count` axes, at most `across` in a row: 1 for a phone, 2 for a desk."""
    from matplotlib.figure import Figure

    width, height = (3.9, 2.9) if across == 1 else (4.7, 3.3)  # inches of a panel
    across = min(across, count)
    down = -(-count // across)
    figure = Figure((width * across, height * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def legend(figure, handles, labels, across: int, title: str = "") -> None:
    """Add a legend of names of any length: on the right of several panels in a row, else below."""
    where = "outside right center" if across > 1 else "outside lower left"
    figure.legend(handles, [wrap(label, 2.2, 9) for label in labels], loc=where, title=title)


def wrap(text: str, inches: float, size: float) -> str:
    """Break each line of the text into lines of at most about this width."""
    letters = int(inches * 72 / (EM * size))
    return "\n".join("\n".join(textwrap.wrap(line, letters)) for line in text.split("\n"))


def label_ticks(axis, at=None, is_whole: bool = False) -> None:
    """Label an x or y axis with 1, 20, 3,000.

    Args: at  the ticks; None: round numbers, on a long log scale 1, 2 and 5 of each decade. is_whole: integers only.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    text, locator = number, MaxNLocator(5, steps=[1, 2, 5, 10], integer=is_whole)
    if at is not None:
        locator = FixedLocator(at)
    elif axis.get_scale() == "log" and high >= 4 * low:
        locator = LogLocator(subs=(1, 2, 3, 5, 7) if high < 8 * low else (1, 2, 5) if high < 3000 * low else (1,))
    elif high < 100:
        text = "{:.5g}".format  # ticks that are close to each other
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def byte_unit(largest_mb: float) -> tuple[float, str]:
    """Return (units per MB, unit) for amounts up to largest_mb: kB, MB or GB."""
    return (1e3, "kB") if largest_mb < 0.5 else (1e-3, "GB") if largest_mb >= 2e4 else (1.0, "MB")


def number(value: float) -> str:
    """Format as 12,300, 45.6 or 0.0123: three digits, separators, no exponent."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.1e}"
