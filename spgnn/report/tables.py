"""The tables of a study, as rows and columns, for the terminal and the HTML report."""

from __future__ import annotations

from ..analysis.study import Study

# Volume of one SpMM per rank, as in the ICPP'24 paper's Table 2.
TABLE_2 = {
    "k": "k",
    "method": "method",
    "scheme": "scheme",
    "replication": "c",
    "total_mb": "all ranks, MB",
    "average_send_mb": "average, MB",
    "max_send_mb": "max, MB",
    "send_imbalance_percent": "imbalance, %",
    "max_recv_mb": "max received, MB",
    "sum_mb": "summed over process rows, MB",
    "messages": "messages",
    "bytes_per_epoch": "bytes per epoch",
}
PARTS = {
    "k": "k",
    "method": "method",
    "edge_cut": "cut nonzeros",
    "replication_without_halo": "replication without halo",
    "replication_factor": "replication with halo",
    "nnz_imbalance": "work, largest / mean",
    "node_imbalance": "nodes, largest / mean",
    "label_entropy": "label entropy, bits",
    "label_entropy_min": "least of a part",
    "label_entropy_max": "largest of a part",
    "seconds": "seconds to partition",
}
LEAST = {
    "k": "k",
    "scheme": "scheme",
    "replication": "c",
    "total_method": "least volume",
    "total_mb": "MB",
    "total_share": "% of the worst",
    "send_method": "least largest send",
    "max_send_mb": "MB",
    "send_share": "% of the worst",
}
CLUSTERS = {
    "k": "k",
    "method": "method",
    "clusters": "clusters",
    "mean": "mean size",
    "deviation": "deviation",
    "merged": "after merging",
    "merged_mean": "mean size after",
    "merged_deviation": "deviation after",
}


def volumes(study: Study) -> tuple[list[dict], dict[str, str]]:
    """Return the table of volumes: a row per case, sorted by k, scheme and c."""
    order = {scheme: i for i, scheme in enumerate(study.values("scheme"))}
    rows = sorted(study.records, key=lambda r: (r["k"], order[r["scheme"]], r["replication"]))
    return rows, {key: text for key, text in TABLE_2.items() if key != "sum_mb" or max(study.values("replication")) > 1}


def least(study: Study) -> tuple[list[dict], dict[str, str]]:
    """Return the table of the best methods: a row per k, scheme and c."""
    groups: dict[tuple, list[dict]] = {}
    for row in volumes(study)[0]:
        groups.setdefault((row["k"], row["scheme"], row["replication"]), []).append(row)
    rows = []
    for (k, scheme, c), group in groups.items():
        row = {"k": k, "scheme": scheme, "replication": c}
        for what, key in (("total", "total_mb"), ("send", "max_send_mb")):
            best, most = min(group, key=lambda r: r[key]), max(r[key] for r in group)
            row |= {
                f"{what}_method": best["method"],
                key: best[key],
                f"{what}_share": 100 * best[key] / most if most else 100.0,
            }
        rows.append(row)
    return rows, LEAST


def parts(study: Study) -> tuple[list[dict], dict[str, str]]:
    """Return the table of partitions, which does not depend on the scheme: a row per (k, method)."""
    first = {(record["k"], record["method"]): record for record in reversed(study.records)}
    order = {method: i for i, method in enumerate(study.values("method"))}
    rows = [dict.fromkeys(PARTS) | row for row in sorted(first.values(), key=lambda r: (r["k"], order[r["method"]]))]
    columns = {key: text for key, text in PARTS.items() if any(row[key] is not None for row in rows)}
    return rows, columns


def clusters(study: Study) -> tuple[list[dict], dict[str, str]]:
    """Return the table of clusters before and after merging: SDT-GNN's Table II."""
    rows = []
    for cut in study.cuts:
        if cut.clusters is not None and len(cut.clusters[0]):
            before, after = cut.clusters
            names = ("clusters", "mean", "deviation", "merged", "merged_mean", "merged_deviation")
            values = (
                len(before),
                float(before.mean()),
                float(before.std()),
                len(after),
                float(after.mean()),
                float(after.std()),
            )
            rows.append({"k": cut.k, "method": cut.method} | dict(zip(names, values)))
    return rows, CLUSTERS
