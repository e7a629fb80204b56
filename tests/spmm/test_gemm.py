"""Dense products equal torch's at every shape, their gradients come in one pass, and no bit depends on threads."""

import numpy as np
import pytest
import torch
from torch_operator import TorchOperator

from spgnn.errors import ShapeError
from spgnn.spmm.chains.chains import dense
from spgnn.spmm.kernels import _kernels
from spgnn.spmm.kernels.backend import HOST
from spgnn.spmm.kernels.torch_dense import TorchDense

# Rows: none, fewer than a tile, a chunk and one more, several segments; k: none, 4 and its rests, more than one block
# of 512; m: vectors of every instruction set, and one number more or less.
SHAPES = [
    (0, 3, 4),
    (1, 1, 1),
    (5, 7, 3),
    (97, 64, 64),
    (1000, 128, 40),
    (777, 41, 7),
    (2000, 16, 256),
    (1300, 700, 33),
]
SHAPES += [(3000, 3, 130), (1029, 65, 17), (97, 1100, 5), (400, 0, 4)]
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5}


class Reference(TorchDense):
    """The slow products, in float64."""

    mask_sum = HOST.mask_sum


def operands(n, k, m, dtype=torch.float64):
    generator = torch.Generator().manual_seed(n + k + m)
    made = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((n, k), (k, m), (n, m), (n, m))]
    return [x.to(dtype) for x in (*made, torch.relu(made[2] + made[3]), torch.randn(m, generator=generator))]


def near(found, expected, tolerance):
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("n, k, m", SHAPES)
def test_products_and_gradients_equal_those_of_torch(n, k, m, dtype):
    X, W, add, G, Z, bias = operands(n, k, m, dtype)
    for turned in (W, W.t().contiguous().t()):
        for last in ({}, {"bias_C": bias}, {"add_nC": add}, {"bias_C": bias, "add_nC": add, "relu": True}):
            found, expected = torch.full((n, m), torch.nan, dtype=dtype), torch.empty(n, m, dtype=torch.float64)
            HOST.gemm(X, turned, found, **last)
            wide = {key: x if isinstance(x, bool) else x.double() for key, x in last.items()}
            TorchDense().gemm(X.double(), W.double(), expected, **wide)
            near(found, expected, TOLERANCES[dtype])
    for masked, adds in ((None, False), (torch.empty_like(G), True)):
        of = [[x.clone() for x in (X, W, torch.ones(n, k), torch.full((k, m), torch.nan))] for _ in range(2)]
        of = [[x.to(t) for x in part] for part, t in zip(of, (dtype, torch.float64))]
        sums = HOST.gemm_adjoint(G, *of[0], (Z, masked), adds)
        theirs = Reference().gemm_adjoint(G.double(), *of[1], (Z.double(), None), adds)
        for found, expected in zip((*of[0], sums), (*of[1], theirs)):
            near(found, expected, 30 * TOLERANCES[dtype])
        if masked is not None:
            torch.testing.assert_close(masked, torch.where(Z > 0, G, 0.0), rtol=0, atol=0)


@pytest.mark.parametrize("isa", _kernels.instruction_sets())
@pytest.mark.parametrize("n, k, m", [(1029, 65, 17), (20_000, 40, 24), (1300, 700, 33)])
def test_the_bits_are_the_same_on_any_number_of_threads_and_in_place(isa, n, k, m):
    X, W, add, G, Z, bias = (x.numpy() for x in operands(n, k, m, torch.float32))
    results = []
    for threads in (1, 2, 3):
        out, masked, dX, dW = add.copy(), G.copy(), np.empty_like(X), np.empty_like(W)
        _kernels.gemm(X, W, out, False, bias, out, True, threads, isa)
        sums = _kernels.gemm_adjoint(masked, Z, masked, X, W, dX, False, dW, True, threads, isa)
        results.append([x.tobytes() for x in (out, masked, dX, dW, sums)])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("kernels", [HOST, Reference()], ids=["own", "torch"])
@pytest.mark.parametrize("has_Z", [False, True])
@pytest.mark.parametrize("k", [16, 41, 130])
def test_a_gradient_may_take_the_place_of_the_one_it_is_made_from(kernels, has_Z, k):
    X, W, _, G, Z, _ = operands(1029, k, k)
    expected, over = torch.empty_like(X), G.clone()
    dW, dW_over = torch.empty_like(W), torch.empty_like(W)
    through = (Z if has_Z else None, None)
    kernels.gemm_adjoint(G, X, W, expected, dW, through)
    kernels.gemm_adjoint(over, X, W, over, dW_over, through)
    torch.testing.assert_close(over, expected, rtol=0, atol=0)
    torch.testing.assert_close(dW_over, dW, rtol=0, atol=0)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"add of dense has shape \(3, 2\); expected \(4, 2\)"):
        dense(TorchOperator(np.eye(4)).at(), torch.ones(4, 3), torch.ones(3, 2), add=torch.ones(3, 2))
    X, W, out = np.ones((4, 3), np.float32), np.ones((3, 2), np.float32), np.ones((4, 2), np.float32)
    for factors, last in (((X, W.T.copy(), out), {}), ((X, W, out[:3]), {}), ((X, W, out), {"bias": out[:, 0].copy()})):
        with pytest.raises(ValueError, match="gemm: "):
            _kernels.gemm(*factors, **last)
    with pytest.raises(ValueError, match="gemm_adjoint: dW must"):
        _kernels.gemm_adjoint(out, dW=W)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("has_bias, has_add", [(True, True), (False, True), (True, False)])
def test_dense_is_a_product_of_torch_with_all_its_gradients(relu, has_bias, has_add):
    X, W, add, G, _, bias = operands(40, 6, 6)  # of one width, where a gradient may take the place of another
    A = TorchOperator(np.eye(40)).at()
    given = [[x.clone().requires_grad_() for x in (X, W, bias, add)] for _ in range(2)]
    (x, w, b, a), (X, W, bias, add) = given
    Z = dense(A, x, w, b if has_bias else None, relu, a if has_add else None)
    expected = X @ W + (bias if has_bias else 0) + (add if has_add else 0)
    expected = torch.relu(expected) if relu else expected
    torch.testing.assert_close(Z, expected)
    Z.backward(G)
    assert torch.equal(G, operands(40, 6, 6)[3]), "what others hold is not written over"
    expected.backward(G)
    for found, of_torch in zip(*given):
        assert (found.grad is None) == (of_torch.grad is None)
        if found.grad is not None:
            torch.testing.assert_close(found.grad, of_torch.grad)
