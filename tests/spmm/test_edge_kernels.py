"""The kernels over edges equal dense formulas, and their adjoints pass the dot test."""

import edge_reference as reference
import numpy as np
import pytest
import torch
from test_attention_kernels import SHAPES, blocks, isa, random  # noqa: F401

from spgnn.spmm.kernels.backend import HOST


@pytest.mark.parametrize(("K", "D"), SHAPES)
def test_products_for_each_head_and_their_adjoints_pass_the_dot_test(isa, K, D):  # noqa: F811
    A, _, _ = blocks()
    (n, c), E = A.shape, len(A.indices)
    values, U, V = random(E, K), random(n, K * D), random(c, K * D)
    row, column = reference.ends(A)
    dense = torch.zeros(n, c, K).double()
    dense[row, column] = values
    out, dots, transposed = torch.empty(n, K * D).double(), torch.empty(E, K).double(), torch.empty(c, K * D).double()
    HOST.spmm_heads(A, values, V, out)
    V_cDK = V.view(c, D, K)
    torch.testing.assert_close(out, torch.einsum("ijk,jdk->idk", dense, V_cDK).flatten(1), rtol=1e-12, atol=1e-12)
    HOST.spmm_heads(A, values, U, transposed, transpose=True)
    HOST.sddmm(A, U, V, dots)
    expected = (out * U).sum()
    torch.testing.assert_close((V * transposed).sum(), expected)
    torch.testing.assert_close((values * dots).sum(), expected)
    HOST.spmm_heads(A, values, V, out, accumulate=True)
    torch.testing.assert_close((out * U).sum(), 2 * expected)


@pytest.mark.parametrize("F", [1, 3, 16, 41, 64])
def test_sums_at_nonzeros_and_over_rows_and_columns_have_any_of_their_terms(isa, F):  # noqa: F811
    A, _, _ = blocks()
    (n, c), E = A.shape, len(A.indices)
    U, V, M, row, column = random(n, F), random(c, F, seed=1), random(E, F, seed=2), *reference.ends(A)
    for terms in (
        (U, V, M),
        (U, V, None),
        (U, None, M),
        (None, V, M),
        (U, None, None),
        (None, V, None),
        (None, None, M),
    ):
        out = torch.full((E, F), torch.nan).double()
        HOST.edge_add(A, terms[0], terms[1], out, terms[2])
        expected = sum(x[at] for x, at in zip(terms, (row, column, slice(None))) if x is not None)
        torch.testing.assert_close(out, expected, rtol=1e-14, atol=1e-14)
    with pytest.raises(ValueError, match="a sum has a term"):
        HOST.edge_add(A, None, None, out)
    for transpose, of, rows in ((False, row, n), (True, column, c)):
        out = torch.full((rows, F), torch.nan).double()
        HOST.spmm_heads(A, M, None, out, transpose=transpose)
        expected = torch.zeros(rows, F).double().index_add(0, of, M)
        torch.testing.assert_close(out, expected, rtol=1e-13, atol=1e-13)
        HOST.spmm_heads(A, M, None, out, accumulate=True, transpose=transpose)
        torch.testing.assert_close(out, 2 * expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [0, 1e4, 1e8])
@pytest.mark.parametrize("K", [1, 2, 3, 4, 8, 16, 20])
def test_softmax_of_rows_over_two_blocks_and_its_gradient_are_those_of_torch(isa, K, size, dtype):  # noqa: F811
    whole, own, ghosts = blocks()
    n, bound = whole.shape[0], 16 * torch.finfo(dtype).eps
    near = lambda got, wanted: torch.testing.assert_close(got.double(), wanted, rtol=2 * bound, atol=bound)
    e = [(size + 3 * random(len(A.indices), K)).to(dtype) for A in (own, ghosts)]
    e[0][own.indptr[2] : own.indptr[3]] = -torch.inf
    rows = [reference.ends(A)[0] for A in (own, ghosts)]
    top, total, D = (torch.full((n, K), torch.nan, dtype=dtype) for _ in range(3))
    for A, values, more in zip((own, ghosts), e, (False, True)):
        HOST.softmax_sums(A, values, top, total, accumulate=more)
    alpha, dalpha = [torch.empty_like(x) for x in e], [random(*x.shape, seed=9).to(dtype) for x in e]
    for i, A in enumerate((own, ghosts)):
        HOST.row_softmax(A, e[i], top, 1 / total, alpha[i])
        HOST.row_dots(A, alpha[i], dalpha[i], D, accumulate=i > 0)
    wide, row = [x.double().requires_grad_() for x in e], torch.cat(rows)
    together, expected = torch.cat(wide), torch.zeros(len(row), K).double()
    for i in range(n):
        expected[row == i] = torch.softmax(together[row == i], 0)
    near(torch.cat(alpha), expected.detach())
    wanted = torch.autograd.grad((expected * torch.cat(dalpha).double()).sum(), wide)
    for i, A in enumerate((own, ghosts)):
        de = torch.empty_like(alpha[i])
        HOST.row_softmax_adjoint(A, alpha[i], dalpha[i], D, de)
        near(de, wanted[i])


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("F", [1, 3, 16, 41])
def test_places_of_16_bits_and_a_relu_give_the_same_maximum_and_gradient(isa, F, positive):  # noqa: F811
    whole, _, _ = blocks()
    (n, c), X, G = whole.shape, random(whole.shape[1], F).round(), random(whole.shape[0], F)
    order, results = np.random.default_rng(1).permutation(c), []
    for dtype, H in ((torch.int16, X), (torch.int32, X.relu() if positive else X)):
        out, arg, dX = random(n, F), torch.full((n, F), 99, dtype=dtype), random(c, F)
        HOST.maximum(whole, H, order, out, arg, positive=positive and dtype == torch.int16)
        is_masked = positive and dtype == torch.int32  # relu after the fact: its gradient has the mask
        HOST.maximum_adjoint(whole, torch.where(out > 0, G, 0.0) if is_masked else G, arg, dX)
        results.append((out, dX))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("F", [1, 3, 16, 41])
def test_maximum_over_two_blocks_takes_of_equal_entries_the_smallest_id(isa, F):  # noqa: F811
    whole, own, ghosts = blocks()
    (n, c), m = whole.shape, own.shape[1]
    X = random(c, F).round()  # many ties
    X[3, 0] = torch.nan
    order = torch.from_numpy(np.random.default_rng(1).permutation(c))
    out, arg = torch.full((n, F), torch.nan).double(), torch.full((n, F), 99, dtype=torch.int32)
    HOST.maximum(own, X[:m], order.numpy(), out, arg)
    HOST.maximum(ghosts, X[m:], order.numpy(), out, arg, offset=m, accumulate=True)
    for i in range(n):
        columns = torch.from_numpy(whole.indices[whole.indptr[i] : whole.indptr[i + 1]].astype(np.int64))
        for f in range(F):
            if not len(columns):
                assert (out[i, f], arg[i, f]) == (0, -1)
                continue
            best = X[columns, f].amax()
            ties = columns[(X[columns, f] == best) | (X[columns, f].isnan() & best.isnan())]
            assert out[i, f] == best or (out[i, f].isnan() and best.isnan())
            assert arg[i, f] == ties[order[ties].argmin()]

    G, dX = random(n, F), torch.full((c, F), torch.nan).double()
    HOST.maximum_adjoint(own, G, arg, dX[:m])
    HOST.maximum_adjoint(ghosts, G, arg, dX[m:], offset=m)
    expected = torch.zeros_like(dX)
    for f in range(F):
        at = arg[:, f] >= 0
        expected[:, f].index_add_(0, arg[at, f].long(), G[at, f])
    torch.testing.assert_close(dX, expected)
