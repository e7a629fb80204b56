"""The HTML report of a study: tables, pictures, and how to read them."""

from __future__ import annotations

from collections.abc import Callable

from ..analysis.study import Study
from . import drawings, matrices, tables
from .page import Page

# Name -> heading, how to read the picture.
READING = {
    "sweep": (
        "Methods over k",
        "Lower lines are better. Volume grows with k for every method, less steeply for better partitions. An "
        "exchange waits for the rank that sends most, so the second panel decides the time of a run; the "
        "third shows how far that rank is above the mean.",
    ),
    "tradeoff": (
        "Quality against time",
        "Each point is a partition: its largest send and the time to make it. No faster partition is as good "
        "as those on the grey line. Seconds depend on this machine and its load.",
    ),
    "heatmap": (
        "Volume between ranks",
        "Row q, column p: the volume that rank q sends rank p in one SpMM. A good partition is light with a "
        "few dark spots; evenly dark means that every part reads rows of every other. A dark row is a rank "
        "that sends too much, a dark column one that receives too much.",
    ),
    "loads": (
        "Load of each rank",
        "Rows sent, rows received and nonzeros per rank, sorted in each panel separately. Flat is good, as an "
        "epoch waits for the largest rank. The dashed line is the mean.",
    ),
    "sweep_schemes": (
        "Schemes over k",
        "The same partitions under each exchange scheme. columns sends the rows that are read; cover sends "
        "rows and partial sums, as few as possible, and moves some work to the owner; broadcast sends every "
        "row to every rank.",
    ),
    "spy": (
        "The matrix before and after reordering",
        "Density of the adjacency matrix, darker where it has more nonzeros. Diagonal blocks need no "
        "exchange; nonzeros outside them are cut. Orange lines are the borders of the parts.",
    ),
    "clusters": (
        "Clusters before and after merging",
        "Number of clusters of each size after streaming clustering, and after each was merged with its "
        "richest neighbour (SDT-GNN, Table II). Merging removes small clusters. Clusters right of the dashed "
        "line exceed the mean size of a part.",
    ),
    "entropies": (
        "Label entropy of the parts",
        "Diversity of the classes in a part: 0 bits is a single class, the dashed line is the whole graph. "
        "Parts far to the left have few classes, which affects training on parts (entropy-aware paper) but "
        "not full-graph training.",
    ),
}


def pictures(study: Study, k: int | None = None) -> dict[str, Callable[[], object]]:
    """Return name -> drawing function, for every picture that the study has data for.

    Args: k  number of parts in pictures of single partitions; None: see Study.one_k. Lines of `spgnn measure` suffice
             for sweeps only.
    """
    k = study.one_k(k)
    scheme = next(scheme for scheme in ("columns", "cover", "broadcast") if scheme in study.values("scheme"))
    c = min(record["replication"] for record in study.records if record["scheme"] == scheme)
    methods = [record["method"] for record in study.records if record["replication"] == c]
    method = next((name for name in ("volume", "metis") if name in methods), methods[0])
    drawn: dict[str, Callable[[], object]] = {}
    if len(study.values("k")) > 1:
        drawn["sweep"] = lambda: drawings.sweep(study, scheme, c)
    drawn["tradeoff"] = lambda: drawings.tradeoff(study, scheme, replication=c)
    if all(case.rows_PP is not None for case in study.cases):
        drawn["heatmap"] = lambda: matrices.heatmap(study, scheme, k, c)
        drawn["loads"] = lambda: drawings.loads(study, scheme, k, c)
    if len(study.values("scheme")) > 1 and len(study.values("k")) > 1:
        drawn["sweep_schemes"] = lambda: drawings.sweep_schemes(study, method, c)
    if study.cuts:
        drawn["spy"] = lambda: matrices.spy(study, k)
    clustered = [cut.method for cut in study.cuts if cut.clusters is not None]
    if clustered:
        drawn["clusters"] = lambda: drawings.clusters(study, clustered[0])
    if any(cut.entropies_k is not None for cut in study.cuts):
        drawn["entropies"] = lambda: drawings.entropies(study, k)
    return drawn


def study_page(study: Study, k: int | None = None) -> Page:
    """Return the report of a study."""
    graph, made = study.graph, study.made
    methods, ks = study.values("method"), ", ".join(map(str, study.values("k")))
    lead = f"{graph['n']:,} nodes, {graph['nnz']:,} nonzeros; {len(methods)} methods, k = {ks}"
    page = Page(f"Partitions of {graph['name']} and their communication volume", lead)
    page.section(
        "Summary",
        "For each k and scheme, the method with the least volume of one SpMM, and the one with the least largest send, "
        "which an exchange waits for.",
    )
    page.table(*tables.least(study), group="k")
    page.section("Graph and options")
    page.properties(_properties(study))
    if made.get("command"):
        page.text("Repeat with:")
        page.code(made["command"])
    rows, columns = tables.volumes(study)
    page.section(
        "Volume of one SpMM",
        f"MB (10\u2076 bytes) for {rows[0]['width']:,} columns, in the form of Table 2 of the ICPP'24 paper: average and "
        "max over the ranks, imbalance is max over average minus 1. Bytes per epoch are those of a training with the "
        "layer widths above. c is the replication of 1.5D, on k c ranks. The least value of each k, scheme and c is marked.",
    )
    groups = [row | {"group": (row["k"], row["scheme"], row["replication"])} for row in rows]
    page.table(groups, columns, best=("total_mb", "max_send_mb", "max_recv_mb", "bytes_per_epoch"), group="group")
    rows, columns = tables.parts(study)
    page.section(
        "Partitions",
        "Replication is the number of copies per node over all parts: without halo those of a vertex cut's edges (1 for "
        "edge cuts), with halo own nodes and all neighbours, as full-graph training needs. Work is nonzeros + 1 per row. "
        "Label entropy is averaged over the parts by labelled nodes.",
    )
    page.table(rows, columns, best=("edge_cut", "replication_factor"), group="k")
    rows, columns = tables.clusters(study)
    for name, draw in pictures(study, k).items():
        heading, reading = READING[name]
        page.section(heading, reading)
        page.picture(draw(), f"{heading}. {reading}")
        if name == "clusters":
            page.table(rows, columns, group="k")
    return page


def _properties(study: Study) -> dict:
    graph, made = study.graph, study.made
    found = {"graph": graph["name"], "nodes": graph["n"], "nonzeros": graph["nnz"]}
    found |= {"edges": graph.get("edges"), "features": graph.get("features"), "classes": graph.get("classes")}
    if graph.get("label_entropy") is not None:
        found["label entropy of the graph"] = f"{graph['label_entropy']:.2f} bits"
    found |= {"layer widths": ", ".join(map(str, made.get("widths", ()))), "columns of one SpMM": made["width"]}
    found |= {name: made[name] for name in ("seed", "balance", "date", "version", "machine") if name in made}
    found |= {f"skipped: {method}": why for method, why in study.left_out.items()}
    return {name: value for name, value in found.items() if value not in (None, "")}
