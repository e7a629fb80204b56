"""What one product with A sends and multiplies on this rank, from the plans of its stages."""

from __future__ import annotations

from typing import Literal

from ..exchange.exchange_plan import ExchangePlan
from ..exchange.relayed import RelayedPlan
from ..kernels.buffers import sum_dtype
from .dist_spmm import DistSpMM

Rows = Literal["scheme", "ghosts", "sum"]


def sent_rows(A: DistSpMM, rows: Rows = "scheme") -> int:
    """Return the rows that this rank sends to others in one product, without the sums over its process row.

    Args: rows  scheme: of A H; ghosts: of A.fetch(H), collective at first; sum: none.
    """
    if rows == "sum":
        return 0
    return sum(plan.sent_rows for plan in _plans(A, rows))


def _plans(A: DistSpMM, rows: Rows) -> list[ExchangePlan | RelayedPlan]:
    """Return the plans of one product, or of A.fetch(H)."""
    if rows == "ghosts" and A.stages and A.ghost_plan is not None:
        return [A.ghost_plan]
    return [stage.plan for stage in A.stages]


def sent_bytes(A: DistSpMM, width: int, direction: str, rows: Rows = "scheme") -> int:
    """Return the bytes that this rank sends in one product, forward or backward, with matrices of a width.

    Args: rows  scheme: of A H; ghosts: of A.fetch(H), collective at first; sum: a sum over the process row by itself.
    """
    if rows == "sum":
        return A.row_sum.rows_of_total(A.n) * width * sum_dtype(A.dtype).itemsize if A.row_sum is not None else 0
    size, is_forward = A.dtype.itemsize, direction == "forward"
    total = sum(plan.sent_rows if is_forward else plan.g for plan in _plans(A, rows))
    total *= A.layout.wires[0 if is_forward else 1].row_bytes(width, size)
    if A.row_sum is None or (is_forward and rows == "ghosts"):
        return total
    if is_forward:
        return total + A.row_sum.rows_of_total(A.n) * width * sum_dtype(A.dtype).itemsize
    return total + A.row_sum.rows_of_share(A.m) * width * size


def crossing_bytes(A: DistSpMM, width: int, direction: str, rows: Rows = "scheme") -> int:
    """Return the bytes of sent_bytes that go to other hosts, in 1D, where the layout knows hosts."""
    host_P, is_forward = A.layout.grid.host_P, direction == "forward"
    sent = sum(
        int((plan.send_rows_P if is_forward else plan.recv_rows_P)[host_P != host_P[A.comm.rank]].sum())
        for plan in _plans(A, rows)
        if plan.comm.size == len(host_P)  # others are of the ranks of a host
    )
    return sent * A.layout.wires[not is_forward].row_bytes(width, A.dtype.itemsize)


def multiplied_nnz(A: DistSpMM) -> int:
    """Return the nonzeros that this rank multiplies in one product: with `cover`, some of its own and some of others."""
    moved = sum(stage.plan.moved_nnz - stage.plan.sums_read for stage in A.stages)
    return A.A_oo.nnz + sum(stage.A.nnz for stage in A.stages) + moved
