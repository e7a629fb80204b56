"""Small files of every format, written as their own tools write them: tests read them, runs/trust breaks them.

Each writer takes an empty folder and returns the path that a user would name. All but Planetoid hold the
same directed graph of N = 6 nodes with 7 edges; node 5 is isolated.
"""

import gzip
import importlib.util
import io
import json
import pickle
import struct
from collections import defaultdict
from functools import partial

import numpy as np
import scipy.sparse as sp

N = 6
SRC = np.array([0, 0, 1, 2, 2, 3, 4])
DST = np.array([1, 2, 2, 0, 3, 3, 0])
WEIGHTS = np.array([1, 2, 0.5, 4, 1, 3, 1], np.float32)
X = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 0], [1, 1, 1], [0, 0, 3], [5, 0, 0]], np.float32)
Y = np.array([0, 1, 2, 0, 1, 2])
SPLIT = np.array([0, 0, 1, 2, 2, -1], np.int8)


def adjacency(weights=None) -> sp.csr_array:
    weights = np.ones(len(SRC), np.float32) if weights is None else weights
    return sp.csr_array((weights, (SRC, DST)), shape=(N, N))


def write_edges(folder, compress=False):
    text = f"# A tiny graph\n# Nodes: {N} Edges: {len(SRC)}\n# FromNodeId\tToNodeId\n"
    text += "".join(f"{u}\t{v}\n" for u, v in zip(SRC, DST))
    return _write_text(folder / "tiny.txt", text, compress)


def write_edges_csv(folder):
    lines = ["source,target,weight", *(f"{u},{v},{w}" for u, v, w in zip(SRC, DST, WEIGHTS))]
    return _write_text(folder / "tiny.csv", "\r\n".join(lines))


def write_edges_quoted(folder):
    lines = ['"source","note","target"', *(f'"{u}","to ""{v}""","{v}"' for u, v in zip(SRC, DST))]
    return _write_text(folder / "tiny.csv", "\n".join(lines))


def write_parquet(folder):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"w": WEIGHTS, "src": SRC, "dst": DST}), folder / "tiny.parquet")
    return folder / "tiny.parquet"


def write_dimacs(folder):
    lines = ["c tiny", f"p sp {N} {len(SRC)}", *(f"a {u + 1} {v + 1} {w}" for u, v, w in zip(SRC, DST, WEIGHTS))]
    return _write_text(folder / "tiny.gr", "\n".join(lines))


def write_mtx(folder, compress=False, values="real"):
    text = f"%%MatrixMarket matrix coordinate {values} general\n% a comment\n{N} {N} {len(SRC)}\n"
    text += "".join(f"{u + 1} {v + 1}{'' if values == 'pattern' else f' {w}'}\n" for u, v, w in zip(SRC, DST, WEIGHTS))
    return _write_text(folder / "tiny.mtx", text, compress)


def write_h5ad(folder, form="csr", **more):
    """Cells c0 ... of classes and numbers, with spatial places; more: {path in the file: numbers}."""
    import h5py

    def table(group, index, columns):
        group.attrs.update({"encoding-type": "dataframe", "_index": "_index"})
        group.attrs.create("column-order", [*columns], dtype=h5py.string_dtype())
        group.create_dataset("_index", data=index, dtype=h5py.string_dtype())
        for name, values in columns.items():
            group[name] = values

    def matrix(group, M):
        group.attrs.update({"encoding-type": f"{form}_matrix", "shape": M.shape})
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(M.asformat(form), name)

    path = folder / f"{form}.h5ad"
    with h5py.File(path, "w") as file:
        table(file.create_group("obs"), [f"c{i}" for i in range(N)], {"size": np.arange(N) / 2})
        kind = file.create_group("obs/kind")
        kind.attrs["encoding-type"], kind["codes"] = "categorical", np.where(SPLIT < 0, -1, Y)
        kind.create_dataset("categories", data=["B", "NK", "T"], dtype=h5py.string_dtype())
        file["obs"].attrs.create("column-order", ["size", "kind"], dtype=h5py.string_dtype())
        table(file.create_group("var"), ["g0", "g1", "g2"], {})
        matrix(file.create_group("X"), sp.csr_array(X))
        matrix(file.create_group("obsp/connectivities"), adjacency(WEIGHTS))
        matrix(file.create_group("obsp/distances"), adjacency(WEIGHTS))
        file["obsm/spatial"] = X[:, :2]
        for name, numbers in more.items():
            file[name] = numbers
    return path


def write_mesh(folder):
    """Two triangles and a quad, and a line of the boundary that is an edge of the quad too."""
    import meshio

    points = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [3, 3]], float)
    cells = [("triangle", [[0, 1, 2], [0, 2, 3]]), ("quad", [[1, 4, 5, 2]]), ("line", [[1, 4]])]
    data = {"T": points[:, 0] / 3, "U": np.pad(points, ((0, 0), (0, 1)))}
    meshio.vtu.write(folder / "tiny.vtu", meshio.Mesh(np.pad(points, ((0, 0), (0, 1))), cells, data))
    return folder / "tiny.vtu"


def write_metis(folder):
    return _write_text(folder / "tiny.graph", "% undirected\n5 4\n2 3\n1 3\n1 2 4\n3\n\n")


def write_metis_weighted(folder):
    return _write_text(folder / "weighted.graph", "4 3 011 2\n9 8 2 5\n7 7 1 5 3 6\n1 1 2 6 4 7\n2 2 3 7\n")


def write_scipy(folder, form="csr"):
    A = adjacency(WEIGHTS)
    sp.save_npz(folder / f"{form}.npz", sp.csr_matrix(A).asformat(form))
    return folder / f"{form}.npz"


def write_binary(folder, ending=".i32", dtype="<i4"):
    path = folder / f"tiny{ending}"
    np.stack([SRC, DST], axis=1).astype(dtype).tofile(path)
    return path


def write_gnn_benchmark(folder):
    A, F = adjacency(), sp.csr_array(X)
    arrays = {f"adj_{k}": getattr(A, k) for k in ("data", "indices", "indptr", "shape")}
    arrays |= {f"attr_{k}": getattr(F, k) for k in ("data", "indices", "indptr", "shape")}
    names = np.array(["a", "b", "c", "d", "e", "f"], dtype=object)
    np.savez_compressed(folder / "tiny.npz", labels=Y, node_names=names, **arrays)
    return folder / "tiny.npz"


def write_heterophilous(folder):
    masks = {
        f"{name}_masks": np.stack([SPLIT == i, np.roll(SPLIT, 1) == i])
        for i, name in enumerate(("train", "val", "test"))
    }
    edges = np.stack([SRC, DST], axis=1)
    np.savez_compressed(folder / "tiny.npz", node_features=X, node_labels=Y, edges=edges, **masks)
    return folder / "tiny.npz"


def write_graphsaint(folder, multilabel=False):
    path = folder / "saint"
    path.mkdir()
    sp.save_npz(path / "adj_full.npz", sp.csr_matrix(adjacency(np.ones(len(SRC), bool))))
    labels = np.eye(3, dtype=int)[Y] if multilabel else Y
    (path / "class_map.json").write_text(json.dumps({str(i): labels[i].tolist() for i in range(N)}))
    roles = {name: np.flatnonzero(SPLIT == i).tolist() for i, name in enumerate(("tr", "va", "te"))}
    (path / "role.json").write_text(json.dumps(roles))
    if multilabel:
        np.save(path / "feats.npy", X)
    else:
        sp.save_npz(path / "feats_csr.npz", sp.csr_matrix(X))
    return path


def write_ogb(folder):
    path = folder / "tiny_ogb"
    (path / "raw").mkdir(parents=True)
    (path / "split" / "time").mkdir(parents=True)
    tables = {
        "raw/edge": "".join(f"{u},{v}\n" for u, v in zip(SRC, DST)),
        "raw/num-node-list": f"{N}\n",
        "raw/num-edge-list": f"{len(SRC)}\n",
        "raw/node-label": "".join(f"{y}\n" for y in Y),
        "raw/node-feat": "".join(",".join(map(str, row)) + "\n" for row in X),
    }
    tables |= {
        f"split/time/{name}": "".join(f"{v}\n" for v in np.flatnonzero(SPLIT == i))
        for i, name in enumerate(("train", "valid", "test"))
    }
    for name, text in tables.items():
        _write_text(path / f"{name}.csv", text, compress=True)
    return path


def write_planetoid(folder, dump=None):
    """dump(value) -> bytes of each pickle, as Python 2 wrote it when None.

    10 nodes: 0-5 in allx, test.index 8, 6, 9; node 7 is isolated and in neither, as in Citeseer."""
    prefix = folder / "ind.tiny"
    allx = sp.csr_matrix(X)
    tx = sp.csr_matrix(np.array([[0, 8, 0], [6, 0, 0], [0, 0, 9]], np.float32))
    one_hot = np.eye(3, dtype=np.int32)
    parts = {"allx": allx, "ally": one_hot[Y], "x": allx[:2], "y": one_hot[Y[:2]], "tx": tx, "ty": one_hot[[2, 0, 1]]}
    neighbours = {u: [] for u in range(10)}
    for u, v in [(0, 1), (1, 0), (0, 1), (2, 8), (8, 2), (9, 9), (3, 6), (6, 3)]:
        neighbours[u].append(v)
    parts["graph"] = defaultdict(list, neighbours)
    for name, value in parts.items():
        (folder / f"ind.tiny.{name}").write_bytes((dump or python2_pickle)(value))
    (folder / "ind.tiny.test.index").write_text("8\n6\n9\n")
    return prefix


def write_official(folder, train="a\tr\tb\nb\ts\tc\n", test="c\tr\ta\n"):
    _write_text(folder / "tiny_train.txt", train)
    return _write_text(folder / "tiny_test.txt", test).with_name("tiny")


class _Python2Pickler(pickle._Pickler):
    """Protocol 2 as Python 2 wrote it: byte strings for str, and the module names of that time."""

    dispatch = pickle._Pickler.dispatch.copy()
    OLD = {
        "numpy._core.multiarray": "numpy.core.multiarray",
        "scipy.sparse._csr": "scipy.sparse.csr",
        "builtins": "__builtin__",
    }

    def save_string(self, obj):
        raw = obj.encode("latin-1") if isinstance(obj, str) else obj
        self.write(b"U" + bytes([len(raw)]) + raw if len(raw) < 256 else b"T" + struct.pack("<i", len(raw)) + raw)
        self.memoize(obj)

    def save_class(self, obj, name=None):
        module = self.OLD.get(obj.__module__, obj.__module__)
        self.write(f"c{module}\n{name or obj.__name__}\n".encode())
        self.memoize(obj)

    dispatch[bytes] = dispatch[str] = save_string
    dispatch[type] = save_class
    save_global = save_class


def python2_pickle(value) -> bytes:
    """Return the pickle of value as Python 2 wrote it."""
    out = io.BytesIO()
    _Python2Pickler(out, protocol=2).dump(value)
    return out.getvalue()


def _write_text(path, text, compress=False):
    if not compress:
        path.write_bytes(text.encode())
        return path
    path = path.with_name(path.name + ".gz")
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


# (format, what is special about it): writer
WRITERS = {
    ("edges", "plain"): write_edges, ("edges", "gz"): partial(write_edges, compress=True),
    ("edges", "csv"): write_edges_csv, ("edges", "quoted"): write_edges_quoted, ("parquet", "one file"): write_parquet,
    ("dimacs", "arcs"): write_dimacs, ("mtx", "plain"): write_mtx,
    ("mtx", "gz"): partial(write_mtx, compress=True, values="pattern"), ("metis", "plain"): write_metis,
    ("metis", "weights"): write_metis_weighted, ("scipy", "csr"): write_scipy,
    ("scipy", "csc"): partial(write_scipy, form="csc"), ("scipy", "coo"): partial(write_scipy, form="coo"),
    ("binary", "32 bits"): write_binary, ("binary", "64 bits"): partial(write_binary, ending=".i64", dtype="<i8"),
    ("gnn-benchmark", "sparse"): write_gnn_benchmark, ("heterophilous", "2 splits"): write_heterophilous,
    ("graphsaint", "classes"): write_graphsaint, ("graphsaint", "multi-label"): partial(write_graphsaint, multilabel=True),
    ("ogb", "gz"): write_ogb, ("planetoid", "python 2"): write_planetoid, ("triples", "prefix"): write_official,
    ("interactions", "prefix"): partial(write_official, train="0 1 2\n1 2 3 4\n2\n", test="0 3\n2 0 1\n"),
}  # fmt: skip
if importlib.util.find_spec("h5py"):
    WRITERS |= {("h5ad", "csr"): write_h5ad, ("h5ad", "csc"): lambda folder: write_h5ad(folder, "csc")}
if importlib.util.find_spec("meshio"):
    WRITERS |= {("mesh", "vtu"): write_mesh}
