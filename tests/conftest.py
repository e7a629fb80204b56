"""Fixtures of the whole suite."""

import os
import re
from pathlib import Path

import pytest
from pairs import beyond_pairs
from warm import warm_python
from worlds import is_wanted

# Small products on thread ranks: more OpenMP threads than cores only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what is marked `full`, unless -m names it; on several workers, longest groups first."""
    items[:] = [item for item in items if is_wanted(item)]
    for item in beyond_pairs(items):
        item.add_marker("full")
    if "full" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workerinput"):  # of pytest-xdist, whose workers take groups in this order
        groups: dict[str, list] = {}
        for item in items:
            groups.setdefault(group_of(item.nodeid), []).append(item)
        items[:] = [item for _, group in sorted(groups.items(), key=_weight, reverse=True) for item in group]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each worker whole groups."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    return Groups(config, log)


def group_of(nodeid: str) -> str:
    """Return what stays on one worker: a file, or the MPI items of one number of ranks, which share an mpirun or torchrun."""
    found = re.search(r"[\[-]((?:mpi|torch)-\d+)[\]-]", nodeid)
    return found[1] if found else nodeid.partition("::")[0]


def _weight(group: tuple[str, list]) -> float:
    """Return about the seconds that a group takes."""
    name, items = group
    ranks = int(name.split("-")[1]) if name.startswith(("mpi-", "torch-")) else 0
    return 3 * ranks + sum(1.5 if item.get_closest_marker("slow") else 0.05 for item in items)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real graphs; tests that need it are marked `data`."""
    folder = os.environ.get("SPGNN_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SPGNN_DATA does not name the folder of real graphs")
    return Path(folder)


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """A python that has imported torch and spgnn, for tests that start many."""
    with warm_python(tmp_path_factory.mktemp("warm")) as path:
        yield path
