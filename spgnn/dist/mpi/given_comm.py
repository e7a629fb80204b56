"""Communicators of mpi4py that a program brings, and the one of spgnn that is kept for each."""

from __future__ import annotations

import functools
import os
from typing import Any

from ...errors import UsageError
from ..job.protect import find_launcher
from . import library
from .mpi_communicator import MPI, MpiCommunicator, connect


def kept_communicator(comm: Any) -> MpiCommunicator:
    """Return the communicator of the ranks of comm, of mpi4py: made by the first call, freed with comm.

    Raises: UsageError for another kind; LaunchError where each process of a job has a world of its own. Collective.
    """
    if not comm or comm.is_inter:
        found = "an intercommunicator" if comm else "MPI.COMM_NULL on this rank"
        raise UsageError(
            f"comm is {found}; expected an intracommunicator, on its ranks alone: if comm != MPI.COMM_NULL"
        )
    launcher = find_launcher(os.environ)
    if launcher is not None and launcher.by != "torch" and MPI.COMM_WORLD.size == 1:
        library.check_size(launcher, 1)
    key = _key(type(comm))
    found = comm.Get_attr(key)
    if found is None:
        comm.Set_attr(key, found := connect(comm))
    return found


@functools.cache
def _key(kind: Any) -> int:
    """Return the key of MPI's attributes under which kept_communicator caches."""
    return kind.Create_keyval(delete_fn=lambda comm, key, found: found.release())
