"""H = act(Z + b) and its gradients equal torch's, in one pass each, at every width, in buffers of the pool."""

import numpy as np
import pytest
import torch
from dense_operator import DenseOperator

from spgnn.errors import UsageError
from spgnn.layers import ACTIVATIONS
from spgnn.spmm.chains.end import ENDS, end
from spgnn.spmm.kernels import _kernels

WIDTHS = [1, 3, 4, 8, 15, 16, 17, 33, 40, 64, 100]
TOLERANCES = {torch.float64: 1e-14, torch.float32: 3e-7, torch.bfloat16: 8e-3}


def operands(n, C, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    Z = torch.randn(n, C, generator=generator, dtype=torch.float64).mul(3)
    Z[:3] *= 1e-9  # where exp(z) - 1 loses all digits
    Z[3:5] -= 800
    bias = torch.zeros(C, dtype=torch.float64) if seed else torch.randn(C, generator=generator, dtype=torch.float64)
    bias = bias.to(torch.float32 if dtype == torch.bfloat16 else dtype)
    return Z.to(dtype), bias, torch.randn(n, C, generator=generator, dtype=torch.float64).to(dtype)


def leaf(x):
    return None if x is None else x.clone().requires_grad_()


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("act", ENDS)
@pytest.mark.parametrize("seed, has_bias", [(0, True), (0, False), (1, True)])
def test_end_and_its_gradients_equal_those_of_torch(act, dtype, seed, has_bias):
    A, near = DenseOperator(np.eye(3)), dict(rtol=TOLERANCES[dtype], atol=1e-30)
    for C in WIDTHS:
        Z, bias, G = operands(201, C, dtype, seed)
        given, wide = (leaf(Z), leaf(bias if has_bias else None)), (leaf(Z.double()), leaf(bias.double()))
        H = end(A, *given, act)
        expected = ACTIVATIONS[act](wide[0] + wide[1] if has_bias else wide[0])
        H.backward(G)
        expected.backward(G.double())
        assert H.dtype == dtype
        torch.testing.assert_close(H.double(), expected, **near)
        from_H = G.double() * (
            1 if act == "none" else torch.where(H > 0, 1.0, 0.0 if act == "relu" else H.double() + 1)
        )
        torch.testing.assert_close(given[0].grad.double(), from_H, **near)
        torch.testing.assert_close(given[0].grad.double(), wide[0].grad, rtol=1e-5, atol=4 * TOLERANCES[dtype])
        if has_bias:
            sums, scale = given[0].grad.double().sum(0), given[0].grad.double().abs().sum(0)
            assert ((given[1].grad - sums).abs() <= 1e-30 + 1e-6 * scale).all()


@pytest.mark.parametrize("isa", _kernels.instruction_sets())
@pytest.mark.parametrize("act", range(len(ENDS)))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_passes_have_the_same_bits_in_place_and_on_any_number_of_threads(isa, act, dtype):
    for C in WIDTHS:
        Z, bias, G = (x.numpy() for x in operands(3001, C, torch.from_numpy(np.zeros(0, dtype)).dtype))
        H, dZ = np.full_like(Z, np.nan), np.full_like(Z, np.nan)
        _kernels.finish(Z, H, bias, act, 1, isa)
        sums = _kernels.mask_sum(G, H, dZ, act, 1, isa)
        for threads in (2, 3):
            out = Z.copy()
            _kernels.finish(out, out, bias, act, threads, isa)
            np.testing.assert_array_equal(out, H)
            np.testing.assert_array_equal(_kernels.mask_sum(G, H, out, act, threads, isa), sums)
            np.testing.assert_array_equal(out, dZ)


@pytest.mark.parametrize("act", ["relu", "elu"])
def test_nan_goes_through_an_end_both_ways(act):
    Z = torch.tensor([[float("nan"), -1.0, 2.0] * 7], requires_grad=True)
    H = end(DenseOperator(np.eye(1)), Z, None, act)
    H.backward(torch.full_like(H, float("nan")))
    assert H[0].isnan().tolist() == [True, False, False] * 7 and Z.grad[0, 0].isnan() and Z.grad[0, 2].isnan()


def test_an_end_writes_over_no_gradient_that_another_reads_and_refuses_second_order():
    A, Z = DenseOperator(np.eye(4)), torch.randn(4, 40, dtype=torch.float64, requires_grad=True)
    H = end(A, Z, None, "elu")
    G = torch.randn(4, 40, dtype=torch.float64)
    before = G.clone()
    (dZ,) = torch.autograd.grad(H, Z, G, retain_graph=True)
    assert torch.equal(G, before) and torch.equal(torch.autograd.grad(H, Z, G)[0], dZ)
    with pytest.raises(UsageError, match="double backward"):
        torch.autograd.grad(end(A, Z, None, "elu").sum(), Z, create_graph=True)
