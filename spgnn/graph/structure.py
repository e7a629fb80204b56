"""From edges to CSR, and what its pattern says.

Shapes: N nodes, E edges.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..errors import GraphError


def csr_from_coo(src, dst, n_nodes: int | None = None, weights=None) -> tuple[sp.csr_array, int]:
    """Return (A, duplicates) with A[src[e], dst[e]] = weight; of duplicates the largest weight counts.

    Raises: GraphError naming the first edge that is wrong.
    """
    src, dst = np.asarray(src), np.asarray(dst)
    if src.ndim != 1 or src.shape != dst.shape:
        raise GraphError(f"src and dst must be two arrays of one length, got shapes {src.shape} and {dst.shape}")
    for what, ids in (("src", src), ("dst", dst)):
        if len(ids) and ids.dtype.kind not in "iu":
            raise GraphError(f"{what} must hold integers, got {ids.dtype}")
    src, dst = _signed("src", src), _signed("dst", dst)
    top = max(int(src.max(initial=-1)), int(dst.max(initial=-1)))
    n = top + 1 if n_nodes is None else int(n_nodes)
    bad = (src < 0) | (dst < 0) | (src >= n) | (dst >= n)
    if bad.any():
        e = int(np.argmax(bad))
        raise GraphError(f"edge {e} is {src[e]} -> {dst[e]}; node ids must be 0 to {n - 1}")
    if weights is None:
        data = np.ones(len(src), np.float32)
    else:
        data = np.asarray(weights)
        if data.shape != src.shape:
            raise GraphError(f"weights has shape {data.shape}, expected {src.shape}")
        data = data if data.dtype == np.float64 else as_weights(data)
    order = np.lexsort((dst, src))
    src, dst, data = src[order], dst[order], data[order]
    first = np.ones(len(src), bool)
    first[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    starts = np.flatnonzero(first)
    if len(starts) < len(src):
        data = np.maximum.reduceat(data, starts)
    index = index_dtype(max(n, len(starts)))  # one dtype for both: scipy would widen the narrower
    indptr = np.zeros(n + 1, index)
    np.cumsum(np.bincount(src[starts], minlength=n), out=indptr[1:])
    return sp.csr_array((data, dst[starts].astype(index), indptr), shape=(n, n)), len(src) - len(starts)


def as_weights(data: np.ndarray) -> np.ndarray:
    """Return data as float32, or as float64 where it is that and not all ones, or needs it to be exact."""
    if data.dtype == np.float64 and np.any(data != 1):
        return data
    single = data.astype(np.float32, copy=False)
    return data.astype(np.float64) if data.dtype.kind in "iu" and np.any(single != data) else single


def _signed(what: str, ids: np.ndarray) -> np.ndarray:
    """Return ids as integers with a sign; no edges at all may come as an empty float array."""
    if ids.dtype.kind == "u" and int(ids.max(initial=0)) > np.iinfo(np.int64).max:
        e = int(ids.argmax())
        raise GraphError(f"{what} of edge {e} is {ids[e]}, which does not fit into 64 bits with a sign; node ids must be 0, 1, 2, ...")
    return ids if ids.dtype.kind == "i" else ids.astype(np.int64)


def symmetrised(A: sp.csr_array) -> sp.csr_array:
    """Return A where stored both ways max(A_ij, A_ji), else whichever is stored."""
    T = A.T.tocsr()
    T.sort_indices()
    rows = lambda M: np.repeat(np.arange(M.shape[0]), np.diff(M.indptr))
    src = np.concatenate([rows(A), rows(T)])
    dst = np.concatenate([A.indices, T.indices])
    return csr_from_coo(src, dst, A.shape[0], np.concatenate([A.data, T.data]))[0]


def is_symmetric(A: sp.csr_array) -> bool:
    """A equals its transpose exactly, stored zeros included."""
    T = A.T.tocsr()
    T.sort_indices()
    return np.array_equal(T.indptr, A.indptr) and np.array_equal(T.indices, A.indices) and np.array_equal(T.data, A.data)


def canonical(A) -> sp.csr_array:
    """Return A as CSR with sorted indices and duplicates added up."""
    A = sp.csr_array(A)
    A.sum_duplicates()
    A.sort_indices()
    return A


def index_dtype(n: int):
    """Return the integer type that holds counts and ids up to n."""
    return np.int32 if n < 2**31 else np.int64
