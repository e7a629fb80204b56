"""Products in tiles: the first columns of long rows, the same bits as in one pass."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from long_rows import arrays, hubs_first

from spgnn.spmm.kernels import _kernels, panels, passes
from spgnn.spmm.kernels.passes import Tiles, cut, multiply


@pytest.mark.parametrize("isa", _kernels.instruction_sets())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("F", [1, 4, 7, 8, 16, 32, 33, 41, 64, 128, 129, 256, 300])
def test_one_pass_and_several_give_the_same_bits(tiled, isa, dtype, F):
    A, rng = hubs_first(dtype=dtype), np.random.default_rng(1)
    bits = f"u{np.dtype(dtype).itemsize}"
    m = A.shape[1]
    X, bias, add = (rng.standard_normal(shape).astype(dtype) for shape in ((m, F), F, (60, F)))
    X[600, :] = np.inf  # what a row has no nonzero for is not read as zero times infinity: few have one here
    for weights in (A.data, None):
        made = cut(*arrays(A), weights, m)
        assert {type(part).__name__ for part in made} == ({"Pass"} if passes.LEAST_A_TILE > 1000 else {"Tiles", "Pass"})
        for accumulate in (False, True):
            one = np.full((60, F), 0.5 if accumulate else np.nan, dtype)
            several = one.copy()
            options = {"bias": bias, "relu": True, "add": add}
            _kernels.spmm(*arrays(A), weights, X, one, accumulate, isa=isa, **options)
            multiply(made, X, several, accumulate, 2, isa, **options)
            is_one_vector = F == 1 or (isa, one[0].nbytes) in {("base", 16), ("avx2", 32), ("avx512", 64)}
            if one[0].nbytes >= panels.NARROWEST or is_one_vector:
                np.testing.assert_array_equal(several.view(bits), one.view(bits))
            else:  # of two vectors a compiler may round the products of a block of nonzeros first
                np.testing.assert_allclose(several, one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("F", [64, 71, 128])
def test_a_bfloat16_x_gives_the_same_bits_too(tiled, F):
    A, X = hubs_first(), torch.randn(700, F).to(torch.bfloat16).view(torch.uint16).numpy()
    one, several = (np.full((60, F), np.nan, np.float32) for _ in range(2))
    _kernels.spmm(*arrays(A), A.data, X, one)
    multiply(cut(*arrays(A), A.data, 700), X, several, False)
    np.testing.assert_array_equal(several, one)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("least", [0, 5, 30])
@pytest.mark.parametrize("n", [60, 1300])
def test_tiles_are_the_first_columns_of_the_longest_rows(small, monkeypatch, index, least, n):
    monkeypatch.setattr(passes, "LEAST_A_TILE", least)
    A = hubs_first(n)
    (tiles, *rest), width = cut(*arrays(A, index), A.data, 700, threads=3), _kernels.TILE_COLUMNS
    assert (
        isinstance(tiles, Tiles)
        and tiles.is_first
        and not tiles.is_last
        and not any(isinstance(part, Tiles) for part in rest)
    )
    np.testing.assert_array_equal(tiles.rows, np.flatnonzero(np.diff(A.indptr) >= 20))
    dense, found, ends, counts = A.toarray(), np.zeros(A.shape, np.float32), np.zeros(n, int), tiles.counts.tolist()
    at_count = at = 0
    for (row, count, first_count, first), (stop, *_) in zip(tiles.blocks, tiles.blocks[1:]):
        assert first_count == at_count and first == at and 0 < stop - row <= 512
        here = tiles.rows[row:stop]
        for t in range(count):
            for i in here:
                columns = t * width + tiles.indices[at : at + counts[at_count]].astype(int)
                found[i, columns] = tiles.weights[at : at + len(columns)]
                at, at_count = at + len(columns), at_count + 1
        means = [np.count_nonzero(dense[here, t * width : (t + 1) * width]) / len(here) for t in range(6)]
        assert count == next((t for t, mean in enumerate(means) if mean < least), 6)
        ends[here] = min(count * width, 700)
    assert at == len(tiles.indices) and at_count == len(tiles.counts)
    np.testing.assert_array_equal(found, np.where(np.arange(700) < ends[:, None], dense, 0))
    for part in rest:
        assert part.is_first == (part.columns.start == 0 and not set(part.rows) & set(tiles.rows))


def test_panels_hold_nearly_equal_shares_of_what_tiles_leave(small, monkeypatch):
    monkeypatch.setattr(passes, "LEAST_A_TILE", 5)
    tiles, *rest = cut(*arrays(hubs_first(400)), None, 700)
    held = [part.indptr[-1] for part in rest if not part.is_first and np.array_equal(part.rows, tiles.rows)]
    assert len(held) == 4 and max(held) <= sum(held) / 4 + 2 * len(tiles.rows) and len(tiles.indices) > 2 * sum(held)


def test_blocks_are_of_512_rows_or_less(small, monkeypatch):
    monkeypatch.setattr(passes, "LEAST_A_TILE", 5)
    A = sp.csr_array(np.ones((10_000, 20), np.float32))
    for threads, most in ((1, 512), (4, 156)):
        tiles = cut(*arrays(A), None, 20, threads)[0]
        assert np.diff(tiles.blocks[:, 0]).max() == most and tiles.counts.tolist() == [20] * 10_000


def test_a_row_that_repeats_columns_too_often_for_a_tile_is_left_to_panels(small, monkeypatch):
    monkeypatch.setattr(passes, "LEAST_A_TILE", 1)
    A = sp.csr_array((np.ones(600, np.float32), np.repeat([3, 200], 300), [0, 300, 600]), shape=(2, 400))
    A.indptr[1] = 256
    made = cut(*arrays(A), A.data, 400, threads=1)
    out = np.full((2, 16), np.nan, np.float32)
    multiply(made, np.ones((400, 16), np.float32), out, False)
    assert (
        made[0].blocks[:, 1].tolist() == [0, 1, 0]
        and made[0].counts.tolist() == [44]
        and out[:, 0].tolist() == [256, 344]
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"blocks": np.zeros((2, 3), np.int64)},
        {"blocks": np.zeros((0, 4), np.int64)},
        {"counts": np.zeros(1, np.uint8)},
        {"indices": np.zeros(1, np.uint8)},
        {"rows": np.zeros(1, np.int64)},
        {"weights": np.zeros(1, np.float32)},
        {"X": np.ones((700, 9), np.float32)},
    ],
)
def test_tiles_that_do_not_fit_together_are_refused(small, monkeypatch, changed):
    monkeypatch.setattr(passes, "LEAST_A_TILE", 0)
    A, change = hubs_first(), dict(changed)
    X = change.pop("X", np.ones((700, 8), np.float32))
    tiles = cut(*arrays(A), A.data, 700)[0]._replace(**change)
    with pytest.raises(ValueError, match="spmm_tiles: "):
        tiles.apply(X, np.ones((60, 8), np.float32), False)


def test_rows_of_hubs_are_in_tiles_while_a_row_of_x_is_used_often_enough():
    A = sp.csr_array(np.tile(np.arange(400) % 5 == 0, (1600, 1)).astype(np.float32))  # 80 nonzeros a row
    A.data[:] = 1
    short, long_ = cut(*arrays(A), None, 400, 1), cut(*arrays(sp.csr_array(sp.hstack([A, A]))), None, 800, 1)
    assert not any(isinstance(part, Tiles) for part in short)  # rows of 96 nonzeros and more
    assert (
        isinstance(long_[0], Tiles)
        and set(np.diff(long_[0].blocks[:, 0])) == {100}
        and set(long_[0].blocks[:-1, 1]) == {6}
    )
    low = cut(*arrays(sp.csr_array(sp.hstack([A, A]))), None, 800, 4)  # blocks of 25 rows, 5 uses a column
    assert not isinstance(low[0], Tiles)
