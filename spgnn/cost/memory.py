"""What arrays take: every prediction of memory sums these. Imports no torch.

Values of A, weights and sums have the type of sums: float32 at least. Indices have 32 bits, pointers to rows 64.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

INDEX, POINTER = 4, 8
MPI_BYTES = 16e6
SETUP_BYTES = 24  # per nonzero of a part, in addition to its operator, while that is made
OWNER_BYTES = 8  # per node of the graph: its owner and its place
MEMORY_SHARE = 0.8  # of a host, for pruned steps: the rest is for what is not predicted, and for others
PARTS_SHARE = 1 / 3  # of a rank, for files of open parts; training takes the rest


def array_bytes(M: np.ndarray | sp.csr_array | None) -> int:
    """Return the bytes of an array, or of the arrays of a sparse matrix; 0 of none."""
    if M is None:
        return 0
    return sum(array.nbytes for array in ((M.indptr, M.indices, M.data) if isinstance(M, sp.csr_array) else (M,)))


def sum_bytes(itemsize: int) -> int:
    """Return the bytes of a value of A, of a weight or of a sum, for activations of an itemsize."""
    return max(itemsize, 4)


def nonzero_bytes(itemsize: int) -> int:
    """Return the bytes of a nonzero of A or of sparse X: index and value."""
    return INDEX + sum_bytes(itemsize)


def csr_bytes(nnz: int, rows: int, itemsize: int) -> int:
    """Return the bytes of a sparse matrix."""
    return nnz * nonzero_bytes(itemsize) + POINTER * rows
