"""Products in column panels: the same bits as in one pass, made where they may pay, kept where they do."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from long_rows import arrays, long_rows

from spgnn.spmm.kernels import _kernels, panels, passes, trials
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.kernels.panels import has_panels, may_pay, panel_bytes, row_groups
from spgnn.spmm.kernels.passes import cut, multiply
from spgnn.spmm.kernels.trials import Trials


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, None])
@pytest.mark.parametrize("groups", [(4, 2), (10, 3), (1000,), (3,)])
def test_passes_together_are_the_matrix(small, monkeypatch, index, dtype, groups):
    monkeypatch.setattr(panels, "PANELS", groups)
    A = long_rows(dtype=dtype or np.float32)
    A.data[(A.indices >= 7) & (A.indices < 20)] = 0
    A.eliminate_zeros()  # columns without nonzeros
    if dtype is None:
        A.data[:] = 1
    made = cut(*arrays(A, index), None if dtype is None else A.data, 50)
    seen, order = np.zeros(A.shape), {}
    for rows, columns, indptr, indices, weights, is_first, is_last in made:
        rows = np.arange(60) if rows is None else rows
        assert (
            indptr.dtype == np.int64
            and indices.dtype == np.uint16
            and (weights is None if dtype is None else weights.dtype == dtype)
        )
        values = np.ones(len(indices)) if weights is None else weights
        seen[rows[:, None], np.arange(50)[columns]] += sp.csr_array(
            (values, indices, indptr), shape=(len(rows), columns.stop - columns.start)
        ).toarray()
        for row in rows:
            before = order.setdefault(row, [])
            assert (
                is_first == (not before)
                and columns.start == (before[-1].stop if before else 0)
                and is_last == (columns.stop == 50)
            )
            before.append(columns)
    np.testing.assert_array_equal(seen, A.toarray())
    for row, length in enumerate(np.diff(A.indptr)):
        assert len(order[row]) == next((count for count in groups if length >= 5 * count), 1)


def test_rows_are_in_the_group_of_their_length(small):
    groups = {count: rows.tolist() for count, rows in row_groups(np.array([0, 25, 9, 10, 19, 20, 3]))}
    assert groups == {4: [1, 5], 2: [3, 4], 1: [0, 2, 6]}
    assert [count for count, _ in row_groups(np.array([30, 20]))] == [4] and list(
        row_groups(np.zeros(0, np.int64))
    ) == []


def test_rows_of_one_length_are_not_listed(small):
    A = sp.csr_array(np.ones((7, 20), np.float32))
    assert [part.rows for part in cut(*arrays(A), None, 20)] == [None] * 4


def test_panels_hold_nearly_equal_nonzeros(small):
    A = long_rows(400, 300)
    held = {}
    for part in cut(*arrays(A), A.data, 300):
        held.setdefault(len(part.rows), []).append(part.indptr[-1])
    assert sorted(map(len, held.values())) == [1, 2, 4]
    for n, found in held.items():
        assert max(found) <= sum(found) / len(found) + 2 * n


def test_panels_of_few_columns_that_hold_much_are_wider(small, monkeypatch):
    monkeypatch.setattr(passes, "LEAST_COLUMNS", 30)
    assert passes._bounds(np.array([100] * 10 + [1] * 190), 4) == [0, 30, 87, 144, 200]
    assert passes._bounds(np.array([1] * 190 + [100] * 10), 4) == [0, 192, 200]
    assert passes._bounds(np.array([5, 0, 0]), 4) == [0, 3] and passes._bounds(np.arange(20), 4) == [0, 20]
    monkeypatch.setattr(passes, "LEAST_COLUMNS", 1)
    assert passes._bounds(np.array([5, 0, 0, 1, 0]), 3) == [0, 1, 5] and passes._bounds(np.array([0, 0, 4]), 2) == [
        0,
        3,
    ]


def test_cutting_is_the_same_on_any_number_of_threads(small):
    A = long_rows(5000, 40)
    one, three = (cut(*arrays(A), A.data, 40, threads=threads) for threads in (1, 3))
    for a, b in zip(one, three, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("wrong", [{"rows": np.arange(3)}, {"rows": np.arange(61)}])
def test_a_list_of_rows_of_another_length_is_refused(wrong):
    A = long_rows()
    with pytest.raises(ValueError, match=r"rows of Y, or of the list, \+ 1 entries"):
        _kernels.spmm(*arrays(A), A.data, np.ones((50, 8), np.float32), np.ones((60, 8), np.float32), **wrong)


def test_a_panel_of_many_columns_keeps_wide_indices(small, monkeypatch):
    monkeypatch.setattr(passes, "LEAST_COLUMNS", 1 << 16)
    m = (1 << 16) * 2
    A = sp.csr_array(
        sp.random_array((40, m), density=0.001, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    )
    A.sort_indices()
    made = cut(*arrays(A), A.data, m)
    assert [(part.columns.stop - part.columns.start, part.indices.dtype) for part in made] == [(1 << 16, np.uint16)] * 2
    monkeypatch.setattr(passes, "LEAST_COLUMNS", (1 << 16) + 1)
    assert [part.indices.dtype for part in cut(*arrays(A), A.data, m)] == [np.int32, np.uint16]
    assert [part.indices.dtype for part in cut(*arrays(A, np.int64), A.data, m)] == [np.int64, np.uint16]
    X, one, several = (
        np.random.default_rng(1).standard_normal((m, 32)).astype(np.float32),
        np.empty((40, 32), np.float32),
        np.empty((40, 32), np.float32),
    )
    _kernels.spmm(*arrays(A), A.data, X, one)
    for index in (np.int32, np.int64):
        multiply(cut(*arrays(A, index), A.data, m), X, several, False)
        np.testing.assert_array_equal(several, one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_every_product_of_a_matrix_is_the_same_whichever_way_it_is_made(tiled, dtype, is_weighted):
    A = long_rows(m=90)
    A.data = A.data if is_weighted else np.ones_like(A.data)
    block, X = LocalCSR(A, dtype), torch.randn(90, 64, dtype=dtype)
    assert block.has_panels
    block.trials = seen = Watched()
    bias, add, start = torch.randn(64, dtype=dtype), torch.randn(60, 64, dtype=dtype), torch.randn(60, 64, dtype=dtype)
    results = [block.apply(X, start.clone(), accumulate=True, bias_F=bias, relu=True, add_nF=add) for _ in range(8)]
    assert all(torch.equal(result, results[0]) for result in results)
    expected = torch.relu(torch.from_numpy(A.toarray()).to(dtype) @ X + start + bias + add)
    torch.testing.assert_close(results[0], expected, rtol=2e-5, atol=2e-5)
    assert seen.ways[:6] == ["rows", "panels"] * 3 and len(seen.chosen) == 1
    fresh = LocalCSR(A, dtype)
    poisoned = [fresh.apply(X, torch.full((60, 64), torch.nan, dtype=dtype)) for _ in range(4)]
    torch.testing.assert_close(poisoned[1], torch.from_numpy(A.toarray()).to(dtype) @ X, rtol=2e-5, atol=2e-5)
    assert all(torch.equal(result, poisoned[0]) for result in poisoned)


def test_a_matrix_is_cut_once(small, monkeypatch):
    monkeypatch.setattr(trials, "GAIN", np.inf)  # panels stay
    block, made = LocalCSR(long_rows()), []
    for F in (64, 64, 96, 96, 64, 64):
        block.apply(torch.ones(50, F), torch.empty(60, F))
        made.append(block.passes)
    assert made[0] is None and made[1] is not None and all(passes is made[1] for passes in made[1:])


class Watched(Trials):
    """Trials that remember which way each product was made."""

    __slots__ = ("ways",)

    def took(self, kind, way, seconds, work=1.0):
        self.ways = [*getattr(self, "ways", []), way]
        return super().took(kind, way, seconds, work)


def test_panels_that_no_width_uses_or_tries_are_released(small, monkeypatch):
    block = LocalCSR(long_rows())

    def multiply_by(F, times, gain):
        monkeypatch.setattr(trials, "GAIN", gain)
        for _ in range(times):
            block.apply(torch.ones(50, F), torch.empty(60, F))

    multiply_by(96, 2, 0.0)  # begins to try them
    multiply_by(64, 6, 0.0)  # they lose
    assert block.passes is not None and list(block.trials.chosen.values()) == ["rows"]
    multiply_by(96, 4, 0.0)
    assert block.passes is None
    multiply_by(128, 6, np.inf)
    assert block.passes is not None and block.trials.uses("panels")


def test_making_panels_takes_little_beside_them():
    A = sp.csr_array(
        sp.random_array((3000, 3000), density=0.05, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    )
    indptr, indices = arrays(A)
    tracemalloc.start()  # the kernels' arrays are numpy's, too
    made = cut(indptr, indices, A.data, 3000)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(made) == 3 and held > 6 * A.nnz and peak - held < 60 * 3000


@pytest.mark.parametrize("n, m", [(0, 0), (0, 5), (5, 0), (30, 1)])
def test_passes_of_nothing_and_of_one_column(small, n, m):
    A = sp.csr_array(np.ones((n, m), np.float32))
    made = cut(*arrays(A), A.data, m)
    assert len(made) == (n > 0) and sum(len(part.indices) for part in made) == n * m


def test_panels_are_for_long_rows_of_large_matrices_and_wide_products():
    assert has_panels(1 << 17, 7_046_772) and has_panels(50_000, 1_200_000)
    assert (
        not has_panels(169_343, 2_315_598)
        and not has_panels(1000, 1_000_000)
        and not has_panels(0, 0)
        and not has_panels(50_001, 1_200_000)
    )
    assert may_pay(1 << 17, 256) and not may_pay(1 << 17, 64) and not may_pay(1000, 256)
    assert panel_bytes(1 << 17, 1 << 17, 7_046_772, 256) == 7_046_772 * 6 + 5 * 8 * ((1 << 17) + 1)
    assert panel_bytes(10_000, 1 << 17, 960_000 * 2, 256, 12) == 1_920_000 * 10 + 17 * 8 * 10_001
    assert panel_bytes(169_343, 169_343, 2_315_598, 256) == panel_bytes(20_000, 20_000, 1_200_000, 256) == 0


@pytest.mark.parametrize("power, m", [(0.0, 20_000), (0.6, 20_000), (0.0, 1_000_000)])
def test_predicted_bytes_are_those_of_the_passes(power, m):
    lengths = (
        np.random.default_rng(0)
        .permutation(40 * (1 - power) * (np.arange(1, 40_001) / 40_000) ** -power)
        .astype(np.int64)
        + 1
    )
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rank = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
    columns = rank * np.repeat(m // lengths, lengths)
    made = cut(indptr, columns.astype(np.int32), np.ones(len(columns), np.float32), m)
    found = sum(x.nbytes for part in made for x in (part.indptr, part.indices, part.weights)) + sum(
        {id(part.rows): part.rows.nbytes for part in made if part.rows is not None}.values()
    )
    assert found == pytest.approx(panel_bytes(40_000, m, len(columns), 512), rel=0.1)


def test_weights_that_change_make_no_panels(small):
    block = LocalCSR(long_rows())
    other = block.with_weights(np.arange(block.nnz, dtype=np.float32))
    assert block.has_panels and not other.has_panels and not other.transposed().has_panels


def test_what_is_rounded_is_added_up_in_one_pass(small):
    A = LocalCSR(long_rows(), torch.bfloat16)
    A.trials = seen = Trials()
    X = torch.randn(50, 128).to(torch.bfloat16)
    for _ in range(3):
        A.apply(X, torch.empty(60, 128, dtype=torch.bfloat16))
    assert not seen.seconds
    A.apply(X, torch.empty(60, 128))
    assert [list(took) for took in seen.seconds.values()] == [["rows", "panels"]]
