"""Own and ghost columns of a row block, against the dense block."""

import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.spmm.exchange import index_map as indexmap
from spgnn.spmm.exchange.covered import merged_csr
from spgnn.spmm.exchange.index_map import IndexMap, columns_map, select_entries


def blocks(seed):
    """Yield the row block, own ids and owners of each rank of a random matrix, the last of which may have no rows."""
    rng = np.random.default_rng(seed)
    N, P = int(rng.integers(1, 60)), int(rng.integers(1, 6))
    owner_N = rng.integers(0, P, N)
    A = sp.csr_array(
        sp.random_array(
            (N, N), density=float(rng.choice([0, 0.02, 0.1, 0.5])), format="csr", random_state=rng, dtype=np.float32
        )
    )
    A.data[::3] = 0  # stored zeros stay
    for rank in range(P + 1):
        own_n = np.flatnonzero(owner_N == rank)
        yield A, sp.csr_array(A[own_n]), own_n, owner_N, rank, P + 1


def is_sorted(A):
    return all(np.all(np.diff(A.indices[a:b]) > 0) for a, b in zip(A.indptr, A.indptr[1:]))


@pytest.mark.parametrize("table", [0, indexmap.LARGEST_TABLE, 10**9], ids=["search", "as it is", "table"])
def test_a_row_block_is_split_into_own_and_ghost_columns(table, monkeypatch):
    monkeypatch.setattr(indexmap, "LARGEST_TABLE", table)
    for seed in range(25):
        for A, A_nN, own_n, owner_N, rank, size in blocks(seed):
            index = columns_map(own_n, A_nN, lambda ids: owner_N[ids], rank, size)
            ghosts = np.setdiff1d(A_nN.indices, own_n)
            np.testing.assert_array_equal(index.ghost_g, ghosts[np.lexsort((ghosts, owner_N[ghosts]))])
            np.testing.assert_array_equal(index.ghosts_P, np.bincount(owner_N[ghosts], minlength=size))
            turned = np.random.default_rng(seed).permutation(len(own_n))
            for order_n in (np.arange(len(own_n)), turned):  # own rows may stand in any order
                A_oo, A_og = IndexMap(own_n[order_n], index.ghost_g, index.ghosts_P).split(A_nN)
                np.testing.assert_array_equal(A_oo.toarray(), A_nN.toarray()[:, own_n[order_n]])
                np.testing.assert_array_equal(A_og.toarray(), A_nN.toarray()[:, index.ghost_g])
                assert A_oo.nnz + A_og.nnz == A_nN.nnz and is_sorted(A_oo) and is_sorted(A_og)
                assert A_oo.indices.dtype == A_og.indptr.dtype == np.int32 and A_oo.dtype == np.float32


def test_nonzeros_of_two_matrices_stand_merged():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        whole = sp.csr_array(sp.random_array((7, 9), density=0.4, format="csr", random_state=rng))
        whole.data[::4] = 0
        is_one, width = rng.random(whole.nnz) < rng.choice([0, 0.5, 1]), whole.shape[1]
        halves = [select_entries(whole, mask, whole.indices, width) for mask in (is_one, ~is_one)]
        both = merged_csr(*halves)
        assert both.nnz == whole.nnz and is_sorted(both)
        for name in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(getattr(both, name), getattr(whole, name))
