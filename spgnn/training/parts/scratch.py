"""Scratch: files of rows of nodes, part by part, in a folder that all ranks see, for the time of a computation.

Shapes: n own nodes of a part, F columns.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from ...atomic import TemporaryFolder
from ...errors import ResourceError, together
from ...machine import drop_pages
from ...spmm.kernels.buffers import array_of

BLOCK = 1 << 14  # rows of a file that are gathered at once


def check_room(home: str | Path, needed: int) -> None:
    """Raise ResourceError where the disk of a folder, which may not be there yet, has less room; "": as Scratch."""
    folder = Path(home or tempfile.gettempdir()).absolute()
    while not folder.is_dir():
        folder = folder.parent
    if needed > (free := shutil.disk_usage(folder).free):
        raise ResourceError(
            f"{home or folder}: has {free / 1e9:.1f} GB free; training out of core writes {needed / 1e9:.1f} GB there; "
            "give a TMPDIR or an --out with more room"
        )


class Scratch:
    """A new hidden folder in `home`, of all ranks, which is removed at the end of a `with` block.

    Those that killed computations left in `home` are removed too.

        with Scratch(home, comm) as scratch:
            scratch.write("1", p, H_nF)
            comm.barrier()
            scratch.rows("1", q, places, out)

    Args:   home  a folder that all ranks see, made where it is absent; "": the folder of temporary files (TMPDIR).
    read_bytes, written_bytes  of rows, on this rank.
    Raises: ResourceError, on all ranks, where the folder cannot be written, or a rank does not see it.
    Collective, as entering it; the methods are not.
    """

    def __init__(self, home: str | Path, comm):
        self.home, self.comm = Path(home or tempfile.gettempdir()), comm
        self.read_bytes = self.written_bytes = 0
        self.folder = Path()
        self._temporary: TemporaryFolder | None = None  # of rank 0
        self._made: list[Path] = []  # of rank 0: the folder, and those above it that were not there
        self._saved: dict[
            tuple[str, int], np.ndarray
        ] = {}  # (name, part) -> an array of that shape and type, without memory

    def __enter__(self) -> Scratch:
        try:
            together(self.comm, self._make, root=0)
            self.folder = Path(self.comm.all_gather_json(str(self.folder))[0])
            together(self.comm, self._check_seen)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:  # else ranks may not meet any more
            self.comm.barrier()
        if kind is not None or self.comm.rank == 0:
            self._remove()

    def path(self, name: str, p: int) -> Path:
        """Return the file of a part."""
        return self.folder / name / f"part-{p:05d}.bin"

    def write(self, name: str, p: int, rows_nF) -> None:
        """Write rows of the own nodes of a part, a tensor or an array, over what its file had.

        To write over pages that the system holds takes a tenth of the time of new ones. A file stays as long as it was.
        Raises: ResourceError where the disk refuses it.
        """
        array = np.ascontiguousarray(rows_nF if isinstance(rows_nF, np.ndarray) else array_of(rows_nF.cpu()))
        path = self.path(name, p)
        try:
            path.parent.mkdir(exist_ok=True)
            with open(path, "r+b" if path.exists() else "wb", buffering=0) as file:
                left = array.data.cast("B") if array.size else memoryview(b"")
                while left:
                    left = left[file.write(left) :]
        except OSError as error:
            raise self._refused(error) from error
        self.written_bytes += array.nbytes

    def read(self, name: str, p: int, out_nF: np.ndarray, first: int = 0) -> None:
        """Read rows of a part, from row `first` on, into an array of their shape and type."""
        path = self.path(name, p)
        left = out_nF.data.cast("B") if out_nF.size else memoryview(b"")
        try:
            with open(path, "rb", buffering=0) as file:
                file.seek(first * out_nF.strides[0])
                while left:
                    count = file.readinto(left)
                    if not count:
                        raise ResourceError(f"{path}: has {len(left)} bytes too few; another process changed it")
                    left = left[count:]
        except OSError as error:
            raise self._unread(path, error) from error
        self.read_bytes += out_nF.nbytes

    def save(self, name: str, p: int, array: np.ndarray) -> None:
        """Write an array, which `load` returns on this rank."""
        self.write(name, p, array)
        self._saved[name, p] = np.broadcast_to(np.empty((), array.dtype), array.shape)

    def load(self, name: str, p: int) -> np.ndarray | None:
        """Return a copy of an array that was saved on this rank; None where none was."""
        saved = self._saved.get((name, p))
        if saved is None:
            return None
        self.read(name, p, out := np.empty(saved.shape, saved.dtype))
        return out

    def rows(self, name: str, p: int, n: int, places_r: np.ndarray, out_rF: np.ndarray) -> None:
        """Read some rows of the n own nodes of a part, through a map of its file."""
        path = self.path(name, p)
        try:
            rows_nF = np.memmap(path, out_rF.dtype, mode="r", shape=(n, out_rF.shape[1]))
        except (OSError, ValueError) as error:
            raise self._unread(path, error) from error
        for start in range(0, len(places_r), BLOCK):  # so that few pages of the file are in memory beside their copy
            at = slice(start, start + BLOCK)
            np.take(rows_nF, places_r[at], axis=0, out=out_rF[at], mode="clip")  # the places are of these rows
            drop_pages(rows_nF)
        self.read_bytes += out_rF.nbytes

    def clear(self, name: str, parts: Iterable[int]) -> None:
        """Remove the files of parts, and the folder with the last one."""
        for path in (self.path(name, p) for p in parts):
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()

    def _make(self) -> None:
        try:
            absent = [folder for folder in (self.home, *self.home.parents) if not folder.exists()]
            self.home.mkdir(parents=True, exist_ok=True)
            self._made = absent
            self._temporary = TemporaryFolder(".spgnn-scratch-", self.home)
            self.folder = self._temporary.path
        except OSError as error:
            raise self._refused(error) from error

    def _check_seen(self) -> None:
        if not self.folder.is_dir():
            raise ResourceError(
                f"rank {self.comm.rank}: --scratch {self.home} of rank 0 is not seen; give a folder that all hosts share"
            )
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise ResourceError(
                f"rank {self.comm.rank}: --scratch {self.home} cannot be written; give a folder that every rank can write"
            )

    def _remove(self) -> None:
        if self._temporary is not None:
            self._temporary.remove()
        elif self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)
        for folder in self._made:
            with suppress(OSError):  # others use it
                folder.rmdir()

    def _refused(self, error: OSError) -> ResourceError:
        return ResourceError(
            f"rank {self.comm.rank}: --scratch {self.home}: cannot be written: {error.strerror or error}; give a folder "
            "with more room"
        )

    def _unread(self, path: Path, error: Exception) -> ResourceError:
        reason = getattr(error, "strerror", None) or error
        return ResourceError(f"rank {self.comm.rank}: {path}: cannot be read: {reason}; all hosts must share --scratch")
