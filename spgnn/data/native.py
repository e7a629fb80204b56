"""The native folder: .npy files that are memory-mapped, and manifest.json, written last.

    indptr.npy (N+1) int64   indices.npy (E) int32|int64   [weights.npy (E) float]
    [features.npy (N, F) | features_{indptr,indices,data}.npy]   [labels.npy]   [split.npy int8]
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..errors import FormatError, GraphError, InputError, ResourceError, UsageError
from ..graph import EDGES, Graph
from .arrays import map_npy
from .formats import Progress, reader

MANIFEST = "manifest.json"
FORMAT, VERSION = "spgnn-graph", 1
MANIFEST_BYTES = 64 << 20
CHUNK_BYTES = 16 << 20
SPARSE_X = ("features_indptr", "features_indices", "features_data")
# name: (kinds of dtype, axes); what is not named here does not belong to a graph.
ARRAYS = {
    "indptr": ("i", (1,)),
    "indices": ("i", (1,)),
    "weights": ("f", (1,)),
    "features": ("fiub", (2,)),
    "features_indptr": ("i", (1,)),
    "features_indices": ("i", (1,)),
    "features_data": ("fiub", (1,)),
    "labels": ("iub", (1, 2)),
    "split": ("i", (1, 2)),
}


def has_manifest(path: Path) -> bool:
    """A folder with manifest.json and indptr.npy (native)."""
    return (path / MANIFEST).is_file() and (path / "indptr.npy").exists()


def is_native(path: Path) -> bool:
    """path is a native graph: its manifest says so."""
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

    Args:   verify: hold every file against its SHA-256 too; progress(done_bytes, total_bytes) reports it.
    Raises: FormatError unless manifest, headers and file sizes agree; the graph's own checks follow.
    """
    path = Path(path)
    manifest = read_manifest(path)
    if verify:
        _verify(path, manifest["files"], progress)
    arrays = {name: _map(path, name, entry) for name, entry in manifest["files"].items()}
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
            X=_features(path, arrays, n, manifest["n_features"]),
            y=arrays.get("labels"),
            split=arrays.get("split"),
            name=manifest["name"],
            edges=manifest["edges"],
            meta=manifest["meta"],
        )
    except GraphError as error:
        raise FormatError(f"{path}: {error}") from error


def save_graph(graph: Graph, path: str | Path, progress: Progress = None) -> None:
    """Write graph as a native folder: aside, fsynced, manifest last, then renamed into place.

    Args:   progress(done_bytes, total_bytes). A native graph that stands at path is replaced.
    Raises: UsageError where path is something else; ResourceError when the disk does not take it.
    """
    path = writable(path)
    arrays = _arrays(graph)
    total_bytes = sum(array.nbytes for array in arrays.values())
    aside = path.with_name(f".{path.name}.new-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        aside.mkdir(parents=True)
        files, done_bytes = {}, 0
        for name, array in arrays.items():
            files[name] = _write(aside / f"{name}.npy", array, progress, done_bytes, total_bytes)
            done_bytes += array.nbytes
        text = json.dumps(_manifest(graph, files), indent=1, default=_plain) + "\n"
        _write_bytes(aside / MANIFEST, text.encode())
        _fsync(aside)
        _replace(aside, path)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def writable(path: str | Path) -> Path:
    """Return the absolute path; raise UsageError if something other than a native graph is there."""
    path = Path(path).resolve()
    if path.is_dir():
        if any(path.iterdir()) and not is_native(path):
            raise UsageError(f"{path}: is a folder that is no native graph; it is not overwritten. Name another folder")
    elif path.exists():
        raise UsageError(f"{path}: is a file; a native graph is a folder. Name another path")
    return path


def read_manifest(path: Path) -> dict:
    """Return the manifest of the native folder at path, its keys and types checked.

    Raises: InputError where there is none, FormatError where it is not one.
    """
    where = Path(path) / MANIFEST
    try:
        if where.stat().st_size > MANIFEST_BYTES:
            raise FormatError(f"{where}: has {where.stat().st_size} bytes; expected at most {MANIFEST_BYTES}")
        manifest = json.loads(where.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{path}: not a native graph: there is no {MANIFEST}; was a convert interrupted?") from error
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: not JSON: {error}") from error
    _check_manifest(where, manifest)
    return manifest


def _check_manifest(where: Path, manifest) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise FormatError(f"{where}: not the manifest of a graph; expected \"format\": \"{FORMAT}\"")
    if manifest.get("version") != VERSION:
        raise FormatError(f"{where}: format version {manifest.get('version')!r}; this spgnn reads version {VERSION}")
    types = {"name": str, "n": int, "nnz": int, "n_features": int, "edges": str, "meta": dict, "files": dict}
    for key, kind in types.items():
        value = manifest.get(key)
        if not isinstance(value, kind) or isinstance(value, bool) or (kind is int and value < 0):
            raise FormatError(f"{where}: {key} = {str(value)[:80]!r}; expected {kind.__name__}")
    if manifest["edges"] not in EDGES:
        raise FormatError(f"{where}: edges = {manifest['edges']!r}; expected one of {', '.join(EDGES)}")
    files = manifest["files"]
    for name, entry in files.items():
        if name not in ARRAYS:
            raise FormatError(f"{where}: names the array {name[:80]!r}; expected only {', '.join(ARRAYS)}")
        if not isinstance(entry, dict) or set(entry) != {"bytes", "dtype", "shape", "sha256"}:
            raise FormatError(f"{where}: {name}: expected bytes, dtype, shape and sha256")
    missing = {"indptr", "indices"} - set(files)
    if 0 < len(set(SPARSE_X) & set(files)) < 3:
        missing |= set(SPARSE_X) - set(files)
    if missing:
        raise FormatError(f"{where}: names no {', '.join(sorted(missing))}")
    if "features" in files and "features_data" in files:
        raise FormatError(f"{where}: names dense and sparse features; expected one of them")


def _map(path: Path, name: str, entry: dict) -> np.ndarray:
    file = path / f"{name}.npy"
    if not file.is_file():
        raise FormatError(f"{file}: missing; the manifest names it")
    array = map_npy(file)
    found = {"bytes": file.stat().st_size, "dtype": array.dtype.str, "shape": list(array.shape)}
    expected = {key: entry[key] for key in found}
    if found != expected:
        raise FormatError(f"{file}: holds {found}; the manifest says {expected}")
    kinds, axes = ARRAYS[name]
    if array.dtype.kind not in kinds or array.ndim not in axes:
        raise FormatError(f"{file}: is {array.dtype} with {array.ndim} axes; expected kind {kinds} with {axes}")
    return array


def _features(path: Path, arrays: dict, n: int, n_features: int):
    if "features_data" in arrays:
        data, indices, indptr = (arrays[f"features_{part}"] for part in ("data", "indices", "indptr"))
        _expect(path, "features_indptr", indptr.shape, (n + 1,), f"n = {n}")
        _expect(path, "features_indices", indices.shape, data.shape, "features_data")
        return _csr(path, data, indices, indptr, (n, n_features), "X")
    X = arrays.get("features")
    if X is not None:
        _expect(path, "features", X.shape, (n, n_features), f"n = {n}, n_features = {n_features}")
    return X


def _csr(path: Path, data, indices, indptr, shape, what: str) -> sp.csr_array:
    # scipy's constructor looks at indptr[0] and indptr[-1] only; Graph checks the rest before any product.
    if indptr[0] != 0 or indptr[-1] != len(indices):
        raise FormatError(f"{path}: {what}: indptr must rise from 0 to {len(indices)}, got {indptr[0]} to {indptr[-1]}")
    return sp.csr_array((data, indices, indptr), shape=shape)


def _expect(path: Path, name: str, found: tuple, expected: tuple, why: str) -> None:
    if tuple(found) != tuple(expected):
        raise FormatError(f"{path / name}.npy: shape {tuple(found)}, expected {tuple(expected)} from {why}")


def _verify(path: Path, files: dict, progress: Progress) -> None:
    done_bytes, total_bytes = 0, sum((path / f"{name}.npy").stat().st_size for name in files if (path / f"{name}.npy").is_file())
    for name, entry in files.items():
        file, sha = path / f"{name}.npy", hashlib.sha256()
        if not file.is_file():
            raise FormatError(f"{file}: missing; the manifest names it")
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                sha.update(chunk)
                done_bytes += len(chunk)
                if progress:
                    progress(done_bytes, total_bytes)
        if sha.hexdigest() != entry["sha256"]:
            raise FormatError(f"{file}: SHA-256 is {sha.hexdigest()}, the manifest says {entry['sha256']}; convert it again")


def _arrays(graph: Graph) -> dict[str, np.ndarray]:
    A = graph.A
    arrays = {"indptr": A.indptr.astype(np.int64, copy=False), "indices": A.indices}
    if np.any(A.data != 1):
        arrays["weights"] = A.data if A.data.dtype in (np.float32, np.float64) else A.data.astype(np.float32)
    if sp.issparse(graph.X):
        X = graph.X
        arrays |= zip(SPARSE_X, (X.indptr.astype(np.int64, copy=False), X.indices, X.data))
    elif graph.X is not None:
        arrays["features"] = graph.X
    if graph.y is not None:
        arrays["labels"] = graph.y
    if graph.split is not None:
        arrays["split"] = graph.split
    return arrays


def _manifest(graph: Graph, files: dict) -> dict:
    head = {"format": FORMAT, "version": VERSION, "name": graph.name, "n": graph.n_nodes, "nnz": graph.nnz}
    sizes = {"n_features": graph.n_features, "n_classes": graph.n_classes, "multilabel": graph.is_multilabel}
    return head | sizes | {"directed": not graph.is_symmetric, "edges": graph.edges, "meta": graph.meta, "files": files}


def _plain(value):
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise GraphError(f"meta holds a {type(value).__name__}; expected what JSON can hold")


def _write(file: Path, array: np.ndarray, progress: Progress, done_bytes: int, total_bytes: int) -> dict:
    sha = hashlib.sha256()
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    rows = max(1, CHUNK_BYTES // max(1, array.nbytes // max(1, len(array))))
    with file.open("wb") as stream:
        np.lib.format.write_array_header_1_0(_Tee(stream, sha), header)
        for start in range(0, len(array), rows):
            chunk = np.ascontiguousarray(array[start : start + rows]).tobytes()
            stream.write(chunk)
            sha.update(chunk)
            done_bytes += len(chunk)
            if progress:
                progress(done_bytes, total_bytes)
        stream.flush()
        os.fsync(stream.fileno())
        size_bytes = stream.tell()
    return {"bytes": size_bytes, "dtype": array.dtype.str, "shape": list(array.shape), "sha256": sha.hexdigest()}
