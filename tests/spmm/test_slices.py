"""Feature slices: the bits of one pass, in every type, with all that comes last of a product."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from spgnn.spmm.kernels import tiles
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.kernels.tiles import slice_width


@pytest.fixture
def small(monkeypatch):
    """Slices for small matrices, too."""
    monkeypatch.setattr(tiles, "SMALLEST_X", 1)
    monkeypatch.setattr(tiles, "LEAST_LENGTH", 1)


@pytest.mark.parametrize(
    "F, itemsize, f",
    [(512, 4, 128), (128, 4, 64), (64, 4, 32), (602, 4, 86), (500, 4, 125), (251, 4, 0), (40, 4, 0), (256, 8, 64)],
)
def test_a_slice_is_a_divisor_of_the_width_of_up_to_512_bytes(small, F, itemsize, f):
    assert slice_width(4000, 4000, 80_000, F, itemsize) == f


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("is_weighted", [True, False])
@pytest.mark.parametrize(
    "X_type, out_type", [("float32",) * 2, ("float64",) * 2, ("bfloat16", "bfloat16"), ("bfloat16", "float32")]
)
def test_slices_give_the_bits_of_one_pass(small, monkeypatch, X_type, out_type, is_weighted, threads):
    rng, X_type, out_type = np.random.default_rng(0), getattr(torch, X_type), getattr(torch, out_type)
    A = sp.csr_array(sp.random_array((300, 400), density=0.05, format="csr", random_state=rng))
    A.data = A.data if is_weighted else np.ones_like(A.data)
    block = LocalCSR(A, X_type, threads)
    sums = torch.float64 if X_type == torch.float64 else torch.float32
    X, bias, add = torch.randn(400, 256).to(X_type), torch.randn(256, dtype=sums), torch.randn(300, 256, dtype=sums)
    start = torch.randn(300, 256).to(out_type)
    results = []
    for least in (1, 1 << 40):  # slices, then rows
        monkeypatch.setattr(tiles, "SMALLEST_X", least)
        results.append(block.apply(X, start.clone(), accumulate=True, bias_F=bias, relu=True, add_nF=add))
    assert torch.equal(*results)
    expected = torch.relu(torch.from_numpy(A.toarray()) @ X.double() + start + bias + add)
    tolerance = 2e-2 if X_type == torch.bfloat16 else 1e-4
    torch.testing.assert_close(results[0].double(), expected.double(), rtol=tolerance, atol=tolerance)
