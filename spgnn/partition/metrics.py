"""What a partition costs: rows that are sent, cut nonzeros, balance; and how mixed the labels of its parts are.

Shapes: N nodes, k parts, C classes; q owns and sends, p reads.
Source: sparsity-aware paper (ICPP'24), section 4.1, NnzCols(i, j); SDT-GNN, section IV, replication factor. Of labels the
entropy-aware paper, footnote 2 and Table V; its published code has logarithms to base 2, and averages over the parts by
their training nodes.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..errors import GraphError
from .checks import check_owner


def rows_PP(A: sp.csr_array, owner_N: np.ndarray, k: int) -> np.ndarray:
    """Count what one SpMM moves: rows_PP[q, p] = |{j : owner[j] = q != p, A_ij != 0 for a row i of p}|.

    A stored zero counts as a nonzero: the operator reads it.

    Returns: (k, k) int64, zero diagonal; row q is what q sends, column p what p receives.
    """
    counts_kk = np.zeros((k, k), np.int64)
    by_part, ends_k = _rows_by_part(A, owner_N, k)
    seat = np.zeros(A.shape[1], np.int32 if A.nnz < 2**31 else np.int64)
    start = 0
    for p, end in enumerate(ends_k):
        column = by_part.indices[by_part.indptr[start] : by_part.indptr[end]]
        column = column[owner_N[column] != p]
        # Of equal columns the last one written wins: a set in O(nnz), without a sort or a mask of N per part.
        place = np.arange(len(column), dtype=seat.dtype)
        seat[column] = place
        once = column[seat[column] == place]
        counts_kk[:, p] = np.bincount(owner_N[once], minlength=k)
        start = end
    return counts_kk


def nnz_kk(A: sp.csr_array, owner_N: np.ndarray, k: int) -> np.ndarray:
    """Count the nonzeros of each block: nnz_kk[q, p] = |{A_ij != 0 : owner[i] = p, owner[j] = q}|."""
    counts, chunk = np.zeros(k * k, np.int64), 1 << 16
    for start in range(0, A.shape[0], chunk):
        indptr = A.indptr[start : start + chunk + 1]
        readers = np.repeat(owner_N[start : start + chunk].astype(np.int64), np.diff(indptr))
        counts += np.bincount(owner_N[A.indices[indptr[0] : indptr[-1]]] * np.int64(k) + readers, minlength=k * k)
    return counts.reshape(k, k)


def row_work(A: sp.csr_array) -> np.ndarray:
    """Return the work of each row, nnz + 1, (N,) int64: what balance bounds."""
    return np.diff(A.indptr).astype(np.int64) + 1


def csr_arrays(A: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return indptr as int64 and indices as int32, contiguous: what loops take.

    Raises: ValueError if an index has more than 32 bits.
    """
    indices = A.indices
    if indices.itemsize > 4 and len(indices) and not -(2**31) <= indices.min() <= indices.max() < 2**31:
        raise ValueError("a column index is out of range")
    return np.ascontiguousarray(A.indptr, np.int64), np.ascontiguousarray(indices, np.int32)


def ones_of(A: sp.csr_array) -> sp.csr_array:
    """Return the pattern of A, a byte per nonzero; indices are shared."""
    return sp.csr_array((np.ones(A.nnz, np.int8), A.indices, A.indptr), shape=A.shape)


def exchange_metrics(sent_PP: np.ndarray) -> dict:
    """Return the totals of one exchange in which q sends sent_PP[q, p] rows to p.

    max_over_mean_send is 1 if nothing is sent.
    """
    send, recv = sent_PP.sum(axis=1), sent_PP.sum(axis=0)
    mean = float(send.mean())
    return {
        "total_rows": int(send.sum()),
        "max_send_rows": int(send.max()),
        "mean_send_rows": mean,
        "max_over_mean_send": float(send.max() / mean) if mean else 1.0,
        "max_recv_rows": int(recv.max()),
        "messages": int(np.count_nonzero(sent_PP)),
    }


def metrics(A: sp.csr_array, owner_N: np.ndarray, k: int) -> dict:
    """Return the metrics of a partition, by their JSON names, for the scheme `columns`: see `metrics_of_blocks`."""
    return metrics_of_blocks(rows_PP(A, owner_N, k), nnz_kk(A, owner_N, k), np.bincount(owner_N, minlength=k))


def metrics_of_blocks(sent_PP: np.ndarray, nnz: np.ndarray, sizes_k: np.ndarray) -> dict:
    """Return the metrics of a partition from `rows_PP`, `nnz_kk` and the nodes of each part.

    edge_cut = |{(i, j) : A_ij != 0, owner[i] != owner[j]}|; an edge stored both ways counts twice.
    replication_factor = (N + total_rows) / N: nodes that a part owns or reads, summed over the parts, per node.
    It is the papers' sum |V_i| / |V| with full neighbour lists stored, if A is symmetric.
    nnz_imbalance, node_imbalance: largest over mean of sum (nnz of the row + 1), and of nodes.
    """
    return metrics_of_counts(sent_PP, int(nnz.sum() - np.trace(nnz)), nnz.sum(axis=0) + sizes_k, sizes_k)


def metrics_of_counts(sent_PP: np.ndarray, cut: int, work_k: np.ndarray, sizes_k: np.ndarray) -> dict:
    """Return `metrics` from the rows that parts send, the cut nonzeros, and the work and nodes of each part."""
    n_nodes = int(sizes_k.sum())
    exchange = exchange_metrics(sent_PP)
    return exchange | {
        "edge_cut": cut,
        "replication_factor": (n_nodes + exchange["total_rows"]) / n_nodes if n_nodes else 1.0,
        "nnz_imbalance": _imbalance(work_k),
        "node_imbalance": _imbalance(sizes_k),
    }


def _imbalance(load_k: np.ndarray) -> float:
    mean = load_k.mean()
    return float(load_k.max() / mean) if mean else 1.0


def _rows_by_part(A: sp.csr_array, owner_N: np.ndarray, k: int) -> tuple[sp.csr_array, np.ndarray]:
    """Return the pattern with the rows of part 0 first, then part 1, ..., a byte per nonzero, and where each part ends."""
    ends_k = np.cumsum(np.bincount(owner_N, minlength=k))
    if np.all(owner_N[1:] >= owner_N[:-1]):
        return A, ends_k
    return ones_of(A)[rows_in_order(owner_N)], ends_k


def rows_in_order(owner_N: np.ndarray) -> np.ndarray:
    """Return the nodes by part, by id inside a part: (N,) int64."""
    # Part numbers fit in 16 bits (checks.MAX_PARTS), and 16-bit keys are sorted by radix, O(N).
    return np.argsort(owner_N.astype(np.uint16), kind="stable").astype(np.int64, copy=False)


def label_entropies(labels: np.ndarray, owner_N: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """H(p) = -sum_c p_c log2 p_c for each part, in bits, and their average by labelled nodes.

    p_c is the share of class c among the labelled nodes of the part; a part without any has 0. Of multi-label
    nodes H is the sum over the labels of -p log2 p - (1 - p) log2 (1 - p).

    Args:    labels  (N,) integer classes, -1 for none, or (N, C) 0/1; owner_N (N,), 0 to k - 1.
    Returns: (k,) float64, and sum_i n_i / n H(i).
    Raises: GraphError unless labels have one entry or row per node; PartitionError for an invalid owner array.
    """
    owner_N = check_owner(owner_N, len(owner_N), k, "label_entropies: the owner array")
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2) or len(labels) != len(owner_N):
        raise GraphError(f"labels have shape {labels.shape}; expected an entry or row for each of {len(owner_N)} nodes")
    if labels.ndim == 1:
        is_labelled_N = labels >= 0
        owner_n, labels_n = owner_N[is_labelled_N].astype(np.int64), labels[is_labelled_N].astype(np.int64)
        # Class numbers may be far apart, and k x C much larger than N: only classes that occur are counted.
        classes, labels_n = np.unique(labels_n, return_inverse=True)
        pairs, counts = np.unique(owner_n * len(classes) + labels_n, return_counts=True)
        part_of_pair = pairs // max(len(classes), 1)
        nodes_k = np.bincount(owner_n, minlength=k)
        entropies_k = np.bincount(part_of_pair, _bits(counts / nodes_k[part_of_pair]), minlength=k)
    else:
        nodes_k = np.bincount(owner_N, minlength=k)
        columns = [np.bincount(owner_N, weights=of_class_N, minlength=k) for of_class_N in labels.T]
        counts_kC = np.stack(columns, axis=1) if columns else np.zeros((k, 0))
        share_kC = counts_kC / np.maximum(nodes_k, 1)[:, None]
        entropies_k = (_bits(share_kC) + _bits(1 - share_kC)).sum(axis=1)
    n = int(nodes_k.sum())
    return entropies_k, float(nodes_k @ entropies_k / n) if n else 0.0


def _bits(p: np.ndarray) -> np.ndarray:
    # 0 log 0 = 0; + 0.0 turns -0.0 into 0.0.
    return -p * np.log2(np.where(p > 0, p, 1)) + 0.0
