"""ColumnRows: rows at the own and ghost columns of A, made on the rank that reads them, and the product H W that gives them.

Shapes: m own rows, g ghost rows, t = m + g, F in, C out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import UsageError
from ..chains.backward import first_order
from ..kernels.backend import kernels_of
from ..kernels.buffers import sum_dtype
from ..operator.facts import AtLayer
from ..operator.features import DenseRows, SparseRows, gemm
from .ghosts import ColumnBlock, rounded


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRows:
    """Rows (t, F) of own and ghost columns, which attend, attend2, maximum and words on edges read without an exchange."""

    tensor: torch.Tensor

    @property
    def shape(self) -> torch.Size:
        return self.tensor.shape

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> ColumnRows:
        """Return the rows that a function without weights makes of these."""
        return ColumnRows(function(self.tensor))


class Linear(torch.autograd.Function):
    """X_t = H_t W + b with the rows of own and ghost columns; dW = H_t' dX_t, dH = dX_t W' added at the owners.

    Args: H_mF       tensor, or SparseRows of which the ghost rows are cached.
          ghosts_gF  ghost rows of H where they are cached: nothing is sent. None: they are fetched.
    """

    gives_whole_gradients = True

    @staticmethod
    def forward(ctx: Any, A: AtLayer, H_mF: torch.Tensor, ghosts_gF, W_FC, bias_C):
        H_mF = H_mF if H_mF.is_sparse else stored(A, H_mF)
        ctx.A, parts, X_tC = A, [], None
        if len(A.column_blocks) > 1:  # of one the product itself is the table
            X_tC = A.pool.empty(A.m + A.column_blocks[1].A.shape[1], W_FC.shape[1], dtype=A.dtype)
        for block, rows_cF in over_rows(A, H_mF, ghosts_gF):
            X_cC = _left(A, rows_cF).times(W_FC, bias_C)
            if X_tC is None:
                X_tC = X_cC
            else:
                X_tC[block.of_table] = X_cC
            parts.append(rows_cF)
        ctx.sparse = parts if H_mF.is_sparse else None
        ctx.save_for_backward(W_FC, *([] if ctx.sparse else parts))
        return X_tC

    @staticmethod
    @first_order
    def backward(ctx: Any, G_tC):
        A, (W_FC, *parts) = ctx.A, ctx.saved_tensors
        parts = ctx.sparse or parts
        G_tC, blocks = stored(A, G_tC.contiguous()), A.column_blocks
        dH_mF = dW_FC = db_C = None
        if ctx.needs_input_grad[1]:

            def rows_of(is_ghost: bool) -> torch.Tensor:
                G_cC = G_tC[A.m :] if is_ghost else G_tC[: A.m]
                G_cC = G_cC.to(sum_dtype(A.dtype))
                return gemm(A, G_cC, W_FC.t(), A.pool.empty(len(G_cC), W_FC.shape[0], dtype=G_cC.dtype))

            dH_mF = A.add_columns(rows_of, A.dtype)
        if ctx.needs_input_grad[3]:
            pairs = [(rows, G_tC[block.of_table]) for block, rows in zip(blocks, parts) if is_multiplied(A, block)]
            dW_FC = torch.zeros_like(W_FC)
            for rows_cF, G_cC in pairs:
                dW_FC += _left(A, rows_cF).transposed_times(G_cC)
            share_gradient(A, dW_FC)
        if ctx.needs_input_grad[4]:
            db_C = torch.zeros(W_FC.shape[1], dtype=W_FC.dtype, device=W_FC.device)
            for block in blocks:
                if is_multiplied(A, block):
                    G_cC = G_tC[block.of_table]
                    db_C += kernels_of(G_cC).mask_sum(G_cC, None, None, A.threads, 0)
            share_gradient(A, db_C)
        return None, dH_mF, None, dW_FC, db_C


def refuse_weights(A: AtLayer, T: torch.Tensor) -> None:
    """Raise UsageError in 1.5D where weights acted on rows T of columns, or on values of edges.

    A rank of a process row has some of the columns, and of such weights a part of the gradient; those that act before
    A.fetch, and those that A.linear, attend and attend2 multiply with, have whole ones.
    """
    if A.row_sum is None or not T.requires_grad:
        return
    nodes, seen = [T.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node in seen or getattr(getattr(node, "_forward_cls", None), "gives_whole_gradients", False):
            continue
        if node is None or hasattr(node, "variable"):  # T itself, or what accumulates the gradient of weights
            raise UsageError(
                f"weights act on rows of columns or edges, of which a rank has a part with replication = "
                f"{A.row_sum.comm.size}: so has their gradient. Let them act before A.fetch, use A.linear, or "
                "replication = 1"
            )
        seen.add(node)
        nodes += [before for before, _ in node.next_functions if before is not None]


def _left(A: AtLayer, rows_cF: torch.Tensor | SparseRows) -> DenseRows | SparseRows:
    return rows_cF if isinstance(rows_cF, SparseRows) else DenseRows(rows_cF, A)


def is_multiplied(A: AtLayer, block: ColumnBlock) -> bool:
    """Return whether this rank multiplies with a block of columns: of a process row one does with the own columns."""
    return block.is_ghost or A.holds_own


def over_rows(A: AtLayer, H_mF: torch.Tensor, ghosts_gF: torch.Tensor | SparseRows | None) -> Iterator:
    """Yield (block, rows) for own and ghost columns, with ghost rows that are cached or fetched. Collective."""
    if ghosts_gF is None:
        yield from A.over_columns(H_mF)
    else:
        yield from zip(A.column_blocks, (H_mF, ghosts_gF))


def over_table(A: AtLayer, X: torch.Tensor, is_table: bool) -> Iterator:
    """Yield (block, rows of X) for own and ghost columns; is_table: X (t, F) has both. Collective where it has not."""
    if is_table:
        yield from ((block, X[block.of_table]) for block in A.column_blocks)
    else:
        yield from A.over_columns(X)


def gradient_of(A: AtLayer, rows_of: Callable[[bool], torch.Tensor], is_table: bool) -> torch.Tensor:
    """Return the gradient of the X that over_table reads; rows_of(is_ghost): of its own or its ghost rows."""
    if is_table and len(A.column_blocks) == 1:
        return rounded(A.pool, rows_of(False), A.dtype)
    if is_table:
        return torch.cat([rows_of(False), rows_of(True)]).to(A.dtype)
    return A.add_columns(rows_of, A.dtype)


def table_of(A: AtLayer, H_mF: torch.Tensor) -> torch.Tensor:
    """Return (m + g, F): the own rows of H, then its ghost rows. Collective."""
    table = A.pool.empty(sum(b.A.shape[1] for b in A.column_blocks), H_mF.shape[1], dtype=H_mF.dtype)
    for block, rows_cF in A.over_columns(H_mF):
        table[block.of_table] = rows_cF
    return table


def of_table(A: AtLayer, G_tF: torch.Tensor) -> torch.Tensor:
    """Return (m, F): G's own rows, with its ghost rows added at their owners; the adjoint of table_of. Collective."""

    def rows_of(is_ghost: bool) -> torch.Tensor:
        return G_tF[A.m :] if is_ghost else A.pool.copy(G_tF[: A.m], sum_dtype(G_tF.dtype))

    return A.add_columns(rows_of, G_tF.dtype)


def share_gradient(A: AtLayer, dW: torch.Tensor) -> torch.Tensor:
    """Return the sum over the process row of gradients of weights, made of the columns of each rank, in place. Collective."""
    if A.row_sum is not None:
        A.row_sum.comm.all_reduce(dW)
    return dW


def tensor_of(A: AtLayer, X: torch.Tensor | ColumnRows) -> torch.Tensor:
    """Return the rows as a tensor. Raises: see refuse_weights."""
    if not isinstance(X, ColumnRows):
        return X
    refuse_weights(A, X.tensor)
    return X.tensor


def stored(A: AtLayer, H: torch.Tensor) -> torch.Tensor:
    """Return H without its gradient, contiguous, in the type that A works in."""
    H = H.detach()
    return H.contiguous() if H.dtype == A.dtype else A.pool.copy(H, A.dtype)
