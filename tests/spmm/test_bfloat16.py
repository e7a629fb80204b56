"""bfloat16 kernels: storage is rounded, sums are float32; every instruction set gives what float64 gives, rounded once."""

from types import SimpleNamespace

import kernel_reference as reference
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from spgnn.dist.headers import as_array
from spgnn.errors import ShapeError
from spgnn.spmm.exchange.exchange_plan import Selection
from spgnn.spmm.kernels import _kernels, torch_dense
from spgnn.spmm.kernels.buffers import BufferPool, array_of
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.operator import features as rows
from spgnn.spmm.operator.timing import Operations

ISAS = _kernels.instruction_sets()
WIDTHS = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40, 41, 64, 129, 257]
HALF_BIT = 2.0**-8  # bfloat16 has 8 significant bits: rounding moves a number by at most this share of it


def bfloat(x) -> np.ndarray:
    """The bits of x rounded to bfloat16 by torch."""
    return array_of(torch.from_numpy(np.asarray(x, np.float32)).to(torch.bfloat16))


def value(bits) -> np.ndarray:
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).double().numpy()


def random_csr(n, m, density=0.4, seed=0):
    A = sp.random_array(
        (n, m), density=density, format="csr", dtype=np.float32, random_state=np.random.default_rng(seed)
    )
    A.sort_indices()
    return A


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("stored", ["bb", "bf", "fb"])
def test_spmm_of_stored_bfloat16_equals_the_loop_rounded_once(isa, stored):
    A, rng = random_csr(9, 13), np.random.default_rng(1)
    indptr, indices = A.indptr.astype(np.int64), A.indices.astype(np.int32)
    for F in WIDTHS:
        X = rng.standard_normal((13, F)).astype(np.float32)
        X = bfloat(X) if stored[0] == "b" else X
        bias, add = rng.standard_normal(F).astype(np.float32), rng.standard_normal((9, F)).astype(np.float32)
        for weights in (A.data, None):
            for accumulate in (False, True):
                for more in (None, add):
                    Y = np.full((9, F), 0.5 if accumulate else np.nan, np.float32)
                    Y = bfloat(Y) if stored[1] == "b" else Y
                    X_64 = value(X) if stored[0] == "b" else X.astype(np.float64)
                    start = (np.full((9, F), 0.5) if accumulate else 0) + (
                        0 if more is None else add.astype(np.float64)
                    )
                    expected = reference.spmm(
                        A.indptr, A.indices, weights, X_64, start + np.zeros((9, F)), bias, relu=True
                    )
                    _kernels.spmm(indptr, indices, weights, X, Y, accumulate, bias, True, 2, isa, add=more)
                    got = value(Y) if stored[1] == "b" else Y
                    np.testing.assert_allclose(
                        got, expected, rtol=HALF_BIT * 1.01 if stored[1] == "b" else 1e-5, atol=1e-5
                    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("F", [1, 4, 8, 16, 40])
def test_storing_rounds_to_the_nearest_even_number_and_keeps_nan_and_infinity(isa, F):
    bits = np.array(
        [0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F80FFFF, 0x7F7FFFFF, 0x00000001, 0x80008000], np.uint32
    )
    numbers = np.concatenate([bits.view(np.float32), [np.nan, -np.nan, np.inf, -np.inf, -0.0]]).astype(np.float32)
    numbers = np.concatenate([numbers, np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)])
    X = np.repeat(numbers[:, None], F, axis=1)
    Y = np.empty(X.shape, np.uint16)
    n = len(X)
    _kernels.spmm(np.arange(n + 1), np.arange(n, dtype=np.int32), np.ones(n, np.float32), X, Y, isa=isa)
    expected = torch.from_numpy(X).to(torch.bfloat16)
    got = torch.from_numpy(Y.view(np.int16)).view(torch.bfloat16)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))


@pytest.mark.parametrize("isa", ISAS)
def test_mask_sum_dropout_and_finish_of_bfloat16(isa):
    rng = np.random.default_rng(0)
    G, H = (bfloat(x) for x in rng.standard_normal((2, 500, 37)))
    out = np.empty_like(G)
    sums = _kernels.mask_sum(G, H, out, 1, 2, isa)
    masked = np.where(value(H) > 0, value(G), 0)
    np.testing.assert_array_equal(value(out), masked)
    np.testing.assert_allclose(sums, masked.sum(0), rtol=1e-4, atol=1e-4)

    node = np.arange(500) * 977
    _kernels.drop(G, out, node, 11, 0.3, 2, isa)
    kept = reference.drop_mask(node, 37, 11, 0.3)
    np.testing.assert_allclose(value(out), np.where(kept, value(G) / 0.7, 0), rtol=HALF_BIT * 1.01)

    bias = rng.standard_normal(37).astype(np.float32)
    wide = np.empty(G.shape, np.float32)
    _kernels.finish(G, wide, bias, True, 2, isa)
    np.testing.assert_allclose(wide, np.maximum(value(G) + bias, 0), rtol=1e-6)
    _kernels.finish(G, G, bias, True, 2, isa)  # in place
    np.testing.assert_array_equal(G, bfloat(wide))


@pytest.mark.parametrize("isa", ISAS)
def test_the_fused_relus_keep_nan(isa):
    X = bfloat([[np.nan, -1.0, 2.0] * 11])
    Y = np.empty_like(X)
    _kernels.spmm(np.array([0, 1]), np.zeros(1, np.int32), None, X, Y, relu=True, isa=isa)
    np.testing.assert_array_equal(value(Y), value(bfloat([[np.nan, 0.0, 2.0] * 11])))
    _kernels.finish(X, Y, None, True, 1, isa)
    np.testing.assert_array_equal(value(Y), value(bfloat([[np.nan, 0.0, 2.0] * 11])))


def test_a_bfloat16_block_multiplies_both_types_and_passes_the_dot_test():
    A = LocalCSR(random_csr(30, 50, 0.2), torch.bfloat16)
    x, y = torch.randn(50, 7), torch.randn(30, 7)
    terms = A.apply(x, torch.empty(30, 7)) * y
    right = (x * A.adjoint(y, torch.empty(50, 7))).sum()
    assert abs(terms.sum() - right) < 1e-5 * terms.abs().sum()
    Z = A.apply(x.bfloat16(), torch.empty(30, 7, dtype=torch.bfloat16), add_nF=y)
    dense = torch.from_numpy(A.to_scipy().toarray())
    torch.testing.assert_close(Z.float(), dense @ x.bfloat16().float() + y, rtol=2 * HALF_BIT, atol=1e-5)


def test_types_that_do_not_fit_are_refused():
    A = LocalCSR(random_csr(3, 4), torch.bfloat16)
    with pytest.raises(ShapeError, match="float64"):
        A.apply(torch.ones(4, 2, dtype=torch.float64), torch.empty(3, 2, dtype=torch.bfloat16))
    with pytest.raises(ShapeError, match="add is"):
        A.apply(torch.ones(4, 2), torch.empty(3, 2), add_nF=torch.ones(3, 2, dtype=torch.bfloat16))
    with pytest.raises(ShapeError, match="expected one dtype"):
        LocalCSR(random_csr(3, 4)).apply(torch.ones(4, 2, dtype=torch.bfloat16), torch.empty(3, 2))


def test_dense_and_sparse_rows_times_weights_in_bfloat16_and_their_gradients(monkeypatch):
    monkeypatch.setattr(torch_dense, "CHUNK", 7)  # several chunks, the last one short
    layout = SimpleNamespace(pool=BufferPool(), ops=Operations(), threads=1)
    S = random_csr(30, 20, 0.5)
    W, bias, G = torch.randn(20, 5), torch.randn(5), torch.randn(30, 5).bfloat16()
    dense = torch.from_numpy(S.toarray()).bfloat16()
    for left in (rows.DenseRows(dense, layout), rows.SparseRows(S, layout.pool, torch.bfloat16)):
        expected = dense.double() @ W.double()
        for b, relu in ((None, False), (bias, True), (bias, False), (None, True)):
            full = expected if b is None else expected + b
            for dtype in (None, torch.bfloat16, torch.float32):
                Z = left.times(W, b, relu, dtype)
                assert Z.dtype == (dtype or torch.bfloat16)
                torch.testing.assert_close(Z.double(), full.relu() if relu else full, rtol=1e-2, atol=2e-2)
        dW = left.transposed_times(G)
        assert dW.dtype == torch.float32
        torch.testing.assert_close(dW.double(), dense.double().t() @ G.double(), rtol=1e-2, atol=2e-2)


def test_buffers_and_rows_of_bfloat16():
    pool = BufferPool()
    large = pool.empty(100, 1000, dtype=torch.bfloat16)
    assert large.dtype == torch.bfloat16 and pool.held_bytes == -(-200_000 // 4096) * 4096
    address = large.data_ptr()
    del large
    assert pool.copy(torch.ones(100, 1000), torch.bfloat16).data_ptr() == address
    X = torch.randn(6, 3).bfloat16()
    chosen = np.array([5, 0, 5])
    assert torch.equal(Selection(chosen, 6).apply(X, torch.empty(3, 3, dtype=torch.bfloat16)), X[chosen])


def test_a_communicator_takes_the_memory_of_a_bfloat16_tensor():
    X = torch.randn(4, 3).bfloat16()
    array = as_array(X, "x", 0)
    assert array.dtype == np.uint16 and array.shape == (4, 3)
    array[0] = 0
    assert torch.equal(X[0], torch.zeros(3, dtype=torch.bfloat16))
