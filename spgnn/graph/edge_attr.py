"""Attributes of edges: their checks, and their rows where nonzeros are reordered, reversed or left out.

Shapes: N nodes, E nonzeros, F attributes of an edge, L edges that were listed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..errors import GraphError, is_integer
from .columns import checked_names
from .host_array import as_array
from .structure import index_dtype


def checked_attributes(values: ArrayLike | None, nnz: int, what: str = "edge_attr", of: str = "nonzeros") -> np.ndarray:
    """Return the attributes of edges as (E, F) float32 or float64; F may be 0.

    Raises: GraphError for other types and lengths, and naming the first row that is not finite.
    """
    values = as_array(values)
    if values.dtype.kind not in "biuf":
        raise GraphError(f"{what} holds {values.dtype}; expected real numbers")
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != nnz:
        raise GraphError(f"{what} has shape {values.shape}; expected ({nnz}, F): a row for each of the {nnz:,} {of}")
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)
    for start in range(0, len(values), 1 << 20):
        is_finite = np.isfinite(values[start : start + (1 << 20)])
        if not is_finite.all():
            row, column = np.argwhere(~is_finite)[0]
            raise GraphError(f"{what}: row {start + row}, column {column} is {values[start + row, column]}, not finite")
    return values


def checked_edge_ids(ids: ArrayLike, nnz: int, n_listed: int) -> np.ndarray:
    """Return (E,) int64, the place of each nonzero in the edge list, or -1 - place of a reverse edge; GraphError for others."""
    ids = np.asarray(ids)
    if ids.shape != (nnz,) or ids.dtype.kind != "i":
        raise GraphError(f"edge_ids is {ids.dtype} of shape {ids.shape}; expected integers of shape ({nnz},)")
    if nnz and not -n_listed <= ids.min() <= ids.max() < n_listed:
        raise GraphError(f"edge_ids are {ids.min()} to {ids.max()}; the edge list has {n_listed} edges")
    return ids.astype(np.int64, copy=False)


def checked_antisymmetric(columns: Iterable[int], n_columns: int) -> list[int]:
    """Return the numbers of columns whose sign the reverse edge changes; GraphError for one that does not exist."""
    for column in columns:
        if not is_integer(column) or not 0 <= column < n_columns:
            raise GraphError(f"antisymmetric names column {column!r}; edges have {n_columns} attributes, from 0 on")
    return sorted({int(column) for column in columns})


def places_listed(ids_E: np.ndarray) -> np.ndarray:
    """Return the place of each nonzero in the edge list, for a reverse edge the place of the edge it was made of."""
    return np.where(ids_E < 0, -1 - ids_E, ids_E)


def numbered(A: sp.csr_array) -> sp.csr_array:
    """Return A with the number of each nonzero instead of its weight: it follows what is done to the matrix."""
    return sp.csr_array((np.arange(A.nnz), A.indices, A.indptr), shape=A.shape)


def nonzeros_of(indptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the numbers of the nonzeros of some rows, row after row, int64."""
    lengths = (indptr[rows + 1] - indptr[rows]).astype(np.int64)
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(indptr[rows] - (ends - lengths), lengths)


def reversed_edges(A: sp.csr_array) -> tuple[sp.csr_array, np.ndarray]:
    """Return A', several equal edges included, and the number in A of each of its nonzeros."""
    T = numbered(A).T.tocsr()
    return sp.csr_array((A.data[T.data], T.indices, T.indptr), shape=A.shape), T.data


def with_reverse_edges(A: sp.csr_array, of_all: bool = False) -> tuple[sp.csr_array, np.ndarray, np.ndarray]:
    """Add the reverse of each edge whose pair of nodes has none in the other direction; self-loops stay.

    Args:    of_all  of each edge, self-loops too: the inverse of its relation.
    Returns: A with them; for each of its nonzeros the nonzero of the given A that it copies, (E,); is it added, (E,) bool.
    """
    n = A.shape[0]
    row_E = np.repeat(np.arange(n, dtype=np.int64), np.diff(A.indptr))
    pair_E, back_E = row_E * n + A.indices, A.indices * np.int64(n) + row_E
    at = np.searchsorted(pair_E, back_E)
    at[at == len(pair_E)] = 0
    lacks = np.flatnonzero((pair_E[at] != back_E) | of_all) if len(pair_E) else np.empty(0, np.int64)
    pair, of = np.concatenate([pair_E, back_E[lacks]]), np.concatenate([np.arange(len(pair_E)), lacks])
    order = np.argsort(pair, kind="stable")
    pair, of = pair[order], of[order]
    index = index_dtype(max(n, len(pair)))
    indptr = np.searchsorted(pair, np.arange(n + 1) * n).astype(index)
    A = sp.csr_array((A.data[of], (pair % n).astype(index), indptr), shape=A.shape)
    return A, of, order >= len(pair_E)


def without_parallel(A: sp.csr_array) -> sp.csr_array:
    """Return A with several equal edges as one, their weights added up; A itself where there are none."""
    if A.has_canonical_format:
        return A
    merged = A.copy()
    merged.sum_duplicates()
    return merged


def check_edges(graph) -> None:
    """Set attributes, ids, labels and split of edges as a Graph has them; GraphError where one is wrong."""
    nnz, listed = graph.A.nnz, graph.meta.get("edges_listed", graph.A.nnz)
    edge_attr = checked_attributes(graph.edge_attr, nnz)
    ids = np.arange(nnz) if graph.edge_ids is None else checked_edge_ids(graph.edge_ids, nnz, listed)
    checked_names(graph.meta.get("edge_features"), "edge_attr", edge_attr.shape[1], "meta['edge_features']")
    columns = checked_antisymmetric(graph.meta.get("antisymmetric", ()), edge_attr.shape[1])
    if graph.edge_y is not None:
        object.__setattr__(graph, "edge_y", np.asarray(graph.edge_y))
    if graph.edge_split is not None:
        split = np.asarray(graph.edge_split)
        is_role = split.dtype.kind in "iu" and np.isin(split, (-1, 0, 1, 2)).all()
        object.__setattr__(graph, "edge_split", split.astype(np.int8, copy=False) if is_role else split)
    known = {"edges_listed": listed} | ({"antisymmetric": columns} if columns else {})
    for name, value in (("edge_attr", edge_attr), ("edge_ids", ids), ("meta", graph.meta | known)):
        object.__setattr__(graph, name, value)
