"""Settings in which small matrices are cut into panels and tiles, too."""

import pytest

from spgnn.spmm.kernels import panels, passes


@pytest.fixture
def small(monkeypatch):
    """Panels for small matrices, too: 4 for rows of 20 nonzeros and more, 2 from 10 on; no tiles."""
    for name, value in (
        ("SMALLEST_NNZ", 1),
        ("SMALLEST_X", 1),
        ("NONZEROS_A_PANEL", 5),
        ("PANELS", (4, 2)),
        ("LONG", 10),
    ):
        monkeypatch.setattr(panels, name, value)
    monkeypatch.setattr(passes, "LEAST_COLUMNS", 1)
    monkeypatch.setattr(passes, "LEAST_A_TILE", 1 << 40)
    monkeypatch.setattr(passes, "USES_A_TILE", 0)


@pytest.fixture(params=[1 << 40, 40, 0], ids=["panels", "some tiles", "all tiles"])
def tiled(small, monkeypatch, request):
    """Tiles where rows have so many nonzeros in one."""
    monkeypatch.setattr(passes, "LEAST_A_TILE", request.param)
