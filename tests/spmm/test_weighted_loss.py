"""A loss with a weight for each row is the weighted sum of the losses of the rows, and so is its gradient."""

import numpy as np
import pytest
import torch

from spgnn.errors import ShapeError
from spgnn.spmm.chains.loss import binary_cross_entropy, cross_entropy
from spgnn.spmm.kernels.buffers import BufferPool

n, C = 40, 5
WIDE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def drawn(dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    Z = 4 * torch.randn(n, C, dtype=torch.float64, generator=generator)
    return Z.to(dtype).requires_grad_(), torch.rand(n, generator=generator) * 3


def near(ours, expected, dtype):
    torch.testing.assert_close(ours.double(), expected, rtol=WIDE[dtype], atol=WIDE[dtype] / 10)


def row_by_row(Z, y, weight):
    """(loss, gradient) of sum_i w_i (log sum_c exp Z_ic - Z_iy) by plain arithmetic."""
    Z, total, G = Z.detach().double().numpy(), 0.0, np.zeros((n, C))
    for i in range(n):
        if y[i] >= 0:
            p = np.exp(Z[i] - Z[i].max())
            p /= p.sum()
            total -= float(weight[i]) * np.log(p[y[i]])
            G[i] = float(weight[i]) * (p - np.eye(C)[y[i]])
    return total, torch.from_numpy(G)


@pytest.mark.parametrize("dtype", WIDE)
def test_cross_entropy_weighs_rows(dtype):
    Z, weight = drawn(dtype)
    y = torch.arange(n) % (C + 1) - 1
    loss = cross_entropy(Z, y, 8, BufferPool(), weight_n=weight)
    loss.backward()
    expected, G = row_by_row(Z, y, weight)
    near(loss.detach(), torch.tensor(expected / 8), dtype)
    near(Z.grad, G / 8, dtype)
    assert loss.dtype == torch.float64 and Z.grad.dtype == dtype


@pytest.mark.parametrize("dtype", WIDE)
def test_binary_cross_entropy_weighs_rows(dtype):
    Z, weight = drawn(dtype, seed=1)
    Y, rows = (drawn(torch.float64, seed=2)[0] > 0).float(), torch.tensor([3, 0, 17, 39])
    loss = binary_cross_entropy(Z, Y, rows, 1, weight[rows])
    loss.backward()
    z, t, w = Z.detach().double()[rows], Y.double()[rows], weight[rows].double()[:, None]
    near(loss.detach(), (w * (torch.log1p(torch.exp(z)) - t * z)).sum() / C, dtype)
    G = torch.zeros(n, C, dtype=torch.float64)
    G[rows] = w * (torch.sigmoid(z) - t) / C
    near(Z.grad, G, dtype)


def test_weights_of_another_number_of_rows_are_refused():
    Z, weight = drawn(torch.float32)
    with pytest.raises(ShapeError, match=r"have shape \(39,\); expected one for each row, \(40,\)"):
        cross_entropy(Z, torch.zeros(n, dtype=torch.int64), 8, BufferPool(), weight_n=weight[1:])
    with pytest.raises(ShapeError, match=r"expected one for each row, \(3,\)"):
        binary_cross_entropy(Z, torch.ones(n, C), torch.arange(3), 3, weight)


def test_no_labelled_row_is_a_loss_of_zero():
    Z, weight = drawn(torch.float32)
    loss = cross_entropy(Z, torch.full((n,), -1), 0, BufferPool(), weight_n=weight)
    loss.backward()
    assert loss.item() == 0 and not Z.grad.any()
