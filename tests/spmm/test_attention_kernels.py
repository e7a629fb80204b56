"""The kernels of attention equal dense softmax attention and its gradients by torch."""

import inspect

import edge_reference as reference
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from spgnn.spmm.chains.end import ENDS
from spgnn.spmm.kernels import _kernels
from spgnn.spmm.kernels.attention_kernels import AttentionSums, EdgeDrop
from spgnn.spmm.kernels.backend import HOST, NULL
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.spmm.kernels.cpu import HostKernels
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.kernels.cuda import CudaKernels

SHAPES = [(1, 5), (1, 16), (2, 3), (3, 4), (4, 9), (5, 1), (8, 8), (8, 3), (16, 2), (20, 3)]  # K, D
WIDE = [(1, 40), (2, 32), (4, 64), (8, 16), (1, 300)]
TYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.fixture(params=_kernels.instruction_sets())
def isa(request, monkeypatch):
    monkeypatch.setattr(HOST, "isa", request.param, raising=False)


def blocks(n=23, c=40, cut=13, dtype=torch.float64, seed=0):
    """A pattern with an empty row and an empty column, whole and as two blocks of columns."""
    A = sp.random_array((n, c), density=0.3, format="lil", random_state=np.random.default_rng(seed))
    A[4], A[:, 7] = 0, 0
    A[2, :] = 1
    A = A.tocsr()
    A.sort_indices()
    parts = [A, A[:, :cut], A[:, cut:]]
    return [LocalCSR(sp.csr_array(part), dtype, threads=1) for part in parts]


def edge_drop(A, rate=0.4, key=1234567, first=0) -> EdgeDrop:
    return EdgeDrop(key, rate, np.arange(A.shape[0]) * 7 + 3, (first + np.arange(A.shape[1])) * 5 + 1)


def random(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64).to(
        dtype
    )


def dense_attention(A, X, e, drop):
    """softmax(e) with dropped edges, times X, e (E, K) differentiable: one row and head after the other."""
    row, column = reference.ends(A)
    K = e.shape[1]
    mask, X_cDK = reference.kept(A, K, drop, e.dtype), reference.by_head(X, K)
    rows = []
    for i in range(A.shape[0]):
        of = row == i
        alpha = torch.softmax(e[of], 0) * mask[of]
        rows.append((alpha[:, None] * X_cDK[column[of]]).sum(0).flatten())
    return torch.stack(rows)


def finished(A, X, left, right, slope, drop, dtype=torch.float64):
    """Sums over a list of (block, columns) in turn."""
    K = left.shape[1]
    sums = AttentionSums.empty(BufferPool(), len(left), K, X.shape[1] // K, dtype, plus=True)
    for x in sums.tensors():
        x.fill_(torch.nan)
    HOST.attend(A, X, left, right, sums, slope, drop, finish=True)
    return sums


def with_fixed(X, dX, fixed, dleft, dright):
    """dX and the gradients of two fixed rows, where left and right are inner products with them."""
    D = X.shape[1] // dleft.shape[1]
    shares = torch.stack([w.repeat(1, D) for w in (dleft, dright)])  # (2, c, K D)
    return dX + (fixed[:, None] * shares).sum(0), (X * shares).sum(1)


def steps(*shape, size, seed=0):
    """Multiples of 2^-7, or of 16 where float32 has no finer ones of that size: sums with size, and halves, are exact."""
    unit = 16 if size > 1e6 else 2**-7
    return (3 * random(*shape, seed=seed)).div(unit).round().mul(unit)


def assert_near(pairs, dtype, scale=1.0):
    """Equal to rounding, of numbers as large as scale and as the largest that is expected."""
    for got, wanted in pairs:
        of = max(scale, float(wanted.abs().max()))
        bound = 64 * torch.finfo(dtype).eps
        torch.testing.assert_close(got.double() / of, wanted / of, rtol=bound, atol=bound)


def on_any_threads(A, results_of):
    """What a function of the kernels returns, whose bits do not depend on the number of threads."""
    results = []
    for A.threads in (1, 2):
        A.transposed().threads = A.threads
        results.append(results_of())
    assert all(map(torch.equal, *results))
    return results[0]


def sums_type(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 1e4, 1e8])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(("K", "D"), [*SHAPES, *WIDE])
def test_attention_and_its_gradients_are_the_dense_ones_for_scores_of_any_size(isa, K, D, rate, size, dtype):
    A, _, _ = blocks(n=80, c=90)
    (n, c), slope, drop, T = A.shape, 0.5, edge_drop(A, rate) if rate else None, sums_type(dtype)
    X, G, fixed, dleft_c = random(c, K * D), random(n, K * D, seed=5), random(2, K * D), random(c, K, seed=8)
    is_negative = (torch.arange(n) % 3 == 0)[:, None]
    left, right = size * torch.where(is_negative, -1.0, 1.0) + steps(n, K, size=size), steps(c, K, size=size, seed=1)
    X, G, left, right, fixed, dleft_c = X.to(dtype), G.to(dtype), *(x.to(T) for x in (left, right, fixed, dleft_c))
    wide = [x.double().requires_grad_() for x in (X, left, right)]
    row, column = reference.ends(A)
    Z = dense_attention(A, wide[0], torch.nn.functional.leaky_relu(wide[1][row] + wide[2][column], slope), drop)
    dX, dleft, dright = torch.autograd.grad((Z * G).sum(), wide)

    def results_of():
        sums = finished(A, X, left, right, slope, drop, T)
        record, got_left, got_X = (torch.full(of, torch.nan, dtype=T) for of in ((n, 4 * K), (n, K), (c, K * D)))
        HOST.attend_record(G, left, sums, slope, record, got_left)
        dfixed = HOST.attend_adjoint(A, X, G, record, right, fixed, dleft_c, got_X, slope, drop)
        return sums.Z_nKD, got_left, got_X, dfixed

    expected = Z.detach(), dleft, *with_fixed(wide[0].detach(), dX, fixed.double(), dleft_c.double(), dright)
    assert_near(zip(on_any_threads(A, results_of), expected), T)
    ones = finished(A, torch.ones_like(X), left, right, slope, None, T).Z_nKD
    has_edges = torch.from_numpy(np.diff(A.indptr) > 0).double()[:, None]
    assert_near([(ones, has_edges.expand_as(ones))], T)  # the weights of a row add up to 1


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 1e4, 1e8])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(("K", "D"), [*SHAPES, *WIDE])
def test_attention_v2_and_its_gradients_are_the_dense_ones_for_scores_of_any_size(isa, K, D, rate, size, dtype):
    A, _, _ = blocks(n=80, c=90)
    (n, c), slope, drop, T = A.shape, 0.5, edge_drop(A, rate) if rate else None, sums_type(dtype)
    right, left, G = steps(c, K * D, size=size), steps(n, K * D, size=size, seed=1), random(n, K * D, seed=5)
    left[:, :K] += size  # the first entry of each head
    a = torch.where((torch.arange(K * D) < K) | (torch.arange(K * D) % 2 == 0), 1.0, -1.0).to(T)
    right, left, G = (x.to(dtype) for x in (right, left, G))
    wide = [x.double().requires_grad_() for x in (right, left, a)]
    row, column = reference.ends(A)
    u = torch.nn.functional.leaky_relu(wide[1][row] + wide[0][column], slope)
    Z = dense_attention(A, wide[0], reference.by_head(wide[2] * u, K).sum(1), drop)
    dright, dleft, da = torch.autograd.grad((Z * G).sum(), wide)

    def results_of():
        sums = AttentionSums.empty(BufferPool(), n, K, D, T, plus=False)
        HOST.attend2(A, right, left, a, sums, slope, drop, finish=True)
        record = torch.full((n, 3 * K), torch.nan, dtype=T)
        HOST.attend_record(G, None, sums, slope, record)
        got_right, got_left, got_a = (torch.full(x.shape, torch.nan, dtype=T) for x in (right, left, a))
        HOST.attend2_rows(A, right, left, a, G, record, got_left, got_a, slope, drop)
        HOST.attend2_columns(A, right, left, a, G, record, got_right, slope, drop)
        return sums.Z_nKD, got_right, got_left, got_a

    *got, got_a = on_any_threads(A, results_of)
    assert_near(zip(got, (Z.detach(), dright, dleft)), T, scale=float(right.detach().abs().max()))
    assert_near([(got_a, da)], T, scale=size * c)  # a sum of de u, u as large as the scores


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("act", range(len(ENDS)))
@pytest.mark.parametrize(("K", "D"), [(1, 5), (3, 4), (8, 8), (1, 40)])
def test_sums_end_with_bias_and_activation_and_records_have_what_is_before(isa, K, D, act, dtype):
    A, _, _ = blocks()
    (n, c), T, near = A.shape, sums_type(dtype), dict(rtol=1e-5, atol=1e-5)
    X, G = 3 * random(c, K * D, dtype=dtype), random(n, K * D, dtype=dtype, seed=5)
    left, right, bias = random(n, K).to(T), random(c, K).to(T), random(K * D).to(T)
    plain = finished(A, X, left, right, 0.2, None, T)
    sums = AttentionSums.empty(BufferPool(), n, K, D, T, plus=True)
    sums.bias_KD, sums.act = bias, act
    HOST.attend(A, X, left, right, sums, 0.2, finish=True)
    H = [lambda Z: Z, torch.relu, torch.nn.functional.elu][act](plain.Z_nKD + bias)
    torch.testing.assert_close(sums.Z_nKD, H, **near)
    dZ = (G.to(T) * (1 if act == 0 else torch.where(H > 0, 1.0, 0.0 if act == 1 else H + 1))).to(dtype)
    expected, got = ((torch.empty(n, 4 * K, dtype=T), torch.empty(n, K, dtype=T)) for _ in range(2))
    HOST.attend_record(dZ, left, plain, 0.2, *expected)
    of_G, total = torch.full_like(G, torch.nan), HOST.attend_record(G, left, sums, 0.2, *got, G.clone())
    assert torch.equal(HOST.attend_record(G, left, sums, 0.2, *got, of_G, 2), total)
    for one, two in ((of_G, dZ), (total, dZ.double().sum(0)), *zip(got, expected)):
        rounded = dict(rtol=2e-2, atol=0.1) if dtype == torch.bfloat16 else near
        torch.testing.assert_close(one.double(), two.double(), **rounded)


@pytest.mark.parametrize("act", ["relu", "elu"])
def test_an_activation_without_digits_left_has_no_gradient_and_no_nan(isa, act):
    """Where exp(z) - 1 is -1, z is not known from it, and not needed."""
    A, (K, D) = LocalCSR(sp.csr_array(np.eye(3)), torch.float32, threads=1), (2, 4)
    X, left = torch.full((3, K * D), -300.0), torch.zeros(3, K)
    sums = AttentionSums.empty(BufferPool(), 3, K, D, torch.float32, plus=True)
    sums.act = ENDS.index(act)
    HOST.attend(A, X, left, left, sums, 0.2, finish=True)
    record, dleft, dZ = torch.empty(3, 4 * K), torch.empty(3, K), torch.ones(3, K * D)
    HOST.attend_record(dZ, left, sums, 0.2, record, dleft, dZ)
    assert not dZ.any() and not record[:, 3 * K :].any() and not dleft.any()


@pytest.mark.parametrize("K", [1, 3, 8])
def test_a_score_that_is_not_a_number_makes_its_row_so_and_no_other(isa, K):
    A, _, _ = blocks()
    n, c = A.shape
    X, left, right = random(c, K * 5), random(n, K), random(c, K)
    j = int(A.indices[A.indptr[9]])
    expected = finished(A, X, left, right, 0.2, None)
    for bad in (torch.nan, torch.inf):
        right[j] = bad
        Z, row, column = finished(A, X, left, right, 0.2, None).Z_nKD, *reference.ends(A)
        readers = torch.zeros(n, dtype=torch.bool).index_fill(0, row[column == j], True)
        assert Z[readers].isnan().all()
        assert torch.equal(Z[~readers], expected.Z_nKD[~readers])


def test_two_blocks_of_columns_one_after_the_other_or_merged_equal_the_whole():
    whole, own, ghosts = blocks()
    K, D, slope = 4, 9, 0.2
    (n, c), m = whole.shape, own.shape[1]
    X, left, right = random(c, K * D), random(n, K), 4 * random(c, K)
    drops = [edge_drop(whole), edge_drop(own), edge_drop(ghosts, first=m)]
    expected = finished(whole, X, left, right, slope, drops[0])

    going_on = AttentionSums.empty(BufferPool(), n, K, D, torch.float64, plus=True)
    partials = [AttentionSums.empty(BufferPool(), n, K, D, torch.float64, plus=True) for _ in range(2)]
    HOST.attend(own, X[:m], left, right[:m], going_on, slope, drops[1])
    HOST.attend(ghosts, X[m:], left, right[m:], going_on, slope, drops[2], accumulate=True, finish=True)
    HOST.attend(own, X[:m], left, right[:m], partials[0], slope, drops[1])
    HOST.attend(ghosts, X[m:], left, right[m:], partials[1], slope, drops[2])
    merged = AttentionSums(*(x.clone() for x in partials[0].tensors()))
    merged.merge(partials[1])
    merged.finish()
    for got in (going_on, merged):
        for x, y in zip(got.tensors(), expected.tensors()):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)

    # The gradient of left from the partial sums of each block, D of the whole.
    G = random(n, K * D, seed=5)
    record, dleft = torch.empty(n, 4 * K).double(), torch.empty(n, K).double()
    HOST.attend_record(G, left, expected, slope, record, dleft)
    total = torch.zeros_like(dleft)
    for part in partials:
        part.finish(expected)
        share = torch.empty_like(dleft)
        part.D_nK = record[:, 3 * K :].contiguous()
        HOST.attend_record(G, left, part, slope, record, share)
        total += share
    torch.testing.assert_close(total, dleft, rtol=1e-12, atol=1e-12)


def test_the_kernels_of_every_backend_are_called_alike():
    arguments = lambda kind, name: inspect.signature(getattr(kind, name)).parameters.keys()
    for name in dir(HostKernels):
        if name[0] != "_" and callable(getattr(HostKernels, name)):
            assert hasattr(NULL, name) and arguments(HostKernels, name) == arguments(CudaKernels, name)
