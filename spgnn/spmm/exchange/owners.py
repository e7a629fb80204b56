"""Sums of rows at their owners, and of tensors over all ranks, each with its gradient.

Shapes: m own rows, g ghost rows, t = m + g, F columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...errors import UsageError
from ..chains.backward import first_order
from ..operator.facts import AtLayer
from .column_rows import of_table, table_of


class ToOwners(torch.autograd.Function):
    """H = own rows of T, with its ghost rows added at their owners; dT = own rows of dH, then ghost rows. Collective."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, T_tF):
        ctx.A = A
        return of_table(A, T_tF.detach().contiguous())

    @staticmethod
    @first_order
    def backward(ctx: Any, G_mF):
        return None, table_of(ctx.A, G_mF.contiguous())


class RankSum(torch.autograd.Function):
    """S = the sum of x over all ranks, on each of them; dx = the sum of dS. Collective."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, x):
        ctx.A = A
        return _summed(A, x)

    @staticmethod
    @first_order
    def backward(ctx: Any, G):
        return None, _summed(ctx.A, G)


class RankMax(torch.autograd.Function):
    """L = the largest x of all ranks, entry by entry; dx is the sum of dL, shared by the ranks whose x is L. Collective."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, x):
        ctx.A, comm = A, _comm(A)
        largest = x.detach().clone()
        if comm is not None:
            comm.all_reduce(largest, "max")
        ctx.save_for_backward(x == largest)
        return largest

    @staticmethod
    @first_order
    def backward(ctx: Any, G):
        (is_largest,) = ctx.saved_tensors
        ranks = _summed(ctx.A, is_largest.to(G.dtype))
        return None, torch.where(is_largest, _summed(ctx.A, G) / ranks, 0.0)


def has_other_ranks(A: AtLayer) -> bool:
    """Return whether other ranks have rows of the same graph. Raises: UsageError in 1.5D, where ranks share rows."""
    comm = _comm(A)
    return comm is not None and comm.size > 1


def _summed(A: AtLayer, x: torch.Tensor) -> torch.Tensor:
    comm, total = _comm(A), x.detach().clone(memory_format=torch.contiguous_format)
    return total if comm is None else comm.all_reduce(total)


def _comm(A: AtLayer):
    if A.row_sum is not None:
        raise UsageError("sums over all rows, and modules of wrap, need replication = 1")
    return getattr(A, "comm", None)


def any_rank(A: AtLayer, holds: bool) -> bool:
    """Return whether something holds on any rank. Collective."""
    comm = getattr(A, "comm", None)
    return holds if comm is None else bool(comm.all_reduce(np.array([holds], np.int64), "max")[0])
