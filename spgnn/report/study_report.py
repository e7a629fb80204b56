"""The HTML report of a study: tables, every picture that its data allow, and how to read each."""

from __future__ import annotations

from collections.abc import Callable

from ..analysis.study import Study
from . import drawings, matrices, tables
from .page import Page

# Name -> heading, and how the picture is read.
READING = {
    "sweep": ("Methods over k", "Lines that lie lower are better. Volume grows with k for every method; how steeply tells how well it cuts. The rank that sends most is what an exchange waits for, so the second panel is the one that a run feels; the third says how far that rank is above the mean."),
    "tradeoff": ("Quality against time", "Each point is one partition: what its busiest rank sends, and what it took to make. Points on the grey line are worth their time: nothing that is quicker is as good. Seconds are those of this machine and its load."),
    "heatmap": ("Who sends whom", "Row q, column p: what rank q sends rank p in one SpMM. A good partition is light with a few dark spots; evenly dark means that every part needs something of every other. A dark row is a rank that sends too much, a dark column one that receives too much."),
    "loads": ("Load of each rank", "Ranks sorted by what they send, receive and multiply, each panel by itself. Flat is good: an epoch is as long as its tallest bar. The dashed line is the mean."),
    "sweep_schemes": ("Schemes over k", "The same partitions under each exchange scheme. columns sends the rows that are read; cover sends rows or partial sums, whichever are fewer, and moves some of the work for it; broadcast sends every row to every rank."),
    "spy": ("The matrix before and after reordering", "Nonzeros of the adjacency matrix, darker where there are more. Within a diagonal block nothing travels; what lies outside is cut. Orange marks the borders of the parts."),
    "clusters": ("Clusters before and after merging", "How many clusters of each size the streaming clustering leaves, and how many once each was merged with its richest neighbour's (SDT-GNN, Table II). Merging takes the left of the picture away; what is right of the dashed line fits into no part."),
    "entropies": ("Label entropy of the parts", "How mixed the classes of a part are: 0 bits is one class alone, the dashed line is the whole graph. Parts far to the left see other classes than the rest, which matters to training on parts (entropy-aware paper), not to full-graph training."),
}  # fmt: skip


def pictures(study: Study, k: int | None = None) -> dict[str, Callable[[], object]]:
    """Return name -> function that draws it, for every picture that the study's data allow.

    Args: k  of the pictures of single partitions; None: see Study.one_k. Lines of `spgnn measure` allow sweeps alone.
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
    lead = f"{graph['n']:,} nodes, {graph['nnz']:,} nonzeros; {len(study.values('method'))} methods, k = {', '.join(map(str, study.values('k')))}"
    page = Page(f"Partitions of {graph['name']} and what they send", lead)
    page.section(
        "At a glance",
        "For each k and scheme, the method that sends least in one SpMM over all ranks, and the one whose busiest rank sends least: that rank is what an exchange waits for.",
    )
    page.table(*tables.least(study), group="k")
    page.section("How this was made")
    page.facts(_facts(study))
    if made.get("command"):
        page.text("Again:")
        page.code(made["command"])
    rows, columns = tables.volumes(study)
    page.section(
        "What one SpMM sends",
        f"MB (10\u2076 bytes) for {rows[0]['width']:,} columns, as Table 2 of the ICPP'24 paper has it: average and max are over the ranks, "
        "imbalance is by how much the max is above the average. An epoch's bytes are those of a training with the layer widths above. "
        "c is the replication of 1.5D, on k c ranks. The least of each k, scheme and c is marked.",
    )
    groups = [row | {"group": (row["k"], row["scheme"], row["replication"])} for row in rows]
    page.table(groups, columns, best=("total_mb", "max_send_mb", "max_recv_mb", "bytes_per_epoch"), group="group")
    rows, columns = tables.parts(study)
    page.section(
        "The partitions themselves",
        "Replication is copies of a node over all parts: without halo those that a vertex cut's edges make (1 where edges are cut), "
        "with halo every part's own nodes and all their neighbours, which full-graph training needs. Work is nonzeros + 1 a row. "
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


def _facts(study: Study) -> dict:
    graph, made = study.graph, study.made
    facts = {"graph": graph["name"], "nodes": graph["n"], "nonzeros": graph["nnz"]}
    facts |= {"edges": graph.get("edges"), "features": graph.get("features"), "classes": graph.get("classes")}
    if graph.get("label_entropy") is not None:
        facts["label entropy of the graph"] = f"{graph['label_entropy']:.2f} bits"
    facts |= {"layer widths": ", ".join(map(str, made.get("widths", ()))), "columns of one SpMM": made["width"]}
    facts |= {name: made[name] for name in ("seed", "balance", "date", "version", "machine") if name in made}
    facts |= {f"left out: {method}": why for method, why in study.left_out.items()}
    return {name: value for name, value in facts.items() if value not in (None, "")}
