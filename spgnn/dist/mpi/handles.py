"""MpiHeld: what MPI holds for a communicator and its splits; MPI has some 2,000 communicators, and frees none by itself."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np


class MpiHeld:
    """Two duplicates of an mpi4py communicator, the types of rows, and the same for each split, in the order of the calls.

    Splits that no rank uses any more are freed by the next one: freeing is collective, and ranks forget at different times.
    Args: gives_way  whether a rank that waits lets others run.
    """

    def __init__(self, comm, gives_way: bool):
        self.gives_way = gives_way
        self.data, self.headers = comm.Dup(), comm.Dup()
        self.row_types: dict = {}
        self._parts: list[tuple[weakref.ref | None, MpiHeld | None]] = []

    def add(self, part: weakref.ref | None, held: MpiHeld | None) -> None:
        """Note a split, None twice on a rank that is not in it."""
        self._parts.append((part, held))

    def used(self) -> np.ndarray:
        """Return whether this rank still uses each split, (splits,) uint8."""
        return np.array([part is not None and part() is not None for part, _ in self._parts], np.uint8)

    def keep(self, is_used: np.ndarray) -> None:
        """Free all splits but these, the same on all ranks. Collective."""
        for (_, held), used in zip(self._parts, is_used):
            if held is not None and not used:
                held.free()
        self._parts = [entry for entry, used in zip(self._parts, is_used) if used]

    def of_parts(self) -> Iterator[MpiHeld]:
        """Yield what is held for the splits that this rank is in."""
        return (held for _, held in self._parts if held is not None)

    def free(self) -> None:
        """Free everything, splits that are left too; nothing where that is done. Collective."""
        if not self.data:
            return
        for held in self.of_parts():
            held.free()
        for datatype in self.row_types.values():
            datatype.Free()
        self.headers.Free()
        self.data.Free()
