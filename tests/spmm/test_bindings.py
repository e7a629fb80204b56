"""Kernels called with arrays that do not fit raise an error: no conversion, no read beyond an array."""

import numpy as np
import pytest

from spgnn.spmm.kernels import _kernels, cpu

N, F = 6, 16
INDPTR = np.arange(0, 2 * N + 2, 2)[: N + 1]
INDICES = np.tile(np.array([0, N - 1], np.int32), N)
X, Y = np.ones((N, F), np.float32), np.zeros((N, F), np.float32)
ONE_HEAD = [np.zeros((N, 1), np.float32) for _ in range(4)]
FAR = (-1, N, 2**31 - 1, -(2**31))


def spmm(indptr=INDPTR, indices=INDICES, weights=None, X=X, Y=Y, **more):
    _kernels.spmm(indptr, indices, weights, X, Y, **more)


def attend(indptr=INDPTR, indices=INDICES):
    left, right, top, sums = ONE_HEAD
    _kernels.attend(indptr, indices, X, left, right, Y, top, sums, None, None, 0.2, None, False, True, None, 0)


def attend2(indptr=INDPTR, indices=INDICES):
    top, sums = ONE_HEAD[2:]
    _kernels.attend2(indptr, indices, X, X, X[0], Y, top, sums, 0.2, None, False, True, None, 0)


def adjoint(indptr=INDPTR, indices=INDICES):
    record, right = np.zeros((N, 4), np.float32), ONE_HEAD[0]
    _kernels.attend_adjoint(indptr, indices, X, X, record, right, X[:2], None, Y, 0.2, None)


def maximum(indptr=INDPTR, indices=INDICES):
    _kernels.maximum(indptr, indices, X, None, Y, np.zeros((N, F), np.int32), 0, False, False)


def maximum_adjoint(indptr=INDPTR, indices=INDICES):
    _kernels.maximum_adjoint(indptr, indices, X, np.zeros((N, F), np.int32), None, Y, 0, False)


def weighted(indptr=INDPTR, indices=INDICES):
    values = np.ones((len(indices), 1), np.float32)
    _kernels.edge_matrices(2, indptr, indices, 1, N, None, X, values, None, Y, False)


def sddmm(indptr=INDPTR, indices=INDICES):
    _kernels.edge_matrices(0, indptr, indices, 1, N, X, X, None, None, np.zeros((len(indices), 1), np.float32), False)


def cut(indptr=INDPTR, indices=INDICES):
    _kernels.cut_tiles(indptr, indices, None, np.arange(N), N, 1, 1)


def panels(indptr=INDPTR, indices=INDICES):
    _kernels.cut_panels(indptr[:-1], indptr[1:], indices, None, np.array([0, N]))


READERS = [spmm, attend, attend2, adjoint, maximum, maximum_adjoint, weighted, sddmm, cut, panels]


@pytest.mark.parametrize("call", READERS, ids=lambda call: call.__name__)
def test_a_column_index_out_of_range_is_an_error(call):
    call()
    for far in FAR:
        for dtype in (np.int32, np.int64):
            wrong = INDICES.astype(dtype)
            wrong[3] = far
            with pytest.raises(ValueError, match="out of range"):
                call(indices=wrong)


@pytest.mark.parametrize("call", READERS, ids=lambda call: call.__name__)
def test_an_indptr_that_falls_is_an_error(call):
    for at, value in ((0, -4), (3, 40), (3, 0), (N, 2**40)):
        wrong = INDPTR.copy()
        wrong[at] = value
        with pytest.raises(ValueError, match="indptr|range"):
            call(indptr=wrong)


def test_places_that_lie_beyond_an_array_are_an_error():
    for far in FAR:
        rows = np.array([0, 1, far])
        with pytest.raises(ValueError, match="out of range"):
            _kernels.take_rows(X, rows, np.zeros((3, F), np.float32))
        with pytest.raises(ValueError, match="out of range"):
            spmm(indptr=INDPTR[:4], indices=INDICES[:6], rows=rows)
        with pytest.raises(ValueError, match="out of range"):
            _kernels.count_columns(INDPTR[:-1], INDPTR[1:], np.full(2 * N, far, np.int32), N)
        places = np.arange(2 * N)
        places[5] = far if far != N else 2 * N
        values = np.ones((2 * N, 1), np.float32)
        with pytest.raises(ValueError, match="out of range"):
            _kernels.edge_matrices(2, INDPTR, INDICES, 1, N, None, X, values, places, Y, False)


def test_tiles_are_checked_before_they_are_read():
    blocks, counts, indices, _, _ = _kernels.cut_tiles(INDPTR, INDICES, None, np.arange(N), N, 1, 0)
    assert blocks[0, 1] == 1
    tiled = {"blocks": blocks, "counts": counts, "indices": indices, "rows": np.arange(N)}

    def multiply(**wrong):
        given = tiled | wrong
        _kernels.spmm_tiles(given["blocks"], given["counts"], given["indices"], None, X, Y, False, given["rows"])

    multiply()
    for name, at, value in (("blocks", (0, 0), -3), ("blocks", (0, 1), 9), ("counts", 2, 200), ("indices", 1, N), ("rows", 0, N)):  # fmt: skip
        wrong = tiled[name].copy()
        wrong[at] = value
        with pytest.raises(ValueError, match="spmm_tiles"):
            multiply(**{name: wrong})


def test_tiles_far_beyond_the_columns_are_refused():
    blocks, counts, indices = (
        np.array([[0, 4, 0, 0], [1, 4, 4, 1]]),
        np.array([0, 0, 0, 1], np.uint8),
        np.array([1], np.uint8),
    )
    with pytest.raises(ValueError, match="a column index is out of range"):
        _kernels.spmm_tiles(blocks, counts, indices, None, X[:1], Y[:1], False, np.array([0]))


@pytest.mark.parametrize("op", (-1, 3, 4))
def test_operations_that_are_none_are_refused(op):
    values, narrow = np.ones((2 * N, 1), np.float32), np.ones((2 * N, 1), np.float32)
    with pytest.raises(ValueError, match="op: "):
        _kernels.edge_matrices(op, INDPTR, INDICES, 1, N, X, X, values, None, narrow, False)
    with pytest.raises(ValueError, match="op: "):
        _kernels.edge_values(
            op if op != 3 else 9, INDPTR, INDICES, values, values, ONE_HEAD[0], narrow, None, None, False
        )


def test_places_of_a_maximum_beyond_the_order_are_refused():
    arg = np.full((N, F), -1, np.int32)
    _kernels.maximum(INDPTR, INDICES, X, np.arange(N), Y, arg, 0, True, False)
    for offset in (-1, 1, 2**31, 2**63 - 1, -(2**63)):
        with pytest.raises(ValueError, match="maximum"):
            _kernels.maximum(INDPTR, INDICES, X, np.arange(N), Y, arg, offset, True, False)
    arg[2, 3] = N
    with pytest.raises(ValueError, match="a place is out of range"):
        _kernels.maximum(INDPTR, INDICES, X, np.arange(N), Y, arg, 0, True, False)


def test_more_threads_than_can_be_started_are_not():
    rows = np.zeros(40_000, np.int64)
    _kernels.take_rows(X, rows, np.zeros((len(rows), F), np.float32), 2**31 - 1)


UNFIT = {
    "another type": {"X": X.astype(np.float16)},
    "another byte order": {"X": X.astype(">f4")},
    "types that differ": {"X": X.astype(np.float64)},
    "a matrix that is not contiguous": {"X": np.ones((N, 2 * F), np.float32)[:, ::2]},
    "columns before rows": {"X": np.asfortranarray(X)},
    "a list": {"X": X.tolist()},
    "None": {"X": None},
    "int32 pointers": {"indptr": INDPTR.astype(np.int32)},
    "a misaligned array": {"X": np.frombuffer(bytes(4 * N * F + 1), np.uint8)[1:].view(np.float32).reshape(N, F)},
    "weights of another type": {"weights": np.ones(2 * N)},
    "too few weights": {"weights": np.ones(N, np.float32)},
    "indices of another type": {"indices": INDICES.astype(np.uint32)},
    "a matrix of indices": {"indices": INDICES.reshape(2, -1)},
    "too few indices": {"indices": INDICES[:-1]},
    "too few rows": {"Y": Y[:-1]},
    "a longer list of rows": {"rows": np.arange(N + 1)},
    "a shorter list of rows": {"rows": np.arange(3)},
    "another width": {"Y": np.zeros((N, F + 1), np.float32)},
    "a vector": {"Y": Y[0]},
    "a bias of a column less": {"bias": X[0, 1:]},
    "a matrix for a bias": {"bias": X},
    "an instruction set of nobody": {"isa": "avx1024"},
}


@pytest.mark.parametrize("given", UNFIT.values(), ids=UNFIT)
def test_arrays_that_do_not_fit_are_refused(given):
    before = Y.copy()
    with pytest.raises((TypeError, ValueError)):
        spmm(**given)
    np.testing.assert_array_equal(Y, before)


def test_a_read_only_array_is_read_but_not_written():
    frozen = np.ones((N, F), np.float32)
    frozen.flags.writeable = False
    spmm(X=frozen)
    with pytest.raises(ValueError, match="read-only"):
        spmm(Y=frozen)


def test_a_node_that_lacks_loops_of_its_own_is_named(monkeypatch):
    assert not cpu.slow_loops()
    monkeypatch.setattr(cpu._kernels, "wanted_isa", lambda: "avx1024")
    assert "without loops for avx1024" in cpu.slow_loops()
