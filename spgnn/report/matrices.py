"""Pictures of matrices: rows sent between ranks, and the nonzeros before and after reordering.

Each function takes the study and returns a matplotlib figure; `style.save` writes it.
"""

from __future__ import annotations

import numpy as np

from ..analysis.study import ENTRY_BYTES, Study
from . import style
from .drawings import amount, one_spmm, subtitle

MOST_CELLS = 128  # per side; smaller cells are not visible
PANEL = (2.75, 2.85)  # inches
TITLE = (2.2, 10)  # inches, size


def heatmap(study: Study, scheme: str, k: int | None = None, replication: int = 1):
    """Draw the volume between each pair of ranks in one SpMM, a panel per method, with one scale."""
    cases = study.of(scheme, study.one_k(k), replication)
    ranks = len(cases[0].rows_PP)
    side = -(-ranks // MOST_CELLS)  # ranks of a cell
    row_mb = ENTRY_BYTES * cases[0].record["width"] / 1e6
    tables = [_squares(case.rows_PP, side) * row_mb for case in cases]
    factor, unit = style.byte_unit(max(float(table.max()) for table in tables))
    tables = [factor * table for table in tables]
    figure, axes = _titled([f"{case.record['method']}: {amount(case)}" for case in cases])
    norm, end = _norm(tables), side * len(tables[0]) - 0.5
    for axis, case, table in zip(axes, cases, tables):
        shown = np.ma.masked_where(table == 0, table)
        image = axis.imshow(
            shown, cmap=style.shades(), norm=norm, extent=(-0.5, end, end, -0.5), interpolation="nearest"
        )
        axis.set_facecolor("white")
        axis.plot([-0.5, ranks - 0.5], [-0.5, ranks - 0.5], color=style.QUIET, linewidth=0.8, zorder=0)
        if ranks <= 8:
            _write_cells(axis, table, norm)
        ticks = np.arange(0, ranks, -(-ranks // (8 if ranks <= 100 else 4)))
        axis.set_xticks(ticks)
        axis.set_yticks(ticks)
    _label_outer(axes, 4, "received by rank", "sent by rank")
    bar = figure.colorbar(image, ax=axes.tolist(), shrink=0.8 if len(tables) > 4 else 1.0, pad=0.02, aspect=28)
    _label_bar(bar, f"{unit} from {'rank to rank' if side == 1 else f'{side} ranks to {side} ranks'}; white: none")
    style.headline(figure, f"Volume between ranks: {subtitle(study, cases[0])}", one_spmm(cases[0]))
    return figure


def spy(study: Study, k: int | None = None):
    """Draw the densities of A as stored and in the order of each method's parts."""
    k = study.one_k(k)
    cuts = study.cuts_of(k)
    tables = [study.stored_BB, *(cut.density_BB for cut in cuts)]
    cut_of = {record["method"]: record["edge_cut"] for record in study.records if record["k"] == k}
    shares = (f"{cut.method}: {cut_of[cut.method] / max(study.graph['nnz'], 1):.0%}\u00a0cut" for cut in cuts)
    figure, axes = _titled(["before: as stored", *shares])
    norm, n = _norm(tables), study.graph["n"]
    for axis, table, cut in zip(axes, tables, [None, *cuts]):
        image = axis.imshow(
            np.ma.masked_where(table == 0, table),
            cmap=style.shades(),
            norm=norm,
            extent=(0, n, n, 0),
            interpolation="nearest",
        )
        if cut is not None:
            _draw_borders(axis, np.cumsum(cut.sizes_k)[:-1], n)
        axis.set_xticks([0, n])
        axis.set_yticks([0, n])
        axis.set_xticklabels(["0", f"{n:,}"])
        axis.set_yticklabels(["0", f"{n:,}"], rotation=90, va="center")
    bar = figure.colorbar(image, ax=axes.tolist(), shrink=0.8 if len(tables) > 4 else 1.0, pad=0.02, aspect=28)
    _label_bar(bar, f"nonzeros in {n / len(study.stored_BB):,.0f} x {n / len(study.stored_BB):,.0f} nodes")
    style.headline(figure, f"The matrix before and after reordering: {study.graph['name']}, {study.graph['nnz']:,} nonzeros, k = {k}",
                   "rows and columns by part; off-diagonal blocks are cut")  # fmt: skip
    return figure


def _titled(titles: list[str]):
    """Return a figure and its framed panels with these titles, four in a row."""
    titles = [style.wrap(title, *TITLE) for title in titles]
    figure, axes = style.panels(len(titles), 4, PANEL[0], PANEL[1] + style.lines_inches(titles, TITLE[1]))
    for axis, title in zip(axes, titles):
        style.finish(axis, title=title)
        style.frame(axis)
    return figure, axes


def _squares(table_PP: np.ndarray, side: int) -> np.ndarray:
    """Add up squares of side x side entries."""
    starts = np.arange(0, len(table_PP), side)
    return np.add.reduceat(np.add.reduceat(table_PP, starts, axis=0), starts, axis=1)


def _norm(tables: list[np.ndarray]):
    """Return a scale from the least nonzero to the largest, logarithmic if they are far apart."""
    from matplotlib.colors import LogNorm, Normalize

    top = max(float(table.max()) for table in tables)
    least = min((float(table[table > 0].min()) for table in tables if (table > 0).any()), default=1.0)
    return LogNorm(least, max(top, least * 1.01)) if top > 30 * least else Normalize(0, top or 1.0)


def _label_bar(bar, text: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    bar.set_label(text, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    if bar.ax.get_yscale() == "log":
        style.plain_log(bar.ax, "y")
    else:
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.number(value)))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())


def _write_cells(axis, table: np.ndarray, norm) -> None:
    for q, row in enumerate(table):
        for p, value in enumerate(row):
            if value:
                ink = "white" if norm(value) > 0.55 else style.INK
                axis.text(
                    p,
                    q,
                    style.number(value),
                    ha="center",
                    va="center",
                    fontsize=7.5 if len(table) <= 4 else 5.5,
                    color=ink,
                )


def _label_outer(axes, across: int, x: str, y: str) -> None:
    """Label the lowest panel of each column and the first of each row."""
    for i, axis in enumerate(axes):
        if i + across >= len(axes):
            axis.set_xlabel(x, fontsize=9)
        if i % across == 0:
            axis.set_ylabel(y, fontsize=9)


def _draw_borders(axis, places: np.ndarray, n: int) -> None:
    axis.autoscale(False)
    if len(places) < 24:
        axis.vlines(places, 0, n, color="#D55E00", linewidth=0.7, alpha=0.8)
        axis.hlines(places, 0, n, color="#D55E00", linewidth=0.7, alpha=0.8)
    elif len(places) < 96:  # lines would hide the blocks: ticks outside; more ticks than these would merge
        axis.vlines(places, -0.03 * n, -0.008 * n, color="#D55E00", linewidth=0.5, clip_on=False)
        axis.hlines(places, -0.03 * n, -0.008 * n, color="#D55E00", linewidth=0.5, clip_on=False)
