"""The halo of each part of a graph in memory, and the sums of all rows and columns.

Shapes: N nodes, n own nodes, g nodes of a halo.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from ..graph import axis_sums, lacks_loop


def matrix_sums(A: sp.csr_array) -> np.ndarray:
    """Return the row sum, the column sum and the diagonal entry of each node, (N, 3) float64.

    The diagonal is NaN where no entry is stored: A + I has a self-loop of weight 1 there.
    """
    sums_N3 = np.empty((A.shape[0], 3))
    sums_N3[:, 0], sums_N3[:, 1], sums_N3[:, 2] = axis_sums(A, 1), axis_sums(A, 0), A.diagonal()
    sums_N3[lacks_loop(A), 2] = np.nan
    return sums_N3


class HaloFinder:
    """Finds the nodes within some hops of a part, one part after another.

    A hop goes from a row to the columns that it reads. Takes 4 bytes per node, and time by the edges of the part.
    """

    def __init__(self, A: sp.csr_array, hops: int):
        self.A, self.hops = A, hops
        self._seen_N, self._number = np.zeros(A.shape[0], np.int32), 0

    def halo(self, own_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes of the halo of own_n, (g,) int64, rising, and the hop of each, (g,) int8, 1 and more."""
        self._number += 1
        self._seen_N[own_n] = self._number
        node_g, hop_g, last = [np.empty(0, np.int64)], [np.empty(0, np.int8)], own_n
        for hop in range(1, self.hops + 1):
            columns = np.concatenate([np.empty(0, np.int64), *self._read_by(last)])
            last = np.unique(columns).astype(np.int64)
            self._seen_N[last] = self._number
            node_g.append(last)
            hop_g.append(np.full(len(last), hop, np.int8))
        nodes = np.concatenate(node_g)
        order = np.argsort(nodes, kind="stable")
        return nodes[order], np.concatenate(hop_g)[order]

    def rows(self, node_g: np.ndarray, hop_g: np.ndarray) -> sp.csr_array:
        """Return the rows of a halo before its last hop, (g, N); the others are empty."""
        A, is_whole = self.A, hop_g < self.hops
        whole = sp.csr_array(A[node_g[is_whole]])
        lengths = np.zeros(len(node_g), np.int64)
        lengths[is_whole] = np.diff(whole.indptr)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        index = A.indices.dtype
        return sp.csr_array(
            (whole.data, whole.indices.astype(index, copy=False), indptr.astype(index)), shape=(len(node_g), A.shape[1])
        )

    def _read_by(self, nodes: np.ndarray, at_once: int = 1 << 16) -> Iterator[np.ndarray]:
        """Yield the distinct columns of some rows that were not seen yet, a stretch of rows at a time."""
        for start in range(0, len(nodes), at_once):
            columns = sp.csr_array(self.A[nodes[start : start + at_once]]).indices
            yield np.unique(columns[self._seen_N[columns] != self._number])
