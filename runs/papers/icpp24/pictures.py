"""The pictures of the ICPP'24 paper's Figures 3, 4, 6 and 7, from the records of `figures`."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

# Colour, marker and its size, the same in all figures: Okabe & Ito's colours, told apart by colour-blind readers;
# the larger markers are drawn first, so that lines that coincide are seen.
STYLE = {
    "oblivious": ("#000000", "o", 6),
    "columns": ("#E69F00", "s", 6),
    "columns, METIS": ("#56B4E9", "o", 11),
    "columns, balanced": ("#0072B2", "s", 8),
    "cover, balanced": ("#009E73", "D", 4),
    "spgnn": ("#D55E00", "P", 6),
}
BREAKDOWN = {"products": "#999999", "all-to-all or broadcast": "#0072B2", "sums and all-reduce": "#E69F00"}
TITLES = {"arxiv": "ogbn-arxiv", "rmat": "R-MAT (irregular)", "communities": "communities (regular)"}


def lines(records: list[dict], panels: list[tuple[str, int]], names: list[str], title: str, path: Path) -> None:
    """Draw seconds of an epoch over the number of ranks, a panel for each (graph, c): figures 3, 6 and 7."""
    across = len(panels) if len(panels) <= 3 else 2
    down = -(-len(panels) // across)
    figure, axes = plt.subplots(down, across, figsize=(4.2 * across, 3.4 * down), squeeze=False, layout="constrained")
    for axis, (graph, c) in zip(axes.flat, panels):
        for name in names:
            found = sorted(
                (r["ranks"], r["epoch_s"]) for r in records if (r["graph"], r["c"], r["line"]) == (graph, c, name)
            )
            color, marker, size = STYLE[name]
            fill = "none" if size > 6 else color
            axis.loglog(
                *zip(*found),
                color=color,
                marker=marker,
                markersize=size,
                markerfacecolor=fill,
                linewidth=1.4,
                label=name,
            )
        ranks = sorted({r["ranks"] for r in records if (r["graph"], r["c"]) == (graph, c)})
        axis.xaxis.set_major_locator(FixedLocator(ranks))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xticklabels(map(str, ranks))
        low, high = axis.get_ylim()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7) if high < 12 * low else (1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.set_title(TITLES[graph] + (f", c = {c}" if len({c for _, c in panels}) > 1 else ""), fontsize=10)
        axis.set_xlabel("ranks P")
        axis.set_ylabel("seconds an epoch")
        axis.grid(True, linewidth=0.3)
    _finish(figure, axes.flat[0], title, path)


def bars(records: list[dict], graphs: list[str], names: list[str], title: str, path: Path) -> None:
    """Draw what an epoch's seconds go to, a group of bars for each number of ranks: figure 4."""
    figure, axes = plt.subplots(1, len(graphs), figsize=(4.6 * len(graphs), 3.6), squeeze=False, layout="constrained")
    for axis, graph in zip(axes.flat, graphs):
        ranks = sorted({r["ranks"] for r in records if (r["graph"], r["c"]) == (graph, 1)})
        width = 0.8 / len(names)
        for i, name in enumerate(names):
            of = {r["ranks"]: r for r in records if (r["graph"], r["c"], r["line"]) == (graph, 1, name)}
            x, bottom = np.arange(len(ranks)) + (i - (len(names) - 1) / 2) * width, np.zeros(len(ranks))
            for part, color in BREAKDOWN.items():
                height = np.array([of[P][part] for P in ranks])
                axis.bar(x, height, 0.9 * width, bottom, color=color, label=part if i == 0 else None)
                bottom += height
            for place, total in zip(x, bottom):
                axis.annotate("ABCDEF"[i], (place, total), ha="center", va="bottom", fontsize=7)
        axis.set_xticks(np.arange(len(ranks)), map(str, ranks))
        axis.set_title(TITLES[graph], fontsize=10)
        axis.set_xlabel("ranks P")
        axis.set_ylabel("seconds an epoch")
        axis.margins(y=0.08)
        axis.grid(True, axis="y", linewidth=0.3)
    letters = ", ".join(f"{letter} {name}" for letter, name in zip("ABCDEF", names))
    _finish(figure, axes.flat[0], f"{title}\n{letters}", path)


def _finish(figure, axis, title: str, path: Path) -> None:
    figure.suptitle(title, fontsize=11)
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9, frameon=False)
    figure.savefig(path, dpi=90)
    plt.close(figure)
