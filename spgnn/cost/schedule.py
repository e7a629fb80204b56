"""The schedule: which product of a chain A H W comes first, from sizes alone, and what a row takes on the wire.

Source: GraphSAINT (parallel), section 6.1, applied to communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError, nearest

Order = Literal["spmm_first", "gemm_first"]
Known = Literal["", "product", "ghosts", "other"]  # of A^j H: the product itself, or the ghost rows of H

# A sparse A X is kept when its nonzeros are at most this many times those of X and A together.
SPARSE_FILL = 4
# Time of a multiply-add of an SpMM over one of a GEMM, on one core: 2 to 10, by width, type and what fits the caches.
SPMM_PRICE = 6


@dataclass(frozen=True, slots=True)
class Way:
    """How a chain A^j H W is made, W (f_in, f_out).

    order       spmm_first: (A^j H) W; gemm_first: A^j (H W).
    known       product: A^j H is cached; ghosts: the ghost rows of H are, so that nothing is sent; other: H is made
                of X in a way that is not known, as H + 0 is, so that what is cached is not used; "": neither.
    is_dropped  the ghost rows are dropped out by their reader.
    """

    f_in: int
    f_out: int
    order: Order
    known: Known = ""
    is_sparse: bool = False
    is_dropped: bool = False
    has_gradient: bool = True
    is_asked: bool = False

    @property
    def is_cached(self) -> bool:
        """Whether A^j H is known: nothing is multiplied with A."""
        return self.known == "product"

    @property
    def reads_ghosts(self) -> bool:
        """Whether cached ghost rows of H are multiplied."""
        return self.known == "ghosts"

    @property
    def reason(self) -> str:
        """Why the products come in this order."""
        if self.is_cached:
            return "A X is fixed: computed once and kept"
        if self.reads_ghosts and self.order == "spmm_first":
            return "X changes by dropout alone: its ghost rows are cached and dropped out by their reader"
        if self.is_asked:
            reason = "A H first everywhere, as asked"
        elif self.is_sparse:
            reason = "X is sparse: X W is narrow, A X would fill up"
        elif self.order == "gemm_first":
            reason = f"{self.f_out} <= {self.f_in}"
        elif self.has_gradient and self.f_in < self.f_out:
            reason = f"{self.f_in} < {self.f_out}"
        else:
            reason = f"{self.f_in} once <= {self.f_out} forward and back"
        by_reader = " and dropped out by their reader" if self.is_dropped else ""
        if self.known == "other":
            return f"{reason}; H is not X itself: what is cached of X is not used"
        return f"{reason}; ghost rows of X are cached{by_reader}" if self.reads_ghosts else reason


def chain_way(
    widths: tuple[int, int],
    known: Known = "",
    *,
    is_sparse: bool = False,
    is_dropped: bool = False,
    is_hidden: bool = True,
    has_gradient: bool = True,
    work: tuple[tuple[int, int], int] | None = None,
    is_asked: bool = False,
) -> Way:
    """Return the way of a chain A^j H W: see chain_order and block_order.

    Args:   widths     f_in, f_out of W; where A H and H W travel with other widths, those.
            is_hidden  H is no input of the model; has_gradient: the gradient of H is needed.
            work       (n, m) and nonzeros of A, where nothing is exchanged.
            is_asked   A H first, whatever it takes.
    Raises: UsageError where A would be multiplied with a sparse X in every step: A X fills up.
    """
    is_cached = known == "product"
    if is_asked:
        order: Order = "spmm_first"
    elif work is None or is_cached or is_sparse:
        order = chain_order(*widths, is_kept=is_cached, is_sparse=is_sparse, is_hidden=is_hidden)
    else:
        order = block_order(*work, *widths, is_hidden)
    if order == "spmm_first" and is_sparse and not is_cached:
        raise UsageError("order = spmm_first needs a dense X: use order = auto, or keep A X without input dropout")
    return Way(*widths, order, known, is_sparse, is_dropped, has_gradient, is_asked)


def row_bytes(width: int, itemsize: int, wire: str) -> int:
    """Return the bytes of a row that travels; float32: the activations' own type.

    Raises: UsageError for an unknown wire type.
    """
    sizes = {"float32": width * itemsize, "bfloat16": 2 * width, "float16": 2 * width}
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
