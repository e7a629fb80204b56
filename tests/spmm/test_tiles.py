"""Products in tiles and panels: the same bits as in one pass."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from long_rows import arrays, hubs_first

from spgnn.spmm.kernels import _kernels, tiles
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.kernels.tile_rule import is_wide, may_tile, tile_bytes
from spgnn.spmm.kernels.tiles import cut


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
def test_several_blocks_of_rows_are_the_product(tiled, index):
    A, X = hubs_first(1300), np.random.default_rng(1).standard_normal((700, 33)).astype(np.float32)
    out = np.full((1300, 33), np.nan, np.float32)
    cut(*arrays(A, index), A.data, 700, threads=3).multiply(X, out, False)
    np.testing.assert_allclose(out, A @ X, rtol=1e-4, atol=1e-4)


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


def test_a_block_has_columns_of_32_bits_where_these_are_enough():
    A = hubs_first()
    block = LocalCSR.trusted(A.shape, *arrays(A, np.int64), A.data)
    assert block.indices.dtype == LocalCSR(A).indices.dtype == np.int32
