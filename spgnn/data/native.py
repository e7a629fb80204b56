"""The native folder: .npy files that are memory-mapped, and manifest.json, written last.

indptr.npy (N+1) int64   indices.npy (E) int32|int64   [weights.npy (E) float]
[features.npy (N, F) | features_{indptr,indices,data}.npy]   [labels.npy]   [split.npy int8]
[ids.npy (N) int64 | ids_bytes.npy, ids_indptr.npy: names, in UTF-8]
[edge_attr.npy (E, F) float, edge_ids.npy (E) int64: attributes of the nonzeros, see Graph]
[edge_labels.npy (L) | (L, C), edge_split.npy (L) int8: of the edges that were listed]
"""

from __future__ import annotations

import hashlib
import typing
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..atomic import open_regular, read_regular
from ..errors import FormatError, GraphError, InputError
from ..graph import Edges, Graph
from ..graph.checks import unpacked_ids
from .formats import Progress, reader
from .manifest import checked_manifest
from .readers.npz import read_npy

MANIFEST = "manifest.json"
FORMAT, VERSION = "spgnn-graph", 2
MANIFEST_BYTES = 64 << 20
CHUNK_BYTES = 16 << 20
KEYS = {
    str: "name edges sha256", int: "n nnz n_features", dict: "meta files", list: "classes? feature_names? edge_classes?",
}  # fmt: skip
SPARSE_X = ("features_indptr", "features_indices", "features_data")
# name: (kinds of dtype, axes); other names are no part of a graph.
ARRAYS = {
    "indptr": ("i", (1,)), "indices": ("i", (1,)), "weights": ("f", (1,)), "features": ("fiub", (2,)),
    "features_indptr": ("i", (1,)), "features_indices": ("i", (1,)), "features_data": ("fiub", (1,)),
    "labels": ("iubf", (1, 2)), "split": ("i", (1, 2)), "ids": ("i", (1,)), "ids_bytes": ("u", (1,)),
    "ids_indptr": ("i", (1,)), "edge_attr": ("f", (2,)), "edge_ids": ("i", (1,)),
    "edge_labels": ("iubf", (1, 2)), "edge_split": ("i", (1, 2)),
}  # fmt: skip


def has_manifest(path: Path) -> bool:
    """a folder with manifest.json and indptr.npy, as convert writes."""
    return (path / MANIFEST).is_file() and (path / "indptr.npy").exists()


def is_native(path: Path) -> bool:
    """path has the manifest of a native graph."""
    try:
        read_manifest(path)
    except InputError:
        return False
    return True


@reader("native", detect=has_manifest)
def read_native(path: Path, progress: Progress = None) -> Graph:
    """Map the native graph folder at path; its structure is always validated."""
    return load_native(path, progress=progress)


def load_native(path: str | Path, verify: bool = False, progress: Progress = None) -> Graph:
    """Map the native graph folder at path.

    Args:   verify: compare the SHA-256 of every file too; progress(done_bytes, total_bytes) reports it.
    Raises: FormatError unless manifest, headers and file sizes agree; the graph's own checks follow.
    """
    path = Path(path)
    manifest = read_manifest(path)
    arrays = {name: _map(path, name, entry) for name, entry in manifest["files"].items()}
    if verify:
        _verify(path, manifest["files"], progress)
    n, nnz = manifest["n"], manifest["nnz"]
    _expect(path, "indptr", arrays["indptr"].shape, (n + 1,), f"n = {n}")
    _expect(path, "indices", arrays["indices"].shape, (nnz,), f"nnz = {nnz}")
    weights = arrays.get("weights")
    if weights is None:
        weights = np.ones(nnz, np.float32)
    _expect(path, "weights", weights.shape, (nnz,), f"nnz = {nnz}")
    try:
        return Graph(
            _csr(path, weights, arrays["indices"], arrays["indptr"], (n, n), "A"),
            X=_features(path, arrays, n, manifest["n_features"]), y=arrays.get("labels"), split=arrays.get("split"),
            name=manifest["name"], edges=manifest["edges"], meta=manifest["meta"], ids=unpacked_ids(arrays),
            classes=manifest.get("classes"), feature_names=manifest.get("feature_names"), edge_attr=arrays.get("edge_attr"), edge_ids=arrays.get("edge_ids"),
            edge_y=arrays.get("edge_labels"), edge_split=arrays.get("edge_split"), edge_classes=manifest.get("edge_classes"),
        )  # fmt: skip
    except GraphError as error:
        raise FormatError(f"{path}: {error}") from error


def read_manifest(path: Path) -> dict:
    """Return the manifest of the native folder at path, with keys and types checked.

    Raises: InputError if there is none, FormatError if it is not valid.
    """
    where = Path(path) / MANIFEST
    try:
        if where.stat().st_size > MANIFEST_BYTES:
            raise FormatError(f"{where}: has {where.stat().st_size} bytes; expected at most {MANIFEST_BYTES}")
        raw = read_regular(where)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{path}: not a native graph: it has no {MANIFEST}; was a convert interrupted?") from error
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror or error}") from error
    manifest = checked_manifest(where, raw, (FORMAT, VERSION), KEYS, FormatError)
    _check_files(where, manifest)
    return manifest


def _check_files(where: Path, manifest: dict) -> None:
    if manifest["edges"] not in typing.get_args(Edges):
        raise FormatError(f"{where}: edges = {manifest['edges']!r}; expected {', '.join(typing.get_args(Edges))}")
    files = manifest["files"]
    for name, entry in files.items():
        if name not in ARRAYS:
            raise FormatError(f"{where}: names the array {name[:80]!r}; expected only {', '.join(ARRAYS)}")
        if not isinstance(entry, dict) or set(entry) != {"bytes", "dtype", "shape", "sha256"}:
            raise FormatError(f"{where}: {name}: expected bytes, dtype, shape and sha256")
    missing = {"indptr", "indices"} - set(files)
    for together in (SPARSE_X, ("ids_bytes", "ids_indptr"), ("edge_attr", "edge_ids")):
        if not set(together).isdisjoint(files):
            missing |= set(together) - set(files)
    if missing:
        raise FormatError(f"{where}: names no {', '.join(sorted(missing))}")
    if "features" in files and "features_data" in files:
        raise FormatError(f"{where}: names dense and sparse features; expected one of them")


def _map(path: Path, name: str, entry: dict) -> np.ndarray:
    file = path / f"{name}.npy"
    if not file.exists():
        raise FormatError(f"{file}: missing; the manifest names it")
    array = read_npy(file, mmap=True)
    found = {"bytes": file.stat().st_size, "dtype": array.dtype.str, "shape": list(array.shape)}
    expected = {key: entry[key] for key in found}
    if found != expected:
        raise FormatError(f"{file}: holds {found}; the manifest says {expected}")
    kinds, axes = ARRAYS[name]
    if array.dtype.kind not in kinds or array.ndim not in axes:
        raise FormatError(f"{file}: is {array.dtype} with {array.ndim} axes; expected kind {kinds} with {axes}")
    return array


def _features(path: Path, arrays: dict[str, np.ndarray], n: int, n_features: int) -> np.ndarray | sp.csr_array | None:
    if "features_data" in arrays:
        data, indices, indptr = (arrays[f"features_{part}"] for part in ("data", "indices", "indptr"))
        _expect(path, "features_indptr", indptr.shape, (n + 1,), f"n = {n}")
        _expect(path, "features_indices", indices.shape, data.shape, "features_data")
        return _csr(path, data, indices, indptr, (n, n_features), "X")
    X = arrays.get("features")
    if X is not None:
        _expect(path, "features", X.shape, (n, n_features), f"n = {n}, n_features = {n_features}")
    return X


def _csr(
    path: Path, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int], what: str
) -> sp.csr_array:
    # scipy's constructor looks at indptr[0] and indptr[-1] only; Graph checks the indices before any product.
    if indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise FormatError(f"{path}: {what}: indptr must rise from 0 to {len(indices)}, got {indptr[0]} to {indptr[-1]}")
    if indices.dtype == np.int32 and len(indices) < 2**31:
        indptr = indptr.astype(np.int32)  # else scipy would copy the mapped indices to the wider type
    return sp.csr_array((data, indices, indptr), shape=shape)


def _expect(path: Path, name: str, found: tuple, expected: tuple, why: str) -> None:
    if tuple(found) != tuple(expected):
        raise FormatError(f"{path / name}.npy: shape {tuple(found)}, expected {tuple(expected)} from {why}")


def _verify(path: Path, files: dict, progress: Progress) -> None:
    done_bytes, total_bytes = 0, sum(entry["bytes"] for entry in files.values())
    for name, entry in files.items():
        file, sha = path / f"{name}.npy", hashlib.sha256()
        with open_regular(file) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                sha.update(chunk)
                done_bytes += len(chunk)
                if progress:
                    progress(done_bytes, total_bytes)
        if sha.hexdigest() != entry["sha256"]:
            raise FormatError(f"{file}: SHA-256 is {sha.hexdigest()}, not {entry['sha256']}; convert it again")
