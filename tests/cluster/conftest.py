"""The cluster tests: not part of a run of all tests; runs/cluster_test runs them."""

import os
import sys
from pathlib import Path

import pytest

collect_ignore_glob = [] if "SPGNN_CLUSTER" in os.environ else ["test_*.py"]
sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def commands(tmp_path_factory) -> str:
    """A PATH on which `spgnn` is this checkout under this interpreter, and mpirun the one beside it."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "spgnn").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spgnn "$@"\n')
    (folder / "spgnn").chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    return os.pathsep.join([str(folder), str(Path(sys.prefix) / "bin"), os.environ["PATH"]])
