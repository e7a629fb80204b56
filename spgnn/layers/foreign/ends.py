"""Ends: the nonzeros of a rank as an edge_index, which knows whether its entries are sources or targets.

Shapes: m own rows, t own and ghost columns, E edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from ...errors import UsageError
from ...spmm.edges.edge_table import EdgeTable, has_relations
from ...spmm.exchange.owners import any_rank
from ...spmm.operator.dist_spmm import DistSpMM, make_operator
from ...spmm.operator.protocol import Operator
from ...spmm.operator.view import LayerView
from .typed_rows import EdgeIndexDict, TypedRows


@dataclass(frozen=True, slots=True)
class Role:
    """The rows that an index refers to; type: of nodes of a type alone, None: of all.

    kind  source: own and ghost columns, rows that are gathered may be another rank's; target: own rows; whole: the one
          graph that all nodes belong to, PyG's batch.
    """

    kind: Literal["source", "target", "whole"]
    type: int | None = None


SOURCE, TARGET, WHOLE = Role("source"), Role("target"), Role("whole")


class Ends(torch.Tensor):
    """Integers (2, E), or (E,) and views of it, with a Role for each row. Only operations that OnRanks knows act on it."""

    roles: tuple[Role, ...]
    on: Any = None  # the pass that runs, of the graph's own edge_index and batch

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise UsageError(
            "the edge_index of a wrapped module was used outside of its forward, as checkpointing does: call it without"
        )


def ends(index: torch.Tensor, *roles: Role) -> Ends:
    """Return an index with the role of each row."""
    made = index.as_subclass(Ends)
    made.roles = roles
    return made


def plain(value):
    """Return a tensor without roles; a list, tuple or dict with its tensors so."""
    if isinstance(value, Ends):
        return value.as_subclass(torch.Tensor)
    if isinstance(value, (list, tuple)):
        made = [plain(item) for item in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def roles_in(value) -> Iterator[Role]:
    """Yield the roles in the arguments of a function."""
    if isinstance(value, Ends):
        yield from value.roles
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from roles_in(item)


@dataclass(frozen=True, eq=False)
class LocalEdges:
    """The nonzeros of a rank as edges column -> row, by row, then by original id of the column: the order of one rank.

    index      Ends (2, E): sources among own and ghost columns, targets among own rows.
    weight_E   their weights; None: all weights of the graph are 1.
    order_E    edge e is nonzero order[e] of A, those of own columns first.
    is_ambiguous  a rank has as many edges as own rows.
    of_types   of each type of nodes the operator with its own rows and columns, see `typed`; empty before.
    """

    index: Ends
    weight_E: torch.Tensor | None
    order_E: torch.Tensor
    source_t: np.ndarray  # original ids of columns
    target_m: np.ndarray  # and of own rows
    is_ambiguous: bool
    of_types: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, A: LayerView, dtype: torch.dtype) -> LocalEdges:
        """Return the edges of an operator without normalisation. Collective."""
        column_E, row_E = index = A.edge_index
        of_blocks = [block.A.weights for block in A.column_blocks] if A.device.type != "meta" else [None]
        weight_E = None
        if any(weights is not None for weights in of_blocks):
            ones = [np.ones(block.A.nnz) if block.A.weights is None else block.A.weights for block in A.column_blocks]
            weight_E = torch.from_numpy(np.concatenate(ones)).to(A.device, dtype)
        order_E = torch.arange(len(row_E))
        if len(A.column_blocks) > 1 and A.device.type != "meta":
            order_E = torch.from_numpy(np.lexsort((A.column_ids[column_E.cpu().numpy()], row_E.cpu().numpy())))
            index, weight_E = index[:, order_E.to(A.device)], weight_E if weight_E is None else weight_E[order_E]
        if any_rank(A, weight_E is not None) and weight_E is None:
            weight_E = torch.ones(len(row_E), dtype=dtype, device=A.device)
        index, is_ambiguous = ends(index, SOURCE, TARGET), any_rank(A, len(row_E) == A.m)
        return cls(index, weight_E, order_E, A.column_ids, A.node_n, is_ambiguous)

    def attributes(self, operator: Operator) -> torch.Tensor | None:
        """Return the attributes of the edges of an operator, (E, F_e), ordered once. Raises: UsageError of a subgraph."""
        if "attr_EF" not in vars(self):
            attr_EF, is_ordered = operator.edge_attr, len(operator.column_blocks) == 1
            attr_EF = attr_EF if attr_EF is None or is_ordered else attr_EF[self.order_E.to(attr_EF.device)]
            vars(self)["attr_EF"] = attr_EF
        return vars(self)["attr_EF"]

    def relations(self, operator: Operator) -> torch.Tensor | None:
        """Return the relations of the edges of an operator, (E,) int64, made once; None: they have none."""
        if "relation_E" not in vars(self):
            relation_E, E, device = None, len(self.order_E), plain(self.index).device
            if has_relations(operator):
                of_E = np.zeros(E, np.int64) if device.type == "meta" else operator.relations[0].astype(np.int64)
                relation_E = torch.from_numpy(of_E)[self.order_E].to(device)
            vars(self)["relation_E"] = relation_E
        return vars(self)["relation_E"]

    def typed(self, A: LayerView) -> tuple[TypedRows, EdgeIndexDict]:
        """Return the types of own rows, and the edge_index of each relation, made once. Collective at first.

        Each type gets an operator with its own and ghost columns, so that its rows are exchanged alone.
        """
        if "made" not in vars(self):
            operator, table = A.operator, A.operator.edge_table
            if not isinstance(table, EdgeTable) or not isinstance(operator, DistSpMM):
                raise UsageError("x_dict and edge_index_dict are of a distributed graph with relations of its edges")
            way = 2 if table.has_reverse else 1 if table.is_reversed else -1
            rows = TypedRows(A.node_types, table.names, A.node_n, way, A.device)
            relation_E, found = self.relations(operator), EdgeIndexDict()
            type_t, type_m = (A.node_types.of(ids) for ids in (A.column_ids, A.node_n))
            ghost_g, all_n = type_t[A.m :], np.ones(A.n, bool)
            for t, name in enumerate(A.node_types.names):
                blocks = operator.blocks.restricted(all_n, type_m == t, ghost_g == t)
                self.of_types.append(make_operator(blocks, operator.layout, f"{operator.name} of {name}"))
            number = lambda of: np.cumsum(of == np.arange(len(self.of_types))[:, None], 1)[of, np.arange(len(of))] - 1
            place_t, place_m = (torch.from_numpy(number(of)).to(A.device) for of in (type_t, type_m))
            index = plain(self.index)
            for r, triple in enumerate(rows.triples):
                s, t = rows.ends(r)
                row, column = index[:, relation_E == r].flip(0)
                of_r = torch.stack([place_t[column], place_m[row]])
                found[triple] = ends(of_r, Role("source", s), Role("target", t))
            vars(self)["made"] = rows, found
        return vars(self)["made"]

    @cached_property
    def batch(self) -> Ends:
        """The graph of each own row, PyG's batch: 0."""
        m, device = len(self.target_m), plain(self.index).device
        return ends(torch.zeros(m, dtype=torch.int64, device=device), WHOLE)

    def ends_of(self, index: Ends) -> np.ndarray:
        """Return the original ids of both ends of edges, (2, E) int64."""
        found = []
        for role, row in zip(index.roles, plain(index).cpu().numpy()):
            A = None if role.type is None else self.of_types[role.type]
            source_t, target_m = (self.source_t, self.target_m) if A is None else (A.column_ids, A.node_n)
            found.append((source_t if role.kind == "source" else target_m)[row])
        return np.stack(found)

    def ids(self, index: Ends) -> np.ndarray:
        """Return an id per edge, (E,) int64, that does not depend on the ranks; parallel edges get different ones."""
        first, second = self.ends_of(index)
        id_E = (second << 32) ^ first
        order = np.argsort(id_E, kind="stable")
        is_new = np.diff(id_E[order], prepend=-1) != 0
        starts = np.maximum.accumulate(np.where(is_new, np.arange(len(id_E)), 0))
        id_E[order] += (np.arange(len(id_E)) - starts) * 0x1E3779B97F4A7C15
        return id_E
