"""Rows of X are gathered by original id, from memory or a mapped file, dense or sparse, in any type."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from spgnn.errors import InputError, ShapeError
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.spmm.operator.features import FeatureRows, SparseRows

IDS = np.array([5, 0, 199, 5, 17, 3])


def features(of=np.float32):
    rng = np.random.default_rng(0)
    return (rng.standard_normal((200, 9)) * (rng.random((200, 9)) < 0.4)).astype(of)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("of", [np.float32, np.float64])
def test_rows_are_those_of_the_ids_in_their_order(tmp_path, dtype, of):
    X, pool = features(of), BufferPool()
    np.save(tmp_path / "X.npy", X)
    expected = torch.from_numpy(X[IDS]).to(dtype)
    for source in (X, np.load(tmp_path / "X.npy", mmap_mode="r")):
        assert torch.equal(FeatureRows(source, dtype).take(IDS, pool), expected)
    for source in (sp.csr_array(X), sp.csr_matrix(X)):
        S = FeatureRows(source, dtype).take(IDS, pool)
        assert isinstance(S, SparseRows) and S.dtype == dtype and S.shape == (6, 9)
        assert torch.equal(torch.from_numpy(S.csr.to_scipy().toarray()).to(dtype), expected)
        W = torch.eye(9, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
        assert torch.equal(S.times(W), expected)
    unsorted = sp.csr_array(X[:, ::-1])
    unsorted.indices = 8 - unsorted.indices
    before, S = unsorted.indices.copy(), FeatureRows(unsorted, dtype).take(IDS, pool)
    assert torch.equal(torch.from_numpy(S.csr.to_scipy().toarray()).to(dtype), expected)
    assert (np.diff(S.csr.indices[: S.csr.indptr[1]]) > 0).all() and (unsorted.indices == before).all()
    assert FeatureRows(X).take(IDS[:0], pool).shape == (0, 9)
    assert FeatureRows(sp.csr_array(X)).take(IDS[:0], pool).shape == (0, 9)


def test_a_mapped_x_is_not_read_whole(tmp_path):
    path, N = tmp_path / "X.bin", 1 << 22
    with open(path, "wb") as file:
        file.truncate(N * 64 * 4)  # a gigabyte of a hole
    X = np.memmap(path, np.float32, "r", shape=(N, 64))
    assert FeatureRows(X).take(np.array([0, N - 1, 7]), BufferPool()).tolist() == [[0.0] * 64] * 3


def test_what_is_no_node_or_no_matrix_is_named():
    X, pool = features(), BufferPool()
    for source in (X, sp.csr_array(X)):
        for wrong in (-1, 200):
            with pytest.raises(InputError, match=f"node {wrong} has no row of X; expected 0 to 199"):
                FeatureRows(source).take(np.array([3, wrong]), pool)
    with pytest.raises(ShapeError, match="type int64; expected"):
        FeatureRows(X.astype(np.int64))
    with pytest.raises(ShapeError, match=r"use numpy.ascontiguousarray\(X\)"):
        FeatureRows(X.T)
    with pytest.raises(ShapeError, match="in csc format; expected CSR"):
        FeatureRows(sp.csc_array(X))
