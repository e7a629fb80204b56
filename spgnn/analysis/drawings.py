"""Pictures of a study: who sends whom, loads of ranks, sweeps over k, quality against time, spy plots, clusters, entropies.

Each function takes the study and returns a figure of matplotlib, which `style.save` writes.
"""

from __future__ import annotations

import numpy as np

from ..errors import UsageError
from . import style
from .placing import place_labels
from .study import Case, Cut, Study

SENT = {
    "total_mb": ("sent by all ranks", " in one SpMM"),
    "max_send_mb": ("sent by the rank that sends most", " in one SpMM"),
    "max_over_mean_send": ("imbalance of sending", "largest / mean"),
}
OF_METHODS = SENT | {"replication_factor": ("replication factor, halo included", "copies of a node")}
OF_SCHEMES = SENT | {"work_imbalance": ("imbalance of work", "nonzeros multiplied, largest / mean")}
LOADS = {"sent": "rows sent", "received": "rows received", "work": "nonzeros"}


def heatmap(study: Study, scheme: str, k: int | None = None, replication: int = 1):
    """Draw what each rank sends each other in one SpMM, a panel a method, one scale for all, in MB."""
    cases = _of(study, scheme, study.one_k(k), replication)
    row_mb = _row_bytes(cases[0]) / 1e6
    factor, unit = style.byte_unit(max(float(case.rows_PP.max()) for case in cases) * row_mb)
    tables = [case.rows_PP * row_mb * factor for case in cases]
    figure, axes = style.panels(len(tables), 4, 2.75, 2.85)
    norm, ranks = _norm(tables), len(tables[0])
    for axis, case, table in zip(axes, cases, tables):
        shown = np.ma.masked_where(table == 0, table)
        image = axis.imshow(shown, cmap=style.shades(), norm=norm, interpolation="nearest" if ranks <= 64 else "antialiased")
        axis.set_facecolor("white")
        axis.plot([-0.5, ranks - 0.5], [-0.5, ranks - 0.5], color=style.QUIET, linewidth=0.8, zorder=0)
        if ranks <= 8:
            _write_cells(axis, table, norm)
        style.finish(axis, title=f"{case.record['method']}: {_amount(case)}")
        style.frame(axis)
        ticks = np.arange(0, ranks, max(1, -(-ranks // 8)))
        axis.set_xticks(ticks)
        axis.set_yticks(ticks)
    _label_outer(axes, 4, "received by rank", "sent by rank")
    bar = figure.colorbar(image, ax=axes.tolist(), shrink=0.8 if len(tables) > 4 else 1.0, pad=0.02, aspect=28)
    _label_bar(bar, f"{unit} from rank to rank; white: nothing")
    style.headline(figure, f"Who sends whom: {_what(study, cases[0])}", _one_spmm(cases[0]))
    return figure


def loads(study: Study, scheme: str, k: int | None = None, replication: int = 1):
    """Draw rows sent, rows received and nonzeros of each rank, sorted: a row of panels a method, a column a quantity."""
    cases = _of(study, scheme, study.one_k(k), replication)
    figure = style.new_figure(10, 1.1 + 1.2 * len(cases))
    axes = figure.subplots(len(cases), 3, squeeze=False, sharey="col")
    colours = style.styles([case.record["method"] for case in cases])
    for place, (row, case) in enumerate(zip(axes, cases)):
        name = case.record["method"]
        of_ranks = {"sent": case.rows_PP.sum(axis=1), "received": case.rows_PP.sum(axis=0), "work": case.work_P}
        for axis, (quantity, values) in zip(row, of_ranks.items()):
            values, mean = np.sort(values)[::-1], float(values.mean())
            axis.bar(np.arange(1, len(values) + 1), values, width=0.86 if len(values) <= 64 else 1.0, color=colours[name][0])
            axis.axhline(mean, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)))
            style.finish(axis, title=LOADS[quantity] if place == 0 else "")
            style.thousands(axis, "y")
            axis.set_xlim(0.3, len(values) + 0.7)
            ratio = values[0] / mean if mean else 1.0
            axis.set_title(f"largest {style.number(values[0])} = {ratio:.2f} x mean", loc="right", fontsize=7.5, color=style.INK)
            axis.tick_params(labelbottom=place == len(cases) - 1)
        row[0].set_ylabel(name.replace(":", ":\n"), fontsize=9.5, fontweight="bold")
    for axis in axes[-1]:
        axis.set_xlabel("ranks, the largest first", fontsize=9)
        axis.xaxis.get_major_locator().set_params(integer=True)
    style.headline(figure, f"Load of each rank: {_what(study, cases[0])}", "one SpMM; the dashed line is the mean; a column has one scale")
    return figure


def sweep(study: Study, scheme: str, replication: int = 1):
    """Draw volume, largest send, its imbalance and replication over k in log-log, a line a method."""
    cases = [case for case in study.cases if (case.record["scheme"], case.record["replication"]) == (scheme, replication)]
    names = list(dict.fromkeys(case.record["method"] for case in cases))
    return _sweep(study, cases, "method", style.styles(names), OF_METHODS, f"Methods over k: {study.graph['name']}, {scheme}{_grid(replication)}")


def sweep_schemes(study: Study, method: str, replication: int = 1):
    """Draw the same for one method, a line a scheme."""
    cases = [case for case in study.cases if (case.record["method"], case.record["replication"]) == (method, replication)]
    return _sweep(study, cases, "scheme", style.SCHEMES, OF_SCHEMES, f"Schemes over k: {study.graph['name']}, parts of {method}{_grid(replication)}")


def tradeoff(study: Study, scheme: str, key: str = "max_send_mb", replication: int = 1):
    """Draw quality against time: MB of a rank over seconds of partitioning, a panel for each of up to four k."""
    ks = study.values("k")
    ks = ks if len(ks) <= 4 else [ks[round(i * (len(ks) - 1) / 3)] for i in range(4)]
    shown = [[case.record for case in _of(study, scheme, k, replication)] for k in ks]
    colours = style.styles(study.values("method"))
    across = {1: 1, 3: 3}.get(len(ks), 2)
    figure, axes = style.panels(len(ks), across, {1: 7.5, 2: 5.2, 3: 4.0}[across], 3.7)
    factor, unit = style.byte_unit(max(r[key] for records in shown for r in records))
    for axis, k, records in zip(axes, ks, shown):
        points = [(max(r["seconds"], 1e-4), max(factor * r[key], 1e-6)) for r in records]
        front = sorted(p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points))
        axis.step(*zip(*front), where="post", color=style.QUIET, linewidth=5, alpha=0.7, zorder=1, solid_capstyle="round")
        for record, point in zip(records, points):
            colour, marker, _ = colours[record["method"]]
            axis.loglog(*point, color=colour, marker=marker, markersize=8, linestyle="none", zorder=3)
        axis.margins(0.16, 0.14)
        style.finish(axis, "seconds to cut", f"{SENT[key][0]} ({unit})", f"k = {k}")
        style.plain_log(axis, "x")
        style.plain_log(axis, "y")
        place_labels(axis, points, [r["method"] for r in records], [colours[r["method"]][0] for r in records])
    title = f"Quality against time: {study.graph['name']}, {scheme}"
    style.headline(figure, title, "down and to the left is better; the grey line joins what nothing beats in both")
    return figure


def spy(study: Study, k: int | None = None):
    """Draw the nonzeros of A as they are stored and in the order of each method's parts, as densities."""
    k = study.one_k(k)
    cuts = _cuts(study, k)
    tables = [study.stored_BB, *(cut.density_BB for cut in cuts)]
    figure, axes = style.panels(len(tables), 4, 2.75, 2.85)
    cut_of = {record["method"]: record["edge_cut"] for record in study.records if record["k"] == k}
    norm, n = _norm(tables), study.graph["n"]
    for axis, table, cut in zip(axes, tables, [None, *cuts]):
        image = axis.imshow(np.ma.masked_where(table == 0, table), cmap=style.shades(), norm=norm, extent=(0, n, n, 0), interpolation="nearest")
        title = "before: as stored" if cut is None else f"{cut.method}: {cut_of[cut.method] / max(study.graph['nnz'], 1):.0%} cut"
        style.finish(axis, title=title)
        style.frame(axis)
        if cut is not None:
            _draw_borders(axis, np.cumsum(cut.sizes_k)[:-1], n)
        axis.set_xticks([0, n])
        axis.set_yticks([0, n])
        axis.set_xticklabels(["0", f"{n:,}"])
        axis.set_yticklabels(["0", f"{n:,}"], rotation=90, va="center")
    bar = figure.colorbar(image, ax=axes.tolist(), shrink=0.8 if len(tables) > 4 else 1.0, pad=0.02, aspect=28)
    _label_bar(bar, f"nonzeros in {n / len(study.stored_BB):,.0f} x {n / len(study.stored_BB):,.0f} nodes")
    style.headline(figure, f"The matrix before and after reordering: {study.graph['name']}, {study.graph['nnz']:,} nonzeros, k = {k}",
                   "rows and columns by part; off-diagonal blocks are what is cut")  # fmt: skip
    return figure


def clusters(study: Study, method: str = "spring"):
    """Draw how many clusters there are of each size before and after merging (SDT-GNN, Table II), up to four k."""
    cuts = [cut for cut in study.cuts if cut.method == method and cut.clusters is not None]
    if not cuts:
        raise UsageError(f"no partition of {method} with clusters is in the study")
    cuts = cuts if len(cuts) <= 4 else [cuts[round(i * (len(cuts) - 1) / 3)] for i in range(4)]
    figure, axes = style.panels(len(cuts), 3 if len(cuts) == 3 else 2, 4.3, 3.2)
    largest = max(int(sizes.max(initial=1)) for cut in cuts for sizes in cut.clusters)
    edges = np.unique(np.geomspace(1, largest + 1, 28).astype(int))
    for axis, cut in zip(axes, cuts):
        before, after = cut.clusters
        axis.hist(before, edges, color=style.QUIET, label="before merging")
        axis.hist(after, edges, color=style.METHODS["volume"][0], label="after", histtype="step", linewidth=1.8)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(0.7, axis.get_ylim()[1] * 1.5)
        axis.axvline(study.graph["n"] / cut.k, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)))
        axis.annotate("N / k", (study.graph["n"] / cut.k, 0.97), (-3, 0), ("data", "axes fraction"), "offset points", ha="right", va="top", fontsize=8)
        title = f"k = {cut.k}: {len(before):,} clusters, mean {before.mean():,.1f} nodes,\nmerged to {len(after):,}, mean {after.mean():,.0f}"
        style.finish(axis, "nodes of a cluster", "clusters of that size", title)
        style.plain_log(axis, "x")
        style.plain_log(axis, "y")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    style.headline(figure, f"Clusters before and after merging: {study.graph['name']}, {method}", "the dashed line is the mean size of a part")
    return figure


def entropies(study: Study, k: int | None = None):
    """Draw the label entropy of each part as a dot, its average as a bar, that of the whole graph as a line."""
    k = study.one_k(k)
    cuts = [cut for cut in _cuts(study, k) if cut.entropies_k is not None]
    if not cuts:
        raise UsageError(f"{study.graph['name']} has no labels, so its parts have no label entropy")
    cuts = sorted(cuts, key=lambda cut: -cut.entropy)
    colours = style.styles([cut.method for cut in cuts])
    figure = style.new_figure(8, 1.5 + 0.36 * len(cuts))
    axis = figure.subplots()
    for y, cut in enumerate(cuts):
        axis.scatter(cut.entropies_k, np.full(cut.k, y), s=26, color=colours[cut.method][0], alpha=0.55, linewidth=0, zorder=2)
        axis.plot([cut.entropy] * 2, [y - 0.33, y + 0.33], color=style.INK, linewidth=2.2, zorder=3)
        axis.annotate(f"{cut.entropy:.2f}", (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    axis.axvline(study.graph["label_entropy"], color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    axis.annotate("whole graph", (study.graph["label_entropy"], 1.01), xycoords=("data", "axes fraction"), ha="center", fontsize=8)
    axis.set_yticks(range(len(cuts)), [cut.method for cut in cuts])
    style.finish(axis, "label entropy of a part (bits); 0: one class only")
    axis.tick_params(axis="y", labelsize=9, length=0)
    axis.set_xlim(left=0)
    axis.grid(axis="y", visible=False)
    style.headline(figure, f"Label entropy of the parts: {study.graph['name']}, k = {k}", "a dot is a part, the bar their average, at the right in figures")
    return figure


def _sweep(study: Study, cases: list[Case], across: str, colours: dict, swept: dict, title: str):
    if not cases:
        raise UsageError(f"{title}: no such case is in the study")
    figure, axes = style.panels(len(swept), 2, 4.6, 3.3)
    ks = sorted({case.record["k"] for case in cases})
    # The legend in the order in which the lines end at the right.
    last = {case.record[across]: case.record["max_send_mb"] for case in sorted(cases, key=lambda case: case.record["k"])}
    for axis, (key, (quantity, unit)) in zip(axes, swept.items()):
        factor, prefix = style.byte_unit(max(case.record[key] for case in cases)) if key.endswith("_mb") else (1.0, "")
        for name in sorted(last, key=lambda name: -last[name]):
            points = sorted((c.record["k"], factor * c.record[key]) for c in cases if c.record[across] == name)
            points = [(k, y) for k, y in points if y > 0]
            colour, marker, line = colours[name]
            hollow = "none" if line != "-" else colour
            axis.loglog(*zip(*points), color=colour, marker=marker, linestyle=line, linewidth=1.5, markersize=6, markerfacecolor=hollow, label=name)
        style.finish(axis, "parts k", prefix + unit, quantity)
        axis.margins(0.06, 0.08)
        style.plain_log(axis, "x", ks)
        style.plain_log(axis, "y")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=9, frameon=False, title="largest send first", title_fontsize=8)
    style.headline(figure, title, _one_spmm(cases[0]))
    return figure


def _of(study: Study, scheme: str, k: int, replication: int) -> list[Case]:
    found = [case for case in study.cases if (case.record["scheme"], case.record["k"], case.record["replication"]) == (scheme, k, replication)]
    if not found:
        raise UsageError(f"the study has no case of {scheme}, k = {k}, c = {replication}; it has {', '.join(study.values('scheme'))}")
    return found


def _cuts(study: Study, k: int) -> list[Cut]:
    return [cut for cut in study.cuts if cut.k == k]


def _amount(case: Case) -> str:
    factor, unit = style.byte_unit(case.record["total_mb"])
    return f"{style.number(factor * case.record['total_mb'])} {unit}"


def _row_bytes(case: Case) -> float:
    rows = case.record["total_rows"]
    return case.record["total_mb"] * 1e6 / rows if rows else 0.0


def _norm(tables: list[np.ndarray]):
    """Return a scale from the least nonzero to the largest: logarithmic where they are far apart."""
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
                axis.text(p, q, style.number(value), ha="center", va="center", fontsize=7.5 if len(table) <= 4 else 5.5, color=ink)


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
    elif len(places) < 96:  # lines would cover what they divide: ticks outside alone; more of those run together
        axis.vlines(places, -0.03 * n, -0.008 * n, color="#D55E00", linewidth=0.5, clip_on=False)
        axis.hlines(places, -0.03 * n, -0.008 * n, color="#D55E00", linewidth=0.5, clip_on=False)


def _what(study: Study, case: Case) -> str:
    record = case.record
    return f"{study.graph['name']}, k = {record['k']}, {record['scheme']}{_grid(record['replication'])}"


def _grid(c: int) -> str:
    return f", 1.5D with c = {c}" if c > 1 else ""


def _one_spmm(case: Case) -> str:
    width = case.record["width"]
    return f"one SpMM, {width:,} columns, {_row_bytes(case) / width:.0f} bytes an entry"
