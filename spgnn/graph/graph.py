"""Graph: a sparse matrix with features, labels and splits.

Shapes: N nodes, E stored nonzeros, F features, C classes or columns of numbers, S splits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..config import names
from ..config.names import Duplicates, Task
from ..errors import GraphError, NamesKeywords, UsageError, check_keywords, nearest
from .checks import check_bipartite, check_graph, check_unchanged, checked_classes, checked_ids, read_only
from .columns import checked_names
from .digest import edges_digest, fingerprint_of, table_digest
from .edge_attr import (
    check_edges,
    checked_attributes,
    reversed_edges,
    with_reverse_edges,
    without_parallel,
)
from .host_array import as_array
from .loaded import NOUNS, count_labels, graph_notes, label_notes
from .node_types import NodeTypes, check_relations, checked_node_types, types_line
from .normal import Norm, normalise
from .split import count_classes, labelled, named_split, task_of
from .structure import (
    canonical,
    check_duplicates,
    csr_from_coo,
    is_symmetric,
    multi_from_coo,
    symmetrised,
    without_zeros,
)

Edges = Literal["stored", "undirected", "directed", "reversed"]
EDGE_META = ("edges_listed", "edge_features", "antisymmetric", "typed")  # what meta has of edge_attr
OF_EDGES = ("edge_attr", "edge_y", "edge_split")


@dataclass(frozen=True, slots=True, eq=False)
class Graph(metaclass=NamesKeywords):
    """A (N, N) CSR with X_NF, y_N and split_N: row i of A holds what node i reads.

    An edge u -> v of a file is the nonzero A[u, v]. `with_edges` chooses the direction of edges; without that choice,
    partitioning, measuring and training add the reverse edges.

    Args:
        A:      (N, N) scipy CSR, indices sorted, no duplicates, finite; weights float32 or float64. A stored 0 is no
                edge: it is left out, and counted in meta["zeros"].
        X:      (N, F) float array or tensor, or scipy CSR (N, F), or None.
        y:      (N,) integer classes, -1 where there is none; or (N, C) 0/1 for multi-label; or (N,) or (N, C) float,
                numbers to predict, NaN where there is none; or None.
        split:  (N,) int8, or (N, S) for S splits: 0 train, 1 val, 2 test, -1 none; or None.
        name:   what messages call it.
        ids:    (N,) int64 or str, what the user calls the nodes; None: 0 to N - 1.
        classes: C names of classes, or of the columns of several labels or of numbers; None: their numbers.
        edges:  "stored": no choice yet; "directed": as stored, "undirected" or "reversed".
        edge_attr: (E, F) float array or tensor, a row for each nonzero of A, or None. With attributes, F may be 0, a row
                of A may have several entries in one column: a multigraph. meta["antisymmetric"] has the numbers of the
                columns whose sign a reverse edge changes, such as a relative position.
        edge_ids: (E,) int64, the place of each nonzero in the list of edges that was read, which has
                meta["edges_listed"] edges; of a reverse edge that was added -1 - the place of the edge it is made of.
                None: 0 to E - 1.
        feature_names: F names of the columns of X, a value of text as color=red; None: their numbers. Those of edge_attr
                are meta["edge_features"].
        edge_y, edge_split, edge_classes: labels, split and names of classes, as y, split and classes, of the L edges of
                that list in its order: (L,) or (L, C), and (L,). A reverse edge that was added is none of them.
        links:  of split_links, the targets of --task links; then A has the message edges alone.
    meta["bipartite"], {"sources": S, "names": [user, item]}: nodes 0 to S - 1 are sources, and edges join them and others.
    meta["node_types"], {"names": [author, paper], "starts": [0, i, N]}: nodes of a type follow one another; meta["typed"]:
    classes of edges are relations, and of one named "author writes paper" each edge joins an author and a paper.
    Raises: GraphError naming the first node that is wrong.

    The arrays are views that cannot be written; whoever gave them must not change them either. Where they are used,
    `with_edges`, `in_use` and what is built on them raise GraphError if they are not a graph any more.
    """

    A: sp.csr_array
    X: np.ndarray | sp.csr_array | None = None
    y: np.ndarray | None = None
    split: np.ndarray | None = None
    name: str = "graph"
    edges: Edges = "stored"
    meta: dict = field(default_factory=dict)
    ids: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    edge_attr: np.ndarray | None = None
    edge_ids: np.ndarray | None = None
    feature_names: tuple[str, ...] | None = None
    edge_y: np.ndarray | None = None
    edge_split: np.ndarray | None = None
    edge_classes: tuple[str, ...] | None = None
    links: Any = None

    def __post_init__(self):
        for name in ("X", "y", "split", "edge_attr", "edge_y", "edge_split"):
            if hasattr(value := getattr(self, name), "__dlpack__") and not isinstance(value, np.ndarray):
                object.__setattr__(self, name, as_array(value))
        if self.edge_attr is None and not (self.edge_y is None and self.edge_split is None):
            object.__setattr__(self, "edge_attr", np.empty((self.A.nnz, 0), np.float32))
        if self.edge_attr is not None:
            check_edges(self)
        check_graph(self)
        A, zeros = without_zeros(self.A)
        if zeros:
            for name in ("edge_attr", "edge_ids"):
                if (rows := getattr(self, name)) is not None:
                    object.__setattr__(self, name, rows[self.A.data != 0])
            object.__setattr__(self, "A", A)
            object.__setattr__(self, "meta", self.meta | {"zeros": zeros + self.meta.get("zeros", 0)})
        object.__setattr__(self, "ids", checked_ids(self.ids, self.n_nodes))
        object.__setattr__(self, "classes", checked_classes(self.classes, self.n_classes))
        names = None if self.X is None else checked_names(self.feature_names, "X", self.n_features, "feature_names")
        object.__setattr__(self, "feature_names", names)
        object.__setattr__(self, "edge_classes", checked_classes(self.edge_classes, count_classes(self.edge_y)))
        for name in ("A", "X", "y", "split", "ids", "edge_attr", "edge_ids", "edge_y", "edge_split"):
            object.__setattr__(self, name, read_only(getattr(self, name)))
        if "bipartite" in self.meta:
            check_bipartite(self)
        if (types := self.meta.get("node_types")) is not None:
            object.__setattr__(self, "meta", self.meta | {"node_types": checked_node_types(types, self.n_nodes)})
            check_relations(self)

    def __repr__(self) -> str:
        types = types_line(self)
        said = [
            f"{self.n_nodes:,} nodes" + f" ({types})" * bool(types),
            f"{self.nnz:,} nonzeros",
            f"edges {self.edges}",
        ]
        if self.X is not None:
            said.append(f"{self.n_features:,} {'sparse ' if sp.issparse(self.X) else ''}features of {self.X.dtype}")
        if self.y is not None:
            said.append(f"{self.n_classes} {NOUNS[self.task]}")
        if self.split is not None:
            said.append("a split" if self.split.ndim == 1 else f"{self.split.shape[1]} splits")
        if self.edge_attr is not None:
            said.append(f"{self.edge_attr.shape[1]} attributes of edges")
        if self.edge_y is not None and not types:
            said.append(f"{count_classes(self.edge_y)} {NOUNS[task_of(self.edge_y)]} of edges")
        return f"Graph({self.name}: {', '.join(said)})"

    @property
    def n_nodes(self) -> int:
        """N."""
        return self.A.shape[0]

    @property
    def nnz(self) -> int:
        """E, stored nonzeros of A, without the self-loops that `normalise` adds."""
        return self.A.nnz

    @property
    def n_features(self) -> int:
        """F, 0 without features."""
        return 0 if self.X is None else self.X.shape[1]

    @property
    def task(self) -> Task:
        """What labels are: classes; labels, (N, C) of 0 and 1; or numbers."""
        return task_of(self.y)

    @property
    def n_edge_features(self) -> int:
        """Columns of edge_attr, 0 without it."""
        return 0 if self.edge_attr is None else self.edge_attr.shape[1]

    @property
    def is_multilabel(self) -> bool:
        """Labels are (N, C) of 0 and 1."""
        return self.task == "labels"

    @property
    def is_regression(self) -> bool:
        """Labels are numbers."""
        return self.task == "numbers"

    @property
    def typed_sizes(self) -> tuple[int, int]:
        """R of messages, classes of edges, twice as many where reverse edges are added, 0 without; and types of nodes."""
        if self.edges == "stored" and self.edge_y is not None:
            return self.in_use().typed_sizes
        is_related = self.edge_y is not None and task_of(self.edge_y) == "classes" and np.all(self.edge_y >= 0)
        R = max(count_classes(self.edge_y), len(self.edge_classes or ())) if is_related else 0
        R *= 1 + (self.edge_ids is not None and bool(np.any(self.edge_ids < 0)))
        return R, max(1, len(NodeTypes.read(self.meta).names))

    @property
    def n_classes(self) -> int:
        """C: 1 + the largest label, or the columns of several labels or of numbers; 0 without labels."""
        return count_classes(self.y)

    @property
    def is_symmetric(self) -> bool:
        """A equals its transpose, weights included."""
        check_unchanged(self)
        return is_symmetric(self.A)

    @property
    def is_both_ways(self) -> bool:
        """Edges are used in both directions, and A equals its transpose: with edge_attr, two edges may have one back."""
        return self.edges == "undirected" and (self.edge_attr is None or is_symmetric(self.A))

    def with_edges(self, edges: names.Edges) -> Graph:
        """Return the graph as its edges u -> v are used; A[u, v] is u reads v.

        both or undirected: A_ij where it is stored, else A_ji; self-loops stay.
        in or reversed: v reads u, as PyG and DGL have it; out or directed: u reads v, as stored.
        auto: what was chosen before; else in for graphs of from_pyg and from_dgl (meta["edges"]), both for others.
        With edge_attr, pairs of nodes that have edges in one direction alone get the reverse of each, with the same
        weight and attributes, of antisymmetric columns with the other sign; of a typed graph each edge does.
        Raises: GraphError naming an edge whose two directions have different weights, for both.
        """
        if edges not in names.EDGES:
            raise UsageError(f"edges={edges!r} is not known{nearest(edges, names.EDGES)}")
        check_unchanged(self)
        use: Edges = self.edges
        if edges != "auto":
            use = names.LONG_EDGES[edges]
        elif use == "stored":
            is_in = self.meta.get("edges") == "in" and (self.meta.get("typed") or not is_symmetric(self.A))
            use = "reversed" if is_in else "undirected"
        if use == self.edges:
            return self
        if self.edges not in ("stored", "directed"):
            raise UsageError(f"the graph's edges are {self.edges!r} already; load it again to use them {use!r}")
        if use == "directed":
            return replace(self, edges=use)
        if self.edge_attr is not None:
            return _with_attributed(self, use)
        try:
            A = self.A.T.tocsr() if use == "reversed" else symmetrised(self.A)
        except GraphError as error:
            raise GraphError(f"{self.name}: {error}") from None
        return replace(self, A=self.A if A is self.A else canonical(A), edges=use)

    def without_edge_attr(self) -> Graph:
        """Return the graph without attributes and labels of edges: several equal edges are one, their weights added up.

        An undirected one is directed where two edges had one back.
        """
        if self.edge_attr is None:
            return self
        edges = "directed" if self.edges == "undirected" and not self.is_both_ways else self.edges
        known = {name: value for name, value in self.meta.items() if name not in EDGE_META}
        none = dict.fromkeys(("edge_attr", "edge_ids", "edge_y", "edge_split", "edge_classes"))
        return replace(self, A=without_parallel(self.A), meta=known, edges=edges, **none)

    def in_use(self) -> Graph:
        """Return the graph as it is used, see `with_edges`: auto."""
        return self.with_edges("auto")

    def normalise(self, how: Norm = "gcn") -> sp.csr_array:
        """Return the operator of this graph, see `normalise`."""
        check_unchanged(self)
        return normalise(self.A, how)

    def split_N(self, index: int = 0) -> np.ndarray:
        """Return split number index, (N,) int8."""
        return named_split(self.name, self.split, str(index))

    def digest(self) -> str:
        """Return 64 hex digits of the structure: rows, indices and weights of A."""
        return table_digest(self.A)

    def notes(self) -> list[str]:
        """Return what a user should know of what was left out, or looks like a mistake, a sentence each."""
        return graph_notes(self)

    def label_notes(self) -> list[str]:
        """Return what a user should know of classes, a sentence each; none of several labels or numbers."""
        return [] if self.y is None or self.task != "classes" else label_notes(count_labels(self.y, self.n_classes))

    def describe(self) -> dict:
        """Return what an import reports: sizes, self-loops, isolated nodes, symmetry, labels, split, attributes of edges."""
        check_unchanged(self)
        A, of = self.A, self.meta.get("bipartite")
        counts_in = np.bincount(A.indices, minlength=self.n_nodes)
        rows = np.repeat(np.arange(self.n_nodes), np.diff(A.indptr))
        loops = rows == A.indices
        degree = np.diff(A.indptr) + counts_in
        loop_count = np.bincount(rows[loops], minlength=self.n_nodes)
        out = {
            "name": self.name,
            "n": self.n_nodes,
            **({"sources": of["sources"], "targets": self.n_nodes - of["sources"]} if of else {}),
            **({"types": types} if (types := types_line(self)) else {}),
            "nnz": self.nnz,
            "self_loops": int(loops.sum()),
            "isolated": int(np.count_nonzero(degree - 2 * loop_count == 0)),
            "symmetric": is_symmetric(A),
            "weighted": bool(self.nnz and np.any(A.data != 1)),
            "negative": int(np.count_nonzero(A.data < 0)),
            "features": self.n_features,
            **({} if self.feature_names is None else {"feature_names": list(self.feature_names)}),
            "sparse_features": sp.issparse(self.X),
            "classes": self.n_classes,
            **({} if self.classes is None else {"class_names": list(self.classes)}),
            "task": self.task,
            "labelled": int(np.count_nonzero(labelled(self.y))) if self.y is not None else 0,
            "splits": 0 if self.split is None else (1 if self.split.ndim == 1 else self.split.shape[1]),
        }
        if self.split is not None:
            first = self.split_N(0)
            out |= {"train": int((first == 0).sum()), "val": int((first == 1).sum()), "test": int((first == 2).sum())}
        if self.edge_attr is not None:
            out |= {"edge_attr": self.edge_attr.shape[1], "parallel": A.nnz - without_parallel(A).nnz}
            out |= {k: self.meta[k] for k in EDGE_META if k in self.meta}
        if self.edge_y is not None:
            out |= {"edge_task": task_of(self.edge_y), "edge_classes": self.edge_classes or count_classes(self.edge_y)}
            out["edge_labelled"] = int(np.count_nonzero(labelled(self.edge_y)))
        if self.edge_split is not None:
            roles = named_split(self.name, self.edge_split, "0")
            out |= {f"edge_{name}": int((roles == role).sum()) for role, name in enumerate(("train", "val", "test"))}
        known = ("duplicates", "zeros", "dropped_lines", "source", "format")
        return out | {k: v for k, v in self.meta.items() if k in known}


def _with_attributed(graph: Graph, edges: Edges) -> Graph:
    assert graph.edge_attr is not None and graph.edge_ids is not None
    if edges == "reversed":
        A, of_E = reversed_edges(graph.A)
        return replace(graph, A=A, edge_attr=graph.edge_attr[of_E], edge_ids=graph.edge_ids[of_E], edges=edges)
    A, of_E, is_new_E = with_reverse_edges(graph.A, bool(graph.meta.get("typed")))
    if not is_new_E.any():
        return replace(graph, edges=edges)
    edge_attr, ids = graph.edge_attr[of_E], graph.edge_ids[of_E]
    ids[is_new_E] = -1 - ids[is_new_E]
    for column in graph.meta.get("antisymmetric", ()):
        edge_attr[is_new_E, column] *= -1
    return replace(graph, A=A, edge_attr=edge_attr, edge_ids=ids, edges=edges)


def fingerprint(graph: Graph) -> str:
    """Return what tells a graph, as it is used, from another one: NONZEROS-EDGES-NODES, the last two of 16 hex digits.

    EDGES is a digest of structure, weights and attributes; NODES of features, labels and splits, those of edges too.
    """
    tables = [table_digest(rows) for rows in (graph.X, graph.y, graph.split)]
    tables += [table_digest(rows) for rows in (graph.edge_y, graph.edge_split) if rows is not None]
    tables += [] if graph.links is None else map(table_digest, graph.links.arrays.values())
    ids_E, attr_EF = graph.edge_ids, graph.edge_attr
    of_edges = None if ids_E is None or attr_EF is None else edges_digest(ids_E, attr_EF)
    return fingerprint_of(graph.nnz, graph.digest(), of_edges, tables)


def targets_of(graph: Graph, on: names.On) -> np.ndarray | None:
    """Return the labels of nodes, or of edges; None of links."""
    return {"nodes": graph.y, "edges": graph.edge_y, "links": None}[on]


def check_is_graph(graph: object) -> None:
    """Raise UsageError unless graph is a Graph."""
    if not isinstance(graph, Graph):
        shown = repr(graph) if isinstance(graph, str) else "..."
        raise UsageError(f"got a {type(graph).__name__}, expected a Graph; spgnn.load_graph({shown}) makes one")


def graph_from_coo(
    src: ArrayLike, dst: ArrayLike, n_nodes: int | None = None, weights: ArrayLike | None = None, duplicates: Duplicates
    = "auto", **fields: Any,
) -> Graph:  # fmt: skip
    """Return the Graph of the edges src[e] -> dst[e]; duplicates become one edge, and a weight of 0 is none.

    Args:   src, dst (E,) integer node ids; n_nodes, or 1 + the largest id; weights (E,); duplicates: what becomes of
            weights of one edge: sum, max, mean; refuse: an error; auto: sum, and 1 without weights; fields: X, y,
            split, name, meta, ids, classes, feature_names, and edge_attr (E,) or (E, F), a row for each edge: then edges that are there
            several times stay, each with its attributes, and edge_ids has their places in src and dst; edge_y, edge_split
            and edge_classes, see Graph, keep them too.
    Raises: GraphError naming the first edge that is wrong, or the first row of edge_attr that is not finite.
    """
    known = [name for name in Graph.__dataclass_fields__ if name != "A"]
    check_keywords("graph_from_coo", fields, ("n_nodes", "weights", "duplicates", *known))
    if any(fields.get(name) is not None for name in OF_EDGES):
        return _multigraph(src, dst, n_nodes, weights, duplicates, fields)
    A, twice, zeros = csr_from_coo(src, dst, n_nodes, weights, duplicates)
    seen = {"duplicates": twice} | ({"zeros": zeros} if zeros else {})
    return Graph(A, meta=seen | fields.pop("meta", {}), **fields)


def both_ways(
    src: np.ndarray, dst: np.ndarray, n_nodes: int, weights: np.ndarray | None = None, duplicates: Duplicates = "auto",
    **fields: Any,
) -> Graph:  # fmt: skip
    """Return the Graph of undirected edges, each listed once, stored in both directions; see graph_from_coo."""
    if any(fields.get(name) is not None for name in OF_EDGES):
        return replace(
            graph_from_coo(src, dst, n_nodes, weights, duplicates, **fields).with_edges("both"), edges="stored"
        )
    off = src != dst
    src, dst = np.concatenate([src, dst[off]]), np.concatenate([dst, src[off]])
    weights = None if weights is None else np.concatenate([weights, weights[off]])
    return graph_from_coo(src, dst, n_nodes, weights, duplicates, **fields)


def _multigraph(
    src: ArrayLike, dst: ArrayLike, n_nodes: int | None, weights: ArrayLike | None, duplicates: Duplicates, fields:
    dict[str, Any],
) -> Graph:  # fmt: skip
    check_duplicates(duplicates)
    if duplicates not in ("auto", "refuse"):
        raise GraphError(
            f"duplicates={duplicates!r} makes one edge of several, and attributes and labels of edges have a row for each; "
            "omit duplicates, and they stay several edges, or omit these"
        )
    if duplicates == "refuse":
        csr_from_coo(src, dst, n_nodes, weights, duplicates)
    src, dst = as_array(src), as_array(dst)
    listed, edge_attr = np.size(src), fields.pop("edge_attr", None)
    edge_attr = np.empty((listed, 0), np.float32) if edge_attr is None else edge_attr
    edge_attr = checked_attributes(edge_attr, listed, of="edges")
    A, of_E = multi_from_coo(src, dst, n_nodes, weights)
    ids = fields.pop("edge_ids", None)
    ids = of_E if ids is None else np.asarray(ids)[of_E]
    seen = {"duplicates": 0, "edges_listed": listed} | ({"zeros": listed - A.nnz} if listed > A.nnz else {})
    return Graph(A, meta=seen | fields.pop("meta", {}), edge_attr=edge_attr[of_E], edge_ids=ids, **fields)


def induced_graph(graph: Graph, node_m: np.ndarray) -> Graph:
    """Return the graph A[V][:, V] of some nodes, rising ids, with their labels, without features; node i is V[i]."""
    A = sp.csr_array(graph.A[node_m][:, node_m])
    A.sort_indices()
    y = None if graph.y is None else graph.y[node_m]
    ids = None if graph.ids is None else graph.ids[node_m]
    name = f"{graph.name}, {len(node_m)} nodes"
    return Graph(canonical(A), y=y, name=name, edges=graph.edges, ids=ids, classes=graph.classes)
