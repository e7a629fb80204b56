"""Features and labels of own rows, from the arrays of a row block to tensors.

Shapes: n own rows, F features, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import suppress

import numpy as np
import scipy.sparse as sp
import torch

from ..errors import InputError
from ..graph import axis_sums, task_of
from ..spmm.kernels.buffers import sum_dtype
from ..spmm.operator.features import SparseRows


def check_fits(node_n: np.ndarray, X_nF, dtype: torch.dtype) -> None:
    """Raise InputError for a feature of float64 that float32, and so dtype, does not hold; node_n: ids of the rows."""
    values = X_nF.data if sp.issparse(X_nF) else X_nF
    if values is None or dtype == torch.float64 or values.dtype != np.float64 or not values.size:
        return
    most = np.finfo(np.float32).max
    if max(values.max(), -values.min()) > most:
        at = np.argwhere(np.abs(values) > most)[0]
        row = np.searchsorted(X_nF.indptr, at[0], side="right") - 1 if values.ndim == 1 else at[0]
        raise InputError(
            f"node {node_n[row]} has the feature {values[tuple(at)]:g}, which {str(dtype).removeprefix('torch.')} does not hold; scale the features, or take float64"
        )


def negative_sums(node_n: np.ndarray, X_nF) -> tuple[int, int]:
    """Return how many rows of features have a negative sum, and the smallest id of these, -1 without any; node_n: ids of the rows."""
    rows = np.empty(0, np.int64) if X_nF is None else np.flatnonzero(_sums(X_nF) < 0)
    return len(rows), int(node_n[rows].min()) if len(rows) else -1


def check_sums(found: Collection[tuple[int, int]]) -> None:
    """Raise InputError unless no row has a negative sum, by which feature_norm row would change the signs of its features.

    Args: found  the negative_sums of all rows.
    """
    rows = sum(number for number, _ in found)
    if rows:
        node = min(first for _, first in found if first >= 0)
        raise InputError(
            f"--feature-norm row divides by the sum of a row, which is negative in {rows:,} rows of the features, node {node} "
            "first: all their signs would change; omit it, or give features without negative values (X - X.min())"
        )


def _sums(X_nF) -> np.ndarray:
    return axis_sums(X_nF, 1) if sp.issparse(X_nF) else X_nF.sum(axis=1, dtype=np.float64)


def features(X_nF, feature_norm, pool, dtype, threads):
    if X_nF is None:
        return None
    X_nF = X_nF.astype(X_nF.dtype.newbyteorder("="), copy=False)
    if feature_norm == "row":
        sums_n = _sums(X_nF)
        scale_n = np.divide(1.0, sums_n, out=np.zeros_like(sums_n), where=sums_n != 0)
        if sp.issparse(X_nF):
            scaled = X_nF.data * np.repeat(scale_n, np.diff(X_nF.indptr))
            X_nF = sp.csr_array((scaled, X_nF.indices, X_nF.indptr), shape=X_nF.shape)
        else:
            X_nF = X_nF * scale_n[:, None]
    if sp.issparse(X_nF):
        return SparseRows(sp.csr_array(X_nF), pool, dtype, threads)
    X_nF = X_nF.view()
    with suppress(ValueError):  # the memory of a mapped file stays read-only, and torch takes none that is
        X_nF.flags.writeable = True
    if pool.device.type != "cpu":
        return torch.from_numpy(np.require(X_nF, requirements=("C", "W"))).to(pool.device, dtype)
    if X_nF.dtype.name == str(dtype).removeprefix("torch.") and X_nF.flags.c_contiguous and X_nF.flags.writeable:
        return torch.from_numpy(X_nF)  # the caller's memory: X may not change anyway
    X = pool.empty(*X_nF.shape, dtype=dtype)
    if dtype == torch.bfloat16:
        return X.copy_(torch.from_numpy(np.array(X_nF, dtype=np.float32)))
    X.numpy()[:] = X_nF
    return X


def labels(y_n, dtype):
    """Return classes (n,) int64; several labels, or numbers, (n, C) in the type of sums."""
    if y_n is None:
        return None
    if task_of(y_n) == "classes":
        return torch.from_numpy(np.array(y_n, dtype=np.int64))
    return torch.from_numpy(np.array(y_n).reshape(len(y_n), math.prod(y_n.shape[1:]))).to(sum_dtype(dtype))
