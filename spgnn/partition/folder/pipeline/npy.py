"""Growing .npy files: rows are appended, and the number of rows is written into the header at the end."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from ....atomic import sync


class NpyFile:
    """A .npy to which rows are appended; no handle stays open, so thousands are possible.

    Args: tail  shape of a row, () for a vector.
    """

    def __init__(self, path: Path, dtype, tail: tuple[int, ...] = ()):
        self.path, self.dtype, self.tail, self.rows = path, np.dtype(dtype), tuple(tail), 0
        path.write_bytes(self._header())

    def append(self, rows: np.ndarray) -> None:
        """Append (m, *tail) of this dtype."""
        if len(rows):
            assert rows.dtype == self.dtype and rows.shape[1:] == self.tail, "the rows have another dtype or shape"
            with open(self.path, "ab") as file:
                file.write(np.ascontiguousarray(rows).data.cast("B") if rows.size else b"")
            self.rows += len(rows)

    def finish(self) -> None:
        """Write the number of rows and wait for the disk."""
        with open(self.path, "r+b") as file:
            file.write(self._header())
        sync(self.path)

    def _header(self) -> bytes:
        # NumPy pads the header for a growing first axis: its length does not depend on the number of rows.
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            file, {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, *self.tail)}
        )
        return file.getvalue()


def write_npy(path: Path, values: np.ndarray, dtype=None) -> None:
    """Write an array and wait for the disk."""
    file = NpyFile(path, dtype or values.dtype, values.shape[1:])
    file.append(values)
    file.finish()


def header_bytes(path: Path) -> int:
    """Return the offset of the values of a .npy."""
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        return file.tell()


def read_slice(path: Path, dtype, start: int, count: int, offset: int | None = None) -> np.ndarray:
    """Return `count` values from number `start` of a vector in a .npy, read, not mapped: mapped pages would count as memory of this process.

    Args: offset  header_bytes(path), if already known.
    """
    dtype = np.dtype(dtype)
    return np.fromfile(
        path, dtype, count, offset=(header_bytes(path) if offset is None else offset) + start * dtype.itemsize
    )
