"""DistGraph: a graph with each rank holding its own rows, and the operator that layers use.

Shapes: N nodes, n own rows, F features, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..config.names import Norm, Task
from ..dist import Communicator
from ..errors import ShapeError, UsageError, agree
from ..graph import ColumnNames, labelled
from ..graph.edge_attr import places_listed
from ..graph.loaded import NOUNS
from ..machine import give_back_memory
from ..spmm.edges.edge_table import EdgeTable, NoEdgeTable, edge_features_of
from ..spmm.operator.dist_spmm import DistSpMM
from ..spmm.operator.facts import FixedInput
from ..spmm.operator.features import SparseRows


@dataclass(frozen=True, eq=False)
class DistGraph:
    """One rank's share of a graph: rows of A, X, y and split of its own nodes.

    A        the operator, (N, N) spread over the ranks; X (n, F) tensor or SparseRows, or None.
    y_n      (n,) int64, -1 where there is no label; (n, C) float of 0 and 1 or, NaN for none, numbers; None without any.
    split_n  (n,) int8, or (n, S), or None.
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
        """Which own nodes have a label, (n,) bool; every row of several labels counts as one."""
        assert self.y_n is not None
        return np.ones(len(self.y_n), bool) if self.is_multilabel else labelled(self.y_n.numpy())

    @property
    def is_counted(self) -> bool:
        """Whether the rows of this rank count: of the c ranks with the same rows, the rows of the first do."""
        return self.A.layout.is_counted

    def collect(self, values_n: np.ndarray) -> np.ndarray:
        """Return the rows of all ranks in original node order, (N, ...). Collective.

        Raises: UsageError for a part of a graph, see Parts: it has some of the nodes.
        """
        rows = slice(None) if self.is_counted else slice(0, 0)
        ids_N = self.comm.all_gather(self.node_n[rows])
        if len(ids_N) != self.n_nodes:
            raise UsageError(f"collect needs the rows of all {self.n_nodes} nodes; {self.name} has {len(ids_N)}")
        gathered = self.comm.all_gather(np.ascontiguousarray(values_n[rows]))
        out = np.empty_like(gathered)
        out[ids_N] = gathered
        return out

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
