"""Study: one graph cut by many methods into several k, and what every partition sends under each scheme.

Shapes: N nodes, k parts, P = k c ranks, B bins of a spy plot. Imports neither torch nor a communicator.
Source: sparsity-aware paper (ICPP'24), Table 2; SDT-GNN, Table II and section IV; entropy-aware paper, Table V.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp

from ..config.names import SCHEMES
from ..cost.pairs import grid_of, summed_rows
from ..errors import InputError, SpgnnError, UsageError, nearest
from ..graph import Graph
from ..partition import PARTITIONERS, Partition, part_graph, part_stream, partition_of
from ..partition.entropies import label_entropies
from ..partition.stream.registry import STREAMING
from .volume_report import VolumeReport
from .volumes import measure, stays_sparse

BINS = 256
ENTRY_BYTES = 4  # float32
PAPER_WIDTHS = (300, 16, 24)  # of the ICPP'24 paper's runs, for a graph without features or labels


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """One partition of the study: what does not depend on a scheme.

    entropies_k   label entropy of each part in bits, entropy their average; None without labels.
    replicas      (replicas of all nodes) / N by the edges that a vertex cut puts into each part; 1 of other methods.
    density_BB    nonzeros of A in each of B x B squares, nodes in the order of the parts.
    sizes_k       nodes of each part.
    clusters      sizes before and after merging, of spring and spring+; None of others, and of a graph without edges.
    """

    k: int
    method: str
    entropies_k: np.ndarray | None
    entropy: float | None
    replicas: float
    density_BB: np.ndarray
    sizes_k: np.ndarray
    clusters: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One (k, method, scheme, c): the object of `spgnn measure` and, where counted here, what the ranks send and multiply."""

    record: dict
    rows_PP: np.ndarray | None = None
    work_P: np.ndarray | None = None

    @property
    def key(self) -> tuple:
        return tuple(self.record[name] for name in ("k", "method", "scheme", "replication"))


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """All cases and cuts of one graph; `graph` and `made` say of what, how, when and with which versions."""

    graph: dict
    made: dict
    cases: list[Case]
    cuts: list[Cut] = field(default_factory=list)
    stored_BB: np.ndarray | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def records(self) -> list[dict]:
        return [case.record for case in self.cases]

    def values(self, name: str) -> list:
        """Return the different values of a key of the records, in the order in which they came."""
        return list(dict.fromkeys(record[name] for record in self.records))

    def of(self, scheme: str, k: int, replication: int) -> list[Case]:
        """Return the cases of one scheme, k and c, a method each; UsageError where there is none."""
        found = [case for case in self.cases if case.key[0] == k and case.key[2:] == (scheme, replication)]
        if not found:
            raise UsageError(
                f"the study has no case of {scheme}, k = {k}, c = {replication}; it has {', '.join(self.values('scheme'))}"
            )
        return found

    def cuts_of(self, k: int) -> list[Cut]:
        """Return the cuts into k parts."""
        return [cut for cut in self.cuts if cut.k == k]

    def one_k(self, k: int | None = None) -> int:
        """Return the k that pictures of single partitions show: the one given, else the largest up to 16, else the least."""
        known = self.values("k")
        if k is None:
            return max((k for k in known if k <= 16), default=min(known))
        if k not in known:
            raise UsageError(f"k = {k} is not in the study; expected one of {', '.join(map(str, known))}")
        return k


def study(
    graph: Graph,
    ks: Sequence[int],
    methods: Sequence[str],
    schemes: Sequence[str] = ("columns",),
    replications: Sequence[int] = (1,),
    widths: Sequence[int] = (),
    width: int = 0,
    seed: int = 0,
    balance: float = 1.03,
    made: dict | None = None,
    progress: Callable[[str], None] | None = None,
) -> Study:
    """Cut graph by each method into each k and measure every scheme and replication; what is named twice counts once.

    Args:   methods   names in PARTITIONERS, options behind colons (metis:objective=vol); ("all",): every one, of which
                      those that cannot cut this graph are left out.
            widths    of the layers; default: features, 128, classes, or the ICPP'24 paper's.
            width     columns of H in the one SpMM of Table 2; default: the first of widths.
            progress  called with a line for each partition made.
    Raises: UsageError for a method, scheme or replication that does not fit, before anything is cut.
    """
    tries_all = tuple(methods) == ("all",)
    methods = tuple(PARTITIONERS) if tries_all else tuple(methods)
    ks, schemes, replications = (tuple(dict.fromkeys(given)) for given in (ks, schemes, replications))
    specs = {method: method_of(method) for method in methods}
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise UsageError(f"scheme {scheme!r} is not known{nearest(scheme, SCHEMES)}")
    for k in ks:
        for c in replications:
            grid_of(k, c)
    graph = graph.in_use()
    widths = tuple(widths) or default_widths(graph)
    width = width or widths[0]
    fixed, isolated = _input_of(graph, widths[0]), graph.describe()["isolated"]
    cases, cuts, left_out = [], [], {}
    for k in ks:
        for method, (name, options) in specs.items():
            if method in left_out:
                continue
            try:
                part, details = cut(graph, k, name, seed, balance, options)
            except SpgnnError as error:
                if not tries_all:
                    raise
                left_out[method] = str(error)
                continue
            part = replace(part, method=method)
            cuts.append(_cut(graph, part, details, isolated))
            for scheme in schemes:
                for c in replications:
                    report = measure(graph, part, scheme, widths, c, **fixed)
                    cases.append(
                        Case(
                            record_of(report, width, cuts[-1], summed_rows(graph.n_nodes, c)),
                            report.rows_PP,
                            report.work.total_P,
                        )
                    )
            if progress is not None:
                progress(f"k = {k}, {method}: {part.seconds:.2f} s")
    if not cases:
        raise InputError(
            f"{graph.name}: no method could cut it: " + "; ".join(f"{m}: {why}" for m, why in left_out.items())
        )
    described = {
        "name": graph.name,
        "n": graph.n_nodes,
        "nnz": graph.nnz,
        "edges": graph.edges,
        "features": graph.n_features,
        "classes": graph.n_classes,
    }
    described["label_entropy"] = (
        None if graph.y is None else label_entropies(graph.y, np.zeros(graph.n_nodes, np.int32), 1)[1]
    )
    made = {"widths": list(widths), "width": width, "seed": seed, "balance": balance} | (made or {})
    return Study(described, made, cases, cuts, density(graph.A, None), left_out)


def _input_of(graph: Graph, n_features: int) -> dict:
    """Return what measure is told of X: nothing is known of other features than the graph's."""
    if n_features != graph.n_features or not sp.issparse(graph.X):
        return {"sparse_input": False}
    return {"sparse_input": True, "keep_sparse": stays_sparse(graph)}


def method_of(text: str) -> tuple[str, dict]:
    """Return name and options of metis:objective=vol; UsageError for a method that is not known."""
    name, *given = text.split(":")
    if name not in PARTITIONERS:
        raise UsageError(f"partitioner {name!r} is not known{nearest(name, PARTITIONERS)}")
    options = {}
    for option in given:
        key, equals, value = option.partition("=")
        if not (key and equals and value):
            raise UsageError(
                f"method {text!r}: {option!r} is no option; expected NAME:KEY=VALUE, such as metis:objective=vol"
            )
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = {"true": True, "false": False}.get(value, value)
    return name, options


def default_widths(graph: Graph) -> tuple[int, ...]:
    """Return features, 128, classes, or the ICPP'24 paper's widths where the graph lacks one of them."""
    return (graph.n_features, 128, graph.n_classes) if graph.n_features and graph.n_classes else PAPER_WIDTHS


def cut(graph: Graph, k: int, name: str, seed: int, balance: float, options: dict) -> tuple[Partition, dict]:
    """Return what part_graph does, and the details of a streaming method: clusters, replicas of a vertex cut."""
    if name not in STREAMING:
        return part_graph(graph, k, name, seed=seed, balance=balance, **options), {}
    made = part_stream(graph, k, name, seed=seed, balance=balance, **options)
    return partition_of(graph, made.owner_N, k, name, seed, balance, made.total_s), made.details


def record_of(report: VolumeReport, width: int, cut: Cut, sum_rows: int) -> dict:
    """Return the object of `spgnn measure`, Table 2's figures for one SpMM of `width` columns, and what the cut has.

    *_mb                      MB of 10^6 bytes.
    send_imbalance_percent    100 (max / mean - 1): by how much the largest send of a rank is above the average.
    replication_without_halo  see Cut.replicas; replication_factor is with the halo, full neighbour lists.
    label_entropy             bits, averaged over the parts by labelled nodes; _min and _max of a part; None without labels.
    """
    record = report.to_dict()
    return record | sent_mb(record, width, ENTRY_BYTES, sum_rows) | {
        "replication_without_halo": cut.replicas,
        "label_entropy": cut.entropy,
        "label_entropy_min": None if cut.entropies_k is None else float(cut.entropies_k.min()),
        "label_entropy_max": None if cut.entropies_k is None else float(cut.entropies_k.max()),
    }  # fmt: skip


def sent_mb(record: dict, width: int, itemsize: int, sum_rows: int) -> dict:
    """Return what one SpMM of `width` columns sends, in MB, from the rows of a record of measure: Table 2.

    sum_mb is what 1.5D adds: sums over process rows, which the other figures do not have.
    """
    mb = width * itemsize / 1e6
    return {
        "width": width,
        "total_mb": record["total_rows"] * mb,
        "average_send_mb": record["mean_send_rows"] * mb,
        "max_send_mb": record["max_send_rows"] * mb,
        "max_recv_mb": record["max_recv_rows"] * mb,
        "sum_mb": sum_rows * mb,
        "send_imbalance_percent": 100 * (record["max_over_mean_send"] - 1),
    }


def density(A: sp.csr_array, rank_N: np.ndarray | None, bins: int = BINS) -> np.ndarray:
    """Count the nonzeros of A in bins x bins squares, rows and columns in the order rank_N: (B, B) int64.

    Args: rank_N  (N,) place of each node; None: as it is stored.
    """
    n_nodes, chunk = A.shape[0], 1 << 16
    bins = max(1, min(bins, n_nodes))
    place_N = np.arange(n_nodes) if rank_N is None else rank_N
    bin_N = place_N * np.int64(bins) // max(n_nodes, 1)
    counts = np.zeros(bins * bins, np.int64)
    for start in range(0, n_nodes, chunk):
        indptr = A.indptr[start : start + chunk + 1]
        rows = np.repeat(bin_N[start : start + chunk], np.diff(indptr))
        counts += np.bincount(rows * bins + bin_N[A.indices[indptr[0] : indptr[-1]]], minlength=bins * bins)
    return counts.reshape(bins, bins)


def _cut(graph: Graph, part: Partition, details: dict, isolated: int) -> Cut:
    entropies_k, entropy = (None, None) if graph.y is None else label_entropies(graph.y, part.owner_N, part.k)
    # No edge brings an isolated node anywhere; its owner has it once.
    replicas = (
        (int(details["cut_replicas"]) + isolated) / graph.n_nodes
        if "cut_replicas" in details and graph.n_nodes
        else 1.0
    )
    clusters = (
        (np.asarray(details["clusters"]), np.asarray(details["merged_clusters"]))
        if "merged_clusters" in details and len(details["clusters"])
        else None
    )
    return Cut(
        part.k, part.method, entropies_k, entropy, replicas, density(graph.A, part.rank_N), part.sizes_k, clusters
    )
