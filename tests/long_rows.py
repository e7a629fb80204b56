"""A matrix with long rows, for products in tiles."""

import numpy as np
import scipy.sparse as sp


def hubs_first(n=60, m=700, dtype=np.float32) -> sp.csr_array:
    """Return rows of 0 to about 300 nonzeros, most of them in the first columns: of one row all, of one none."""
    rng = np.random.default_rng(3)
    share = rng.permutation(np.linspace(0, 1, n))[:, None] * np.minimum(1, 100 / (1 + np.arange(m))) ** 1.2
    is_there = rng.random((n, m)) < share
    is_there[1, :256], is_there[2, :256], is_there[2, 256:] = True, False, True
    A = sp.csr_array(is_there * rng.standard_normal((n, m)).astype(dtype))
    A.sort_indices()
    return A


def arrays(A, index=np.int32):
    """Return indptr and indices as the kernels take them."""
    return A.indptr.astype(np.int64), A.indices.astype(index)
