"""The schedule: which product comes first in each layer and what travels, from sizes alone.

Imports neither torch nor a communicator, so that volumes are predicted without either.
Source: GraphSAINT (parallel), section 6.1, applied to communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..config import names
from ..errors import UsageError, nearest

Order = Literal["spmm_first", "gemm_first"]

# A sparse A X is kept when its nonzeros are at most this many times those of X and A together.
SPARSE_FILL = 4


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """One layer Z = A H W: order of the chain, width that travels, exchanges an epoch, and why."""

    layer: int  # 1 is the first
    f_in: int
    f_out: int
    order: Order
    is_kept: bool  # A X is computed once, before the first epoch
    exchanges_forward: int
    exchanges_backward: int
    why: str

    @property
    def width(self) -> int:
        """Columns of the rows that travel in one exchange."""
        return self.f_in if self.order == "spmm_first" else self.f_out


def plan_layers(
    widths: Sequence[int],
    input_is_fixed: bool = True,
    sparse_input: bool = False,
    keep_sparse: bool = True,
    order: names.Order = "auto",
) -> tuple[LayerPlan, ...]:
    """Return a LayerPlan for each of the L = len(widths) - 1 layers of a chain A H W.

    Args: widths          F, hidden ..., C.
          input_is_fixed  False when something random or trainable touches X (input dropout).
          sparse_input    X is CSR; keep_sparse: A X is worth keeping as CSR (see keeps_sparse).
          order           spmm_first: A H first in every layer, as the published systems do; auto: what is best.
    """
    if len(widths) < 2 or any(int(w) < 1 for w in widths):
        raise UsageError(f"widths = {tuple(widths)}; expected at least two positive widths, input to output")
    keeps = input_is_fixed and (keep_sparse or not sparse_input)
    plans = tuple(
        _plan_layer(l, int(widths[l - 1]), int(widths[l]), keeps and l == 1, sparse_input and l == 1)
        for l in range(1, len(widths))
    )
    return plans if order == "auto" else tuple(_spmm_first(plan) for plan in plans)


def check_order(order: Order, is_kept: bool, is_sparse: bool) -> None:
    """Raise UsageError for a layer that would multiply A with a sparse X in every step: A X fills up."""
    if order == "spmm_first" and is_sparse and not is_kept:
        raise UsageError(
            "order = spmm_first multiplies A with X first, and X is sparse: use order = auto, or keep A X and no input dropout"
        )


def row_bytes(width: int, itemsize: int, wire: str) -> int:
    """Return the bytes of a row that travels; float32: the activations' own type; int8: with a float32 scale.

    Raises: UsageError for an unknown wire type.
    """
    sizes = {"float32": width * itemsize, "bfloat16": 2 * width, "float16": 2 * width, "int8": width + 4}
    if wire not in sizes:
        raise UsageError(f"wire type {wire!r} is not known{nearest(wire, sizes)}")
    return sizes[wire]


def keeps_sparse(nnz_AX_bound: int, nnz_X: int, nnz_A: int) -> bool:
    """A X stays sparse enough to be kept: nnz(AX) <= SPARSE_FILL (nnz(X) + nnz(A))."""
    return nnz_AX_bound <= SPARSE_FILL * (nnz_X + nnz_A)


def chain_order(f_in: int, f_out: int, is_kept: bool = False, is_sparse: bool = False, is_hidden: bool = True) -> Order:
    """Return which product of A H W comes first; is_hidden: the gradient of H is needed.

    The width that travels is min(f_in, f_out). An input without gradient needs no exchange in
    backward when A H comes first, and two of width f_out when H W does.
    """
    if is_kept:
        return "spmm_first"
    if is_sparse:
        return "gemm_first"
    if not is_hidden:
        return "spmm_first" if f_in <= 2 * f_out else "gemm_first"
    # At equal width bytes and operations are equal; then bias and activation ride on the SpMM.
    return "spmm_first" if f_in < f_out else "gemm_first"


def order_reason(
    f_in: int, f_out: int, order: Order, is_kept: bool, is_sparse: bool, is_hidden: bool, is_asked: bool
) -> str:
    """Return why the products of A H W come in an order; is_asked: A H first was asked for everywhere."""
    if is_kept:
        return "A X is fixed: computed once and kept"
    if is_asked:
        return "A H first everywhere, as asked"
    if is_sparse:
        return "X is sparse: X W is narrow, A X would fill up"
    if order == "gemm_first":
        return f"{f_out} <= {f_in}"
    return f"{f_in} < {f_out}" if is_hidden and f_in < f_out else f"{f_in} once <= {f_out} forward and back"


def _plan_layer(layer: int, f_in: int, f_out: int, is_kept: bool, is_sparse: bool) -> LayerPlan:
    order = chain_order(f_in, f_out, is_kept, is_sparse, is_hidden=layer > 1)
    if is_kept:
        return LayerPlan(layer, f_in, f_out, order, True, 0, 0, "A X is fixed: computed once and kept")
    if is_sparse:
        return LayerPlan(layer, f_in, f_out, order, False, 1, 1, "X is sparse: X W is narrow, A X would fill up")
    if layer == 1 and order == "spmm_first":
        return LayerPlan(layer, f_in, f_out, order, False, 1, 0, f"{f_in} once <= {f_out} forward and back")
    why = f"{f_in} < {f_out}" if order == "spmm_first" else f"{f_out} <= {f_in}"
    return LayerPlan(layer, f_in, f_out, order, False, 1, 1, why)


def _spmm_first(plan: LayerPlan) -> LayerPlan:
    if plan.is_kept:
        return plan
    return replace(
        plan, order="spmm_first", exchanges_backward=int(plan.layer > 1), why="A H first everywhere, as asked"
    )
