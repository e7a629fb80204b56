"""Figures of runs, by matplotlib: loss and scores, seconds and bytes of each epoch."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ResourceError
from .runs import SCORES, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Those of Okabe and Ito (2008), which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")


def draw(runs: dict[str, Run]) -> dict[str, bytes]:
    """Return the figures, name of a file -> content; equal runs give equal bytes. Raises: ResourceError without matplotlib."""
    try:
        import matplotlib.figure
        from cycler import cycler
    except ImportError:
        raise ResourceError("drawing needs matplotlib: pip install 'spgnn[plot]'") from None
    style = {
        "axes.prop_cycle": cycler(linestyle=["-", "--", ":"]) * cycler(color=COLOURS),
        "axes.grid": True, "axes.spines.right": False, "axes.spines.top": False, "grid.color": "#E8E8E8",
        "savefig.dpi": 150, "svg.hashsalt": "spgnn", "text.parse_math": False,  # names may look like a formula
    }  # fmt: skip
    drawn = {}
    with matplotlib.rc_context(style):
        for name, figure in (("learning", draw_learning(runs)), ("cost", draw_cost(runs))):
            for suffix, metadata in (("png", None), ("svg", {"Date": None})):
                figure.savefig(file := BytesIO(), format=suffix, metadata=metadata)
                drawn[f"{name}.{suffix}"] = file.getvalue()
    return drawn


def draw_learning(runs: dict[str, Run]) -> Figure:
    """Draw the loss and the scores of each epoch; of several runs the validation score, a line per run."""
    from matplotlib.ticker import LogFormatter

    figure, (left, right) = _panels("Learning", runs, 2)
    for run in runs.values():
        _plot(left, run, "loss")
        for key in SCORES if len(runs) == 1 else ["val"]:
            line = _plot(right, run, key)
            epochs, values = np.asarray(line.get_xydata()).T
            line.set_label(f"{key} {values[-1]:.4f}" if len(values) else "_")
            if key == "val":
                best = epochs == run.summary.get("best_epoch")
                right.scatter(epochs[best], values[best], color=line.get_color(), zorder=3)
    losses = np.concatenate([line.get_ydata() for line in left.lines])
    if losses.size and losses.max() > 5 * losses.min() > 0:
        left.set_yscale("log")
        left.yaxis.set_major_formatter("{x:g}")
        left.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 1)))
    left.set_title("training loss")
    metrics = " or ".join(dict.fromkeys(run.metric for run in runs.values()))
    right.set_title(metrics if len(runs) == 1 else f"{metrics} of validation nodes")
    if len(runs) == 1:
        right.legend(title="at the last epoch")
    return _with_names(figure, runs)


def draw_cost(runs: dict[str, Run]) -> Figure:
    """Draw the seconds of each epoch; where bytes are sent the bytes, and dashed their prediction."""
    from matplotlib.ticker import EngFormatter

    figure, (left, *others) = _panels("Cost per epoch", runs, 1 + any(run.sends for run in runs.values()))
    for run in runs.values():
        _plot(left, run, "epoch_s")
        for right in others:
            line = _plot(right, run, "bytes_sent")
            if (predicted := run.summary.get("bytes_predicted")) is not None:
                right.axhline(predicted, color=line.get_color(), linewidth=0.9, linestyle="--")
    seconds = [run.column("epoch_s") for run in runs.values()]
    median = f"; median {1e3 * np.median(seconds[0]):,.4g} ms" if len(runs) == 1 else ""
    highest = max(min(1.15 * of.max(), 6 * np.median(of)) for of in seconds)  # cuts spikes off
    left.set(ylim=(0, highest or 1), title=f"time per epoch{median}")
    left.yaxis.set_major_formatter(EngFormatter("s"))
    for right in others:
        right.margins(y=0.3)
        right.set(ylim=(0, None), title="sent per epoch, all ranks")
        right.yaxis.set_major_formatter(EngFormatter("B"))
    return _with_names(figure, runs)


def _panels(title: str, runs: dict[str, Run], count: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with a title, and its axes in a row."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure((9.4, 3.4 + 0.2 * len(runs)), layout="constrained")
    graphs = ", ".join(dict.fromkeys(run.graph for run in runs.values()))
    figure.suptitle(_label(f"{title}: {graphs}"), x=0.01, ha="left")
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    for axis in axes:
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, axes


def _plot(axis: Axes, run: Run, key: str) -> Line2D:
    """Draw the values of a key that are known over the epochs, and return the line."""
    epochs, values = run.column("epoch"), run.column(key)
    known = np.isfinite(values)
    return axis.plot(epochs[known], values[known], marker="." if known.sum() <= 20 else "")[0]


def _with_names(figure: Figure, runs: dict[str, Run]) -> Figure:
    """Return the figure, of several runs with their names below."""
    if len(runs) > 1:
        figure.legend(figure.axes[0].lines, list(map(_label, runs)), loc="outside lower left")
    return figure


def _label(text: str) -> str:
    """Return the end of a name that fits the figure; an SVG may contain no control characters."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= 90 else f"...{text[-87:]}"
