"""AnnData files (.h5ad) by h5py: the matrices and columns of cells, read, and written back.

Source: AnnData's on-disk format, encodings of versions 0.7 and later.
Shapes: N cells, m of a table's rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...atomic import new_file, open_regular
from ...errors import FormatError, GraphError, InputError, nearest
from .make_graph import checked_parts
from .text import FREE_BYTES, MAX_RATIO

ENDING = ".h5ad"
NOTHING = np.array([None], object)  # a missing value


def file_and_key(path: str | Path) -> tuple[Path, str]:
    """Return FILE.h5ad and KEY of a path FILE.h5ad or FILE.h5ad:KEY."""
    text = str(path)
    at = text.lower().rfind(f"{ENDING}:")
    return (Path(text), "") if at < 0 else (Path(text[: at + len(ENDING)]), text[at + len(ENDING) + 1 :])


def is_h5ad_file(path: Path) -> bool:
    """Whether a path is a file .h5ad."""
    return path.suffix.lower() == ENDING and path.is_file()


@contextmanager
def open_h5ad(path: Path) -> Iterator[Any]:
    """Open a file to read, an h5py.File. Raises: InputError without h5py; FormatError for what HDF5 raises inside."""
    try:
        import h5py
    except ImportError:
        raise InputError(f"{path}: AnnData files need h5py: pip install 'spgnn[anndata]'") from None
    try:
        if not path.stat().st_size:
            raise FormatError(f"{path}: is empty")
        with h5py.File(path, "r") as file:
            if "_index" not in item_of(file, "obs").attrs:
                raise FormatError(f"{path}: has no table obs of AnnData 0.7 or later; write it again: adata.write_h5ad")
            yield file
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path}: cannot be read as AnnData: {str(error)[:200]}") from None


def item_of(file: Any, name: str) -> Any:
    """Return a group or dataset. Raises: FormatError where it is missing, leads outside the file, or unpacks to too much."""
    import h5py

    where = f"{file.file.filename}: {name}"
    if isinstance(file.get(name, getlink=True), h5py.ExternalLink):
        raise FormatError(f"{where} is in another file; write it again: adata.write_h5ad")
    found = file.get(name)
    if found is None:
        raise FormatError(f"{where} is missing{nearest(name, file)}")
    if isinstance(found, h5py.Dataset):
        if found.external or found.is_virtual:
            raise FormatError(f"{where} is in another file; write it again: adata.write_h5ad")
        if found.nbytes > max(FREE_BYTES, MAX_RATIO * found.id.get_storage_size()):
            raise FormatError(f"{where} has {found.nbytes:,} bytes, and {found.id.get_storage_size():,} are stored")
    return found


def read_matrix(file: Any, name: str) -> np.ndarray | sp.csr_array:
    """Return an array of numbers, or a CSR, of a dense or sparse matrix, checked."""
    found = item_of(file, name)
    where = f"{file.file.filename}: {name}"
    if hasattr(found, "dtype"):
        if found.dtype.kind not in "biuf":
            raise FormatError(f"{where} holds {found.dtype}; expected numbers")
        return found[...]
    encoding = str(found.attrs.get("encoding-type"))
    if encoding not in ("csr_matrix", "csc_matrix"):
        raise FormatError(f"{where} is a {encoding}; expected an array or a sparse matrix")
    is_csc = encoding == "csc_matrix"
    shape = np.asarray(found.attrs["shape"]).tolist()
    arrays = [item_of(found, part)[...] for part in ("data", "indices", "indptr")]
    data, indices, indptr, shape = checked_parts(where, *arrays, shape=shape[::-1] if is_csc else shape, what="matrix")
    matrix = sp.csr_array((data, indices, indptr), shape=shape)
    matrix = sp.csr_array(matrix.T) if is_csc else matrix
    matrix.sum_duplicates()
    return matrix


def read_column(file: Any, name: str) -> np.ndarray:
    """Return a column: numbers, text as objects, objects with None where values are missing."""
    found = item_of(file, name)
    if hasattr(found, "dtype"):
        return found.asstr()[...] if found.dtype.kind == "O" else found[...]
    if str(found.attrs.get("encoding-type")) == "categorical":
        codes, values = item_of(found, "codes")[...], read_column(found, "categories")
        if len(codes) and not -1 <= codes.min() <= codes.max() < len(values):
            raise FormatError(f"{file.file.filename}: {name} has a code beyond its {len(values)} categories")
        return np.concatenate([values.astype(object), NOTHING])[codes]
    return np.where(item_of(found, "mask")[...], NOTHING, read_column(found, "values"))


def names_of(file: Any, table: str) -> np.ndarray:
    """Return the names of the rows of obs or var, (N,) text."""
    group = item_of(file, table)
    return np.array([str(name) for name in read_column(group, str(group.attrs["_index"])).tolist()], object)


def matrices(file: Any, name: str) -> Any:
    """Return the group obsm or obsp, or {} where a file has none."""
    return item_of(file, name) if name in [*file] else {}  # of links too that lead nowhere


def obs_columns(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the columns of cells: id, those of obs, and those of each matrix of obsm, spatial_0, spatial_1; and notes."""
    notes = []
    with open_h5ad(path) as file:
        columns, obs, obsm = {"id": names_of(file, "obs")}, item_of(file, "obs"), matrices(file, "obsm")
        for name in map(str, obs.attrs["column-order"]):
            if name in columns:
                notes.append(f"{path}: column {name!r} of obs is not read: the index of obs has the ids")
            else:
                columns[name] = read_column(obs, name)
        for name in obsm:
            matrix = read_matrix(obsm, name)
            matrix = matrix.toarray() if isinstance(matrix, sp.csr_array) else matrix
            columns |= {f"{name}_{c}": column for c, column in enumerate(matrix.T)}
    return columns, notes


def add_to_h5ad(
    path: Path, ids: np.ndarray, option: str, obs: Mapping[str, np.ndarray] = {}, obsm: Mapping[str, np.ndarray] = {}
) -> None:
    """Write columns of obs and matrices of obsm into a file, whole or not at all; what has the same name is replaced.

    Args:   ids  the names of the rows, which the file has to have in this order; option: named in errors.
    Raises: GraphError where the file has other cells.
    """
    import h5py

    with open_h5ad(path) as file:
        own = names_of(file, "obs")
    if len(own) != len(ids) or not np.array_equal(own, ids.astype(str).astype(object)):
        raise GraphError(f"{option} {path}: has not the cells of the graph; expected {len(ids):,} with the same names")
    with new_file(path, option) as new:
        with open_regular(path) as old:
            shutil.copyfileobj(old, new)
        new.flush()
        with h5py.File(f"/proc/self/fd/{new.fileno()}", "r+", locking=False) as file:
            table = file["obs"]
            for name, values in obs.items():
                _replace(table, name, values)
            order = [str(name) for name in table.attrs["column-order"]]
            order += [name for name in obs if name not in order]
            table.attrs.create("column-order", order, dtype=h5py.string_dtype())
            for name, values in obsm.items():
                _replace(file.require_group("obsm"), name, values)


def _replace(group: Any, name: str, values: np.ndarray) -> None:
    """Write a column or a matrix under a name, text as categories."""
    import h5py

    if name in group:
        del group[name]
    if values.dtype.kind not in "OUT":
        _encode(group.create_dataset(name, data=values), "array")
        return
    found, codes = np.unique(values.astype(str), return_inverse=True)
    column = group.create_group(name)
    _encode(column, "categorical")
    column.attrs["ordered"] = False
    _encode(column.create_dataset("codes", data=codes.astype(np.int32)), "array")
    texts = column.create_dataset("categories", data=found.astype(object), dtype=h5py.string_dtype())
    _encode(texts, "string-array")


def _encode(item: Any, kind: str) -> None:
    item.attrs["encoding-type"], item.attrs["encoding-version"] = kind, "0.2.0"
