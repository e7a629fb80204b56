"""The row-wise maximum: Z_i = max_j H_j of each column over the nonzeros of a row, 0 for an empty row.

Of equal entries the one of the smallest original id counts, so that gradients do not depend on parts or ranks.
Shapes: n rows out, m own rows in, t own and ghost columns, F columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..chains.backward import first_order, own
from ..exchange.column_rows import gradient_of, over_table, stored
from ..kernels.backend import kernels_on
from ..kernels.buffers import sum_dtype
from ..operator.facts import AtLayer


class Maximum(torch.autograd.Function):
    """Z = max_j H_j, or max(0, max_j H_j) with relu; dH_j = sum of the G_i whose largest entry is that of j, above 0 with relu."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, H, is_table: bool, relu: bool):
        H, kernels, blocks = stored(A, H), kernels_on(A.device), A.column_blocks
        is_short = len(blocks) == 1 and A.row_sum is None and blocks[0].A.has_short_rows
        Z_nF = A.pool.empty(A.n, H.shape[1], dtype=A.dtype)
        arg_nF = A.pool.empty(A.n, H.shape[1], dtype=torch.int16 if is_short else torch.int32)
        for block, H_cF in over_table(A, H, is_table):
            with A.ops.span("maximum"):
                given = (A.column_ids, Z_nF, arg_nF, block.start)
                kernels.maximum(block.A, H_cF, *given, accumulate=block.is_ghost, positive=relu)
        if A.row_sum is not None:
            Z_nF, arg_nF = merged(A, Z_nF, arg_nF, A.column_ids)
        ctx.A, ctx.arg_nF, ctx.is_table = A, arg_nF, is_table
        return Z_nF if Z_nF.dtype == A.out_dtype else A.pool.copy(Z_nF, A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nF):
        A, blocks, T = ctx.A, ctx.A.column_blocks, sum_dtype(ctx.A.dtype)
        G_nF = G_nF.to(T).contiguous()

        def rows_of(is_ghost: bool) -> torch.Tensor:
            if is_ghost and len(blocks) == 1:
                return A.pool.empty(0, G_nF.shape[1], dtype=T)
            block = blocks[is_ghost]
            dH = A.pool.empty(block.A.shape[1], G_nF.shape[1], dtype=T)
            with A.ops.span("maximum"):
                kernels_on(A.device).maximum_adjoint(block.A, G_nF, ctx.arg_nF, dH, block.start)
            return dH

        return None, own(gradient_of(A, rows_of, ctx.is_table)), None, None


def merged(
    A: AtLayer, Z_nF: torch.Tensor, arg_nF: torch.Tensor, ids_t: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maximum over all columns and, on the rank that has it, where it is, -1 on the others. Collective.

    Args: ids_t  original ids of the columns at the places that arg names.
    Values and ids travel as float64, in which both are exact.
    """
    F, is_any = Z_nF.shape[1], arg_nF >= 0
    id_t = torch.as_tensor(ids_t, dtype=torch.float64, device=A.device)
    packed = A.pool.empty(len(Z_nF), 2 * F, dtype=torch.float64)
    packed[:, :F] = torch.where(is_any, Z_nF.double(), -torch.inf)
    packed[:, F:] = torch.where(is_any, id_t[arg_nF.clamp(min=0).long()] if len(id_t) else 0.0, torch.inf)
    own_ids = packed[:, F:].clone()

    def add(parts) -> None:
        best, id_of = parts[0][:, :F], parts[0][:, F:]
        for part in parts[1:]:
            value, id_ = part[:, :F], part[:, F:]
            is_nan, was_nan = value.isnan(), best.isnan()
            is_equal = (value == best) | (is_nan & was_nan)
            is_taken = (value > best) | (is_nan & ~was_nan) | (is_equal & (id_ < id_of))
            best.copy_(torch.where(is_taken, value, best))
            id_of.copy_(torch.where(is_taken, id_, id_of))

    A.combine(packed, add)
    ids_nF = packed[:, F:]
    Z_nF.copy_(torch.where(ids_nF < torch.inf, packed[:, :F], 0.0))
    return Z_nF, torch.where(own_ids == ids_nF, arg_nF, -1)
