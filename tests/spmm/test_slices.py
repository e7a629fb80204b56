"""Feature slices: the bits of one pass, in every type, with all that comes last of a product; shared by subgraphs."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from spgnn.spmm.kernels import slices, trials
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.kernels.slices import slice_width
from spgnn.spmm.kernels.trials import Trials


@pytest.fixture
def small(monkeypatch):
    """Slices for small matrices, too."""
    monkeypatch.setattr(slices, "SMALLEST_X", 1)
    monkeypatch.setattr(slices, "LEAST_LENGTH", 1)


@pytest.mark.parametrize(
    "F, itemsize, f",
    [(512, 4, 128), (128, 4, 64), (64, 4, 32), (602, 4, 86), (500, 4, 125), (251, 4, 0), (40, 4, 0), (256, 8, 64)],
)
def test_a_slice_is_a_divisor_of_the_width_of_up_to_512_bytes(small, F, itemsize, f):
    assert slice_width(4000, 4000, 80_000, F, itemsize) == f


def test_slices_are_for_small_matrices_with_long_rows_and_wide_X():
    assert slice_width(6000, 6000, 80_000, 512, 4) == 128
    assert slice_width(20_000, 20_000, 400_000, 512, 4) == 64  # a slice of 128 columns is in no cache
    assert not slice_width(6000, 6000, 40_000, 512, 4)  # short rows
    assert not slice_width(2000, 2000, 80_000, 256, 4)  # X is in a cache as it is
    assert not slice_width(100_000, 100_000, 4_000_000, 512, 4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("is_weighted", [True, False])
@pytest.mark.parametrize(
    "X_type, out_type", [("float32",) * 2, ("float64",) * 2, ("bfloat16", "bfloat16"), ("bfloat16", "float32")]
)
def test_slices_give_the_bits_of_one_pass(small, X_type, out_type, is_weighted, threads):
    rng, X_type, out_type = np.random.default_rng(0), getattr(torch, X_type), getattr(torch, out_type)
    A = sp.csr_array(sp.random_array((300, 400), density=0.05, format="csr", rng=rng))
    A.data = A.data if is_weighted else np.ones_like(A.data)
    block = LocalCSR(A, X_type, threads)
    sums = torch.float64 if X_type == torch.float64 else torch.float32
    X, bias, add = torch.randn(400, 256).to(X_type), torch.randn(256, dtype=sums), torch.randn(300, 256, dtype=sums)
    start = torch.randn(300, 256).to(out_type)
    seen = []
    for _ in range(2 * trials.TRIALS + 2):
        out = block.apply(X, start.clone(), accumulate=True, bias_F=bias, relu=True, add_nF=add)
        seen.append(out)
    assert len(block.trials.chosen) == 1
    assert all(torch.equal(out, seen[0]) for out in seen)
    expected = torch.relu(torch.from_numpy(A.toarray()) @ X.double() + start + bias + add)
    tolerance = 2e-2 if X_type == torch.bfloat16 else 1e-4
    torch.testing.assert_close(seen[1].double(), expected.double(), rtol=tolerance, atol=tolerance)


def test_matrices_that_share_trials_go_on_where_the_last_one_ended(small, monkeypatch):
    monkeypatch.setattr(trials, "GAIN", np.inf)  # slices stay
    shared, ways = Trials(), []
    rng = np.random.default_rng(1)
    for _ in range(4):  # of about the same size
        A = sp.csr_array(sp.random_array((int(rng.integers(270, 500)), 400), density=0.05, format="csr", rng=rng))
        block = LocalCSR.trusted(A.shape, A.indptr.astype(np.int64), A.indices.astype(np.int32), None, trials=shared)
        for _ in range(2):
            block.apply(torch.ones(400, 128), torch.empty(A.shape[0], 128))
        ways.append(list(shared.chosen.values()))
    assert ways == [[], [], ["slices"], ["slices"]] and len(shared.chosen) == 1
    assert not block.has_panels
