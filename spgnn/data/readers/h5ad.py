"""AnnData: cells as nodes, a matrix of obsp as the adjacency; FILE.h5ad, FILE.h5ad:KEY, or an AnnData in memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...errors import FormatError, GraphError, nearest
from ...graph import Graph, graph_from_coo
from ..formats import Progress, reader
from .anndata_file import file_and_key, is_h5ad_file, item_of, matrices, names_of, open_h5ad, read_matrix
from .make_graph import as_float, named_labels, naming

DISTANCES = "distances"


def is_h5ad(path: Path) -> bool:
    """a file .h5ad of AnnData, or FILE.h5ad:KEY, a matrix of its obsp."""
    return is_h5ad_file(file_and_key(path)[0])


@reader("h5ad", detect=is_h5ad)
def read_h5ad(path: Path, progress: Progress = None) -> Graph:
    """Read obsp as edges with weights, X as features, and the names of cells and variables."""
    path, key = file_and_key(path)
    with open_h5ad(path) as file:
        key = chosen_key(str(path), matrices(file, "obsp"), key, f"{path}:{{}}")
        has_X = "X" in [*file] and len(getattr(item_of(file, "X"), "shape", (0, 0))) == 2
        X = read_matrix(file, "X") if has_X else None
        A, ids = read_matrix(matrices(file, "obsp"), key), names_of(file, "obs")
        variables = names_of(file, "var") if "var" in file else np.empty(0, object)
    with naming(path):
        return cell_graph(A, X, ids, variables, key, name=path.stem)


def from_anndata(adata, key: str = "", features: str = "X", label: str | None = None, **fields) -> Graph:
    """Return the Graph of an AnnData: cells are nodes, a matrix of obsp has the edges and their weights.

    Args:   key       of obsp; "": the only one, but for distances.
            features  X, or a key of obsm, such as spatial.
            label     a column of obs, whose text becomes named classes.
    Raises: FormatError where obsp has no graph, or several; GraphError for another key.
    """
    key = chosen_key("adata", adata.obsp.keys(), key, "from_anndata(adata, {!r})")
    if features != "X" and features not in adata.obsm:
        raise GraphError(f"obsm has no {features!r}{nearest(features, adata.obsm.keys())}")
    if label is not None:
        if label not in adata.obs:
            raise GraphError(f"obs has no {label!r}{nearest(label, adata.obs.columns)}")
        fields |= named_labels(f"obs[{label!r}]", np.asarray(adata.obs[label]))
    X = adata.X if features == "X" else adata.obsm[features]
    X = X if X is None or sp.issparse(X) else np.asarray(X)
    variables = np.array(adata.var_names if features == "X" else [], object)
    ids = np.array([str(name) for name in adata.obs_names], object)
    return cell_graph(adata.obsp[key], X, ids, variables, key, **({"name": "anndata"} | fields))


def chosen_key(where: str, keys: Iterable[str], key: str, way: str) -> str:
    """Return the key of obsp that has the edges: the given one, or the only one, but for distances next to another.

    Args:   way  how a key is given, with a place for it.
    Raises: FormatError where there is none, or several.
    """
    keys = [*keys]
    if key:
        if key not in keys:
            raise FormatError(f"{where}: obsp has no {key!r}{nearest(key, keys)}")
        return key
    if not keys:
        raise FormatError(f"{where}: obsp has no graph; make one: scanpy.pp.neighbors, or squidpy.gr.spatial_neighbors")
    others = [name for name in keys if not name.endswith(DISTANCES)] or keys
    if len(others) > 1:
        raise FormatError(f"{where}: obsp has the graphs {', '.join(others)}; choose one: {way.format(others[0])}")
    return others[0]


def cell_graph(A: Any, X: Any, ids: np.ndarray, variables: np.ndarray, key: str, **fields) -> Graph:
    """Return the Graph of an adjacency, features, and names of cells and variables. Raises: GraphError naming the matrix."""
    A, n = sp.coo_array(A), len(ids)
    if A.shape != (n, n):
        raise GraphError(f"obsp[{key!r}] has shape {A.shape}; expected ({n}, {n}), as there are cells")
    if len(set(ids.tolist())) < n:
        raise GraphError("two cells have one name; adata.obs_names_make_unique() gives each its own")
    if ids.tolist() != [*map(str, range(n))]:
        fields["ids"] = ids
    if X is not None:
        fields["X"] = (
            sp.csr_array(X, dtype=X.dtype if X.dtype.kind == "f" else np.float32) if sp.issparse(X) else as_float(X)
        )
        is_named = len(set(variables.tolist())) == len(variables) == X.shape[1]
        fields["feature_names"] = tuple(variables.tolist()) if is_named else None
    row, col = A.coords
    return graph_from_coo(row, col, n, A.data, meta={"obsp": key}, **fields)
