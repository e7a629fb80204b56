"""Fixtures of the whole suite."""

import os
from pathlib import Path

import pytest
from worlds import is_wanted

# Small products on thread ranks: more OpenMP threads than cores only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if is_wanted(item)]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real graphs; tests that need it are marked `data`."""
    folder = os.environ.get("SPGNN_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SPGNN_DATA does not name the folder of real graphs")
    return Path(folder)
