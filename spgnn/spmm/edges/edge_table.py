"""EdgeTable: the attributes of the nonzeros of a rank, in the order of the column blocks of its operator.

Shapes: n own rows, E nonzeros of this rank, F attributes of an edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ...errors import UsageError
from ...graph import WITH_LOOPS, ColumnNames
from ...graph.edge_attr import numbered
from ..exchange.stages import Blocks


@dataclass(frozen=True, slots=True, eq=False)
class EdgeTable:
    """The nonzeros of a rank, those of own columns first, without the self-loops that an operator adds.

    attr_EF     tensor of the type of sums, on the rank's device.
    ids_E       (E,) int64, places in the list of n_listed edges; -1 - place of a reverse edge that was added.
    loopless_n  (n,) bool, rows to which an operator may add a self-loop, whose attributes are 0.
    y_E, split_E, is_reversed  labels and split of the nonzeros, or None, see partition.EdgeRows.
    n_relations, has_reverse  R of the whole graph, see `relations_of`, 0: edges have no classes; reverse edges were added.
    names       of relations and of the columns of X; None: of a graph without relations.
    """

    attr_EF: torch.Tensor
    ids_E: np.ndarray
    n_listed: int
    loopless_n: np.ndarray
    y_E: np.ndarray | None = None
    split_E: np.ndarray | None = None
    is_reversed: bool = False
    n_relations: int = 0
    has_reverse: bool = False
    names: ColumnNames | None = None

    def attr_of(self, A) -> torch.Tensor:
        """Return the attributes of the nonzeros of an operator, (A.nnz, F)."""
        is_edge = self._is_edge(A)
        if is_edge is None:
            return self.attr_EF
        attr_EF = self.attr_EF.new_zeros(A.nnz, self.attr_EF.shape[1])
        attr_EF[torch.from_numpy(np.flatnonzero(is_edge)).to(attr_EF.device)] = self.attr_EF
        return attr_EF

    def _is_edge(self, A) -> np.ndarray | None:
        """Return which nonzeros of an operator are edges, (A.nnz,); None: all."""
        if A.name not in WITH_LOOPS or A.nnz == len(self.ids_E):
            return None
        A_oo = A.blocks.A_oo
        row_E = np.repeat(np.arange(A.n), np.diff(A_oo.indptr))
        is_edge = np.ones(A.nnz, bool)
        is_edge[: len(row_E)] = (row_E != A_oo.indices) | ~self.loopless_n[row_E]
        return is_edge


@dataclass(frozen=True, slots=True)
class NoEdgeTable:
    """Instead of a table where the edges of a graph have attributes that are not here, with the reason."""

    why: str

    def attr_of(self, A) -> torch.Tensor:
        """Raise UsageError."""
        raise UsageError(self.why)


def relations_of(table: EdgeTable | NoEdgeTable | None, A) -> tuple[np.ndarray, int]:
    """Return the relation of each nonzero of an operator, (E,) int64, and R of the whole graph.

    The class r of an edge; where reverse edges were added 2 r, and of a reverse edge 2 r + 1: its inverse.
    Raises: UsageError where edges have no classes, or are not here, and for an operator with self-loops of its own.
    """
    if isinstance(table, NoEdgeTable):
        raise UsageError(table.why)
    if table is None or not table.n_relations or table.y_E is None:
        raise UsageError(
            "relations are the classes of edges, and in this graph some or all edges have none: give them to `spgnn convert --edge-labels`, "
            "or graph_from_coo(..., edge_y=relation_E)"
        )
    if A.name in WITH_LOOPS:
        raise UsageError(
            f"operator {A.name} adds self-loops, which have no relation: a layer declares operator = 'none'"
        )
    return table.y_E * 2 + (table.ids_E < 0) if table.has_reverse else table.y_E, table.n_relations


def edge_features_of(A) -> int | None:
    """Return the columns of the attributes of edges; None where the graph has none, or they are not here."""
    return A.edge_table.attr_EF.shape[1] if isinstance(A.edge_table, EdgeTable) else None


def has_relations(A) -> bool:
    """Return whether all edges of the graph have a class, which is their relation; in a dry run, whether they have attributes."""
    if A.device.type == "meta":
        return A.edge_attr is not None
    return isinstance(A.edge_table, EdgeTable) and A.edge_table.n_relations > 0


def restrict_edges(A, restricted, out_n: np.ndarray, in_m: np.ndarray, ghost_g: np.ndarray) -> None:
    """Give an operator of some rows and columns of A, see Blocks.restricted, attributes and relations of its edges."""
    if edge_features_of(A) is None:
        return
    own, ghosts = numbered(A.blocks.A_oo), numbered(A.blocks.A_og)
    cut = Blocks(own, ghosts, A.blocks.index).restricted(out_n, in_m, ghost_g)
    of_E = np.concatenate([cut.A_oo.data, own.nnz + cut.A_og.data])
    restricted.edge_attr = A.edge_attr[torch.from_numpy(of_E).to(A.edge_attr.device)]
    if A.edge_table.n_relations and A.name not in WITH_LOOPS:
        restricted.relations = A.relations[0][of_E], A.relations[1]
