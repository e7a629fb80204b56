"""Arrays of .npy and .npz files: sizes checked against the file before anything is allocated, pickles never read."""

from __future__ import annotations

import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from ...atomic import open_regular
from ...errors import FormatError, is_out_of_memory
from ...machine import NPY_HEADERS
from .text import FREE_BYTES, MAX_RATIO, opened

Layout = tuple[int, tuple[int, ...], np.dtype, bool]  # header bytes, shape, dtype, is Fortran order
NPY = b"\x93NUMPY"  # the first bytes of a file
MAX_HEADER_BYTES = 10_000
KINDS = "biufSU"
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError, SyntaxError, TypeError,
          RuntimeError, NotImplementedError, OverflowError, IndexError, tokenize.TokenError)  # fmt: skip


@contextmanager
def damage(what: str) -> Iterator[None]:
    """Raise FormatError, with what went wrong, for what NumPy and zipfile raise on damaged bytes."""
    try:
        yield
    except DAMAGE as error:
        if is_out_of_memory(error):
            raise
        raise FormatError(f"{what}: {str(error)[:200]}; was the file cut off or damaged?") from None


def member_names(path: Path) -> frozenset[str]:
    """Return the names of the arrays in an .npz; empty if the file is no archive."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            return frozenset(name.removesuffix(".npy") for name in archive.namelist())
    except DAMAGE as error:
        if is_out_of_memory(error):
            raise
        return frozenset()


def is_zip(path: Path) -> bool:
    """The file exists and starts as a zip archive does."""
    if not path.is_file():
        return False
    with open_regular(path) as file:
        return file.read(4) == b"PK\x03\x04"


class Archive:
    """The arrays of an .npz, each read on demand: archive["name"].

    Raises: FormatError for a damaged archive, a member that is missing, holds objects (a pickle:
            never read), or would unpack to over 32 MiB and 200 times the size of the file.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile):
        self.path, self._zip, self._unpacked_bytes = path, archive, 0
        self._file_bytes = path.stat().st_size
        self.names = frozenset(name.removesuffix(".npy") for name in archive.namelist())

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the array called name."""
        with self._naming(name) as where:
            info = self._zip.getinfo(f"{name}.npy")
            self._check_member(where, info)
            with self._zip.open(info) as member:
                header_bytes, shape, dtype, _ = read_header(where, member)
            need = header_bytes + math.prod(shape) * dtype.itemsize
            if need != info.file_size:
                raise FormatError(f"{where} is declared {dtype} {shape}, {need} bytes, and holds {info.file_size}")
            with self._zip.open(info) as member:
                array = np.lib.format.read_array(member, allow_pickle=False, max_header_size=MAX_HEADER_BYTES)
                member.read()  # to the end, where zipfile compares the checksum
                return _native(array)

    @contextmanager
    def stream(self, name: str) -> Iterator[tuple[int, np.dtype, Callable[[int], np.ndarray]]]:
        """Open a vector to be read piece by piece: yield (number of values, dtype, f(count) -> the next values)."""
        with self._naming(name) as where, self._zip.open(f"{name}.npy") as member:
            _, shape, dtype, _ = read_header(where, member)
            if len(shape) != 1:
                raise FormatError(f"{where} has shape {shape}; expected one dimension")

            def read(count: int) -> np.ndarray:
                with damage(f"{where} cannot be read"):
                    return _native(np.frombuffer(member.read(count * dtype.itemsize), dtype, count))

            yield shape[0], dtype, read

    @contextmanager
    def _naming(self, name: str) -> Iterator[str]:
        """Yield what messages call an array; FormatError if there is none, or it is damaged."""
        if name not in self.names:
            raise FormatError(f"{self.path}: has no array {name!r}, but {', '.join(sorted(self.names)[:12]) or 'none'}")
        with damage(f"{self.path}: array {name!r} cannot be read"):
            yield f"{self.path}: array {name!r}"

    def _check_member(self, where: str, info: zipfile.ZipInfo) -> None:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(f"{where} is packed by method {info.compress_type}; expected none or deflate")
        self._unpacked_bytes += info.file_size
        if self._unpacked_bytes > max(FREE_BYTES, MAX_RATIO * self._file_bytes):
            raise FormatError(
                f"{where} would unpack to {info.file_size} bytes, the file has {self._file_bytes}; "
                f"if that is right, save it again with numpy.savez, uncompressed"
            )


@contextmanager
def open_npz(path: Path) -> Iterator[Archive]:
    """Open an .npz as an Archive."""
    with opened(path) as file:
        with damage(f"{path}: not an .npz archive"):
            archive = zipfile.ZipFile(file)
        with archive:
            yield Archive(path, archive)


def read_npy(path: Path, mmap: bool = False) -> np.ndarray:
    """Return the array of an .npy, memory-mapped on request; its size is compared with the file's first."""
    with opened(path) as file, damage(f"{path}: not an .npy array"), NPY_HEADERS:
        offset, shape, dtype, is_fortran = _layout(path, file)
        if mmap and math.prod(shape):
            return _native(np.memmap(file, dtype, "r", offset, shape, "F" if is_fortran else "C"))
        file.seek(0)
        return _native(np.lib.format.read_array(file, allow_pickle=False, max_header_size=MAX_HEADER_BYTES))


def npy_layout(path: Path) -> Layout:
    """Return (header bytes, shape, dtype, is Fortran order) of an .npy whose values are read later, piece by piece."""
    with opened(path) as file, damage(f"{path}: not an .npy array"):
        return _layout(path, file)


def _layout(path: Path, file: BinaryIO) -> Layout:
    header_bytes, shape, dtype, is_fortran = read_header(str(path), file)
    need, size = header_bytes + math.prod(shape) * dtype.itemsize, os.fstat(file.fileno()).st_size
    if need != size:
        raise FormatError(f"{path} is declared {dtype} {shape}, {need} bytes with its header, and holds {size}")
    return header_bytes, shape, dtype, is_fortran


def shape_of(array: np.ndarray, path: Path) -> tuple[int, ...]:
    """Return the two sizes that a `shape` array holds."""
    if array.dtype.kind not in "iu" or array.shape != (2,):
        raise FormatError(f"{path}: shape is {array.dtype} of shape {array.shape}; expected two integers")
    return tuple(int(s) for s in array)


def read_header(where: str, file: IO[bytes]) -> Layout:
    """Return (header bytes, shape, dtype, is Fortran order) of an .npy stream; FormatError for objects and odd types."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise FormatError(f"{where} is .npy version {version}; expected 1.0 or 2.0")
    shape, is_fortran, dtype = read(file, max_header_size=MAX_HEADER_BYTES)
    if dtype.hasobject:
        raise FormatError(f"{where} holds pickled objects, which are never loaded; save it as numbers")
    if dtype.kind not in KINDS or dtype.subdtype is not None or dtype.fields is not None or dtype.itemsize == 0:
        raise FormatError(f"{where} holds {dtype}; expected numbers")
    if dtype.kind == "f" and dtype.itemsize > 8:
        raise FormatError(f"{where} holds {dtype}; expected float16, float32 or float64")
    if any(size < 0 for size in shape):
        raise FormatError(f"{where} has shape {shape}; sizes cannot be negative")
    return file.tell(), shape, dtype, is_fortran


def _native(array: np.ndarray) -> np.ndarray:
    """Return the array in this machine's byte order; booleans as 0 and 1, whatever bytes the file has."""
    if array.dtype.kind == "b":
        return np.asarray(array.view(np.uint8)) != 0
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
