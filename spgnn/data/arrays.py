"""Read .npy and .npz files whose headers were held against the bytes that are there, never a pickle."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import scipy.sparse as sp

from ..errors import FormatError, GraphError, InputError
from ..graph import check_csr

# A zip member that unpacks to more than this many bytes a packed one, past SLACK, is refused.
MAX_RATIO, SLACK_BYTES = 200, 64 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """What a .npy header says: the values start at byte `offset`."""

    dtype: np.dtype
    shape: tuple[int, ...]
    order: str
    offset: int

    @property
    def file_bytes(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return self.offset + size * self.dtype.itemsize


def read_header(file: BinaryIO, where: str) -> Header:
    """Return the header of an open .npy file.

    Raises: FormatError for another version, an object or structured dtype, or a damaged header.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise FormatError(f"{where}: .npy version {version} is not known; expected 1.0 or 2.0")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
    except (ValueError, TypeError, SyntaxError, KeyError, EOFError, RecursionError, tokenize.TokenError) as error:
        raise FormatError(f"{where}: not a .npy array: {str(error).splitlines()[0]}") from error
    if dtype.kind not in "biufSU":
        raise FormatError(f"{where}: holds {dtype}; expected numbers (objects are never unpickled)")
    if any(extent < 0 for extent in shape):
        raise FormatError(f"{where}: header declares the shape {shape}")
    return Header(dtype, tuple(int(extent) for extent in shape), "F" if is_fortran else "C", file.tell())


def map_npy(path: str | Path) -> np.ndarray:
    """Map a .npy file read-only.

    Raises: FormatError unless the file has exactly the bytes that its header declares.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            header = read_header(file, str(path))
        size_bytes = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if header.file_bytes != size_bytes:
        raise FormatError(
            f"{path}: has {size_bytes} bytes, its header declares {header.shape} {header.dtype}, "
            f"which takes {header.file_bytes}; the file is truncated or damaged"
        )
    if header.file_bytes == header.offset:
        return np.empty(header.shape, header.dtype, header.order)
    return _native(np.memmap(path, header.dtype, "r", header.offset, header.shape, header.order))


def read_npz(path: str | Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Read the named arrays of a .npz, or all of them; a name that is not there is left out.

    Raises: FormatError for a broken archive, a member that declares more than it holds, or a zip bomb.
    """
    path = Path(path)
    wanted = None if names is None else set(names)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {m.filename.removesuffix(".npy"): m for m in archive.infolist() if m.filename.endswith(".npy")}
            members = {name: m for name, m in members.items() if wanted is None or name in wanted}
            _refuse_bomb(path, members.values())
            return {name: _read_member(archive, member, f"{path}: {name}") for name, member in members.items()}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FormatError(f"{path}: not a readable .npz archive: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_csr_npz(path: str | Path) -> sp.csr_array:
    """Read the CSR that scipy.sparse.save_npz wrote, checked before scipy uses it."""
    arrays = read_npz(path, ("format", "shape", "indptr", "indices", "data"))
    missing = {"format", "shape", "indptr", "indices", "data"} - set(arrays)
    if missing:
        raise FormatError(f"{path}: has no array {', '.join(sorted(missing))}; expected scipy.sparse.save_npz of a CSR")
    kind = arrays["format"].item() if arrays["format"].size == 1 else None
    if kind not in (b"csr", "csr"):
        raise FormatError(f"{path}: holds a sparse matrix of format {kind!r}; expected csr (use .tocsr() before save_npz)")
    shape = arrays["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise FormatError(f"{path}: shape is {shape.tolist()!r}; expected two integers")
    rows, cols = (int(extent) for extent in shape)
    return csr_of(arrays["data"], arrays["indices"], arrays["indptr"], (rows, cols), str(path))


def csr_of(data, indices, indptr, shape: tuple[int, int], where: str) -> sp.csr_array:
    """Return the CSR of arrays that come from outside; columns out of order are sorted, duplicates summed.

    Raises: FormatError naming the first row that is wrong. Nothing is handed to scipy before.
    """
    for what, array, kinds in (("data", data, "biuf"), ("indices", indices, "iu"), ("indptr", indptr, "iu")):
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise FormatError(f"{where}: {what} is {array.dtype} of shape {array.shape}; expected one axis of numbers")
    rows, cols = shape
    if min(shape) < 0 or len(indptr) != rows + 1 or len(indices) != len(data):
        raise FormatError(
            f"{where}: shape {shape}, {len(indptr)} indptr, {len(indices)} indices, {len(data)} values; "
            f"expected rows + 1 indptr and as many indices as values"
        )
    if indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise FormatError(f"{where}: indptr must rise from 0 to {len(indices)}, got {indptr[0]} to {indptr[-1]}")
    bad = (indices < 0) | (indices >= cols)
    if bad.any():
        entry = int(np.argmax(bad))
        row = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise FormatError(f"{where}: row {row} has column {int(indices[entry])}; expected 0 to {cols - 1}")
    A = sp.csr_array((data, indices, indptr), shape=shape)
    if not A.has_canonical_format:
        A = A.copy()
        A.sum_duplicates()
    try:
        check_csr(A, where)
    except GraphError as error:
        raise FormatError(str(error)) from error
    return A


def _refuse_bomb(path: Path, members) -> None:
    unpacked_bytes = sum(m.file_size for m in members)
    packed_bytes = min(sum(m.compress_size for m in members), path.stat().st_size)
    if unpacked_bytes > SLACK_BYTES + MAX_RATIO * packed_bytes:
        raise FormatError(
            f"{path}: {packed_bytes} bytes declare {unpacked_bytes} unpacked; refused: "
            f"expected at most {MAX_RATIO} times as many. Store it with np.savez if it is meant"
        )


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> np.ndarray:
    with archive.open(member) as file:
        header = read_header(file, where)
        if header.file_bytes != member.file_size:
            raise FormatError(
                f"{where}: header declares {header.shape} {header.dtype}, {header.file_bytes} bytes; "
                f"the archive holds {member.file_size}"
            )
        values = file.read()
    if len(values) != header.file_bytes - header.offset:
        raise FormatError(f"{where}: truncated, {len(values)} of {header.file_bytes - header.offset} bytes")
    return _native(np.frombuffer(values, header.dtype).reshape(header.shape, order=header.order))


def _native(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
