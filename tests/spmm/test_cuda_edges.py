"""The CUDA kernels of attention, over edges and of the maximum equal the CPU's: emulated from their .cu sources, and on a device."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from test_attention_kernels import random, steps, sums_type

from spgnn.errors import ShapeError
from spgnn.spmm.kernels.attention_kernels import AttentionSums, EdgeDrop
from spgnn.spmm.kernels.cpu import HostKernels
from spgnn.spmm.kernels.csr import LocalCSR

pytestmark = pytest.mark.slow

HOST, F32, F64, BF16 = HostKernels(), torch.float32, torch.float64, torch.bfloat16
TOLERANCE = {F32: 2e-5, F64: 1e-11, BF16: 2e-4}  # of sums: both read the same rows of bfloat16
HEADS = [(8, 4, F32), (1, 40, F64), (3, 5, F64), (4, 20, BF16), (40, 2, F32)]  # K, D, type
DROP = 1234567


def pattern(dtype, n=30, c=1500) -> LocalCSR:
    """Rows that are empty, short, of several chunks, and long enough for a block; an empty column and a full one."""
    A = sp.random_array((n, c), density=0.01, format="lil", random_state=np.random.default_rng(0))
    A[3, :], A[4, :] = 1, 0
    A[5, :90] = 1
    A[:, 6], A[:, 7] = 1, 0
    return LocalCSR(sp.csr_array(A.tocsr()), dtype)


def wide(c=30, n=1500) -> LocalCSR:
    """The transpose: a column that is long enough for a block."""
    return LocalCSR(sp.csr_array(pattern(F32).to_scipy().T.tocsr()), F32)


def both(kernels, call, *tensors):
    """Return what call(kernels, *tensors) writes or returns on the CPU and on the device, as float64."""
    found = []
    for which, device in ((HOST, "cpu"), (kernels, kernels.device)):
        moved = [x.clone().to(device) if torch.is_tensor(x) else x for x in tensors]
        found.append([x.double().cpu() for x in call(which, *moved)])
    return zip(*found)


def assert_equal(pairs, tolerance: float) -> None:
    for expected, got in pairs:
        scale = float(expected.nan_to_num(0).abs().max()) if expected.numel() else 0.0
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance * max(scale, 1e-30), equal_nan=True)


def state(n: int, K: int, D: int, dtype, device, plus: bool) -> AttentionSums:
    make = lambda *shape: torch.full(shape, torch.nan, dtype=dtype, device=device)
    return AttentionSums(make(n, K * D), make(n, K), make(n, K), *((make(n, K * D), make(n, K)) if plus else ()))


@pytest.mark.parametrize("A", [pattern(F32), wide()], ids=["rows", "columns"])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(("K", "D", "dtype"), HEADS)
def test_attention_and_its_adjoint(kernels, A, rate, K, D, dtype):
    (n, c), T = A.shape, sums_type(dtype)
    X, G, dleft = random(c, K * D, dtype=dtype), random(n, K * D, dtype=dtype, seed=1), random(c, K, dtype=T)
    fixed, bias, left = random(2, K * D, dtype=T), random(K * D, dtype=T), random(n, K, dtype=T)
    drop = EdgeDrop(DROP, rate, np.arange(n) * 7 + 3, np.arange(c) * 5 + 1) if rate else None

    def run(which, X, G, dleft, fixed, bias, left):
        left_c, right = (torch.full((c, K), torch.nan, dtype=T, device=X.device) for _ in range(2))
        which.fixed_dots(X, fixed, left_c, right)
        sums = state(n, K, D, T, X.device, plus=True)
        sums.bias_KD, sums.act = bias, 2
        which.attend(A, X, left, right, sums, 0.2, drop, finish=True)
        record, dleft_n = (torch.full((n, k), torch.nan, dtype=T, device=X.device) for k in (4 * K, K))
        dZ, dX = torch.full_like(G, torch.nan), torch.full((c, K * D), torch.nan, dtype=T, device=X.device)
        dbias = which.attend_record(G, left, sums, 0.2, record, dleft_n, dZ)
        dfixed = which.attend_adjoint(A, X, dZ, record, right, fixed, dleft, dX, 0.2, drop)
        return [left_c, right, *sums.tensors(), record, dleft_n, dZ, dbias, dX, dfixed]

    loose = 300 if dtype == BF16 else 5  # dZ is rounded to bfloat16 on its way
    assert_equal(both(kernels, run, X, G, dleft, fixed, bias, left), loose * TOLERANCE[dtype])


@pytest.mark.parametrize("A", [pattern(F32), wide()], ids=["rows", "columns"])
@pytest.mark.parametrize(("K", "D", "dtype"), HEADS)
def test_attention_v2_and_its_adjoint(kernels, A, K, D, dtype):
    (n, c), T = A.shape, sums_type(dtype)
    right, left, G = (random(m, K * D, dtype=dtype, seed=s) for m, s in ((c, 0), (n, 1), (n, 2)))
    a, drop = random(K * D, dtype=T), EdgeDrop(DROP, 0.3, np.arange(n) * 7 + 3, np.arange(c) * 5 + 1)

    def run(which, right, left, G, a):
        sums = state(n, K, D, T, a.device, plus=False)
        which.attend2(A, right, left, a, sums, 0.2, drop, finish=True)
        record = torch.full((n, 3 * K), torch.nan, dtype=T, device=a.device)
        which.attend_record(G, None, sums, 0.2, record)
        dleft, dright, da = (torch.full((m, K * D), torch.nan, dtype=T, device=a.device) for m in (n, c, 1))
        which.attend2_rows(A, right, left, a, G, record, dleft, da[0], 0.2, drop)
        which.attend2_columns(A, right, left, a, G, record, dright, 0.2, drop)
        which.attend2_rows(A, right, left, a, G, record, dleft, da[0], 0.2, drop, accumulate=True)
        return [*(x for x in sums.tensors() if x is not None), record, dleft, dright, da]

    assert_equal(both(kernels, run, right, left, G, a), 20 * TOLERANCE[dtype])


@pytest.mark.parametrize("A", [pattern(F32), wide()], ids=["rows", "columns"])
@pytest.mark.parametrize("size", [1e4, 1e8])
@pytest.mark.parametrize(("K", "D", "dtype"), [(8, 4, F32), (3, 5, F64), (40, 2, F32)])
def test_weights_of_large_scores_add_up_to_1_and_are_the_same_in_gradients(kernels, A, size, K, D, dtype):
    (n, c), ends = A.shape, torch.arange(K * D)
    left, right, rows, columns = (steps(*s, size=size).to(dtype) for s in ((n, K), (c, K), (n, K * D), (c, K * D)))
    left, rows[:, :K] = left + size, rows[:, :K] + size
    a, X, G = torch.where((ends < K) | (ends % 2 == 0), 1, -1), random(c, K * D), random(n, K * D)

    def run(which, left, right, rows, columns, a, X, G):
        make = lambda *shape: torch.full(shape, torch.nan, dtype=dtype, device=X.device)
        first, ones, second = (state(n, K, D, dtype, X.device, plus) for plus in (True, True, False))
        which.attend(A, X, left, right, first, 0.5, finish=True)
        which.attend(A, torch.ones_like(X), left, right, ones, 0.5, finish=True)
        # Of 1,500 weights.
        assert (ones.Z_nKD - (ones.sum_nK[:, :1] > 0).to(dtype)).abs().max() <= 10 * TOLERANCE[dtype]
        record, dX, dleft, da = make(n, 4 * K), make(c, K * D), make(n, K * D), make(K * D)
        which.attend_record(G, left, first, 0.5, record, make(n, K))
        which.attend_adjoint(A, X, G, record, right, torch.zeros_like(X[:2]), torch.zeros_like(right), dX, 0.5)
        which.attend2(A, columns, rows, a, second, 0.5, finish=True)
        record2, dright = make(n, 3 * K), make(c, K * D)
        which.attend_record(G, None, second, 0.5, record2)
        which.attend2_rows(A, columns, rows, a, G, record2, dleft, da, 0.5)
        which.attend2_columns(A, columns, rows, a, G, record2, dright, 0.5)
        return [record, dX, record2, second.Z_nKD, dleft, dright]

    given = (left, right, rows, columns, *(x.to(dtype) for x in (a, X, G)))
    assert_equal(both(kernels, run, *given), 20 * TOLERANCE[dtype])


def test_attention_goes_on_over_blocks_of_columns(kernels):
    A, K, D = pattern(F64), 8, 3
    whole, cut = A.to_scipy(), 700
    blocks = [LocalCSR(sp.csr_array(part), F64) for part in (whole[:, :cut], whole[:, cut:])]
    X, left, right = random(A.shape[1], K * D), random(A.shape[0], K), random(A.shape[1], K)

    def run(which, X, left, right):
        sums = state(A.shape[0], K, D, F64, X.device, plus=True)
        for block, at in zip(blocks, (slice(None, cut), slice(cut, None))):
            last = block is blocks[1]
            which.attend(block, X[at], left, right[at].contiguous(), sums, 0.2, None, accumulate=last, finish=last)
        return sums.tensors()

    assert_equal(both(kernels, run, X, left, right), TOLERANCE[F64])


@pytest.mark.parametrize(("K", "D"), [(8, 4), (1, 40), (3, 5), (40, 2)])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_words_over_edges(kernels, K, D, dtype):
    A = pattern(dtype)
    (n, c), E = A.shape, A.nnz
    U, V, values, more = random(n, K * D), random(c, K * D), random(E, K), random(E, K, seed=3)
    values[A.indptr[5] : A.indptr[5] + 40], values[A.indptr[6] : A.indptr[7]] = -torch.inf, -torch.inf  # masked
    given = [x.to(dtype) for x in (U, V, values, more, random(n, K), random(c, K))]

    def run(which, U, V, values, more, left, right):
        make = lambda *shape: torch.full(shape, torch.nan, dtype=dtype, device=U.device)
        dots, added, alpha, dalpha, top, total, inner = (make(m, K) for m in (E, E, E, E, n, n, n))
        out, ones, back, back_ones = make(n, K * D), make(n, K), make(c, K * D), make(c, K)
        which.sddmm(A, U, V, dots)
        which.edge_add(A, left, right, added, values)
        which.softmax_sums(A, values, top, total)
        which.softmax_sums(A, more, top, total, accumulate=True)
        which.row_softmax(A, values, left.abs() + 3, 1 / total, alpha)
        which.row_dots(A, alpha, more, inner)
        which.row_softmax_adjoint(A, alpha, more, inner, dalpha)
        which.spmm_heads(A, values, V, out), which.spmm_heads(A, more, V, out, accumulate=True)
        which.spmm_heads(A, values, None, ones), which.spmm_heads(A, values, U, back, transpose=True)
        which.spmm_heads(A, values, None, back_ones, transpose=True)
        return [dots, added, top, total, alpha, inner, dalpha, out, ones, back, back_ones]

    assert_equal(both(kernels, run, *given), 5 * TOLERANCE[dtype])


@pytest.mark.parametrize("A", [pattern(F32), wide()], ids=["rows", "columns"])
@pytest.mark.parametrize("place", [torch.int32, torch.int16])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("dtype", [F32, F64, BF16])
def test_the_maximum_and_its_adjoint(kernels, A, place, positive, dtype):
    (n, c), F, T = A.shape, 37, sums_type(dtype)
    X, G = random(c, F, dtype=F64).mul(4).round().to(dtype), random(n, F, dtype=T)  # many are equal
    X[8, 3], order = torch.nan, np.random.default_rng(0).permutation(c).astype(np.int64)

    def run(which, X, G):
        out, arg = torch.full((n, F), torch.nan, dtype=dtype, device=X.device), torch.full((n, F), 9, dtype=place)
        dX, arg = torch.full((c, F), torch.nan, dtype=T, device=X.device), arg.to(X.device)
        which.maximum(A, X, order, out, arg, positive=positive)
        which.maximum_adjoint(A, G, arg, dX)
        return [out, arg, dX]

    assert_equal(both(kernels, run, X, G), TOLERANCE[F64] if dtype == F64 else 1e-5)


def test_too_many_heads_or_columns_are_refused(kernels):
    A = pattern(F32)
    for K, F in ((65, 65), (1, 1025)):
        U, V = torch.ones(A.shape[0], F), torch.ones(A.shape[1], F)
        with pytest.raises(ShapeError, match="up to 64 heads and 1,024 columns"):
            kernels.sddmm(A, U.to(kernels.device), V.to(kernels.device), torch.empty(A.nnz, K, device=kernels.device))
