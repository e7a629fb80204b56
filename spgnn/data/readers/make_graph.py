"""From the arrays of a file to a Graph: everything is checked first, errors name the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...config.names import Duplicates
from ...errors import FormatError, GraphError
from ...graph import NO_SPLIT, TEST, TRAIN, UNLABELLED, VAL, Graph, both_ways, check_csr, graph_from_coo
from ...graph.checks import most_classes
from ...graph.structure import as_weights
from .text import without_packing

# Without an entry per node, a file may have this many nodes, or so many per edge.
FREE_NODES = 1 << 20
NODES_PER_EDGE = 64
CsrParts = tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, ...]]  # data, indices, indptr, shape
NONE = ("None", "nan", "NaT", "<NA>")  # no label, where it is no text
NO_VALUE = (  # no value, where it is text, as pandas.read_csv has it
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN",
    "None", "n/a", "nan", "null",
)  # fmt: skip


def check_node_count(path: Path | str, n_nodes: int, n_edges: int, what: str) -> None:
    """Raise FormatError if n_nodes is absurd for n_edges, before anything of that size is allocated."""
    if n_nodes > max(FREE_NODES, NODES_PER_EDGE * (n_edges + 1)):
        raise FormatError(
            f"{path}: {what} makes {n_nodes} nodes for {n_edges} edges, most of them isolated; "
            f"number them without gaps: spgnn convert {path} DST --relabel"
        )


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the path before the message of a GraphError."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def coo_graph(
    path: Path,
    src: np.ndarray,
    dst: np.ndarray,
    n_nodes: int,
    weights: np.ndarray | None = None,
    duplicates: Duplicates = "auto",
    is_symmetric: bool = False,
    **fields,
) -> Graph:
    """Return the Graph of the edges src -> dst; a GraphError names the file. is_symmetric: an edge is listed once for both ways."""
    check_node_count(path, n_nodes, len(src), f"node id {n_nodes - 1}")
    make = both_ways if is_symmetric else graph_from_coo
    with naming(path):
        return make(src, dst, n_nodes, weights, duplicates, **({"name": graph_name(path)} | fields))


def csr_graph(path: Path, parts: CsrParts, duplicates: Duplicates = "auto", **fields) -> Graph:
    """Return the Graph of the CSR parts (data, indices, indptr, shape); duplicates become one edge."""
    data, indices, indptr, shape = checked_parts(path, *parts, what="adjacency")
    fields.setdefault("name", graph_name(path))
    if shape[0] != shape[1]:
        raise FormatError(f"{path}: the adjacency has shape {shape}; expected as many rows as columns")
    check_node_count(path, shape[0], len(indices), "the shape")
    with naming(path):
        if _rises_in_rows(indices, indptr):
            A = sp.csr_array((as_weights(data), indices, indptr), shape=shape)
            return Graph(A, meta={"duplicates": 0}, **fields)
        src = np.repeat(np.arange(shape[0], dtype=indices.dtype), np.diff(indptr))
        return graph_from_coo(src, indices, shape[0], as_weights(data), duplicates, **fields)


def csr_features(path: Path, parts: CsrParts) -> sp.csr_array:
    """Return the (N, F) CSR of the parts (data, indices, indptr, shape); duplicates are summed."""
    data, indices, indptr, shape = checked_parts(path, *parts, what="features")
    if shape[1] > max(FREE_NODES, NODES_PER_EDGE * (len(indices) + 1)):
        raise FormatError(f"{path}: features are {shape[1]} wide with {len(indices)} nonzeros; is the shape right?")
    X = sp.csr_array((as_float(data), indices, indptr), shape=shape)
    if not _rises_in_rows(indices, indptr):
        X.sum_duplicates()
    with naming(path):
        check_csr(X, "features")
    return X


def checked_parts(
    path: Path | str, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: Sequence[int], what: str
) -> CsrParts:
    """Return the CSR parts with integer types that fit, or raise FormatError; nothing of the shape's size is allocated.

    scipy checks neither order nor range of indptr and indices when it is given arrays.
    """
    shape = tuple(map(int, shape))
    for name, array in (("data", data), ("indices", indices), ("indptr", indptr)):
        if array.ndim != 1:
            raise FormatError(f"{path}: {what}: {name} has shape {array.shape}; expected one dimension")
        if name != "data" and array.dtype.kind not in "iu":
            raise FormatError(f"{path}: {what}: {name} is {array.dtype}; expected integers")
    if data.dtype.kind not in "biuf":
        raise FormatError(f"{path}: {what}: data is {data.dtype}; expected numbers")
    if len(shape) != 2 or min(shape) < 0 or max(shape) >= 2**62:
        raise FormatError(f"{path}: {what} has shape {shape}; expected (rows, columns)")
    if len(indptr) != shape[0] + 1:
        raise FormatError(f"{path}: {what}: indptr has {len(indptr)} entries; expected rows + 1 = {shape[0] + 1}")
    if len(data) != len(indices):
        raise FormatError(f"{path}: {what}: {len(indices)} indices and {len(data)} values; expected as many of each")
    if indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise FormatError(f"{path}: {what}: indptr must rise from 0 to {len(indices)}, got {indptr[0]} to {indptr[-1]}")
    bad = (indices < 0) | (indices >= shape[1])
    if bad.any():
        e = int(np.argmax(bad))
        row = int(np.searchsorted(indptr, e, side="right")) - 1
        raise FormatError(f"{path}: {what}: row {row} has column {indices[e]}; expected 0 to {shape[1] - 1}")
    index = np.int32 if max(max(shape), len(indices)) < 2**31 else np.int64
    return data, indices.astype(index, copy=False), indptr.astype(np.int64, copy=False), shape


def check_array(where: Path | str, array: np.ndarray, kinds: str, shape: tuple[int | None, ...], expected: str) -> None:
    """Raise FormatError unless array has a dtype of kinds and a shape, in which None is any size."""
    fits = array.ndim == len(shape) and all(want in (None, size) for want, size in zip(shape, array.shape))
    if not fits or array.dtype.kind not in kinds:
        raise FormatError(f"{where} is {array.dtype} of shape {array.shape}; expected {expected}")


def as_float(data: np.ndarray) -> np.ndarray:
    """Return features as float32, or float64 unchanged."""
    return data if data.dtype in (np.float32, np.float64) else data.astype(np.float32)


def are_numbers(y: np.ndarray, n_nodes: int | None = None) -> bool:
    """Return whether floats are numbers to predict: no whole classes, nor columns of 0 and 1; NaN is no class.

    Args: y        some rows of the labels; n_nodes: of all of them, where y has not all.
    """
    if y.dtype.kind != "f":
        return False
    if y.ndim == 2 and y.shape[1] > 1:
        return not ((y == 0) | (y == 1)).all()
    is_class = (y == np.rint(y)) & (y >= UNLABELLED) & (y <= most_classes(len(y) if n_nodes is None else n_nodes))
    return not (is_class | np.isnan(y)).all()


def read_labels(y: np.ndarray, is_number: bool | None = None) -> np.ndarray:
    """Return labels as integers, NaN as -1, or as floats where they are numbers to predict; one column is (N,).

    Args: is_number  None: are_numbers decides.
    """
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind != "f":
        return y
    if are_numbers(y) if is_number is None else is_number:
        return as_float(y)
    return np.where(np.isnan(y), UNLABELLED, y).astype(np.int64)


def named_labels(where: Path | str, y: np.ndarray) -> dict[str, Any]:
    """Return y, see read_labels, and classes, the sorted texts, where labels are text or True and False; no text is no label."""
    if y.dtype.kind not in "OUT" or (y.dtype.kind == "O" and not any(isinstance(label, str) for label in y.flat)):
        return {"y": read_labels(y)}
    if y.ndim != 1:
        raise FormatError(f"{where}: text of shape {y.shape}; expected one label per node")
    text = np.array(["" if is_none(label) or str(label) in NO_VALUE else str(label) for label in y], object)
    classes = sorted(set(text) - {""})
    number = {name: number for number, name in enumerate(classes)}
    return {"y": np.array([number.get(name, UNLABELLED) for name in text], np.int64), "classes": tuple(classes)}


def no_label_notes(where: Path | str, y: np.ndarray) -> list[str]:
    """Return a note on labels that are the text of a missing value, [] without one."""
    words = [label for label in y.ravel().tolist() if isinstance(label, str) and label in NO_VALUE]
    return [f"{where}: {len(words):,} labels are {', '.join(sorted(set(words)))}: no label"] if words else []


def is_none(value: object) -> bool:
    """Whether a value of an array of objects is missing: None, NaN, NaT, or NA of pandas."""
    return not isinstance(value, str) and str(value) in NONE


def roles_of(where: Path | str, values: np.ndarray, first: int = 0) -> np.ndarray:
    """Return the split of nodes `first` on as int8; FormatError names the first node whose value is no role."""
    expected = "0 train, 1 val, 2 test, -1 none"
    if values.dtype.kind not in "iu":
        raise FormatError(f"{where}: is {values.dtype}; expected integers: {expected}")
    bad = (values < NO_SPLIT) | (values > TEST)
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        raise FormatError(f"{where}: node {first + at[0]} has split {values[at]}; expected {expected}")
    return values.astype(np.int8, copy=False)


def split_of(path: Path | str, n_nodes: int, nodes_by_role: dict[int, np.ndarray]) -> np.ndarray:
    """Return the split (N,) int8 of the node ids of each role; FormatError for an id out of range or in two roles."""
    split = np.full(n_nodes, NO_SPLIT, np.int8)
    for role, nodes in nodes_by_role.items():
        bad = (nodes < 0) | (nodes >= n_nodes)
        if bad.any():
            raise FormatError(f"{path}: the split names node {nodes[np.argmax(bad)]}; expected 0 to {n_nodes - 1}")
        taken = (split[nodes] != NO_SPLIT) & (split[nodes] != role)
        if taken.any():
            raise FormatError(f"{path}: node {nodes[np.argmax(taken)]} is in two parts of the split; expected one")
        split[nodes] = role
    return split


def split_of_array(where: str, rows: np.ndarray) -> np.ndarray:
    """Return the split of an array (N,) or (N, S) of roles, or (N, 3) of masks: train, val, test."""
    if rows.dtype.kind != "b":
        split = roles_of(where, rows)
        if split.ndim == 2 and split.shape[1] == 3 and split.min(initial=1) == 0 and split.sum(axis=1).max() == 1:
            raise FormatError(f"{where}: has three columns with one 1 in a row: masks? save them with .astype(bool)")
        return split
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise FormatError(f"{where}: is bool of shape {rows.shape}; expected (N, 3): masks of train, val and test")
    return split_of(where, len(rows), {role: np.flatnonzero(rows[:, role]) for role in (TRAIN, VAL, TEST)})


def with_components(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return names of columns, for a name U that none has those of its components U_0, U_1, ..., which are known."""
    known = {*known}
    parts = lambda name: [part for c in range(len(known)) if (part := f"{name}_{c}") in known]
    return [part for name in names for part in ([name] if name in known else parts(name) or [name])]


def graph_name(path: Path) -> str:
    """Return the file's name without its endings."""
    name = without_packing(path.name)
    for ending in (
        ".txt .tsv .csv .mtx .graph .npz .bin .i32 .i64 .edges .edgelist .el .wel .gr .col .metis .parquet .pq".split()
    ):
        name = name.removesuffix(ending)
    return name or path.name


def _rises_in_rows(indices: np.ndarray, indptr: np.ndarray) -> bool:
    rises = np.ones(len(indices), bool)
    rises[1:] = indices[1:] > indices[:-1]
    rises[indptr[:-1][indptr[:-1] < len(indices)]] = True
    return bool(rises.all())
