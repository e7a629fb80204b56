"""TypedRows: rows of types of nodes and edges of relations, as x_dict and edge_index_dict of PyG have them.

Shapes: m own rows, F columns, E edges, T types, R relations of messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...errors import ShapeError, UsageError
from ...graph import ColumnNames, NodeTypes


class EdgeIndexDict(dict):
    """edge_index of each relation; on: the pass that runs."""

    on: Any = None


class TypedRows:
    """The types of rows, and the relations of messages, of a graph.

    own       of each type its rows, (m_t,) int64; ranges: its columns of X, None: all types have the same.
    triples   of each relation of messages; those of reverse edges, and of edges that are used against their direction,
              are called rev_NAME.
    Args:     node_m  original ids of the rows.
              way     2: relations and inverses, 2 r and 2 r + 1; 1: messages go from source to target; -1: back.
    Raises:   UsageError unless nodes have types and relations names of three words.
    """

    def __init__(self, types: NodeTypes, names: ColumnNames | None, node_m: np.ndarray, way: int, device: Any = None):
        listed = () if names is None else names.edge_classes or ()
        ends = [of for name in listed if (of := types.ends_of(name)) is not None]
        if not types.names or not ends or len(ends) < len(listed):
            raise UsageError(
                "x_dict and edge_index_dict need a graph with types of nodes, and relations named as 'author writes paper'; "
                "spgnn.from_pyg(HeteroData) and tables with keys have them"
            )
        self.types, type_m = types, types.of(node_m)
        self.own = [torch.from_numpy(np.flatnonzero(type_m == t)).to(device) for t in range(len(types.names))]
        self.features = names.features if names else None
        forth = [
            (types.names[a], " ".join(name.split(" ")[1:-1]), types.names[b]) for name, (a, b) in zip(listed, ends)
        ]
        back = []
        for a, name, b in forth:
            reverse = "rev_" + name
            while (b, reverse, a) in forth:
                reverse = "rev_" + reverse
            back.append((b, reverse, a))
        both = [triple for pair in zip(back, forth) for triple in pair]  # row u of u -> v reads v
        self.triples = {2: both, 1: forth, -1: back}[way]

    def ends(self, r: int) -> tuple[int, int]:
        """Return the types of sources and targets of a relation."""
        a, _, b = self.triples[r]
        return self.types.names.index(a), self.types.names.index(b)

    def split(self, X: torch.Tensor, is_any: Callable[[bool], bool] = bool) -> dict[str, torch.Tensor]:
        """Return the rows of each type; of X with other columns for each type, and zeros elsewhere, these columns alone.

        Args: is_any  whether something holds on any rank.
        """
        ranges, found = self._ranges(X), {}
        if ranges is not None and X.device.type != "meta":
            of_types = sum(int(X[own][:, of].count_nonzero()) for own, of in zip(self.own, ranges))
            ranges = None if is_any(of_types < int(X.count_nonzero())) else ranges
        for t, name in enumerate(self.types.names):
            found[name] = X[self.own[t]][:, slice(None) if ranges is None else ranges[t]]
        return found

    def _ranges(self, X: torch.Tensor) -> list[slice] | None:
        """Return the columns of each type, None where all rows have all columns."""
        owners, names = [name.partition(".")[0] for name in self.features or ()], self.types.names
        counts = [owners.count(name) for name in names]
        if len(owners) != X.shape[1] or owners != np.repeat(names, counts).tolist():
            return None
        ends = np.cumsum([0, *counts]).tolist()
        return [slice(first, last) for first, last in zip(ends, ends[1:])]

    def joined(self, out: Any) -> Any:
        """Return a dict of types as rows of the graph, (m, C), zeros of types that it lacks, or has as None; else what it is.

        Raises: ShapeError for rows that are not all of a type, or differ in width.
        """
        if not isinstance(out, dict):
            return out
        given = {name: Z for name, Z in out.items() if Z is not None}
        sizes = dict(zip(self.types.names, map(len, self.own)))
        widths = {tuple(Z.shape[1:]) for Z in given.values()}
        wrong = [name for name, Z in given.items() if name not in sizes or len(Z) != sizes[name]]
        if wrong or len(widths) != 1 or len(min(widths)) != 1:
            got = ", ".join(f"{name} {tuple(Z.shape)}" for name, Z in given.items()) or "no type"
            raise ShapeError(
                f"a wrapped module returned {got}; expected rows of one width for each own node of a type: {sizes}"
            )
        first = next(iter(given.values()))
        rows = first.new_zeros(sum(sizes.values()), first.shape[1])
        for name, Z in given.items():
            rows = rows.index_copy(0, self.own[self.types.names.index(name)], Z)
        return rows
