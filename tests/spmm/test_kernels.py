"""Every kernel equals its slow reference, on every instruction set, at every width that has a path of its own."""

from itertools import product

import kernel_reference as reference
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from spgnn.errors import GraphError, ShapeError
from spgnn.spmm.kernels import _kernels
from spgnn.spmm.kernels.buffers import array_of
from spgnn.spmm.kernels.csr import LocalCSR

WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 41, 64, 100, 128, 129, 255, 256, 257, 300, 602]
ISAS = _kernels.instruction_sets()
HALF_BIT = 2.0**-8  # bfloat16 has 8 significant bits: rounding moves a number by at most this share of it


def tolerance(dtype):
    return {"rtol": 2e-5, "atol": 2e-5} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-12}


def random_csr(n, m, density, dtype, seed=0):
    A = sp.random_array((n, m), density=density, format="csr", dtype=dtype, random_state=np.random.default_rng(seed))
    A.sort_indices()
    return A


def bfloat(x) -> np.ndarray:
    """The bits of x rounded to bfloat16 by torch."""
    return array_of(torch.from_numpy(np.asarray(x, np.float32)).to(torch.bfloat16))


def of_type(x, name: str) -> np.ndarray:
    return bfloat(x) if name == "bfloat16" else np.asarray(x, name)


def value(x) -> np.ndarray:
    """Numbers as float64; of 16 bits: bfloat16."""
    return (
        torch.from_numpy(x.view(np.int16)).view(torch.bfloat16).double().numpy() if x.itemsize == 2 else x.astype(float)
    )


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "types", ["float32 float32", "float64 float64", "bfloat16 bfloat16", "bfloat16 float32", "float32 bfloat16"]
)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_spmm_equals_the_loop_rounded_once_at_every_width(isa, types, index):
    (X_type, Y_type), sums = types.split(), np.float64 if "float64" in types else np.float32
    A, rng = random_csr(9, 13, 0.4, sums), np.random.default_rng(1)
    indptr, indices = A.indptr.astype(np.int64), A.indices.astype(index)
    near = tolerance(sums) | ({"rtol": HALF_BIT * 1.01} if Y_type == "bfloat16" else {})
    for F in WIDTHS:
        X = of_type(rng.standard_normal((13, F)), X_type)
        bias, add = rng.standard_normal(F).astype(sums), rng.standard_normal((9, F)).astype(sums)
        for weights, accumulate, b, more in product((A.data, None), (False, True), (None, bias), (None, add)):
            # What overwrites must not read: the output is poisoned.
            Y = of_type(np.full((9, F), 0.5 if accumulate else np.nan), Y_type)
            start = np.full((9, F), 0.5 * accumulate) + (0 if more is None else add)
            expected = reference.spmm(A.indptr, A.indices, weights, value(X), start, b, relu=True)
            _kernels.spmm(indptr, indices, weights, X, Y, accumulate, b, True, 2, isa, add=more)
            np.testing.assert_allclose(value(Y), expected, **near)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_any_length_are_summed_in_blocks_and_one_by_one(isa, dtype):
    lengths_n = np.random.default_rng(0).permutation([*range(80), 127, 128, 129, 255, 256, 257, 700])
    n, m = len(lengths_n), 900
    indptr = np.concatenate([[0], np.cumsum(lengths_n)]).astype(np.int64)
    rng = np.random.default_rng(1)
    indices = np.concatenate([np.sort(rng.choice(m, length, replace=False)) for length in lengths_n]).astype(np.int32)
    weights, places_n = rng.standard_normal(len(indices)).astype(dtype), rng.permutation(n)
    A, pattern = (
        sp.csr_array((data, indices, indptr), shape=(n, m)) for data in (weights.astype(float), np.ones(len(indices)))
    )
    for F in (1, 3, 4, 8, 16, 17, 32, 41, 64, 65, 128, 256):
        X = rng.standard_normal((m, F)).astype(dtype)
        for values, M in ((weights, A), (None, pattern)):
            expected, Y, listed = M @ X.astype(float), np.full((n, F), np.nan, dtype), np.full((n, F), np.nan, dtype)
            _kernels.spmm(indptr, indices, values, X, Y, isa=isa)
            atol = 30 * np.finfo(dtype).eps * np.sqrt(lengths_n.max()) * 4
            np.testing.assert_allclose(Y, expected, rtol=0, atol=atol)
            _kernels.spmm(indptr, indices, values, X, listed, isa=isa, rows=places_n)
            np.testing.assert_array_equal(listed[places_n], Y)


def test_spmm_is_the_same_bit_for_bit_for_any_number_of_threads():
    A = random_csr(3000, 3000, 0.01, np.float32)
    X = np.random.default_rng(0).standard_normal((3000, 41)).astype(np.float32)
    results = []
    for threads in (1, 2, 5):
        Y = np.empty((3000, 41), np.float32)
        _kernels.spmm(A.indptr.astype(np.int64), A.indices.astype(np.int32), A.data, X, Y, threads=threads)
        results.append(Y)
    assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (4, 3)])
def test_spmm_of_empty_and_tiny_blocks(shape):
    A = sp.csr_array(shape, dtype=np.float32)
    Y = torch.full((shape[0], 6), float("nan"))
    LocalCSR(A).apply(torch.ones(shape[1], 6), Y)
    assert torch.equal(Y, torch.zeros(shape[0], 6))


def test_a_symmetric_block_is_its_own_transpose_and_a_directed_one_is_not():
    A = random_csr(20, 20, 0.2, np.float64)
    symmetric = sp.csr_array(A + A.T)
    block = LocalCSR(symmetric, torch.float64)
    assert block.transposed() is block
    directed = LocalCSR(A, torch.float64)
    assert directed.transposed() is not directed


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_matrix_equals_its_transpose_where_scipy_finds_no_difference(dtype, index):
    rng, seen = np.random.default_rng(2), set()
    for _ in range(300):
        n = int(rng.integers(1, 8))
        A = sp.csr_array(rng.integers(0, 3, (n, n)) * (rng.random((n, n)) < 0.5)).astype(dtype)
        if rng.random() < 0.7:
            A = sp.csr_array(A + A.T)
        if rng.random() < 0.3 and A.nnz:
            A.data[rng.integers(A.nnz)] += 1
        A.eliminate_zeros()
        expected = not (A != A.T).nnz
        pattern = not ((A != 0) != (A != 0).T).nnz
        indptr, indices = A.indptr.astype(np.int64), A.indices.astype(index)
        assert _kernels.equals_transpose(indptr, indices, A.data) == expected
        assert _kernels.equals_transpose(indptr, indices, None) == pattern
        seen.add((expected, pattern))
    assert seen == {(True, True), (False, True), (False, False)}


def test_apply_refuses_shapes_and_dtypes_that_do_not_fit():
    A = LocalCSR(random_csr(4, 6, 0.5, np.float32))
    with pytest.raises(ShapeError, match="expected"):
        A.apply(torch.ones(5, 2), torch.empty(4, 2))
    with pytest.raises(ShapeError, match="one dtype"):
        A.apply(torch.ones(6, 2, dtype=torch.float64), torch.empty(4, 2))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_mask_sum_masks_and_adds_columns_in_one_pass(isa, name):
    G, H = (of_type(x, name) for x in np.random.default_rng(0).standard_normal((2, 1000, 37)))
    out, near = of_type(np.full(G.shape, np.nan), name), tolerance(np.float64 if name == "float64" else np.float32)
    sums, masked = _kernels.mask_sum(G, H, out, 1, 2, isa), np.where(value(H) > 0, value(G), 0)
    np.testing.assert_array_equal(value(out), masked)
    np.testing.assert_allclose(sums, masked.sum(0), **near)
    np.testing.assert_allclose(_kernels.mask_sum(G, None, None, 0, 2, isa), value(G).sum(0), **near)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_dropout_equals_the_reference_mask_dense_and_sparse(isa, dtype, rate):
    node = np.array([0, 5, 123456789012, 7], np.int64)
    X = np.random.default_rng(0).standard_normal((4, 21)).astype(dtype)
    keep = reference.drop_mask(node, 21, 2**63 + 11, rate)
    out = np.empty_like(X)
    _kernels.drop(X, out, node, 2**63 + 11, rate, 1, isa)
    expected = np.where(keep, X * dtype(1 / (1 - rate)), 0)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    S = sp.csr_array(X * (X > 0.2))
    values = np.empty_like(S.data)
    _kernels.drop_sparse(
        S.indptr.astype(np.int64), S.indices.astype(np.int32), S.data, values, node, 2**63 + 11, rate, 1, isa
    )
    dense = sp.csr_array((values, S.indices, S.indptr), shape=S.shape).toarray()
    np.testing.assert_allclose(dense, np.where(X > 0.2, expected, 0), rtol=1e-6)


def test_dropout_drops_the_asked_share_without_bias_between_nodes_or_features():
    X = np.ones((2000, 200), np.float32)
    out = np.empty_like(X)
    _kernels.drop(X, out, np.arange(2000), 1, 0.4)
    kept = out > 0
    assert abs(kept.mean() - 0.6) < 0.003
    # Five standard deviations of a binomial share.
    assert np.abs(kept.mean(0) - 0.6).max() < 5 * np.sqrt(0.24 / 2000)
    assert np.abs(kept.mean(1) - 0.6).max() < 5 * np.sqrt(0.24 / 200)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_xent_equals_torch_in_value_and_gradient_at_every_width(isa, dtype):
    loose, near = (1e-5, 4e-7) if dtype == np.float32 else (1e-12, 1e-14)
    for C in range(1, 140):
        rng = np.random.default_rng(C)
        Z = (rng.standard_normal((67 + C, C)) * 8).astype(dtype)
        Z[np.arange(C), np.arange(C)] = 300  # exp of it is no float32: the largest is found in every column
        Z[C], Z[C + 1, 0] = 1000.0, -1000.0  # equal, large logits
        y = rng.integers(-1, C, len(Z))
        y[-1] = -1
        G = np.full((len(Z) + 2, C), np.nan, dtype)[1:-1]
        loss = _kernels.softmax_xent(Z, y, 0.25, G, 1 + C % 2, isa)
        expected, gradient = reference.softmax_xent(Z, y, 0.25)
        assert abs(loss - expected) <= loose * max(expected, 1)
        np.testing.assert_allclose(G, gradient, atol=near)
        assert np.isnan(G.base[0]).all() and np.isnan(G.base[-1]).all(), "nothing is written beside the rows"
        np.testing.assert_array_equal(G[y < 0], 0)
        assert _kernels.softmax_xent(Z, y, 0.25, Z, 1 + C % 2, isa) == loss  # over the logits
        np.testing.assert_array_equal(Z, G)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("C", [3, 4, 9, 16, 40, 47, 64, 130])
def test_softmax_xent_lets_a_nan_through(isa, C):
    for at in (0, C // 2, C - 1):
        Z = np.zeros((3, C), np.float32)
        Z[1, at] = np.nan
        G = np.empty_like(Z)
        assert np.isnan(_kernels.softmax_xent(Z, np.array([0, 1, 2]), 1.0, G, 1, isa))
        assert np.isnan(G[1]).any() and not np.isnan(G[[0, 2]]).any()


def test_softmax_xent_refuses_a_label_beyond_the_columns():
    with pytest.raises(ValueError, match="a label is not below"):
        _kernels.softmax_xent(np.zeros((3, 4), np.float32), np.array([0, 4, 2]), 1.0, np.empty((3, 4), np.float32))


def test_a_block_with_a_bad_index_is_refused_before_any_product():
    A = sp.csr_array((np.ones(1, np.float32), np.array([9]), np.array([0, 1])), shape=(1, 3))
    with pytest.raises(GraphError, match="row 0 has column 9"):
        LocalCSR(A)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_the_fused_relus_keep_nan_as_torchs_does(isa, name):
    X = of_type([[np.nan, -1.0, 2.0] * 11], name)
    Y = np.empty_like(X)
    _kernels.spmm(np.array([0, 1]), np.zeros(1, np.int32), None, X, Y, relu=True, isa=isa)
    np.testing.assert_array_equal(value(Y), [[np.nan, 0.0, 2.0] * 11])
    _kernels.finish(X, Y, None, True, 1, isa)
    np.testing.assert_array_equal(value(Y), [[np.nan, 0.0, 2.0] * 11])


def test_other_weights_on_one_pattern_keep_the_transpose_right():
    A = random_csr(20, 30, 0.3, np.float64)
    block = LocalCSR(A, torch.float64)
    for seed in (1, 2):
        A.data = np.random.default_rng(seed).random(A.nnz)
        other = block.with_weights(A.data.copy())
        np.testing.assert_array_equal(other.to_scipy().toarray(), A.toarray())
        np.testing.assert_array_equal(other.transposed().to_scipy().toarray(), A.toarray().T)
