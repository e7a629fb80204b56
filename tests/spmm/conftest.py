"""Settings in which small matrices are cut into tiles, too."""

import pytest

from spgnn.spmm.kernels import tile_rule, tiles


@pytest.fixture
def small(monkeypatch):
    """Tiles for small matrices and narrow products, of rows from 20 nonzeros on."""
    for name in ("SMALLEST_NNZ", "LEAST_MEAN", "NARROWEST", "SMALLEST_X"):
        monkeypatch.setattr(tile_rule, name, 1)
    monkeypatch.setattr(tiles, "LONG_ROW", 20)
    for name in ("LEAST_A_TILE", "USES_A_TILE", "LEAST_SHARE"):
        monkeypatch.setattr(tiles, name, 0)


@pytest.fixture(params=[40, 0], ids=["some tiles", "all tiles"])
def tiled(small, monkeypatch, request):
    """Tiles where rows have so many nonzeros in one."""
    monkeypatch.setattr(tiles, "LEAST_A_TILE", request.param)
