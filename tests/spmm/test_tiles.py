"""Products in tiles and panels: the same bits as in one pass."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from long_rows import arrays, hubs_first

from spgnn.spmm.kernels import _kernels, tiles
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.kernels.tile_rule import is_wide, may_tile, tile_bytes
from spgnn.spmm.kernels.tiles import Tiles, cut, panel_bounds


@pytest.mark.parametrize("isa", _kernels.instruction_sets())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("F", [1, 7, 16, 32, 41, 64, 128, 129, 300])
def test_tiles_and_rows_give_the_same_bits(tiled, isa, dtype, F):
    A, rng = hubs_first(dtype=dtype), np.random.default_rng(1)
    bits = f"u{np.dtype(dtype).itemsize}"
    m = A.shape[1]
    X, bias, add = (rng.standard_normal(shape).astype(dtype) for shape in ((m, F), F, (60, F)))
    X[600, :] = np.inf  # a row that has no nonzero there must not read it as zero times infinity
    for weights in (A.data, None):
        made = cut(*arrays(A), weights, m)
        for accumulate in (False, True):
            one = np.full((60, F), 0.5 if accumulate else np.nan, dtype)
            several = one.copy()
            options = {"bias": bias, "relu": True, "add": add}
            _kernels.spmm(*arrays(A), weights, X, one, accumulate, isa=isa, **options)
            made.multiply(X, several, accumulate, 2, isa, **options)
            is_one_vector = F == 1 or (isa, one[0].nbytes) in {("base", 16), ("avx2", 32), ("avx512", 64)}
            if one[0].nbytes >= 128 or is_one_vector:
                np.testing.assert_array_equal(several.view(bits), one.view(bits))
            else:  # of two vectors a compiler may round the products of a block of nonzeros first
                np.testing.assert_allclose(several, one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("F", [64, 71, 128])
def test_a_bfloat16_x_gives_the_same_bits_too(tiled, F):
    A, X = hubs_first(), torch.randn(700, F).to(torch.bfloat16).view(torch.uint16).numpy()
    one, several = (np.full((60, F), np.nan, np.float32) for _ in range(2))
    _kernels.spmm(*arrays(A), A.data, X, one)
    cut(*arrays(A), A.data, 700).multiply(X, several, False)
    np.testing.assert_array_equal(several, one)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("least", [0, 5, 30])
@pytest.mark.parametrize("n", [60, 1300])
def test_tiles_and_rest_are_the_matrix(small, monkeypatch, index, least, n):
    monkeypatch.setattr(tiles, "LEAST_A_TILE", least)
    A, width = hubs_first(n), _kernels.TILE_COLUMNS
    made, *others = cut(*arrays(A, index), A.data, 700, threads=3)
    assert made.is_first and not made.is_last
    np.testing.assert_array_equal(made.rows, np.flatnonzero(np.diff(A.indptr) >= 20))
    dense, found, ends, counts = A.toarray(), np.zeros(A.shape, np.float32), np.zeros(n, int), made.counts.tolist()
    at_count = at = 0
    for (row, count, first_count, first), (stop, *_) in zip(made.blocks, made.blocks[1:]):
        assert first_count == at_count and first == at and 0 < stop - row <= 512
        here = made.rows[row:stop]
        for t in range(count):
            for i in here:
                columns = t * width + made.indices[at : at + counts[at_count]].astype(int)
                found[i, columns] = made.weights[at : at + len(columns)]
                at, at_count = at + len(columns), at_count + 1
        means = [np.count_nonzero(dense[here, t * width : (t + 1) * width]) / len(here) for t in range(6)]
        assert count == next((t for t, mean in enumerate(means) if mean < least), 6)
        ends[here] = min(count * width, 700)
    assert at == len(made.indices) and at_count == len(made.counts)
    np.testing.assert_array_equal(found, np.where(np.arange(700) < ends[:, None], dense, 0))
    for rest in others:
        assert rest.indices.dtype == index
        width = rest.columns.stop - rest.columns.start
        here = sp.csr_array((rest.weights, rest.indices, rest.indptr), shape=(len(rest.rows), width)).toarray()
        found[rest.rows[:, None], np.arange(700)[rest.columns]] += here
    np.testing.assert_array_equal(found, dense)
    for rows in {rest.rows.tobytes() for rest in others}:
        mine = [rest for rest in others if rest.rows.tobytes() == rows]
        assert [rest.is_last for rest in mine] == [False] * (len(mine) - 1) + [True]
        assert mine[0].is_first == (mine[0].rows[0] not in made.rows)


def test_panels_hold_nearly_equal_nonzeros_and_rows_take_those_of_their_length(small, monkeypatch):
    monkeypatch.setattr(tiles, "LEAST_A_TILE", 1 << 40)
    A = hubs_first(400)
    held = {}
    for part in cut(*arrays(A), A.data, 700):
        held.setdefault(part.rows.tobytes(), []).append(part)
    assert sorted(map(len, held.values())) == [1, 2, 4]
    for parts in held.values():
        nonzeros = [part.indptr[-1] for part in parts]
        assert max(nonzeros) <= sum(nonzeros) / len(parts) + 2 * len(parts[0].rows)
        lengths = np.diff(A.indptr)[parts[0].rows]
        assert all(next((count for count in (4, 2) if length >= 5 * count), 1) == len(parts) for length in lengths)


def test_panels_of_few_columns_that_hold_much_are_wider(small, monkeypatch):
    monkeypatch.setattr(tiles, "LEAST_COLUMNS", 30)
    assert panel_bounds(np.array([100] * 10 + [1] * 190), 4) == [0, 30, 87, 144, 200]
    assert panel_bounds(np.array([1] * 190 + [100] * 10), 4) == [0, 192, 200]
    assert panel_bounds(np.array([5, 0, 0]), 4) == [0, 3] and panel_bounds(np.arange(20), 4) == [0, 20]
    monkeypatch.setattr(tiles, "LEAST_COLUMNS", 1)
    assert panel_bounds(np.array([5, 0, 0, 1, 0]), 3) == [0, 1, 5] and panel_bounds(np.array([0, 0, 4]), 2) == [0, 3]


def test_cutting_is_the_same_on_any_number_of_threads(small):
    A = hubs_first(5000)
    one, three = (
        [part for part in cut(*arrays(A), A.data, 700, threads) if not isinstance(part, Tiles)] for threads in (1, 3)
    )
    for a, b in zip(one, three, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b))


def test_blocks_are_of_512_rows_or_less(small):
    A = sp.csr_array(np.ones((10_000, 20), np.float32))
    for threads, most in ((1, 512), (4, 156)):
        made = cut(*arrays(A), None, 20, threads)[0]
        assert np.diff(made.blocks[:, 0]).max() == most and made.counts.tolist() == [20] * 10_000


def test_a_row_that_repeats_columns_too_often_for_a_tile_is_left_out(small, monkeypatch):
    monkeypatch.setattr(tiles, "LEAST_A_TILE", 1)
    A = sp.csr_array((np.ones(600, np.float32), np.repeat([3, 200], 300), [0, 300, 600]), shape=(2, 400))
    A.indptr[1] = 256
    made = cut(*arrays(A), A.data, 400, threads=1)
    out = np.full((2, 16), np.nan, np.float32)
    made.multiply(np.ones((400, 16), np.float32), out, False)
    assert made[0].blocks[:, 1].tolist() == [0, 1, 0] and made[0].counts.tolist() == [44]
    assert out[:, 0].tolist() == [256, 344]


@pytest.mark.parametrize("changed", [
    {"blocks": np.zeros((2, 3), np.int64)}, {"blocks": np.zeros((0, 4), np.int64)}, {"counts": np.zeros(1, np.uint8)},
    {"indices": np.zeros(1, np.uint8)}, {"rows": np.zeros(1, np.int64)}, {"weights": np.zeros(1, np.float32)},
    {"X": np.ones((700, 9), np.float32)},
])  # fmt: skip
def test_tiles_that_do_not_fit_together_are_refused(small, changed):
    A, change = hubs_first(), dict(changed)
    X = change.pop("X", np.ones((700, 8), np.float32))
    made = cut(*arrays(A), A.data, 700)[0]._replace(**change)
    with pytest.raises(ValueError, match="spmm_tiles: "):
        made.apply(X, np.ones((60, 8), np.float32), False)


@pytest.mark.parametrize("wrong", [{"rows": np.arange(3)}, {"rows": np.arange(61)}])
def test_a_list_of_rows_of_another_length_is_refused(wrong):
    A = hubs_first()
    with pytest.raises(ValueError, match=r"rows of Y, or of the list, \+ 1 entries"):
        _kernels.spmm(*arrays(A), A.data, np.ones((700, 8), np.float32), np.ones((60, 8), np.float32), **wrong)


def test_rows_of_hubs_are_in_tiles_while_a_row_of_x_is_used_often_enough():
    A = sp.csr_array(np.tile(np.arange(400) % 5 == 0, (1600, 1)).astype(np.float32))  # 80 nonzeros per row
    A.data[:] = 1
    wide = sp.csr_array(sp.hstack([A, A]))
    has_tiles = lambda A, m, threads: isinstance(cut(*arrays(A), None, m, threads)[0], Tiles)
    assert not has_tiles(A, 400, 1)  # tiles are of rows of 96 nonzeros and more
    made = cut(*arrays(wide), None, 800, 1)[0]
    assert set(np.diff(made.blocks[:, 0])) == {100} and set(made.blocks[:-1, 1]) == {6}
    assert not has_tiles(wide, 800, 4)  # blocks of 25 rows, 5 uses per column


def test_tiles_are_for_long_rows_of_large_matrices_and_wide_products():
    assert may_tile(1 << 17, 7_046_772) and may_tile(50_000, 1_200_000)
    for n, nnz in ((169_343, 2_315_598), (1000, 1_000_000), (0, 0), (50_001, 1_200_000)):
        assert not may_tile(n, nnz)
    assert is_wide(1 << 17, 512) and not is_wide(1 << 17, 256) and not is_wide(1000, 512)
    assert tile_bytes(1 << 17, 1 << 17, 7_046_772, 512) == 7_046_772 * 8 + 5 * 8 * ((1 << 17) + 1)
    assert tile_bytes(169_343, 169_343, 2_315_598, 512) == tile_bytes(20_000, 20_000, 1_200_000, 256) == 0


def test_a_matrix_is_cut_once_and_not_where_weights_change_or_sums_are_rounded(small):
    block, X = LocalCSR(hubs_first()), torch.randn(700, 64)
    product = block.apply(X, torch.empty(60, 64))
    made = block.tiled
    assert made is not None and torch.equal(block.apply(X, torch.empty(60, 64)), product) and block.tiled is made
    changing = block.with_weights(np.arange(block.nnz, dtype=np.float32))
    assert not changing.may_tile and not changing.transposed().may_tile
    rounded = LocalCSR(hubs_first(), torch.bfloat16)
    rounded.apply(X.bfloat16(), torch.empty(60, 64, dtype=torch.bfloat16))
    assert rounded.tiled is None
    rounded.apply(X.bfloat16(), torch.empty(60, 64))
    assert rounded.tiled is not None


def test_columns_of_64_bits_are_the_product_too(small):
    A, X = hubs_first(), np.random.default_rng(0).standard_normal((700, 33)).astype(np.float32)
    narrow, wide = np.empty((60, 33), np.float32), np.empty((60, 33), np.float32)
    _kernels.spmm(*arrays(A), A.data, X, narrow, bias=X[0], relu=True)
    _kernels.spmm(*arrays(A, np.int64), A.data, X, wide, bias=X[0], relu=True)
    np.testing.assert_allclose(wide, narrow, rtol=1e-4, atol=1e-4)


def test_a_block_has_columns_of_32_bits_where_these_are_enough():
    A = hubs_first()
    block = LocalCSR.trusted(A.shape, *arrays(A, np.int64), A.data)
    assert block.indices.dtype == LocalCSR(A).indices.dtype == np.int32
