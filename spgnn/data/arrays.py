"""Graphs of other libraries in memory; none of these libraries is imported here.

Shapes: N nodes, E edges, F features, C classes, S splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..config.names import Duplicates
from ..errors import FormatError, GraphError, InputError, is_integer
from ..graph import NO_SPLIT, Graph, both_ways, graph_from_coo
from ..graph.host_array import as_array
from ..graph.structure import as_weights, check_duplicates
from ..terminal import say
from .by_type import MASKS, typed_graph
from .readers.h5ad import from_anndata
from .readers.make_graph import as_float, named_labels
from .readers.mesh import from_meshio

PYG_NAMES = {"edge_index", "adj_t", "edge_weight", "edge_attr", "x", "y", "num_nodes", "ptr", "src", "dst", *MASKS}
DGL_KEYS = {"X": ("feat", "features", "x"), "y": ("label", "labels", "y")}
DGL_EDGE_KEYS = ("feat", "features", "edge_attr", "attr")


def from_coo(src, dst, n_nodes: int | None = None, weights=None, **fields) -> Graph:
    """Return the Graph of the edges src[e] -> dst[e], see `graph_from_coo`; torch tensors are accepted too."""
    weights = None if weights is None else as_array(weights)
    return graph_from_coo(as_array(src), as_array(dst), n_nodes, weights, **fields)


def from_scipy(A: sp.sparray | sp.spmatrix, duplicates: Duplicates = "auto", **fields) -> Graph:
    """Return the Graph whose adjacency is A, (N, N) of any sparse format; duplicates are summed, as scipy does.

    Args:   duplicates: see `graph_from_coo`; fields: X, y, split, name, meta, ids, classes.
    Raises: GraphError naming what is wrong, before scipy multiplies or converts anything.
    """
    check_duplicates(duplicates)
    if not sp.issparse(A):
        raise GraphError(f"from_scipy takes a scipy sparse matrix, got {type(A).__name__}")
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise GraphError(f"the adjacency has shape {A.shape}; expected as many rows as columns")
    if A.dtype.kind not in "biuf":
        raise GraphError(f"the adjacency holds {A.dtype}; expected real numbers")
    _check_indices(A)  # SciPy itself converts and multiplies without a check
    if A.format == "csr" and A.has_canonical_format:
        A = sp.csr_array((as_weights(A.data), A.indices, A.indptr), shape=A.shape)
        return Graph(A, meta={"duplicates": 0} | fields.pop("meta", {}), **fields)
    A = A.tocoo() if A.format != "csr" else sp.csr_matrix(A).tocoo()
    return graph_from_coo(A.row, A.col, A.shape[0], A.data, duplicates, **fields)


def from_petsc(mat, duplicates: Duplicates = "auto", **fields) -> Graph:
    """Return the Graph whose adjacency is a Mat of petsc4py, whole on each process that has rows of it.

    Args: duplicates, fields: see `from_scipy`; X, y and split have the rows of all nodes.
    Collective over the communicator of the Mat.
    """
    whole = mat if mat.comm.size == 1 else mat.getRedundantMatrix(mat.comm.size)
    indptr, indices, data = whole.getValuesCSR()  # copies
    if whole is not mat:
        whole.destroy()
    return from_scipy(sp.csr_array((data, indices, indptr), shape=mat.getSize()), duplicates, **fields)


def from_networkx(
    G,
    weight: str = "weight",
    features: str | None = None,
    labels: str | None = None,
    duplicates: Duplicates = "auto",
    edge_features: str | Sequence[str] | None = None,
    **fields,
) -> Graph:
    """Return the Graph of a NetworkX graph: node i is the i-th of G.nodes, undirected edges are stored in both directions.

    Args:   weight: the edge attribute; an edge without it weighs 1. Edges of a multigraph are summed, see duplicates.
            features, labels: node attributes that every node has, numbers or arrays of one length; labels may be text.
            edge_features: names of edge attributes that every edge has, which become edge_attr; edges of a multigraph stay.
            node_type, edge_type: attributes with the types of nodes and edges, else node and to: a typed Graph, nodes type after type,
            without weights and edge_features; a type has features and labels where all its nodes have them.
    Returns: ids are the names of the nodes, where these are not 0, 1, 2, ...
    """
    if (types := [fields.pop(name, None) for name in ("node_type", "edge_type")]) != [None, None]:
        return _typed_networkx(G, types, features, labels, fields)
    ids = {node: i for i, node in enumerate(G)}
    edges = list(G.edges(data=weight, default=1))
    src = np.fromiter((ids[e[0]] for e in edges), np.int64, len(edges))
    dst = np.fromiter((ids[e[1]] for e in edges), np.int64, len(edges))
    try:
        weights = np.fromiter((e[2] for e in edges), np.float64, len(edges))
    except (TypeError, ValueError) as error:
        raise GraphError(f"edge attribute {weight!r} is no number: {error}; name another one with weight=") from error
    if edge_features is not None:
        by_name = _edge_attribute(G, [edge_features] if isinstance(edge_features, str) else edge_features)
        fields["edge_attr"] = np.stack(list(by_name.values()), axis=1)
        fields["meta"] = {"edge_features": list(by_name)} | fields.get("meta", {})
    if features is not None:
        fields["X"] = _features(_node_attribute(G, features))
    if labels is not None:
        fields |= _labels(_node_attribute(G, labels))
    if list(ids) != list(range(len(ids))):
        fields.setdefault("ids", _ids_of(list(ids)))
    fields.setdefault("name", str(G.name) if G.name else "networkx")
    make = graph_from_coo if G.is_directed() else both_ways
    return make(src, dst, len(ids), as_weights(weights), duplicates, **fields)


def _typed_networkx(G, types: list[str | None], features, labels, fields: dict[str, Any]) -> Graph:
    """Return the typed Graph; an undirected edge is listed once, from the type that is there first."""
    node_type, edge_type = types
    kind_of = dict(zip(G, map(str, _node_attribute(G, node_type)) if node_type else repeat("node")))
    nodes = {kind: [node for node in G if kind_of[node] == kind] for kind in dict.fromkeys(kind_of.values())}
    place = {node: (at, i) for at, of_kind in enumerate(nodes.values()) for i, node in enumerate(of_kind)}
    ends: dict[Any, list] = {}
    names = _edge_attribute(G, [edge_type])[edge_type] if edge_type else repeat("to")
    for (u, v, *_), name in zip(G.edges(), names):
        u, v = (v, u) if not G.is_directed() and place[v] < place[u] else (u, v)
        ends.setdefault((kind_of[u], str(name), kind_of[v]), []).append((place[u][1], place[v][1]))
    rows = lambda of, key: np.array([G.nodes[node][key] for node in of]) if all(key in G.nodes[x] for x in of) else None
    of_types = {kind: _of_nodes(partial(rows, of), features, labels) for kind, of in nodes.items()}
    made: dict[str, Any] = {"name": str(G.name) or "networkx", "ids": _ids_of([*place])} | fields
    pairs = {triple: np.array(of).T for triple, of in ends.items()}
    return typed_graph({kind: len(of) for kind, of in nodes.items()}, of_types, pairs, **made)


def from_pyg(data, duplicates: Duplicates = "auto", target: str | None = None, **fields) -> Graph:
    """Return the Graph of a PyG Data: edge_index or adj_t, edge_weight, edge_attr, x, y, train/val/test_mask (N,) or (N, S).

    edge_attr, or what is given as from_pyg(data, edge_attr=...), has the attributes of edges, and edges that are there
    twice stay two; weights are edge_weight alone. A line on stderr names what is not read, and counts edges that became one.
    Of an edge j -> i, i reads j, as in PyG: `with_edges("auto")` has it so. HeteroData becomes a typed Graph, see
    `typed_graph`: relations are its edge_types; target: the type to predict, where several have y.
    """
    get = lambda name: getattr(data, name, None)
    if type(data).__name__ == "HeteroData":
        return _typed_pyg(data, target, {"name": "pyg"} | fields)
    if get("edge_index") is not None:
        edge_index = as_array(data.edge_index)
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise GraphError(f"edge_index has shape {edge_index.shape}; expected (2, E)")
        src, dst = edge_index
        weights = None if get("edge_weight") is None else as_array(get("edge_weight"))
        if get("edge_attr") is not None and "edge_attr" not in fields:
            fields["edge_attr"] = as_array(get("edge_attr"))
            if weights is None and fields["edge_attr"].size == edge_index.shape[1]:
                say(
                    "edge_attr has attributes of edges, and all weights are 1; if it has weights, name it edge_weight: "
                    "data.edge_weight, data.edge_attr = data.edge_attr.view(-1), None"
                )
    elif get("adj_t") is not None:
        src, dst, weights = _from_adj_t(data.adj_t)
    else:
        raise GraphError("the PyG Data has neither edge_index nor adj_t; expected one of them")
    n, read = get("num_nodes"), _of_nodes(get) | {"name": "pyg", "meta": {"edges": "in"} | fields.pop("meta", {})}
    n = len(read["X"]) if n is None and read["X"] is not None else n
    if unread := sorted(name for name in _names_of(data) if name not in PYG_NAMES and get(name) is not None):
        more = "; those of edges: from_pyg(data, edge_attr=...)" if "edge_attr" not in fields else ""
        more += "; all graphs of a batch are one here" if "batch" in unread else ""
        say(f"from_pyg does not read {', '.join(unread)}{more}")
    return _counted(src, dst, n, weights, duplicates, **(read | fields))


def _of_nodes(get: Callable[[str], Any], x: str | None = "x", y: str | None = "y") -> dict[str, Any]:
    """Return X, y, split and classes of nodes; get returns what has a name, or None."""
    X, labels = (None if name is None else get(name) for name in (x, y))
    split = split_of_masks({name: as_array(get(name)) for name in MASKS if get(name) is not None})
    read = {"X": None if X is None else _features(as_array(X)), "split": split}
    return read if labels is None else read | _labels(as_array(labels))


def _typed_pyg(data, target: str | None, fields: dict[str, Any]) -> Graph:
    sizes = {name: data[name].num_nodes for name in data.node_types}
    if (unknown := next((name for name, n in sizes.items() if n is None), None)) is not None:
        raise GraphError(f"nodes of type {unknown} have no x, and no number: set data[{unknown!r}].num_nodes")
    of_types = {name: _of_nodes(data[name].get) for name in sizes}
    ends_of = lambda store: store["edge_index"] if "edge_index" in store else _from_adj_t(store["adj_t"])[:2]
    ends = {triple: np.stack([*map(as_array, ends_of(data[triple]))]) for triple in data.edge_types}
    unread = [f"{name}.{key}" for name in sizes for key in data[name].keys() if key not in PYG_NAMES - {"edge_attr"}]
    unread += [f"{name}.y" for name in sizes if target not in (None, name) and "y" in data[name]]
    unread += [f"{'-'.join(of)}.{key}" for of in ends for key in data[of].keys() if key not in ("edge_index", "adj_t")]
    if unread:
        say(f"from_pyg does not read {', '.join(unread)}")
    fields["meta"] = {"edges": "in"} | fields.get("meta", {})
    return typed_graph(sizes, of_types, ends, target, **fields)


def _counted(src, dst, n, weights, duplicates: Duplicates, **fields) -> Graph:
    """Return the Graph of edges; say how many are there again, each of which PyG and DGL count."""
    graph = graph_from_coo(src, dst, n, weights, duplicates, **fields)
    if duplicates == "auto" and (again := graph.meta["duplicates"]):
        made = "their weights added up" if weights is not None else "all of weight 1"
        count = "1 edge is" if again == 1 else f"{again:,} edges are"
        say(
            f"{count} there again and became one with the first, {made}; edge_attr=... keeps each, duplicates='sum' counts"
        )
    return graph


def _names_of(data) -> list[str]:
    """Return the names of what a PyG Data holds."""
    names = getattr(data, "keys", vars(data))
    return list(names() if callable(names) else names)


def from_dgl(
    g,
    features: str | None = None,
    labels: str | None = None,
    weight: str | None = None,
    duplicates: Duplicates = "auto",
    edge_features: str | None = None,
    target: str | None = None,
    **fields,
) -> Graph:
    """Return the Graph of a DGL graph: edges(), ndata, and edata[weight] if weight is given.

    Of an edge j -> i, i reads j, as in DGL: `with_edges("auto")` has it so. A heterograph becomes a typed Graph, see
    `typed_graph`, without edata: relations are its canonical_etypes; target: the type to predict, where several have labels.
    Args: features, labels: keys of ndata; by default the first of feat, features, x and label, labels, y.
          edge_features: key of edata, of edge_attr; by default the first of feat, features, edge_attr, attr.
    """
    made = {"name": "dgl", "meta": {"edges": "in"} | fields.pop("meta", {})}
    keys = {"X": (features,) if features else DGL_KEYS["X"], "y": (labels,) if labels else DGL_KEYS["y"]}
    first = lambda frame, name: next((key for key in keys[name] if key in frame), None)
    of_frame = lambda frame: _of_nodes(frame.get, first(frame, "X"), first(frame, "y"))
    if not getattr(g, "is_homogeneous", True):
        ends = {triple: np.stack([*map(as_array, g.edges(etype=triple))]) for triple in g.canonical_etypes}
        of_types = {name: of_frame(g.nodes[name].data) for name in g.ntypes}
        return typed_graph(
            {name: int(g.num_nodes(name)) for name in of_types}, of_types, ends, target, **(made | fields)
        )
    src, dst = g.edges()
    for key in (features, labels):
        _ = key and _stored(g.ndata, key, "ndata")
    read = made | of_frame(g.ndata)
    weights = None if weight is None else as_array(_stored(g.edata, weight, "edata"))
    edata = getattr(g, "edata", {})
    key = edge_features or next((key for key in DGL_EDGE_KEYS if key in edata and key != weight), None)
    if key is not None:
        read["edge_attr"] = as_array(_stored(edata, key, "edata"))
    return _counted(as_array(src), as_array(dst), int(g.num_nodes()), weights, duplicates, **(read | fields))


FROM_LIBRARY: dict[str, Callable[..., Graph]] = {
    "networkx": from_networkx,
    "torch_geometric": from_pyg,
    "dgl": from_dgl,
    "anndata": from_anndata,
    "meshio": from_meshio,
    "petsc4py": from_petsc,
}


def from_object(source, duplicates: Duplicates = "auto") -> Graph:
    """Return the Graph of a Graph, a scipy matrix, a dense (N, N) array, (src, dst), a NetworkX, PyG or DGL graph."""
    if isinstance(source, Graph):
        return source
    if sp.issparse(source):
        return from_scipy(source, duplicates)
    for base in type(source).__mro__:  # before tensors: a Data has a detach
        library = base.__module__.partition(".")[0]
        if library in FROM_LIBRARY:
            return FROM_LIBRARY[library](source, duplicates=duplicates)
    if hasattr(source, "detach") or hasattr(source, "__dlpack__"):
        source = as_array(source)
        if source.ndim != 2:
            raise InputError(f"got an array of shape {source.shape}; expected edges (2, E), or an adjacency (N, N)")
        if source.shape[0] == source.shape[1] != 2:
            return from_scipy(sp.csr_array(source), duplicates)
        if source.shape[0] != 2 and source.shape[1] == 2:
            raise InputError(f"got edges of shape {source.shape}; expected (2, E), sources and targets: see edges.T")
        if source.shape[0] == 2:
            return graph_from_coo(source[0], source[1], duplicates=duplicates)
    if isinstance(source, (tuple, list)):
        _check_not_pairs(source)
        if len(source) == 2:
            return graph_from_coo(as_array(source[0]), as_array(source[1]), duplicates=duplicates)
        if len(source) == 3:
            raise InputError(
                "got a sequence of 3; expected (src, dst); weights: spgnn.graph_from_coo(src, dst, weights=w)"
            )
    if hasattr(source, "columns") or hasattr(source, "column_names"):
        raise InputError(f"got a {type(source).__name__}; give tables as spgnn.from_pandas(edges, nodes)")
    raise InputError(
        f"cannot make a graph of a {type(source).__module__}.{type(source).__qualname__}; expected a path, a built-in "
        f"name, a scipy matrix, (src, dst) arrays, an adjacency (N, N), a NetworkX graph, a PyG Data or a DGL graph"
    )


def _check_not_pairs(source: tuple | list) -> None:
    """Raise InputError for [(0, 5), (1, 2)], which may be the edges 0 -> 5 and 1 -> 2, or sources and targets.

    A tuple of two lists, or arrays of any length, are sources and targets.
    """
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(item, list) for item in source):
        return
    is_pair = lambda item: isinstance(item, (tuple, list)) and len(item) == 2 and all(map(is_integer, item))
    if source and all(map(is_pair, source)):
        raise InputError(
            f"got a {type(source).__name__} of pairs such as {source[0]!r}, which may be edges, or sources and targets; "
            f"give edges as load_graph(pairs=edges), sources and targets as load_graph((np.array(src), np.array(dst)))"
        )


def split_of_masks(masks: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the split (N,) or (N, S) int8 of the boolean masks train_mask, val_mask, test_mask.

    Raises: GraphError naming the first node that is in two of them.
    """
    if not masks:
        return None
    shape = next(iter(masks.values())).shape
    split = np.full(shape, NO_SPLIT, np.int8)
    for name, mask in masks.items():
        if mask.shape != shape:
            raise GraphError(f"{name} has shape {mask.shape}; the other masks have {shape}")
        mask = mask.astype(bool)
        taken = mask & (split != NO_SPLIT)
        if taken.any():
            raise GraphError(f"node {int(np.argwhere(taken)[0][0])} is in {name} and in another mask; expected one")
        split[mask] = MASKS[name]
    return split


def _check_indices(A: sp.sparray | sp.spmatrix) -> None:
    if A.format in ("csr", "csc", "bsr"):
        indptr, ids, n = A.indptr, A.indices, A.shape[0]
        if len(indptr) < 1 or indptr[0] != 0 or indptr[-1] != len(ids) or np.any(indptr[1:] < indptr[:-1]):
            raise GraphError(f"the adjacency's indptr must rise from 0 to {len(ids)}, got {indptr[0]} to {indptr[-1]}")
        _check_range(ids, n // A.blocksize[1] if A.format == "bsr" else n)
    elif A.format == "coo":
        _check_range(A.row, A.shape[0])
        _check_range(A.col, A.shape[1])


def _check_range(ids: np.ndarray, n: int) -> None:
    bad = (ids < 0) | (ids >= n)
    if bad.any():
        raise GraphError(f"entry {int(np.argmax(bad))} of A has index {ids[np.argmax(bad)]}; expected 0 to {n - 1}")


def _features(X: np.ndarray) -> np.ndarray:
    if X.dtype.kind not in "biuf":
        raise GraphError(f"features hold {X.dtype}; expected real numbers")
    return as_float(X[:, None] if X.ndim == 1 else X)


def _labels(y: np.ndarray) -> dict[str, Any]:
    """Return y, and classes where labels are text."""
    try:
        return named_labels("labels", y)
    except FormatError as error:
        raise GraphError(str(error)) from None


def _ids_of(nodes: list) -> np.ndarray:
    """Return the ids of nodes: integers, or text. Raises: GraphError where two nodes have the same text."""
    if all(is_integer(node) and abs(node) < 2**63 for node in nodes):
        return np.array(nodes, np.int64)
    of_text: dict[str, Any] = {}
    for node in nodes:
        if (other := of_text.setdefault(str(node), node)) is not node:
            raise GraphError(
                f"nodes {other!r} and {node!r} have one name; rename one: networkx.relabel_nodes(G, names)"
            )
    return np.array(list(of_text), object)


def _node_attribute(G, name: str) -> np.ndarray:
    missing = [node for node, value in G.nodes(data=name, default=None) if value is None]
    if missing:
        raise GraphError(f"{len(missing)} nodes have no attribute {name!r}, the first is {missing[0]!r}; give all one")
    try:
        return np.array([value for _, value in G.nodes(data=name)])
    except ValueError as error:
        raise GraphError(f"values of node attribute {name!r} differ in length: {error}") from error


def _edge_attribute(G, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return attributes of edges by the names of their columns, a_0, a_1 of arrays, in the order of G.edges."""
    columns: dict[str, np.ndarray] = {}
    for name in names:
        values = [value for *_, value in G.edges(data=name, default=None)]
        if missing := sum(value is None for value in values):
            raise GraphError(f"{missing} edges have no attribute {name!r}; give all of them one")
        try:
            rows = np.array(values)
        except ValueError as error:
            raise GraphError(f"values of edge attribute {name!r} differ in length: {error}") from error
        of_name = rows.reshape(len(values), -1).T if len(values) else np.zeros((1, 0))
        columns |= {str(name) if rows.ndim == 1 else f"{name}_{at}": column for at, column in enumerate(of_name)}
    return columns


def _stored(frame: Mapping, key: str, where: str) -> Any:
    if key not in frame:
        raise GraphError(f"{where} has no {key!r}; it has {', '.join(map(str, frame.keys())) or 'nothing'}")
    return frame[key]


def _from_adj_t(adj_t) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return src, dst, weights of the transposed adjacency: a torch_sparse SparseTensor or a sparse torch tensor."""
    if hasattr(adj_t, "sparse_sizes"):
        dst, src, weights = adj_t.coo()
        return as_array(src), as_array(dst), None if weights is None else as_array(weights)
    coo = adj_t.to_sparse_coo().coalesce()
    dst, src = as_array(coo.indices())
    return src, dst, as_array(coo.values())
