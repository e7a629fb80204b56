"""Pictures of a study: loads of ranks, sweeps over k, quality against time, clusters, entropies.

Each function takes the study and returns a matplotlib figure; `style.save` writes it.
"""

from __future__ import annotations

import numpy as np

from ..analysis.study import ENTRY_BYTES, Case, Study
from ..errors import UsageError
from . import style
from .placing import place_labels

SENT = {
    "total_mb": ("sent by all ranks", " in one SpMM"),
    "max_send_mb": ("largest send of a rank", " in one SpMM"),
    "max_over_mean_send": ("send imbalance", "largest / mean"),
}
OF_METHODS = SENT | {"replication_factor": ("replication factor, including halo", "copies per node")}
OF_SCHEMES = SENT | {"work_imbalance": ("work imbalance", "nonzeros multiplied, largest / mean")}
LOADS = {"sent": "rows sent", "received": "rows received", "work": "nonzeros"}


def loads(study: Study, scheme: str, k: int | None = None, replication: int = 1):
    """Draw rows sent, rows received and nonzeros per rank, sorted: a row per method, a column per quantity."""
    cases = study.of(scheme, study.one_k(k), replication)
    figure = style.new_figure(10, 1.1 + 1.3 * len(cases))
    axes = figure.subplots(len(cases), 3, squeeze=False, sharey="col")
    colours = style.styles([case.record["method"] for case in cases])
    tops = dict.fromkeys(LOADS, 0.0)
    for place, (row, case) in enumerate(zip(axes, cases)):
        name = case.record["method"]
        of_ranks = {"sent": case.rows_PP.sum(axis=1), "received": case.rows_PP.sum(axis=0), "work": case.work_P}
        for axis, (quantity, values) in zip(row, of_ranks.items()):
            values, mean = np.sort(values)[::-1], float(values.mean())
            axis.bar(
                np.arange(1, len(values) + 1), values, width=0.86 if len(values) <= 64 else 1.0, color=colours[name][0]
            )
            axis.axhline(mean, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)))
            style.finish(axis, title=LOADS[quantity] if place == 0 else "")
            style.thousands(axis, "y")
            axis.set_xlim(0.3, len(values) + 0.7)
            tops[quantity] = max(tops[quantity], 1.05 * float(values[0]))
            ratio = values[0] / mean if mean else 1.0
            axis.set_title(
                f"largest {style.number(values[0])} = {ratio:.2f} x mean", loc="right", fontsize=7.5, color=style.INK
            )
            axis.tick_params(labelbottom=place == len(cases) - 1)
        row[0].set_ylabel(style.wrap(name.replace(":", ":\n"), 1.15, 8.5), fontsize=8.5, fontweight="bold")
    for axis, top in zip(axes[-1], tops.values()):
        axis.set_ylim(0, top or 1)  # of the whole column
        axis.set_xlabel("ranks, largest first", fontsize=9)
        axis.xaxis.get_major_locator().set_params(integer=True)
    style.headline(
        figure,
        f"Load of each rank: {subtitle(study, cases[0])}",
        "one SpMM; dashed line: mean; the panels of a column share one scale",
    )
    return figure


def sweep(study: Study, scheme: str, replication: int = 1):
    """Draw volume, largest send, send imbalance and replication over k, log-log, a line per method."""
    cases = [
        case for case in study.cases if (case.record["scheme"], case.record["replication"]) == (scheme, replication)
    ]
    names = list(dict.fromkeys(case.record["method"] for case in cases))
    return _sweep(
        study,
        cases,
        "method",
        style.styles(names),
        OF_METHODS,
        f"Methods over k: {study.graph['name']}, {scheme}{grid_text(replication)}",
    )


def sweep_schemes(study: Study, method: str, replication: int = 1):
    """Draw volume, largest send, send imbalance and work imbalance over k for one method, a line per scheme."""
    cases = [
        case for case in study.cases if (case.record["method"], case.record["replication"]) == (method, replication)
    ]
    return _sweep(
        study,
        cases,
        "scheme",
        style.SCHEMES,
        OF_SCHEMES,
        f"Schemes over k: {study.graph['name']}, parts of {method}{grid_text(replication)}",
    )


def tradeoff(study: Study, scheme: str, key: str = "max_send_mb", replication: int = 1):
    """Draw the largest send against the seconds of partitioning, a panel for each of up to four k."""
    ks = list(dict.fromkeys(case.record["k"] for case in study.cases if case.key[2:] == (scheme, replication)))
    ks = ks if len(ks) <= 4 else [ks[round(i * (len(ks) - 1) / 3)] for i in range(4)]
    shown = [[case.record for case in study.of(scheme, k, replication)] for k in ks]
    colours = style.styles(study.values("method"))
    across = {1: 1, 3: 3}.get(len(ks), 2)
    figure, axes = style.panels(len(ks), across, {1: 7.5, 2: 5.2, 3: 4.0}[across], 3.7)
    factor, unit = style.byte_unit(max(r[key] for records in shown for r in records))
    title = f"Quality against time: {study.graph['name']}, {scheme}"
    style.headline(figure, title, "lower left is better; grey line: partitions that no other beats in both")
    for axis, k, records in zip(axes, ks, shown):
        sent = [factor * r[key] for r in records]
        zero = (
            min((y for y in sent if y), default=3.0) / 3 if 0 in sent else None
        )  # 0 has no place on a logarithmic axis
        points = [(max(r["seconds"], 1e-4), y or zero) for r, y in zip(records, sent)]
        front = sorted(p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points))
        axis.step(
            *zip(*front), where="post", color=style.QUIET, linewidth=5, alpha=0.7, zorder=1, solid_capstyle="round"
        )
        for record, point in zip(records, points):
            colour, marker, _ = colours[record["method"]]
            axis.loglog(*point, color=colour, marker=marker, markersize=8, linestyle="none", zorder=3)
        axis.margins(0.16, 0.14)
        style.finish(axis, "seconds to partition", f"{SENT[key][0]} ({unit})", f"k = {k}")
        style.plain_log(axis, "x")
        style.plain_log(axis, "y", None if any(sent) else [zero], zero)
        place_labels(
            axis,
            points,
            [style.wrap(r["method"], 1.8, 8.5) for r in records],
            [colours[r["method"]][0] for r in records],
        )
    return figure


def clusters(study: Study, method: str = "spring"):
    """Draw the number of clusters of each size before and after merging (SDT-GNN, Table II), for up to four k."""
    cuts = [cut for cut in study.cuts if cut.method == method and cut.clusters is not None]
    if not cuts:
        raise UsageError(f"the study has no partition of {method} with clusters")
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
        axis.annotate(
            "N / k",
            (study.graph["n"] / cut.k, 0.97),
            (-3, 0),
            ("data", "axes fraction"),
            "offset points",
            ha="right",
            va="top",
            fontsize=8,
        )
        title = f"k = {cut.k}: {len(before):,} clusters, mean {before.mean():,.1f} nodes,\n"
        title += f"merged to {len(after):,}, mean {after.mean():,.0f}"
        style.finish(axis, "nodes per cluster", "clusters of this size", title)
        style.plain_log(axis, "x")
        style.plain_log(axis, "y")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    style.headline(
        figure,
        f"Clusters before and after merging: {study.graph['name']}, {method}",
        "dashed line: mean size of a part",
    )
    return figure


def entropies(study: Study, k: int | None = None):
    """Draw the label entropy of each part as a dot, their average as a bar, that of the whole graph as a line."""
    k = study.one_k(k)
    cuts = [cut for cut in study.cuts_of(k) if cut.entropies_k is not None]
    if not cuts:
        raise UsageError(f"{study.graph['name']} has no labels, so there is no label entropy to draw")
    cuts = sorted(cuts, key=lambda cut: -cut.entropy)
    colours = style.styles([cut.method for cut in cuts])
    names = [style.wrap(cut.method, 2.2, 9) for cut in cuts]
    figure = style.new_figure(8, 1.5 + (0.36 + style.lines_inches(names, 9)) * len(cuts))
    axis = figure.subplots()
    for y, cut in enumerate(cuts):
        axis.scatter(
            cut.entropies_k, np.full(cut.k, y), s=26, color=colours[cut.method][0], alpha=0.55, linewidth=0, zorder=2
        )
        axis.plot([cut.entropy] * 2, [y - 0.33, y + 0.33], color=style.INK, linewidth=2.2, zorder=3)
        axis.annotate(f"{cut.entropy:.2f}", (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    axis.axvline(study.graph["label_entropy"], color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    axis.annotate(
        "whole graph", (study.graph["label_entropy"], 1.01), xycoords=("data", "axes fraction"), ha="center", fontsize=8
    )
    axis.set_yticks(range(len(cuts)), names)
    style.finish(axis, "label entropy of a part (bits); 0: a single class")
    axis.tick_params(axis="y", labelsize=9, length=0)
    axis.set_xlim(left=0)
    axis.grid(axis="y", visible=False)
    style.headline(
        figure,
        f"Label entropy of the parts: {study.graph['name']}, k = {k}",
        "dot: a part; bar and number: their average",
    )
    return figure


def _sweep(study: Study, cases: list[Case], across: str, colours: dict, swept: dict, title: str):
    if not cases:
        raise UsageError(f"{title}: the study has no such case")
    figure, axes = style.panels(len(swept), 2, 4.6, 3.3)
    ks = sorted({case.record["k"] for case in cases})
    beside = max((ks[-1] / ks[0]) ** 0.06, 1.05)
    # The legend has the order of the lines at the right end.
    last = {
        case.record[across]: case.record["max_send_mb"] for case in sorted(cases, key=lambda case: case.record["k"])
    }
    handles: dict[str, object] = {}
    for axis, (key, (quantity, unit)) in zip(axes, swept.items()):
        factor, prefix = style.byte_unit(max(case.record[key] for case in cases)) if key.endswith("_mb") else (1.0, "")
        for name in sorted(last, key=lambda name: -last[name]):
            points = sorted((c.record["k"], factor * c.record[key]) for c in cases if c.record[across] == name)
            points = [(k, y or np.nan) for k, y in points]  # 0 has no place on a logarithmic axis
            colour, marker, line = colours[name]
            hollow = "none" if line != "-" else colour
            (handles[name],) = axis.loglog(
                *zip(*points),
                color=colour,
                marker=marker,
                linestyle=line,
                linewidth=1.5,
                markersize=6,
                markerfacecolor=hollow,
            )
        style.finish(axis, "parts k", prefix + unit, quantity)
        axis.margins(y=0.08)
        axis.set_xlim(ks[0] / beside, ks[-1] * beside)
        style.plain_log(axis, "x", ks)
        style.plain_log(axis, "y")
        if not any(case.record[key] for case in cases):
            axis.set_yticks([])
            axis.text(0.5, 0.5, "nothing is sent", transform=axis.transAxes, ha="center", fontsize=9)
    senders = {case.record[across] for case in cases if case.record["total_rows"]}
    labels = [style.wrap(name if name in senders else f"{name}: sends nothing", 2.2, 9) for name in handles]
    figure.legend(
        handles.values(),
        labels,
        loc="outside right center",
        fontsize=9,
        frameon=False,
        title="largest send first",
        title_fontsize=8,
    )
    style.headline(figure, title, one_spmm(cases[0]))
    return figure


def amount(case: Case) -> str:
    """Return the volume that all ranks send, with its unit."""
    factor, unit = style.byte_unit(case.record["total_mb"])
    return f"{style.number(factor * case.record['total_mb'])}\u00a0{unit}"


def subtitle(study: Study, case: Case) -> str:
    """Return the subtitle of a picture: graph, k, scheme."""
    record = case.record
    return f"{study.graph['name']}, k\u00a0=\u00a0{record['k']}, {record['scheme']}{grid_text(record['replication'])}"


def grid_text(c: int) -> str:
    """Return the suffix of a scheme's name for 1.5D."""
    return f", 1.5D with c = {c}" if c > 1 else ""


def one_spmm(case: Case) -> str:
    """Return the unit of a picture's counts: one SpMM, its columns and bytes per entry."""
    width = case.record["width"]
    return f"one SpMM, {width:,} columns, {ENTRY_BYTES} bytes per entry"
