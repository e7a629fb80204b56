"""CSR from edges, reverse edges, symmetry.

Shapes: N nodes, E edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..config.names import Duplicates
from ..errors import GraphError, UsageError, is_integer, nearest
from .host_array import as_array

LARGEST_PAIRED = 3_037_000_499  # nodes: n * n - 1 fits into 63 bits


def check_duplicates(how: str) -> None:
    """Raise UsageError for an unknown value of duplicates."""
    if how not in get_args(Duplicates):
        raise UsageError(f"duplicates = {how!r} is not known{nearest(str(how), get_args(Duplicates))}")


def csr_from_coo(
    src: ArrayLike, dst: ArrayLike, n_nodes: int | None = None, weights: ArrayLike | None = None, duplicates: Duplicates
    = "auto",
) -> tuple[sp.csr_array, int, int]:  # fmt: skip
    """Return (A, duplicates, zeros) with A[src[e], dst[e]] = weight; of duplicates their sum, mean or largest.

    auto: the sum, and 1 where there are no weights. A weight of 0 is no edge: zeros of them are left out, before duplicates are looked for.

    Raises: GraphError naming the first edge that is wrong.
    """
    check_duplicates(duplicates)
    src, dst, n, data = _checked_ends(src, dst, n_nodes, weights)
    pair = src.astype(np.int64) * n + dst  # one key sorts faster than two
    if zeros := len(data) - int(np.count_nonzero(data)):
        pair, data = pair[data != 0], data[data != 0]
    if weights is None:
        pair.sort()
    else:
        order = np.argsort(pair, kind="stable")  # sums have one order
        pair, data = pair[order], data[order]
    first = np.ones(len(pair), bool)
    first[1:] = pair[1:] != pair[:-1]
    starts = np.flatnonzero(first)
    if len(starts) < len(pair):
        data = _merged(pair, data, starts, n, "max" if weights is None and duplicates == "auto" else duplicates)
        pair = pair[starts]
    index = index_dtype(max(n, len(pair)))  # one dtype for both: scipy would widen the narrower
    indptr = np.searchsorted(pair, np.arange(n + 1) * n).astype(index)
    A = sp.csr_array((data, (pair % n).astype(index), indptr), shape=(n, n))
    return A, len(src) - zeros - len(pair), zeros


def multi_from_coo(
    src: ArrayLike, dst: ArrayLike, n_nodes: int | None = None, weights: ArrayLike | None = None
) -> tuple[sp.csr_array, np.ndarray]:
    """Return A and the number of the edge of each of its nonzeros: edges that are there several times stay, in their order.

    A weight of 0 is no edge. Raises: GraphError naming the first edge that is wrong.
    """
    src, dst, n, data = _checked_ends(src, dst, n_nodes, weights)
    pair = src.astype(np.int64) * n + dst
    order = np.argsort(pair, kind="stable")
    order = order if data.all() else order[data[order] != 0]
    pair, index = pair[order], index_dtype(max(n, len(order)))
    indptr = np.searchsorted(pair, np.arange(n + 1) * n).astype(index)
    return sp.csr_array((data[order], (pair % n).astype(index), indptr), shape=(n, n)), order


def _checked_ends(
    src: ArrayLike, dst: ArrayLike, n_nodes: int | None, weights: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Return the ends of edges, the number of nodes and the weights, checked; see csr_from_coo."""
    src, dst = as_array(src), as_array(dst)
    if src.ndim != 1 or src.shape != dst.shape:
        raise GraphError(f"src and dst must be two arrays of one length, got shapes {src.shape} and {dst.shape}")
    for what, ids in (("src", src), ("dst", dst)):
        if len(ids) and ids.dtype.kind not in "iu":
            raise GraphError(f"{what} must hold integers, got {ids.dtype}")
    src, dst = _signed("src", src), _signed("dst", dst)
    top = max(int(src.max(initial=-1)), int(dst.max(initial=-1)))
    if n_nodes is not None and not (is_integer(n_nodes) and n_nodes >= 0):
        raise GraphError(f"n_nodes = {n_nodes!r}; expected an integer of 0 or more")
    n = top + 1 if n_nodes is None else int(n_nodes)
    bad = (src < 0) | (dst < 0) | (src >= n) | (dst >= n)
    if bad.any():
        e = int(np.argmax(bad))
        raise GraphError(f"edge {e} is {src[e]} -> {dst[e]}; node ids must be 0 to {n - 1}")
    if weights is None:
        data = np.ones(len(src), np.float32)
    else:
        data = as_array(weights)
        if data.shape != src.shape:
            raise GraphError(f"weights has shape {data.shape}, expected {src.shape}")
        if data.dtype.kind not in "biuf":
            raise GraphError(f"weights hold {data.dtype}; expected real numbers")
        data = data if data.dtype == np.float64 else as_weights(data)
    if n > LARGEST_PAIRED:
        raise GraphError(f"{n} nodes; a graph in memory has at most {LARGEST_PAIRED}")
    return src, dst, n, data


def _merged(pair: np.ndarray, data: np.ndarray, starts: np.ndarray, n: int, how: str) -> np.ndarray:
    """Return the weights of groups of sorted equal pairs, each summed, averaged, or its largest; GraphError for refuse."""
    counts = np.diff(starts, append=len(pair))
    if how == "refuse":
        first = int(np.argmax(counts > 1))
        u, v = divmod(int(pair[starts[first]]), n)
        raise GraphError(
            f"{np.count_nonzero(counts > 1):,} edges are there more than once, {u} -> {v} first, {counts[first]} times; "
            "remove them, or choose duplicates (--duplicates) sum, max or mean"
        )
    if how == "max":
        return np.maximum.reduceat(data, starts)
    sums = np.add.reduceat(data.astype(np.float64), starts)
    return (sums / counts if how == "mean" else sums).astype(data.dtype)


def with_reverse(A: sp.csr_array, how: Duplicates) -> sp.csr_array:
    """Return A with the reverse edges added, A_ij and A_ji both their sum, mean or largest; self-loops stay."""
    src, dst = np.repeat(np.arange(A.shape[0], dtype=A.indices.dtype), np.diff(A.indptr)), A.indices
    off = src != dst
    ends = np.concatenate([src, dst[off]]), np.concatenate([dst, src[off]])
    return csr_from_coo(*ends, A.shape[0], np.concatenate([A.data, A.data[off]]), how)[0]


def without_zeros(A: sp.csr_array) -> tuple[sp.csr_array, int]:
    """Return A without entries of 0 that are stored, and how many these were; A itself where there are none."""
    zeros = 0 if A.data.strides == (0,) and A.nnz and A.data[0] else A.nnz - int(np.count_nonzero(A.data))
    if not zeros:
        return A, 0
    is_edge = A.data != 0
    ends = np.concatenate([[0], np.cumsum(is_edge)])
    parts = (A.data[is_edge], A.indices[is_edge], ends[A.indptr].astype(A.indptr.dtype))
    return sp.csr_array(parts, shape=A.shape), zeros


def as_weights(data: np.ndarray) -> np.ndarray:
    """Return weights as float32; as float64 if they are float64 and not all 1, or integers that float32 would round."""
    data = data.astype(data.dtype.newbyteorder("="), copy=False)
    if data.dtype == np.float64 and np.any(data != 1):
        return data
    single = data.astype(np.float32, copy=False)
    return data.astype(np.float64) if data.dtype.kind in "iu" and np.any(single != data) else single


def _signed(what: str, ids: np.ndarray) -> np.ndarray:
    """Return ids as signed integers; an empty array may have any dtype."""
    if ids.dtype.kind == "u" and int(ids.max(initial=0)) > np.iinfo(np.int64).max:
        e = int(ids.argmax())
        raise GraphError(f"{what} of edge {e} is {ids[e]}, which is beyond int64; node ids must be 0, 1, 2, ...")
    return ids if ids.dtype.kind == "i" else ids.astype(np.int64)


def symmetrised(A: sp.csr_array) -> sp.csr_array:
    """Return A_ij where it is stored, else A_ji, of both the larger; A itself where it is symmetric.

    Weights that are no floats of 32 or 64 bits in this machine's byte order are taken as `as_weights` has them.
    Raises: GraphError where both are stored with weights that differ by more than rounding.
    """
    if A.dtype not in (np.float32, np.float64):  # neither is equal to one of the other byte order
        A = sp.csr_array((as_weights(A.data), A.indices, A.indptr), shape=A.shape)
    ranks = sp.csr_array((_ranks(A.data), A.indices, A.indptr), shape=A.shape)
    reverse = _transposed(ranks)
    if _are_equal(ranks, reverse):
        return A
    if A.nnz and A.data.min() != A.data.max():
        _check_both_ways(ranks, reverse, A.dtype)
    both = ranks.maximum(reverse)
    return sp.csr_array((_of_ranks(both.data, A.dtype), both.indices, both.indptr), shape=A.shape)


def _check_both_ways(ranks: sp.csr_array, reverse: sp.csr_array, dtype: np.dtype) -> None:
    """Raise GraphError naming the first edge that is stored both ways with two weights, which differ by more than rounding."""
    smaller = ranks.minimum(reverse)  # stored where both are
    mine = ranks.multiply(smaller.astype(bool))
    here, there = _of_ranks(mine.data, dtype), _of_ranks(smaller.data, dtype)
    rounding = 1e-9 if dtype == np.float64 else 1e-6
    differs = np.flatnonzero(np.abs(here - there) > rounding * np.maximum(np.abs(here), np.abs(there)))
    if len(differs):
        u, v = np.searchsorted(mine.indptr, differs, side="right") - 1, mine.indices[differs].astype(np.int64)
        first = int(np.lexsort((np.maximum(u, v), np.minimum(u, v)))[0])
        e, u, v = differs[first], int(u[first]), int(v[first])
        (u, v), (one, other) = ((u, v), (here[e], there[e])) if u < v else ((v, u), (there[e], here[e]))
        raise GraphError(
            f"edge {u} -> {v} weighs {one:g} and {v} -> {u} weighs {other:g}; with reverse edges added they must "
            f"weigh the same, and differ by {abs(one - other):.2g}: make them equal with --combine sum, max or mean of "
            f"`spgnn convert` (combine= of load_graph and from_pandas), or use one of them with --edges in or out"
        )


def is_symmetric(A: sp.csr_array) -> bool:
    """A equals its transpose exactly, stored zeros included."""
    return _are_equal(A, _transposed(A))


def _transposed(A: sp.csr_array) -> sp.csr_array:
    T = A.T.tocsr()
    T.sort_indices()
    return T


def _are_equal(A: sp.csr_array, T: sp.csr_array) -> bool:
    return (
        np.array_equal(T.indptr, A.indptr) and np.array_equal(T.indices, A.indices) and np.array_equal(T.data, A.data)
    )


def _ranks(data: np.ndarray) -> np.ndarray:
    """Return unsigned integers in the order of finite floats, all above 0: SciPy's maximum takes entries that are not stored as 0."""
    bits = data.view(f"i{data.itemsize}")
    lowest = np.iinfo(bits.dtype).min
    return (_turned(bits) ^ lowest).view(f"u{data.itemsize}")


def _of_ranks(ranks: np.ndarray, dtype: np.dtype) -> np.ndarray:
    bits = ranks.view(f"i{ranks.itemsize}")
    return _turned(bits ^ np.iinfo(bits.dtype).min).view(dtype)


def _turned(bits: np.ndarray) -> np.ndarray:
    """Reverse the order of negative floats, whose bits grow with their magnitude; it is its own inverse."""
    signs = bits >> (8 * bits.itemsize - 1)  # -1 or 0
    signs &= np.iinfo(bits.dtype).max
    return np.bitwise_xor(bits, signs, out=signs)


def sort_columns(A: sp.csr_array, unsorted: Callable[[], sp.csr_array]) -> sp.csr_array:
    """Return A with sorted indices, several equal ones in their order, which SciPy does not keep in rows of more than 16.

    Args: A         is sorted in place; unsorted: () -> A as it was, called where there are equal ones.
    """
    A.sort_indices()
    if A.has_canonical_format:
        return A
    A = unsorted()
    order = np.lexsort((A.indices, np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))))
    return sp.csr_array((A.data[order], A.indices[order], A.indptr), shape=A.shape)


def canonical(A: sp.sparray | sp.spmatrix) -> sp.csr_array:
    """Return A as CSR with sorted indices and summed duplicates."""
    A = sp.csr_array(A)
    A.sum_duplicates()
    A.sort_indices()
    return A


def index_dtype(n: int) -> type[np.int32] | type[np.int64]:
    """Return the integer type that holds counts and ids up to n."""
    return np.int32 if n < 2**31 else np.int64
