"""Settings in which small matrices are cut into tiles and panels, too; the kernels of a device."""

import pytest
import torch
from emulated_cuda import emulated_kernels

from spgnn.spmm.kernels import tile_rule, tiles
from spgnn.spmm.kernels.backend import kernels_on
from spgnn.spmm.kernels.cuda.placement import CudaDriver


@pytest.fixture
def small(monkeypatch):
    """Panels for small matrices and narrow products: 4 for rows of 20 nonzeros and more, 2 from 10 on; all have tiles."""
    for name in ("SMALLEST_NNZ", "LEAST_MEAN", "NARROWEST", "SMALLEST_X"):
        monkeypatch.setattr(tile_rule, name, 1)
    for name, value in (("PANELS", (4, 2)), ("NONZEROS_A_PANEL", 5), ("LEAST_COLUMNS", 1)):
        monkeypatch.setattr(tiles, name, value)
    for name in ("LEAST_A_TILE", "USES_A_TILE"):
        monkeypatch.setattr(tiles, name, 0)


@pytest.fixture(params=[1 << 40, 40, 0], ids=["panels", "some tiles", "all tiles"])
def tiled(small, monkeypatch, request):
    """Tiles where rows have so many nonzeros in one."""
    monkeypatch.setattr(tiles, "LEAST_A_TILE", request.param)


@pytest.fixture(scope="module", params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def kernels(request):
    """Kernels of a device, or emulated ones whose threads run in a shuffled order."""
    if request.param == "emulated":
        return emulated_kernels(order=7)
    if problem := CudaDriver().problem():
        pytest.skip(problem)
    return kernels_on(torch.device("cuda", 0))
