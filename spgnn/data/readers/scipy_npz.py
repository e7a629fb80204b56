"""SciPy .npz: csr, csc or coo as scipy.sparse.save_npz writes them; A[u, v] is the edge u -> v."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import FormatError
from ...graph.structure import as_weights
from ..formats import reader
from .make_graph import check_array, checked_parts, coo_graph, csr_features, csr_graph
from .npz import Archive, member_names, open_npz, shape_of


def is_scipy_npz(path: Path) -> bool:
    """an .npz with the arrays format, shape and data, as scipy.sparse.save_npz writes."""
    return path.is_file() and {"format", "shape", "data"} <= member_names(path)


@reader("scipy", detect=is_scipy_npz, takes=("duplicates",))
def read_scipy_npz(path: Path, progress=None, duplicates="auto"):
    """Read a SciPy .npz as a graph; its indices are checked, which scipy.sparse.load_npz does not do."""
    with open_npz(path) as arrays:
        form = _form(arrays)
        if form == "csr":
            graph = csr_graph(path, _compressed_parts(arrays), duplicates)
        else:
            graph = _other_graph(path, arrays, form, duplicates)
    return graph


def read_csr_features(path: Path):
    """Return the (N, F) CSR of a SciPy .npz: the features of `--features F.npz`."""
    return csr_features(path, csr_parts(path, "features are"))


def csr_parts(path: Path, what: str) -> tuple:
    """Return data, indices, indptr and shape of a SciPy .npz, which must be CSR."""
    with open_npz(path) as arrays:
        if (form := _form(arrays)) != "csr":
            raise FormatError(f"{path}: {what} {form}; expected csr")
        return _compressed_parts(arrays)


def _other_graph(path, arrays, form, duplicates):
    shape = shape_of(arrays["shape"], path)
    if shape[0] != shape[1]:
        raise FormatError(f"{path}: the matrix has shape {shape}; expected as many rows as columns")
    if form == "coo":
        row, col, data = arrays["row"], arrays["col"], arrays["data"]
        check_array(f"{path}: data", data, "biuf", (None,), "numbers (entries,)")
        for name, ids in (("row", row), ("col", col)):
            check_array(f"{path}: {name}", ids, "iu", (len(data),), f"integers ({len(data)},)")
        return coo_graph(path, row, col, shape[0], as_weights(data), duplicates)
    data, indices, indptr, _ = _compressed_parts(arrays)
    data, row, indptr, _ = checked_parts(path, data, indices, indptr, shape[::-1], what="adjacency, by columns")
    column = np.repeat(np.arange(shape[1], dtype=row.dtype), np.diff(indptr))
    return coo_graph(path, row, column, shape[0], as_weights(data), duplicates)


def _form(arrays: Archive) -> str:
    raw = arrays["format"]
    form = raw.item() if raw.shape == () else None
    form = form.decode("latin-1") if isinstance(form, bytes) else form
    if form not in ("csr", "csc", "coo"):
        raise FormatError(f"{arrays.path}: sparse format {form!r}; expected csr, csc or coo")
    return form


def _compressed_parts(arrays: Archive) -> tuple:
    return arrays["data"], arrays["indices"], arrays["indptr"], shape_of(arrays["shape"], arrays.path)
