"""Edges of several relations: Z = sum_r A_r H W_r with one exchange of rows for all relations, on packed rows.

A_r has the nonzeros of relation r. Its product is made on rows for each pair of relation and node that has an edge: the
columns j of A_r where they are fewer, A_r (H W_r), else its rows i, (A_r H) W_r. Both are outward (inward H) W_r with two
sparse matrices, so that no array has a row for each edge, or for each node and relation.
Shapes: n rows out, m own rows in, c columns of a block, E nonzeros, R relations, M pairs, F in, C out, B blocks of W_r.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, cast, get_args

import numpy as np
import scipy.sparse as sp
import torch

from ...errors import ShapeError, UsageError, check_choice
from ..chains.backward import first_order, own
from ..exchange.column_rows import ColumnRows, gradient_of, over_rows, over_table, stored
from ..kernels.backend import kernels_on
from ..kernels.buffers import sum_dtype
from ..kernels.csr import LocalCSR
from ..operator.facts import AtLayer
from .edge_words import source_of

Mean = Literal["relation", "all", "none"]
MEANS = get_args(Mean)
MOST_KEYS = 4  # times as many keys as edges are numbered in a table, and not sorted
LEAST_ROWS = 1 << 16  # of packed rows that are made at once; the rows of a block where these are more


class Relations:
    """The relations of the nonzeros of an operator, and their packed rows; made once for each operator.

    relation_E  (E,) int64, in the order of column_blocks; R: of the whole graph.
    Raises: UsageError in 1.5D, and where edges have no relation.
    """

    def __init__(self, A: AtLayer):
        if A.row_sum is not None:
            raise UsageError("relations of edges need all edges of a row on its rank: use replication = 1")
        self.relation_E, self.R = A.relations
        self._packed: dict[Mean, list[list[Packed]]] = {}

    def packed(self, A: AtLayer, mean: Mean) -> list[list[Packed]]:
        """Return the packed rows of each block of columns; mean: which edges of a row the weights are divided by."""
        if A.device.type == "meta":
            return [[_dry(A.n, block.A.shape[1])] for block in A.column_blocks]
        if mean not in self._packed:
            counts, start, found = self._counts(A, mean), 0, []
            for block in A.column_blocks:
                of = slice(start, start + block.A.nnz)
                found.append(_packed(block.A, self.relation_E[of], counts[of], self.R, max(LEAST_ROWS, A.n)))
                start += block.A.nnz
            self._packed[mean] = found
        return self._packed[mean]

    def _counts(self, A: AtLayer, mean: Mean) -> np.ndarray:
        """Return of each nonzero (i, j) how many row i has, of its relation or of all, (E,)."""
        if mean == "none":
            return np.ones(len(self.relation_E))
        row_E = np.concatenate([np.repeat(np.arange(A.n), np.diff(block.A.indptr)) for block in A.column_blocks])
        key_E = row_E * self.R + self.relation_E if mean == "relation" else row_E
        if A.n * self.R <= MOST_KEYS * len(key_E):
            return np.bincount(key_E)[key_E].astype(np.float64)
        _, of_E, counts = np.unique(key_E, return_inverse=True, return_counts=True)
        return counts[of_E].astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Some packed rows of a block of columns (n, c), those of a relation next to each other.

    inward   (M, c), outward (n, M), None: M = n rows as they are: Z += outward Y, Y = S W_r in the rows of each relation,
             S = inward H.
    segments (relation, first row, last row + 1) of each relation that has rows.
    """

    inward: LocalCSR
    outward: LocalCSR | None
    segments: list[tuple[int, int, int]]

    def rows(self, A: AtLayer, H_cF: torch.Tensor) -> torch.Tensor:
        """Return S, (M, F)."""
        return self.inward.apply(H_cF, A.pool.empty(self.inward.shape[0], H_cF.shape[1], dtype=H_cF.dtype))

    def add(self, A: AtLayer, H_cF: torch.Tensor, W: torch.Tensor, Z_nC: torch.Tensor) -> None:
        """Z += sum_r A_r H W_r."""
        S_MF, Y_MC = self.rows(A, H_cF), Z_nC
        if self.outward is not None:
            Y_MC = A.pool.empty(self.inward.shape[0], Z_nC.shape[1], dtype=Z_nC.dtype)
        for r, first, last in self.segments:
            _times(A, S_MF[first:last], W[r], Y_MC[first:last])
        if self.outward is not None:
            self.outward.apply(Y_MC, Z_nC, accumulate=True)

    def add_gradients(
        self, A: AtLayer, H_cF: torch.Tensor, W: torch.Tensor, G_nC: torch.Tensor, dW: torch.Tensor | None,
        dH_cF: torch.Tensor | None,
    ) -> None:  # fmt: skip
        """dH += sum_r A_r' G W_r', dW_r += (A_r H)' G."""
        M, G_MC = self.inward.shape[0], G_nC
        if self.outward is not None:
            G_MC = self.outward.adjoint(G_nC, A.pool.empty(M, G_nC.shape[1], dtype=G_nC.dtype))
        S_MF = None if dW is None else self.rows(A, H_cF)
        dS_MF = None if dH_cF is None else A.pool.empty(M, H_cF.shape[1], dtype=H_cF.dtype)
        for r, first, last in self.segments:
            of = slice(first, last)
            S_sF, dS_sF = (None if T is None else T[of] for T in (S_MF, dS_MF))
            _times_adjoint(A, G_MC[of], S_sF, dS_sF, W[r], None if dW is None else dW[r])
        if dH_cF is not None:
            self.inward.adjoint(dS_MF, dH_cF, accumulate=True)


class TypedSum(torch.autograd.Function):
    """Z = sum_r A_r H W_r; dH = sum_r A_r' dZ W_r', dW_r = (A_r H)' dZ. Packed rows are made again in backward.

    Args: H  (m, F), of which ghost rows are fetched unless they are given; is_table: (t, F), of all columns.
          W  (R, F, C), or (R, B, F / B, C / B): blocks on the diagonal.
    """

    @staticmethod
    def forward(ctx: Any, A: AtLayer, mean: Mean, H, ghosts_gF, is_table: bool, W):
        T, packed = sum_dtype(A.dtype), relations(A).packed(A, mean)
        W_R, Z_nC, parts = W.detach().to(T).contiguous(), None, []
        C = W.shape[-1] * (W.shape[1] if W.ndim == 4 else 1)
        Z_nC = A.pool.empty(A.n, C, dtype=T).zero_()
        H = stored(A, H)
        for block, H_cF in over_table(A, H, True) if is_table else over_rows(A, H, ghosts_gF):
            with A.ops.span("relations"):
                for of in packed[block.is_ghost]:
                    of.add(A, H_cF.to(T), W_R, Z_nC)
            parts.append(H_cF)
        ctx.A, ctx.mean, ctx.is_table = A, mean, is_table
        ctx.save_for_backward(W, *parts)
        return Z_nC.to(A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nC):
        A, (W, *parts), T = ctx.A, ctx.saved_tensors, sum_dtype(ctx.A.dtype)
        packed, needs_H, needs_W = relations(A).packed(A, ctx.mean), ctx.needs_input_grad[2], ctx.needs_input_grad[5]
        G_nC, W_R = G_nC.to(T).contiguous(), W.detach().to(T).contiguous()
        dW = torch.zeros_like(W_R) if needs_W else None

        def rows_of(is_ghost: bool, has_rows: bool = True) -> torch.Tensor | None:
            if is_ghost and len(parts) == 1:
                return A.pool.empty(0, parts[0].shape[1], dtype=T)
            H_cF = parts[is_ghost].to(T)
            dH_cF = A.pool.empty(*H_cF.shape, dtype=T).zero_() if has_rows else None
            with A.ops.span("relations"):
                for of in packed[is_ghost]:
                    of.add_gradients(A, H_cF, W_R, G_nC, dW, dH_cF)
            return dH_cF

        dH = None
        if needs_H:
            dH = own(gradient_of(A, rows_of, ctx.is_table))  # pyrefly: ignore[bad-argument-type]
        else:
            for is_ghost in range(len(parts)):
                rows_of(bool(is_ghost), False)
        return None, None, dH, None, None, None if dW is None else dW.to(W.dtype)


def relations(A: AtLayer) -> Relations:
    """Return the relations of the edges of an operator."""
    return A.once(Relations, lambda: Relations(A))


def typed_sum(A: AtLayer, H: torch.Tensor | ColumnRows, W: torch.Tensor, mean: Mean = "relation") -> torch.Tensor:
    """Return sum_r A_r H W_r, (n, C), with one exchange for all relations. Collective.

    Args:   H     (m, F), or ColumnRows of `fetch`.
            W     (R, F, C), or (R, B, F / B, C / B): W_r has B blocks on its diagonal.
            mean  relation: A_r has the weights of A divided by |N_i^r|, the edges of relation r of row i; all: by |N_i|.
    Raises: UsageError where edges have no relation, in 1.5D, for more relations than W has, and for a sparse H.
    Source: Schlichtkrull et al. 2018, eq. (2), blocks: eq. (4).
    """
    check_choice("mean", mean, MEANS)
    H, ghosts_gF, is_table = source_of(A, "typed_sum", H)
    F = W.shape[-2] * (W.shape[1] if W.ndim == 4 else 1)
    if W.ndim not in (3, 4) or F != H.shape[1]:
        raise ShapeError(f"A.typed_sum: W has shape {tuple(W.shape)}; expected (R, {H.shape[1]}, C) or (R, B, f, c)")
    if (R := relations(A).R) > len(W):
        raise UsageError(f"edges have {R} relations, and W has {len(W)}: make the layer with relations={R}")
    return TypedSum.apply(A, mean, H, ghosts_gF, is_table, W)


def _packed(A: LocalCSR, relation_e: np.ndarray, count_e: np.ndarray, R: int, most: int) -> list[Packed]:
    """Return the packed rows of a block, `most` at once, in the cheaper order of each relation."""
    (n, c), T = A.shape, np.float64 if A.dtype == torch.float64 else np.float32
    row_e, column_e, K = np.repeat(np.arange(n), np.diff(A.indptr)), A.indices.astype(np.int64), max(n, c, 1)
    weight_e = ((1.0 if A.weights is None else A.weights) / count_e).astype(T)
    by_column, by_row = relation_e * K + column_e, relation_e * K + row_e
    columns_R, rows_R = (np.bincount(_distinct(key, R * K) // K, minlength=R) for key in (by_column, by_row))
    is_first_R = columns_R <= rows_R  # W before A_r
    first = is_first_R[relation_e]
    key_e = np.where(first, by_column, by_row)
    pair_e = _places(pairs := _distinct(key_e, R * K), key_e, R * K)
    relation_M, node_M = np.divmod(pairs, K)
    of_column, of_row = (np.flatnonzero(is_first_R[relation_M] == value) for value in (True, False))
    inward = _csr(
        (len(pairs), c), (of_column, node_M[of_column]), (pair_e[~first], column_e[~first]), weight_e[~first], T
    )
    outward = _csr((n, len(pairs)), (node_M[of_row], of_row), (row_e[first], pair_e[first]), weight_e[first], T)
    found = []
    for start in range(0, len(pairs), most):
        part = slice(start, start + most)
        segments = segments_of(relation_M[part])
        local = lambda M: LocalCSR(sp.csr_array(M), sum_dtype(A.dtype), A.threads)
        found.append(Packed(local(inward[part]), local(outward[:, part]), segments))
    return found


def _distinct(key_e: np.ndarray, size: int) -> np.ndarray:
    """Return the distinct keys, which are below size, rising; they are sorted where they are few of these."""
    if size > MOST_KEYS * len(key_e):
        return np.unique(key_e, return_counts=True)[0]  # without counts NumPy hashes, which is slower
    is_there = np.zeros(size, bool)
    is_there[key_e] = True
    return np.flatnonzero(is_there)


def _places(distinct_M: np.ndarray, key_e: np.ndarray, size: int) -> np.ndarray:
    """Return the place of each key among the distinct ones, (e,)."""
    if size > MOST_KEYS * len(key_e):
        return np.searchsorted(distinct_M, key_e)
    place = np.empty(size, np.int64)
    place[distinct_M] = np.arange(len(distinct_M))
    return place[key_e]


def segments_of(relation_M: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (relation, first row, last row + 1) of rising relations."""
    present, firsts = np.unique(relation_M, return_index=True)
    return list(zip(present.tolist(), firsts.tolist(), np.append(firsts[1:], len(relation_M)).tolist()))


def _dry(n: int, c: int) -> Packed:
    """Return packed rows that are as many as the columns, and multiply nothing."""
    made = lambda M: SimpleNamespace(shape=(M, c), apply=lambda H, out, **_: out, adjoint=lambda G, out, **_: out)
    return Packed(cast(LocalCSR, made(c)), cast(LocalCSR, made(n)), [(0, 0, c)])


def _csr(shape: tuple[int, int], ones: tuple, ends: tuple, weights: np.ndarray, T) -> sp.csr_array:
    """Return a matrix with ones at some places and weights at others."""
    values = np.concatenate([np.ones(len(ones[0]), T), weights])
    M = sp.coo_array((values, tuple(np.concatenate(of) for of in zip(ones, ends))), shape).tocsr()
    M.sort_indices()
    return M


def _times(A: AtLayer, S_sF: torch.Tensor, W: torch.Tensor, Y_sC: torch.Tensor) -> None:
    """Y = S W; W (F, C), or (B, f, c) blocks."""
    if W.ndim == 2:
        kernels_on(A.device).gemm(S_sF, W, Y_sC, threads=A.threads)
    else:
        Y_sC.view(len(Y_sC), *W.shape[::2]).copy_(torch.bmm(_blocks(S_sF, W.shape[1]), W).transpose(0, 1))


def _times_adjoint(A: AtLayer, G_sC, S_sF, dS_sF, W: torch.Tensor, dW: torch.Tensor | None) -> None:
    """dS = G W', dW += S' G."""
    if W.ndim == 2:
        made = None if dW is None else torch.empty_like(dW)
        kernels_on(A.device).gemm_adjoint(G_sC, S_sF, W, dS_sF, made, threads=A.threads)
    else:
        G_Bsc = _blocks(G_sC, W.shape[2])
        made = None if dW is None else torch.bmm(_blocks(S_sF, W.shape[1]).transpose(1, 2), G_Bsc)
        if dS_sF is not None:
            dS_sF.view(len(dS_sF), *W.shape[:2]).copy_(torch.bmm(G_Bsc, W.transpose(1, 2)).transpose(0, 1))
    if dW is not None and made is not None:
        dW += made


def _blocks(S_sF: torch.Tensor, width: int) -> torch.Tensor:
    """Return (B, s, width)."""
    return S_sF.view(len(S_sF), -1, width).transpose(0, 1)
