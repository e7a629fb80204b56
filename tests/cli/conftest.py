"""Fixtures of the command line's tests."""

import pytest


@pytest.fixture(autouse=True)
def no_launcher_and_no_debug(monkeypatch):
    """A test of the command line is one process, and --debug ends with it."""
    monkeypatch.setenv("SPGNN_DEBUG", "0")
    for name in ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
