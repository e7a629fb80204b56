"""DistGraph: a graph with each rank holding its own rows, and the operator that layers use.

Shapes: N nodes, n own rows, F features, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ..config.names import Norm, On, Task
from ..dist import Communicator
from ..errors import GraphError, ShapeError, UsageError, agree, together
from ..graph import ColumnNames, labelled, task_of
from ..graph.edge_attr import places_listed
from ..graph.links import Links
from ..graph.loaded import NOUNS
from ..machine import give_back_memory
from ..spmm.edges.edge_table import EdgeTable, NoEdgeTable, edge_features_of
from ..spmm.kernels.buffers import sum_dtype
from ..spmm.operator.dist_spmm import DistSpMM
from ..spmm.operator.facts import FixedInput
from ..spmm.operator.features import SparseRows


@dataclass(frozen=True, eq=False)
class DistGraph:
    """One rank's share of a graph: rows of A, X, y and split of its own nodes.

    A        the operator, (N, N) spread over the ranks; X (n, F) tensor or SparseRows, or None.
    y_n      (n,) int64, -1 where there is no label; (n, C) float of 0 and 1 or, NaN for none, numbers; None without any.
    split_n  (n,) int8, or (n, S), or None.
    on       what rows of y_n and split_n are: own nodes; or edges, the nonzeros of own rows, see on_edges.
    links    targets of split_links, the same on all ranks; None without any.
    read     options of a command that reads the graph, {"graph": path, ...}; {} of a graph that was made in memory.
    """

    comm: Communicator
    A: DistSpMM
    X: torch.Tensor | SparseRows | None
    y_n: torch.Tensor | None
    split_n: np.ndarray | None
    n_nodes: int
    n_classes: int
    name: str
    scheme: str
    method: str
    nnz: int  # of the operator, all ranks
    replication: int = 1  # c of 1.5D: ranks that hold the same rows
    feature_norm: str = "none"  # with which X was made of the features of the graph
    ids: np.ndarray | None = None  # what the user calls all nodes, (N,), on ranks that hold the graph or its folder
    task: Task = "classes"  # what y_n has
    fingerprint: str = ""  # of the whole graph, see spgnn.graph.fingerprint; "" of a part
    names: ColumnNames = ColumnNames()  # of columns
    on: On = "nodes"
    links: Links | None = None
    read: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        facts = f"{self.n_features:,} features -> {self.n_classes} {NOUNS[self.task]}"
        if self.comm.size == 1:
            return f"DistGraph({self.name}: one rank, {self.n_nodes:,} rows, {facts})"
        grid = f", c = {self.replication}" if self.replication > 1 else ""
        return (
            f"DistGraph({self.name}: rank {self.comm.rank} of {self.comm.size}{grid}, {len(self.node_n):,} of "
            f"{self.n_nodes:,} rows, {facts}, scheme {self.scheme}, method {self.method})"
        )

    @property
    def node_n(self) -> np.ndarray:
        """Original ids of the own nodes, in the order of all rows here: by id, or as `locality` put them."""
        return self.A.node_n

    @property
    def n_edge_features(self) -> int:
        """Attributes of an edge, 0 without them."""
        return edge_features_of(self.A) or 0

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, or of the columns of several labels or of numbers; None: their numbers."""
        return self.names.classes

    @property
    def n_features(self) -> int:
        """F, 0 without features."""
        return 0 if self.X is None else self.X.shape[1]

    @property
    def setup_bytes(self) -> int:
        """Bytes that this rank sent to make the cached A X."""
        fixed = self.A.fixed_input
        return fixed.setup_bytes if isinstance(fixed, FixedInput) else 0

    def keep(self, operator: Norm | None = None) -> None:
        """Compute A X now, unless it is cached, and use it wherever A meets X. X must not change any more. Collective.

        Args: operator  the normalisation of A; None: the graph's.
        A Trainer does this at set-up and a custom loop in its first product with X, unless distribute got keep=False.
        """
        if self.X is None:
            return
        if self.A.fixed_input is None:
            self.A.fixed_input = FixedInput(self.X)
        self.A.fixed_input.make(self.A.with_norm(operator))
        give_back_memory()

    @property
    def is_multilabel(self) -> bool:
        """Labels are (n, C) of 0 and 1."""
        return self.task == "labels"

    @property
    def is_regression(self) -> bool:
        """Labels are numbers, (n, C)."""
        return self.task == "numbers"

    @property
    def has_label_n(self) -> np.ndarray:
        """Which own nodes have a label, (n,) bool; every row of several labels counts as one; all rows that links read."""
        if self.y_n is None:
            return np.ones(len(self.node_n), bool)
        return np.ones(len(self.y_n), bool) if self.is_multilabel else labelled(self.y_n.numpy())

    @property
    def has_edge_labels(self) -> bool:
        """Whether on_edges has labels, which are not the relations between types of nodes."""
        table = self.A.edge_table
        return isinstance(table, EdgeTable) and table.y_E is not None and not self.A.node_types.names

    @property
    def typed_sizes(self) -> tuple[int, int]:
        """R of messages, see `relations_of`, 0 where edges have no classes; and the number of types of nodes."""
        table = self.A.edge_table
        return table.n_relations if isinstance(table, EdgeTable) else 0, max(1, len(self.A.node_types.names))

    @property
    def is_counted(self) -> bool:
        """Whether the rows of this rank count: of the c ranks with the same rows, the rows of the first do."""
        return self.A.layout.is_counted

    def collect(self, values_n: np.ndarray) -> np.ndarray:
        """Return the rows of all ranks in original node order, (N, ...); on edges as they are listed, (L, ...). Collective.

        Raises: UsageError for a part of a graph, see Parts: it has some of the nodes.
        """
        if self.on == "edges":
            return self.collect_edges(values_n)
        rows = slice(None) if self.is_counted else slice(0, 0)
        ids_N = self.comm.all_gather(self.node_n[rows])
        if len(ids_N) != self.n_nodes:
            raise UsageError(f"collect needs the rows of all {self.n_nodes} nodes; {self.name} has {len(ids_N)}")
        gathered = self.comm.all_gather(np.ascontiguousarray(values_n[rows]))
        out = np.empty_like(gathered)
        out[ids_N] = gathered
        return out

    def own_rows(self, values_N: np.ndarray, of_added: float = 0) -> np.ndarray:
        """Return, of an array as collect returns it, the rows of this rank; of_added: for reverse edges that were added."""
        if self.on == "nodes":
            return values_N[self.node_n]
        values_E = self.edge_rows(values_N)
        values_E[self._edges("own_rows").ids_E < 0] = of_added
        return values_E

    def on_edges(self) -> DistGraph:
        """Return the graph with the labels, split and classes of its edges: y_n and split_n are (E, ...). Collective.

        A reverse edge that was added has no label, and is in no split.
        Raises: UsageError in 1.5D, and without the order of edges; GraphError for listed edges of weight 0, which are none.
        """
        table = together(self.comm, self._edges, "on_edges")
        if self.replication > 1:
            raise UsageError(f"targets that are edges require replication = 1; got {self.replication}")
        found = np.array([np.count_nonzero(table.ids_E >= 0)])
        self.comm.all_reduce(found)
        if lost := table.n_listed - int(found[0]):
            raise GraphError(
                f"{self.name}: {lost:,} of {table.n_listed:,} listed edges weigh 0, which is no edge, and cannot be predicted; "
                "drop these rows, read no weights (--weight none of `spgnn convert`), or tables without a cutoff"
            )
        y_E, C = label_rows(_of_listed(table), self.comm, self.A.dtype)
        names = self.names if self.on == "edges" else replace(self.names, classes=self.names.edge_classes)
        of = {"n_classes": C, "task": task_of(table.y_E), "names": names}
        return replace(self, y_n=y_E, split_n=table.split_E, on="edges", **of)

    def with_embedding(self, F: int, seed: int = 0) -> DistGraph:
        """Return the graph with learned rows as X: a Parameter (n, F), N(0, 0.01) by seed and original id, which training moves.

        The rows start the same on any ranks. Raises: GraphError where the graph has features.
        """
        if self.X is not None:
            raise GraphError(f"{self.name} has {self.n_features} features; learned rows take their place: give X=None")
        X_nF, block = np.empty((len(self.node_n), F), np.float32), 1 << 14
        for number in np.unique(self.node_n // block).tolist():
            own = np.flatnonzero(self.node_n // block == number)
            drawn = np.random.default_rng([seed, number]).standard_normal((block, F), np.float32)
            X_nF[own] = drawn[self.node_n[own] % block]
        X = torch.nn.Parameter(torch.from_numpy(X_nF).mul_(0.1).to(self.A.device, sum_dtype(self.A.dtype)))
        vars(X)["is_of_nodes"] = True  # ranks have different rows
        return replace(self, X=X)

    def edge_ends(self) -> np.ndarray:
        """Return source and target of the edges in the order of the list, (L, 2) int64, original ids of nodes. Collective."""
        A, table = self.A.with_norm("none"), self._edges("edge_ends")
        column_E, row_E = A.edge_index.cpu().numpy()
        ends = A.node_n[row_E], A.column_ids[column_E]
        ends = ends[::-1] if table.is_reversed else ends
        return self.collect_edges(np.stack(ends, axis=1))

    def edge_rows(self, values_L):
        """Return, of an array with a row for each edge of the list that was read, the rows of this rank's nonzeros, (E, ...).

        Args: values_L  (L, ...) array or tensor, on every rank. E is the order of A.edge_attr of an operator without
              self-loops of its own, such as "none"; a reverse edge that was added has the row of the edge it is made of.
        Raises: ShapeError for another number of rows; UsageError for a graph without edge_attr.
        """
        table = self._edges("edge_rows")
        if len(values_L) != table.n_listed:
            raise ShapeError(f"edge_rows got {len(values_L)} rows; the list of edges has {table.n_listed}")
        return values_L[places_listed(table.ids_E)]

    def collect_edges(self, values_E: np.ndarray) -> np.ndarray:
        """Return the rows of all ranks in the order of the list of edges that was read, (L, ...). Collective.

        Args: values_E  (E, ...), a row for each nonzero of this rank, in the order of `edge_rows`. Those of reverse edges
              that were added are left out; edges of weight 0, which are none, have rows of 0.
        Raises: ShapeError for another number of rows; UsageError for a graph without edge_attr, or a part of a graph.
        """
        table, problem = self._edges("collect_edges"), None
        if len(values_E) != len(table.ids_E):
            text = f"rank {self.comm.rank}: collect_edges got {len(values_E)} rows; expected {len(table.ids_E)}"
            problem = ShapeError(f"{text}, one for each nonzero of this rank")
        agree(self.comm, problem)
        is_listed = table.ids_E >= 0
        ids = self.comm.all_gather(table.ids_E[is_listed])
        gathered = self.comm.all_gather(np.ascontiguousarray(values_E[is_listed]))
        out = np.zeros((table.n_listed, *gathered.shape[1:]), gathered.dtype)
        out[ids] = gathered
        return out

    def _edges(self, what: str) -> EdgeTable:
        if self.A.edge_table is None:
            raise UsageError(
                f"{what}: {self.name} does not keep the order of its edges; give graph_from_coo edge_attr=np.empty((E, 0)), "
                "or attributes of the edges"
            )
        if isinstance(self.A.edge_table, NoEdgeTable):
            raise UsageError(f"{what}: {self.A.edge_table.why}")
        return self.A.edge_table


def _of_listed(table: EdgeTable) -> np.ndarray | None:
    """Return the labels of edges; none of a reverse edge that was added, unless it has several."""
    if table.y_E is None or task_of(table.y_E) == "labels":
        return table.y_E
    y_E = table.y_E.copy()
    y_E[table.ids_E < 0] = np.nan if y_E.dtype.kind == "f" else -1
    return y_E


def label_rows(y_n: np.ndarray | None, comm: Communicator, dtype: torch.dtype) -> tuple[torch.Tensor | None, int]:
    """Return y_n of a DistGraph, and the number of classes on all ranks. Collective."""
    y, task = None, task_of(y_n)
    if y_n is not None and task == "classes":
        y = torch.from_numpy(np.array(y_n, dtype=np.int64))
    elif y_n is not None:
        y_nC = np.array(y_n).reshape(len(y_n), math.prod(y_n.shape[1:]))
        y = torch.from_numpy(y_nC).to(sum_dtype(dtype))
    n_classes = np.array([0 if y is None else y.shape[1] if y.ndim == 2 else int(y.max()) + 1 if len(y) else 0])
    comm.all_reduce(n_classes, "max")
    return y, int(n_classes[0])
