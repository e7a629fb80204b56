"""gnn-benchmark .npz: adj_*, attr_* in CSR parts, and labels. Pickled names are skipped, never loaded.

Source: Shchur et al. 2018, Pitfalls of graph neural network evaluation.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import FormatError
from ..formats import reader
from .make_graph import csr_features, csr_graph
from .npz import Archive, member_names, open_npz, shape_of


def is_gnn_benchmark(path: Path) -> bool:
    """an .npz with the arrays adj_data, adj_indices, adj_indptr and adj_shape."""
    return path.is_file() and {"adj_data", "adj_indices", "adj_indptr", "adj_shape"} <= member_names(path)


@reader("gnn-benchmark", detect=is_gnn_benchmark)
def read_gnn_benchmark(path: Path, progress=None):
    """Read a gnn-benchmark .npz: edges as they came, sparse or dense features and labels where it has them."""
    with open_npz(path) as arrays:
        adjacency, X, y = _csr_parts(arrays, "adj"), None, None
        if "attr_data" in arrays:
            X = csr_features(path, _csr_parts(arrays, "attr"))
        elif "attr_matrix" in arrays:
            X = arrays["attr_matrix"]
        if "labels" in arrays:
            y = arrays["labels"]
            if y.dtype.kind not in "iub":
                raise FormatError(f"{path}: labels are {y.dtype}; expected integers")
    return csr_graph(path, adjacency, X=X, y=None if y is None else y.astype(np.int64))


def _csr_parts(arrays: Archive, prefix: str) -> tuple:
    data, indices, indptr = (arrays[f"{prefix}_{name}"] for name in ("data", "indices", "indptr"))
    return data, indices, indptr, shape_of(arrays[f"{prefix}_shape"], arrays.path)
