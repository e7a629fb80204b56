"""bfloat16 kernels: storage is rounded, sums are float32; every instruction set gives what float64 gives, rounded once."""

from types import SimpleNamespace

import kernel_reference as reference
import numpy as np
import pytest
import torch
from test_kernels import HALF_BIT, ISAS, bfloat, random_csr, value

from spgnn.errors import ShapeError
from spgnn.spmm.kernels import _kernels, torch_dense
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.operator import features as rows
from spgnn.spmm.operator.timing import Operations


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
def test_dropout_and_finish_of_bfloat16(isa):
    rng = np.random.default_rng(0)
    G = bfloat(rng.standard_normal((500, 37)))
    out = np.empty_like(G)
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


def test_a_bfloat16_block_multiplies_both_types_and_passes_the_dot_test():
    A = LocalCSR(random_csr(30, 50, 0.2, np.float32), torch.bfloat16)
    x, y = torch.randn(50, 7), torch.randn(30, 7)
    terms = A.apply(x, torch.empty(30, 7)) * y
    right = (x * A.adjoint(y, torch.empty(50, 7))).sum()
    assert abs(terms.sum() - right) < 1e-5 * terms.abs().sum()
    Z = A.apply(x.bfloat16(), torch.empty(30, 7, dtype=torch.bfloat16), add_nF=y)
    dense = torch.from_numpy(A.to_scipy().toarray())
    torch.testing.assert_close(Z.float(), dense @ x.bfloat16().float() + y, rtol=2 * HALF_BIT, atol=1e-5)


def test_types_that_do_not_fit_are_refused():
    A = LocalCSR(random_csr(3, 4, 0.4, np.float32), torch.bfloat16)
    with pytest.raises(ShapeError, match="float64"):
        A.apply(torch.ones(4, 2, dtype=torch.float64), torch.empty(3, 2, dtype=torch.bfloat16))
    with pytest.raises(ShapeError, match="add is"):
        A.apply(torch.ones(4, 2), torch.empty(3, 2), add_nF=torch.ones(3, 2, dtype=torch.bfloat16))


def test_dense_and_sparse_rows_times_weights_in_bfloat16_and_their_gradients(monkeypatch):
    monkeypatch.setattr(torch_dense, "CHUNK", 7)  # several chunks, the last one short
    layout = SimpleNamespace(pool=BufferPool(), ops=Operations(), threads=1)
    S = random_csr(30, 20, 0.5, np.float32)
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
