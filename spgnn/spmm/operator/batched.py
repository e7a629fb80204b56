"""Batched: A for B snapshots of one graph at once, A kron I_B, whose rows travel as (n, B F) in one exchange.

Shapes: B snapshots, n rows out, m own rows in, g ghost rows, F columns of a snapshot, E nonzeros of A on this rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from ...config.names import Norm
from ...errors import UsageError
from ...graph.edge_attr import nonzeros_of
from ..exchange.ghosts import ColumnBlock
from ..kernels.csr import LocalCSR
from .facts import computed, made_once
from .place import OUTSIDE, Place
from .protocol import Operator


class Batched(Operator):
    """A kron I_B: row i B + b of H (m B, F) is node i in snapshot b, so that H is also a matrix (m, B F) for A.

    Every layer runs on it: a dense one sees m B rows, a product with A is one of width B F. Layers that read rows of
    neighbours or make values at edges see E B nonzeros, those of row i B + b before those of row i B + b + 1, own
    columns first. `of_edges` brings their values into the order of A. Nothing of X is cached, and dropout has a mask of
    its own in every snapshot.
    Args:   A  the operator of a DistGraph.
    Raises: UsageError in 1.5D, where a process row shares the columns of A.
    """

    def __init__(self, A: Operator, B: int):
        if A.row_sum is not None:
            raise UsageError("snapshots need all nonzeros of a row on its rank: use replication = 1")
        self.inner, self.B, self.n, self.m, self._norms = A, B, A.n * B, A.m * B, {}

    name, dtype, device, order, pool, threads, ops, sent_so_far = (
        computed(attrgetter(f"inner.{fact}")) for fact in "name dtype device order pool threads ops sent_so_far".split()
    )
    node_n = made_once(lambda self: _ids(self.inner.node_n, self.B))
    node_types = computed(lambda self: self.inner.node_types.times(self.B))

    @made_once
    def column_blocks(self) -> tuple[ColumnBlock, ...]:
        """The blocks of A kron I_B; products with A itself do not need them."""
        return tuple(_block(block, self.B) for block in self.inner.column_blocks)

    @made_once
    def edge_attr(self) -> torch.Tensor | None:
        """The attributes of the graph's edges, (E B, F_e), the same in all snapshots."""
        attr_EF = self.inner.edge_attr
        return None if attr_EF is None else attr_EF[self._edges[0]]

    @made_once
    def relations(self) -> tuple[np.ndarray, int]:
        """The relations of the graph's edges, the same in all snapshots."""
        relation_E, R = self.inner.relations
        return relation_E[self._edges[0].numpy()], R

    def with_norm(self, how: Norm | None) -> Batched:
        """Return the operator of another normalisation of the same graph; None: this one. Collective at first."""
        if how is None or how == self.name:
            return self
        if how not in self._norms:
            self._norms[how] = Batched(self.inner.with_norm(how), self.B)
        return self._norms[how]

    def of_edges(self, values: torch.Tensor) -> torch.Tensor:
        """Return values as a word of A has them, (E B, F), of each snapshot, (B, E, F)."""
        out_BEF = values.new_empty(self.B, self.inner.n_edges, values.shape[1])
        places, snapshots = self._edges
        out_BEF[snapshots, places] = values
        return out_BEF

    def apply(
        self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE, add_nF=None, ghosts_gF=None
    ) -> torch.Tensor:
        """Return relu((A kron I) H + add + b), (n B, F); see SpMM. Collective."""
        bias_F = None if bias_F is None else bias_F.repeat(self.B)
        add_nF, ghosts_gF = (None if M is None else _wide(M, self.B) for M in (add_nF, ghosts_gF))
        Z = self.inner.apply(_wide(H_mF, self.B), bias_F, relu, dtype, place, add_nF, ghosts_gF)
        return Z.reshape(self.n, H_mF.shape[1])

    def adjoint(self, G_nF: torch.Tensor, place: Place = OUTSIDE, add_mF: torch.Tensor | None = None) -> torch.Tensor:
        """Return (A kron I)' G + add, (m B, F). Collective."""
        add_mF = None if add_mF is None else _wide(add_mF, self.B)
        return self.inner.adjoint(_wide(G_nF, self.B), place, add_mF).reshape(self.m, G_nF.shape[1])

    def over_columns(self, H_mF: Any, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, Any]]:
        """Yield (block, rows of H) for own columns, while ghost rows travel, then for ghost columns. Collective."""
        for block, (_, rows) in zip(self.column_blocks, self.inner.over_columns(_wide(H_mF, self.B), place)):
            yield block, rows.reshape(block.A.shape[1], H_mF.shape[1])

    def add_columns(
        self, rows_of: Callable[[bool], torch.Tensor], dtype: torch.dtype, place: Place = OUTSIDE
    ) -> torch.Tensor:
        """Return (m B, F), the adjoint of over_columns. Collective."""
        width = []

        def wide_of(is_ghost: bool) -> torch.Tensor:
            rows = rows_of(is_ghost)
            width.append(rows.shape[1])
            return _wide(rows, self.B)

        return self.inner.add_columns(wide_of, dtype, place).reshape(self.m, width[0])

    def prepare_adjoint(self) -> None:
        """Make what backward needs before buffers fill the memory."""
        self.inner.prepare_adjoint()

    @made_once
    def _edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        """For each nonzero of A kron I its nonzero of A and its snapshot, (E B,) both."""
        blocks = self.inner.column_blocks
        starts = np.cumsum([0, *(block.A.nnz for block in blocks)])
        places, snapshots = zip(*(_nonzeros(block.A.indptr, self.B) for block in blocks))
        places = np.concatenate([edge_E + start for edge_E, start in zip(places, starts)])
        return torch.from_numpy(places).to(self.device), torch.from_numpy(np.concatenate(snapshots)).to(self.device)


def _block(block: ColumnBlock, B: int) -> ColumnBlock:
    """Return a block of A kron I_B."""
    A = block.A
    edge_E, b_E = _nonzeros(A.indptr, B)
    indptr = np.concatenate([[0], np.cumsum(np.repeat(np.diff(A.indptr), B))])
    indices = A.indices[edge_E].astype(np.int64) * B + b_E
    weights = None if A.weights is None else A.to_scipy().data[edge_E]
    shape = (A.shape[0] * B, A.shape[1] * B)
    made = LocalCSR.trusted(shape, indptr.astype(np.int64), indices, weights, A.dtype, A.threads)
    return ColumnBlock(made, _ids(block.ids_c, B), block.is_ghost, block.start * B)


def _ids(ids_m: np.ndarray, B: int) -> np.ndarray:
    """Return an id for each node in each snapshot, (m B,)."""
    return (ids_m[:, None] * B + np.arange(B)).ravel()


def _wide(H: torch.Tensor, B: int) -> torch.Tensor:
    """Return (n B, F) as (n, B F)."""
    return H.reshape(len(H) // B, B * H.shape[1])


def _nonzeros(indptr: np.ndarray, B: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each nonzero of A kron I_B, by rows, its nonzero of A and its snapshot, (E B,) int64 both."""
    n = len(indptr) - 1
    lengths = np.repeat(np.diff(indptr), B)
    return nonzeros_of(indptr, np.repeat(np.arange(n), B)), np.repeat(np.tile(np.arange(B), n), lengths)
