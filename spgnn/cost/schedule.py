"""The schedule: which product of a chain A H W comes first, from sizes alone, and what a row takes on the wire.

Source: GraphSAINT (parallel), section 6.1, applied to communication.
"""

from __future__ import annotations

from typing import Literal

from ..errors import UsageError, nearest

Order = Literal["spmm_first", "gemm_first"]

# A sparse A X is kept when its nonzeros are at most this many times those of X and A together.
SPARSE_FILL = 4
# Time of a multiply-add of an SpMM over that of a GEMM, on one core: 2 to 10, by width, type and what fits the caches.
SPMM_PRICE = 6


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


def block_order(shape: tuple[int, int], nonzeros: int, f_in: int, f_out: int, is_hidden: bool = True) -> Order:
    """Return which product of A H W takes less time, forward and backward, where A is a block that needs no exchange.

    A sampled block of shape (n, m) reads many more rows than it makes: A H first multiplies n rows with W, H W first
    all m. Both have three GEMMs in a step, or two where the gradient of H is not needed (is_hidden); A H first then
    omits its second SpMM too. A square block has the order of chain_order.
    """
    n, m = shape
    gemms = f_in * f_out * (2 + is_hidden)
    spmm_first = SPMM_PRICE * nonzeros * f_in * (1 + is_hidden) + n * gemms
    gemm_first = SPMM_PRICE * nonzeros * f_out * 2 + m * gemms
    if spmm_first == gemm_first:
        return chain_order(f_in, f_out, is_hidden=is_hidden)
    return "spmm_first" if spmm_first < gemm_first else "gemm_first"


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
