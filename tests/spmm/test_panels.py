"""Products in column panels: the same bits as in one pass, made where they may pay, kept where they do."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from spgnn.spmm import _kernels, panels
from spgnn.spmm.local import LocalCSR
from spgnn.spmm.panels import Panels, cut, panel_bytes, panel_count


@pytest.fixture
def small(monkeypatch):
    """Panels for small matrices, too."""
    for name, value in (("SMALLEST_NNZ", 1), ("SMALLEST_X", 1), ("NONZEROS_A_PANEL", 5)):
        monkeypatch.setattr(panels, name, value)


def long_rows(n=60, m=50, density=0.5, dtype=np.float32, seed=0) -> sp.csr_array:
    A = sp.random_array((n, m), density=density, format="csr", dtype=dtype, rng=np.random.default_rng(seed))
    A.sort_indices()
    return A


@pytest.mark.parametrize("count", [1, 2, 3, 8, 50])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_panels_together_are_the_matrix(count, index):
    A = long_rows()
    A.data[(A.indices >= 7) & (A.indices < 20)] = 0
    A.eliminate_zeros()  # columns without nonzeros
    A = sp.csr_array((A.data, A.indices.astype(index), A.indptr.astype(index)), shape=A.shape)
    parts, whole = cut(A.indptr, A.indices, A.data, 50, count), np.zeros(A.shape, A.dtype)
    assert all(part[3] is None for part in cut(A.indptr, A.indices, None, 50, count))
    assert len(parts) == count and parts[0][0].start == 0 and parts[-1][0].stop == A.shape[1]
    for (columns, indptr, indices, weights), following in zip(parts, [*parts[1:], None]):
        assert following is None or columns.stop == following[0].start
        assert indptr.dtype == np.int64 and indices.dtype == index
        whole[:, columns] = sp.csr_array((weights, indices, indptr), shape=(A.shape[0], columns.stop - columns.start)).toarray()
    np.testing.assert_array_equal(whole, A.toarray())


def test_panels_hold_nearly_equal_nonzeros():
    A = long_rows(400, 300, 0.3)
    assert max(indptr[-1] for _, indptr, _, _ in cut(A.indptr, A.indices, A.data, 300, 4)) <= A.nnz / 4 + 2 * 400


@pytest.mark.parametrize("isa", _kernels.instruction_sets())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("F", [32, 33, 41, 64, 128, 129, 256, 300])
def test_one_pass_and_several_give_the_same_bits(isa, dtype, F):
    A, rng = long_rows(dtype=dtype), np.random.default_rng(1)
    X, bias, add = (rng.standard_normal(shape).astype(dtype) for shape in ((50, F), F, (60, F)))
    for weights in (A.data, None):
        for accumulate in (False, True):
            one = np.full((60, F), 0.5 if accumulate else np.nan, dtype)
            several = one.copy()
            options = {"bias": bias, "relu": True, "add": add}
            _kernels.spmm(A.indptr.astype(np.int64), A.indices.astype(np.int32), weights, X, one, accumulate, isa=isa, **options)
            for i, (columns, indptr, indices, part) in enumerate(cut(A.indptr, A.indices, weights, 50, 4)):
                last = options if i == 3 else {}
                _kernels.spmm(indptr, indices.astype(np.int32), part, X[columns], several, accumulate or i > 0, isa=isa, **last)
            np.testing.assert_array_equal(several, one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_every_product_of_a_matrix_is_the_same_whichever_way_it_is_made(small, dtype, is_weighted):
    A = long_rows()
    A.data = A.data if is_weighted else np.ones_like(A.data)
    block, X = LocalCSR(A, dtype), torch.randn(50, 64, dtype=dtype)
    assert block.panels.count > 1
    block.panels = seen = Watched(block.panels.count)
    bias, add, start = torch.randn(64, dtype=dtype), torch.randn(60, 64, dtype=dtype), torch.randn(60, 64, dtype=dtype)
    results = [block.apply(X, start.clone(), accumulate=True, bias_F=bias, relu=True, add_nF=add) for _ in range(8)]
    assert all(torch.equal(result, results[0]) for result in results)
    expected = torch.relu(torch.from_numpy(A.toarray()).to(dtype) @ X + start + bias + add)
    torch.testing.assert_close(results[0], expected, rtol=2e-5, atol=2e-5)
    assert seen.ways[:6] == [False, True] * 3 and len(seen.chosen) == 1
    fresh = LocalCSR(A, dtype)
    poisoned = [fresh.apply(X, torch.full((60, 64), torch.nan, dtype=dtype)) for _ in range(4)]
    torch.testing.assert_close(poisoned[1], torch.from_numpy(A.toarray()).to(dtype) @ X, rtol=2e-5, atol=2e-5)
    assert all(torch.equal(result, poisoned[0]) for result in poisoned)


class Watched(Panels):
    """Panels that remember which way each product was made."""

    def took(self, key, in_panels, seconds):
        self.ways = [*getattr(self, "ways", []), in_panels]
        super().took(key, in_panels, seconds)


def finish_trials(found: Panels, key, several_s: float) -> None:
    """Let a width try both ways to the end; one pass takes a second."""
    for trial in range(panels.TRIALS):
        for in_panels in (False, True):
            assert found.next_way(key) == in_panels
            found.took(key, in_panels, 9.0 if trial == 0 else several_s if in_panels else 1.0)  # the fastest counts


@pytest.mark.parametrize("several_s, stays", [(0.5, True), (0.96, True), (0.98, False), (2.0, False)])
def test_the_faster_way_stays_and_panels_that_lose_are_given_up(several_s, stays):
    found, key = Panels(4, parts=["made"]), (64, torch.float32)
    finish_trials(found, key, several_s)
    assert [found.next_way(key) for _ in range(3)] == [stays] * 3
    assert (found.parts is not None) == stays


def test_panels_stay_while_another_width_uses_or_tries_them():
    found = Panels(4, parts=["made"])
    for in_panels in (False, True):
        found.next_way("tries")
        found.took("tries", in_panels, 1.0)
    finish_trials(found, "loses", 2.0)
    assert found.chosen == {"loses": False} and found.parts is not None


def test_a_width_that_was_multiplied_once_keeps_no_panels():
    found = Panels(4, parts=["made"])
    found.next_way("once")
    found.took("once", False, 1.0)
    finish_trials(found, "loses", 2.0)
    assert found.parts is None and found.next_way("once")


def test_making_panels_takes_little_beside_them():
    A = sp.csr_array(sp.random_array((3000, 3000), density=0.05, format="csr", dtype=np.float32, rng=np.random.default_rng(0)))
    tracemalloc.start()
    parts = cut(A.indptr, A.indices, A.data, 3000, 4)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(parts) == 4 and peak - held < 7 * A.nnz


@pytest.mark.parametrize("n, m", [(0, 0), (0, 5), (5, 0), (3, 1)])
def test_panels_of_nothing_and_of_one_column(n, m):
    A = sp.csr_array(np.ones((n, m), np.float32))
    parts = cut(A.indptr, A.indices, A.data, m, 3)
    assert len(parts) == 3 and sum(len(indices) for _, _, indices, _ in parts) == n * m and parts[-1][0].stop == m


def test_panels_are_for_long_rows_of_large_matrices_and_wide_products():
    assert panel_count(1 << 17, 7_046_772) == 4 and panel_count(232_965, 114_848_857) == panels.MOST_PANELS
    assert panel_count(169_343, 2_315_598) == 1 and panel_count(1000, 1 << 19) == 1 and panel_count(0, 0) == 1
    found = Panels(4)
    assert found.fit(1 << 17, 64, 4) and not found.fit(1 << 17, 16, 4) and not found.fit(1000, 64, 4) and not Panels(1).fit(1 << 17, 64, 4)
    assert panel_bytes(1 << 17, 1 << 17, 7_046_772, 256) == 7_046_772 * 8 + 4 * 8 * ((1 << 17) + 1)
    assert panel_bytes(169_343, 169_343, 2_315_598, 256) == panel_bytes(20_000, 20_000, 1_200_000, 256) == 0


def test_weights_that_change_make_no_panels(small):
    block = LocalCSR(long_rows())
    other = block.with_weights(np.arange(block.nnz, dtype=np.float32))
    assert block.panels.count > 1 and other.panels is None and other.transposed().panels is None


def test_what_is_rounded_is_added_up_in_one_pass(small):
    A = LocalCSR(long_rows(), torch.bfloat16)
    A.panels = seen = Watched(4)
    X = torch.randn(50, 128).to(torch.bfloat16)
    for _ in range(3):
        A.apply(X, torch.empty(60, 128, dtype=torch.bfloat16))
    assert not hasattr(seen, "ways")
    A.apply(X, torch.empty(60, 128))
    assert seen.ways == [False]
