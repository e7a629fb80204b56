"""The kernels of attention equal dense softmax attention and its gradients by torch."""

import edge_reference as reference
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from spgnn.spmm.chains.end import ENDS
from spgnn.spmm.kernels import _kernels
from spgnn.spmm.kernels.attention_sums import AttentionSums, EdgeDrop
from spgnn.spmm.kernels.backend import HOST, NULL
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.kernels.cuda import CudaKernels

SHAPES = [(1, 5), (1, 16), (2, 3), (3, 4), (4, 9), (5, 1), (8, 8), (8, 3), (16, 2), (20, 3)]  # K, D


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


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(("K", "D"), SHAPES)
def test_attention_and_its_gradients_are_those_of_the_dense_formula(isa, K, D, rate):
    A, _, _ = blocks()
    (n, c), slope = A.shape, 0.2
    drop = edge_drop(A, rate) if rate else None
    X, left, right = (random(*s).requires_grad_() for s in ((c, K * D), (n, K), (c, K)))
    row, column = reference.ends(A)
    Z = dense_attention(A, X, torch.nn.functional.leaky_relu(left[row] + right[column], slope), drop)
    G = random(n, K * D, seed=5)
    dX, dleft, dright = torch.autograd.grad((Z * G).sum(), (X, left, right))

    X, left, right = X.detach(), left.detach(), right.detach()
    sums = finished(A, X, left, right, slope, drop)
    torch.testing.assert_close(sums.Z_nKD, Z.detach(), rtol=1e-12, atol=1e-12)
    record, got_left = torch.full((n, 4 * K), torch.nan).double(), torch.full((n, K), torch.nan).double()
    HOST.attend_record(G, left, sums, slope, record, got_left)
    fixed, dleft_c, got_X = random(2, K * D), random(c, K, seed=8), torch.full_like(X, torch.nan)
    dfixed = HOST.attend_adjoint(A, X, G, record, right, fixed, dleft_c, got_X, slope, drop)
    all_X, all_fixed = with_fixed(X, dX, fixed, dleft_c, dright)
    for got, expected in ((got_X, all_X), (dfixed, all_fixed), (got_left, dleft)):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(("K", "D"), SHAPES)
def test_attention_v2_and_its_gradients_are_those_of_the_dense_formula(isa, K, D, rate):
    A, _, _ = blocks()
    (n, c), slope = A.shape, 0.2
    drop = edge_drop(A, rate) if rate else None
    right, left, a = (random(*s).requires_grad_() for s in ((c, K * D), (n, K * D), (K * D,)))
    row, column = reference.ends(A)
    u = torch.nn.functional.leaky_relu(left[row] + right[column], slope)
    Z = dense_attention(A, right, reference.by_head(a * u, K).sum(1), drop)
    G = random(n, K * D, seed=5)
    expected = torch.autograd.grad((Z * G).sum(), (right, left, a))

    right, left, a = right.detach(), left.detach(), a.detach()
    sums = AttentionSums.empty(BufferPool(), n, K, D, torch.float64, plus=False)
    HOST.attend2(A, right, left, a, sums, slope, drop, finish=True)
    torch.testing.assert_close(sums.Z_nKD, Z.detach(), rtol=1e-12, atol=1e-12)
    record, nan = torch.full((n, 3 * K), torch.nan).double(), torch.nan
    HOST.attend_record(G, None, sums, slope, record)
    torch.testing.assert_close(record[:, 2 * K :], reference.by_head(G * sums.Z_nKD, K).sum(1))
    dright, dleft, da = (torch.full_like(x, nan) for x in (right, left, a))
    HOST.attend2_rows(A, right, left, a, G, record, dleft, da, slope, drop)
    HOST.attend2_columns(A, right, left, a, G, record, dright, slope, drop)
    for got, wanted in zip((dright, dleft, da), expected):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def largest(x) -> float:
    """The largest entry; top of an empty row is -inf."""
    return x.nan_to_num(neginf=0).abs().max().item()


def all_of_v1(A, X, G, left, right, D_nK, drop, dtype):
    """What the kernels of v1 write, given D for the adjoint."""
    K = left.shape[1]
    sums = finished(A, X, left, right, 0.2, drop, dtype)
    record = torch.cat([left, sums.top_nK, sums.sum_nK, D_nK], 1)
    dX, fixed = torch.full(X.shape, torch.nan, dtype=dtype), random(2, X.shape[1]).to(dtype)
    dfixed = HOST.attend_adjoint(A, X, G, record, right, fixed, D_nK[:1].expand(len(X), K).contiguous(), dX, 0.2, drop)
    return [*sums.tensors(), dX, dfixed]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("K", "D"), [*SHAPES, (1, 40), (2, 32), (4, 64), (8, 16), (1, 300)])
def test_float32_and_bfloat16_equal_the_loop_in_float64_for_any_number_of_threads(isa, K, D, dtype):
    A, _, _ = blocks(n=80, c=90)
    (n, c), drop = A.shape, edge_drop(A)
    X, G = (random(*shape).to(dtype) for shape in ((c, K * D), (n, K * D)))
    left, right, dots = (random(*shape).float() for shape in ((n, K), (c, K), (n, K)))
    sums = AttentionSums.empty(BufferPool(), n, K, D, torch.float64, plus=True)
    wide = [x.double() for x in (X, G, left, right, dots)]
    reference.attend(A, wide[0], wide[2], wide[3], sums, 0.2, drop, False)
    sums.finish()
    dX, dright = torch.empty(c, K * D).double(), torch.empty(c, K).double()
    record = torch.cat([wide[2], sums.top_nK, sums.sum_nK, wide[4]], 1)
    reference.attend_adjoint(A, wide[0], wide[1], record, wide[3], dX, dright, 0.2, drop, False)
    fixed = random(2, K * D).float().double()
    dX, dfixed = with_fixed(wide[0], dX, fixed, wide[4][:1].expand(c, K), dright)
    results = []
    for A.threads in (1, 2):
        A.transposed().threads = A.threads
        results.append(all_of_v1(A, X, G, left, right, dots, drop, torch.float32))
    for one, two, expected in zip(*results, [*sums.tensors(), dX, dfixed]):
        assert torch.equal(one, two)
        scale = max(1.0, largest(expected) / 10)
        torch.testing.assert_close(one.double() / scale, expected / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("K", "D"), [*SHAPES, (1, 40), (2, 32), (8, 16), (1, 300)])
def test_v2_in_float32_and_bfloat16_equals_the_loop_in_float64_for_any_number_of_threads(isa, K, D, dtype):
    A, _, _ = blocks(n=80, c=90)
    (n, c), drop = A.shape, edge_drop(A)
    right, left, G = (random(*shape).to(dtype) for shape in ((c, K * D), (n, K * D), (n, K * D)))
    a, dots = random(K * D, seed=3).float() / D, random(n, K).float()
    sums = AttentionSums.empty(BufferPool(), n, K, D, torch.float64, plus=False)
    wide = [x.double() for x in (right, left, a, G, dots)]
    reference.attend2(A, *wide[:3], sums, 0.2, drop, False)
    sums.finish()
    expected = reference.attend2_both(A, *wide[:4], torch.cat([sums.top_nK, sums.sum_nK, wide[4]], 1), 0.2, drop)
    results = []
    for A.threads in (1, 2):
        A.transposed().threads = A.threads
        of = AttentionSums.empty(BufferPool(), n, K, D, torch.float32, plus=False)
        HOST.attend2(A, right, left, a, of, 0.2, drop, finish=True)
        dleft, da, dright = (torch.full(x.shape, torch.nan) for x in expected)
        given = (G, torch.cat([of.top_nK, of.sum_nK, dots], 1))
        HOST.attend2_rows(A, right, left, a, *given, dleft, da, 0.2, drop)
        HOST.attend2_columns(A, right, left, a, *given, dright, 0.2, drop)
        results.append([of.Z_nKD, of.top_nK, dleft, da, dright])
    for one, two, wanted in zip(*results, [sums.Z_nKD, sums.top_nK, *expected]):
        assert torch.equal(one, two)
        scale = max(1.0, largest(wanted))
        torch.testing.assert_close(one.double() / scale, wanted / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("act", range(len(ENDS)))
@pytest.mark.parametrize(("K", "D"), [(1, 5), (3, 4), (8, 8), (1, 40)])
def test_sums_end_with_bias_and_activation_and_records_have_what_is_before(isa, K, D, act, dtype):
    A, _, _ = blocks()
    (n, c), T, near = A.shape, torch.float64 if dtype == torch.float64 else torch.float32, dict(rtol=1e-5, atol=1e-5)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 1e4, 1e8])
@pytest.mark.parametrize(("K", "D"), SHAPES)
def test_attention_is_as_exact_for_large_scores_as_for_small_ones(isa, K, D, size, dtype):
    A, _, _ = blocks()
    (n, c), slope, negative_n1 = A.shape, 0.5, (torch.arange(A.shape[0]) % 3 == 0)[:, None]
    X, G = random(c, K * D).to(dtype), random(n, K * D, seed=5).to(dtype)
    left, right = size * torch.where(negative_n1, -1.0, 1.0) + steps(n, K, size=size), steps(c, K, size=size, seed=1)
    wide = [x.double().requires_grad_() for x in (X, left, right)]
    row, column = reference.ends(A)
    Z = dense_attention(A, wide[0], torch.nn.functional.leaky_relu(wide[1][row] + wide[2][column], slope), None)
    dX, dleft, dright = torch.autograd.grad((Z * G).sum(), wide)
    left, right, none = left.to(dtype), right.to(dtype), torch.zeros(c, K, dtype=dtype)
    sums, ones = (finished(A, x, left, right, slope, None, dtype) for x in (X, torch.ones_like(X)))
    record, got_left, got_X = torch.empty(n, 4 * K, dtype=dtype), torch.empty(n, K, dtype=dtype), torch.empty_like(X)
    HOST.attend_record(G, left, sums, slope, record, got_left)
    dfixed = HOST.attend_adjoint(A, X, G, record, right, torch.zeros(2, K * D, dtype=dtype), none, got_X, slope)
    _, all_fixed = with_fixed(wide[0].detach(), dX, torch.zeros(2, K * D), none.double(), dright)
    assert_near([(ones.Z_nKD, (Z.detach() != 0).double())], dtype)  # the weights of a row add up to 1
    assert_near([(sums.Z_nKD, Z.detach()), (got_X, dX), (got_left, dleft), (dfixed, all_fixed)], dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 1e4, 1e8])
@pytest.mark.parametrize(("K", "D"), SHAPES)
def test_attention_v2_is_as_exact_for_large_scores_as_for_small_ones(isa, K, D, size, dtype):
    A, _, _ = blocks()
    (n, c), slope = A.shape, 0.5
    right, left, G = steps(c, K * D, size=size), steps(n, K * D, size=size, seed=1), random(n, K * D, seed=5).to(dtype)
    left[:, :K] += size  # the first entry of each head
    a = torch.where((torch.arange(K * D) < K) | (torch.arange(K * D) % 2 == 0), 1.0, -1.0)
    wide = [x.double().requires_grad_() for x in (right, left, a)]
    row, column = reference.ends(A)
    u = torch.nn.functional.leaky_relu(wide[1][row] + wide[0][column], slope)
    Z = dense_attention(A, wide[0], reference.by_head(wide[2] * u, K).sum(1), None)
    dright, dleft, da = torch.autograd.grad((Z * G).sum(), wide)
    right, left, a = (x.to(dtype) for x in (right, left, a))
    sums, record = AttentionSums.empty(BufferPool(), n, K, D, dtype, plus=False), torch.empty(n, 3 * K, dtype=dtype)
    HOST.attend2(A, right, left, a, sums, slope, finish=True)
    HOST.attend_record(G, None, sums, slope, record)
    got_right, got_left, got_a = (torch.empty_like(x) for x in (right, left, a))
    HOST.attend2_rows(A, right, left, a, G, record, got_left, got_a, slope)
    HOST.attend2_columns(A, right, left, a, G, record, got_right, slope)
    assert_near([(sums.Z_nKD, Z.detach()), (got_right, dright), (got_left, dleft)], dtype)
    assert_near([(got_a, da)], dtype, scale=size * c)  # a sum of de u, u as large as the scores


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


def test_every_backend_has_the_kernels():
    names = [
        name for kind in type(HOST).__mro__ for name, value in vars(kind).items() if callable(value) and name[0] != "_"
    ]
    assert not [name for name in names if not hasattr(NULL, name) or not hasattr(CudaKernels, name)]
