"""Tables with a row per node: features, labels and split, read in blocks of rows, and distributed to the parts.

Shapes: N nodes, F features, m rows of a block, k parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ....atomic import open_regular
from ....data.readers.make_graph import are_numbers, as_float, checked_parts, read_labels, roles_of
from ....data.readers.npz import is_zip, npy_layout, open_npz, shape_of
from ....errors import FormatError, InputError
from ....graph.checks import most_classes
from ....graph.digest import RowsDigest
from ...metrics import rows_in_order
from ..store import part_name
from .work import NpyFile, WorkFolder, header_bytes, read_slice

Show = Callable[[str, int, int], None]  # called with (what, done, of how many)
ID_ROWS = 1 << 20
SCANNED_BYTES = 1 << 24  # of labels at once, to see whether they are classes


class NpyRows:
    """The rows of an .npy file: rows[start:stop] reads them, as mapped pages would count as memory of this process."""

    def __init__(self, path: Path):
        self.path = path
        self.offset, self.shape, self.dtype, self.is_fortran = npy_layout(path)

    def __getitem__(self, which: slice) -> np.ndarray:
        m, (n_rows, *tail) = which.stop - which.start, self.shape
        width = int(np.prod(tail))
        if self.is_fortran and tail:
            rows = np.empty((m, width), self.dtype)
            for column in range(width):
                rows[:, column] = self._values(column * n_rows + which.start, m)
        else:
            rows = self._values(which.start * width, m * width)
        return rows.reshape(m, *tail)

    def _values(self, start: int, count: int) -> np.ndarray:
        with open_regular(self.path) as file:
            values = np.fromfile(file, self.dtype, count, offset=self.offset + start * self.dtype.itemsize)
        if len(values) != count:
            raise InputError(f"{self.path}: ends before value {start + count}; was it cut while it was read?")
        return values


class Dense:
    """(N, ...) numbers of an .npy file or an array; blocks() yields (first row, rows), converted and checked.

    Args: convert  f(table, first row, rows) -> rows as they are stored.
    """

    def __init__(self, what: str, source, convert: Callable[[Dense, int, np.ndarray], np.ndarray]):
        path = _existing(what, source) if isinstance(source, (str, Path)) else None
        self._convert = convert
        self._source = np.asarray(source) if path is None else NpyRows(path)
        self.where = what if path is None else str(path)
        shape, dtype = self._source.shape, self._source.dtype
        if dtype.kind not in "biuf":
            raise FormatError(f"{self.where}: holds {dtype}; expected numbers")
        if len(shape) not in ((2,) if what == "features" else (1, 2)):
            raise FormatError(f"{self.where}: shape {shape}; expected a row per node")
        if what != "features" and 0 in shape[1:]:
            raise FormatError(f"{self.where}: {what} of shape {shape}; expected at least one column")
        self.rows = shape[0]
        sample = self._stored(0, np.zeros((0, *shape[1:]), dtype.newbyteorder("=")))
        self.dtype, self.tail = sample.dtype, sample.shape[1:]
        self.row_bytes = max(int(np.prod(shape[1:])) * max(dtype.itemsize, self.dtype.itemsize), 1)

    def blocks(self, block_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, (m, *tail) array); the caller may change it."""
        step = max(block_bytes // self.row_bytes, 1)
        for start in range(0, self.rows, step):
            yield start, self._stored(start, self._source[start : min(start + step, self.rows)])

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return some rows, which the caller may change."""
        return self._stored(start, self._source[start:stop])

    def _stored(self, start: int, rows: np.ndarray) -> np.ndarray:
        if rows.dtype.kind == "b":
            rows = rows.view(np.uint8) != 0
        elif not rows.dtype.isnative:
            rows = rows.astype(rows.dtype.newbyteorder("="))
        return self._convert(self, start, rows)


class Sparse:
    """(N, F) CSR of a SciPy .npz, its members read piece by piece, or in memory; blocks() yields (first row, CSR)."""

    def __init__(self, source):
        self._matrix: Path | sp.csr_array
        if isinstance(source, (str, Path)):
            self._matrix = path = _existing("features", source)
            with open_npz(path) as arrays:
                form = arrays["format"].item() if "format" in arrays else None
                if form not in ("csr", b"csr"):
                    raise FormatError(f"{path}: features are {form}; expected csr")
                shape = shape_of(arrays["shape"], path)
                with arrays.stream("data") as (nnz, dtype, _):
                    pass
        else:
            self._matrix = sp.csr_array(source)
            shape, nnz, dtype = self._matrix.shape, self._matrix.nnz, self._matrix.dtype
        self.where = str(self._matrix) if isinstance(self._matrix, Path) else "features"
        if dtype.kind not in "biuf":
            raise FormatError(f"{self.where}: holds {dtype}; expected numbers")
        if len(shape) != 2:
            raise FormatError(f"{self.where}: shape {shape}; expected a row per node")
        self.rows, self.width, self.nnz = shape[0], shape[1], nnz
        self.dtype = as_float(np.zeros(0, dtype.newbyteorder("="))).dtype
        self.row_bytes = 1  # blocks are cut by nonzeros
        self.index_dtype = np.dtype(np.int32 if max(*shape, nnz) < 2**31 else np.int64)

    def blocks(self, block_bytes: int) -> Iterator[tuple[int, sp.csr_array]]:
        """Yield (first row, (m, F) CSR, sorted, duplicates added up)."""
        with ExitStack() as stack:
            if isinstance(self._matrix, Path):
                arrays = stack.enter_context(open_npz(self._matrix))
                indptr = arrays["indptr"]
                n_data, _, data = stack.enter_context(arrays.stream("data"))
                n_indices, _, indices = stack.enter_context(arrays.stream("indices"))
                if n_data != n_indices:
                    raise FormatError(f"{self.where}: {n_indices} indices and {n_data} values; expected equal numbers")
            else:
                indptr, data, indices = self._matrix.indptr, _reader(self._matrix.data), _reader(self._matrix.indices)
            ends = (len(indptr), indptr[0], indptr[-1]) if len(indptr) else ()
            if ends != (self.rows + 1, 0, self.nnz) or np.any(indptr[1:] < indptr[:-1]):
                raise FormatError(f"{self.where}: indptr must have {self.rows + 1} entries, from 0 to {self.nnz}")
            start, most = 0, max(block_bytes // 16, 1)
            while start < self.rows:
                stop = int(np.searchsorted(indptr, indptr[start] + most, side="right")) - 1
                stop = min(max(stop, start + 1), start + most, self.rows)
                count = int(indptr[stop] - indptr[start])
                parts = data(count), indices(count), indptr[start : stop + 1] - indptr[start]
                yield start, self._stored(start, *parts, (stop - start, self.width))
                start = stop

    def _stored(
        self, start: int, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple
    ) -> sp.csr_array:
        what = f"features from row {start}"
        data, indices, indptr, _ = checked_parts(self.where, data, indices, indptr, shape, what)
        data = as_float(data.astype(data.dtype.newbyteorder("="), copy=False))
        block = sp.csr_array((data, indices, indptr), shape=shape)
        if not block.has_canonical_format:
            block = block.copy()  # sorting writes, and these arrays belong to the caller or to a read-only file
            block.sum_duplicates()
        if not np.isfinite(block.data).all():
            row = int(np.searchsorted(block.indptr, int(np.argmin(np.isfinite(block.data))), side="right")) - 1
            raise FormatError(f"{self.where}: node {start + row} has a feature that is not finite")
        return block


def features_table(source) -> Dense | Sparse:
    """Return the table of --features: .npy, a SciPy CSR .npz, or an array or sparse matrix."""
    if sp.issparse(source) or (isinstance(source, (str, Path)) and is_zip(_existing("features", source))):
        return Sparse(source)
    return Dense("features", source, _features)


def labels_table(source) -> Dense:
    """Return the table of --labels: (N,) classes, -1 for none, (N, classes) of 0 and 1, or numbers, NaN for none."""
    raw = Dense("labels", source, lambda table, start, y: y)
    is_number = any(are_numbers(y, raw.rows) for _, y in raw.blocks(SCANNED_BYTES))
    return Dense("labels", source, partial(_labels, is_number=is_number))


def split_table(source) -> Dense:
    """Return the table of --split: (N,) or (N, S), 0 train, 1 val, 2 test, -1 none."""
    return Dense("split", source, lambda table, start, values: roles_of(table.where, values, start))


def _features(table: Dense, start: int, rows: np.ndarray) -> np.ndarray:
    rows = as_float(rows)
    finite = np.isfinite(rows)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise FormatError(f"{table.where}: node {start + row}, column {column} is {rows[row, column]}, not finite")
    return rows


def _labels(table: Dense, start: int, y: np.ndarray, is_number: bool) -> np.ndarray:
    y = read_labels(y, is_number)
    if y.dtype.kind == "f":
        if np.isinf(y).any():
            row = int(np.argwhere(np.isinf(y))[0][0])
            raise FormatError(
                f"{table.where}: node {start + row} has the target inf; expected finite ones, NaN for none"
            )
        return y
    low, high = (-1, most_classes(table.rows)) if y.ndim == 1 else (0, 1)
    bad = (y < low) | (y > high)
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        raise FormatError(f"{table.where}: node {start + at[0]} has label {int(y[at])}; expected {low} to {high}")
    return y


def check_rows(table: Dense | Sparse, n_nodes: int, why: str) -> None:
    """Raise FormatError unless the table has a row per node."""
    if table.rows != n_nodes:
        raise FormatError(f"{table.where}: {table.rows} rows; expected {n_nodes}, one per node: {why}")


def _existing(what: str, source) -> Path:
    path = Path(source)
    if not path.exists():
        raise InputError(f"{path}: no such file; expected the {what} as .npy{' or .npz' if what == 'features' else ''}")
    if what != "features" and is_zip(path):
        raise FormatError(f"{path}: is an .npz; expected the {what} as .npy")
    return path


def _reader(values: np.ndarray) -> Callable[[int], np.ndarray]:
    at = 0

    def read(count: int) -> np.ndarray:
        nonlocal at
        at += count
        return values[at - count : at]

    return read


def write_own_ids(work: WorkFolder, owner_N: np.ndarray, k: int) -> dict:
    """Write own.npy of each part: its nodes, rising, int64."""
    files = [NpyFile(work.new / part_name(p) / "own.npy", np.int64) for p in range(k)]
    for start in range(0, len(owner_N), ID_ROWS):
        order, bounds = by_part(owner_N[start : start + ID_ROWS], k)
        for p in np.flatnonzero(np.diff(bounds)):
            files[p].append(start + order[bounds[p] : bounds[p + 1]])
    for file in files:
        file.finish()
    return {}


def distribute_table(
    work: WorkFolder,
    table: Dense | Sparse,
    name: str,
    owner_N: np.ndarray,
    k: int,
    block_bytes: int,
    with_halo: bool,
    progress: Show,
) -> dict:
    """Write NAME.npy of each part, or NAME_{indptr,indices,data}.npy; with_halo: also halo_NAME, in the order of halo.npy.

    Returns: {digest: table_digest of the whole table}.
    """
    folders = [work.new / part_name(p) for p in range(k)]
    own = [_open(folder, name, table) for folder in folders]
    halo = [_open(folder, f"halo_{name}", table) for folder in folders] if with_halo else []
    halo_files = [folder / "halo.npy" for folder in folders[: len(halo)]]
    offset = header_bytes(halo_files[0]) if halo else 0
    at_k, digest = [0] * k, RowsDigest()
    for start, rows in table.blocks(block_bytes):
        stop = start + rows.shape[0]
        digest.add(rows)
        order, bounds = by_part(owner_N[start:stop], k)
        for p in np.flatnonzero(np.diff(bounds)):
            own[p].append(rows[order[bounds[p] : bounds[p + 1]]])
        for p, path in enumerate(halo_files):
            ids = read_slice(path, np.int64, at_k[p], stop - start, offset)
            ids = ids[: np.searchsorted(ids, stop)]
            at_k[p] += len(ids)
            if len(ids):
                halo[p].append(rows[ids - start])
        progress(name, stop, table.rows)
    for files in (*own, *halo):
        files.finish()
    return {"digest": digest.hexdigest()}


def by_part(owner_m: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a block by part, and where each part's start, (k + 1,)."""
    return rows_in_order(owner_m), np.concatenate([[0], np.cumsum(np.bincount(owner_m, minlength=k))])


def _open(folder: Path, name: str, table: Dense | Sparse) -> NpyFile | _SparseFiles:
    if isinstance(table, Sparse):
        return _SparseFiles(folder, name, table)
    return NpyFile(folder / f"{name}.npy", table.dtype, table.tail)


class _SparseFiles:
    def __init__(self, folder: Path, name: str, table: Sparse):
        kinds = {"indptr": table.index_dtype, "indices": table.index_dtype, "data": table.dtype}
        self._files = [NpyFile(folder / f"{name}_{part}.npy", kind) for part, kind in kinds.items()]
        self._files[0].append(np.zeros(1, table.index_dtype))

    def append(self, rows: sp.csr_array) -> None:
        indptr, indices, data = self._files
        indptr.append((indices.rows + rows.indptr[1:].astype(np.int64)).astype(indptr.dtype))
        indices.append(rows.indices.astype(indices.dtype, copy=False))
        data.append(rows.data)

    def finish(self) -> None:
        for file in self._files:
            file.finish()
