"""save_graph writes a native folder: each file synced, manifest.json last, then renamed. convert: any graph to one; check."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..atomic import check_replaceable, new_folder
from ..config.names import Edges
from ..errors import GraphError, UsageError
from ..graph import Graph, check_is_graph, split_as
from ..graph.checks import packed_ids
from .formats import Progress
from .load import load_graph
from .manifest import seal
from .native import (
    ARRAYS,
    CHUNK_BYTES,
    FORMAT,
    MANIFEST,
    SPARSE_X,
    VERSION,
    has_manifest,
    is_native,
    load_native,
    read_manifest,
)

NAMES = ("classes", "feature_names", "edge_classes")
OF_FILE = ("unread", "notes", "read")  # of meta: what is said of the file that was read
FILES = (MANIFEST, *(f"{name}.npy" for name in ARRAYS))


def save_graph(graph: Graph, path: str | Path, progress: Progress = None) -> None:
    """Write graph as a native folder at path; an earlier native graph is replaced.

    Args:   progress(done_bytes, total_bytes).
    Raises: UsageError where path is something else; ResourceError if the disk refuses it.
    A kill leaves the earlier graph, and next to it a hidden folder `.NAME.new-*`, which the next writer removes.
    """
    check_is_graph(graph)
    path = writable(path)
    arrays = _arrays(graph)
    manifest = _manifest(graph)
    total_bytes = sum(array.nbytes for array in arrays.values())
    done_bytes = 0
    with new_folder(Path(os.path.realpath(path))) as new:
        for name, array in arrays.items():
            with _File(new / f"{name}.npy") as file:
                file.write_header(array)
                for chunk in _chunks(array):
                    file.write(chunk)
                    done_bytes += len(chunk)
                    if progress:
                        progress(done_bytes, total_bytes)
            manifest["files"][name] = file.entry(array)
        with _File(new / MANIFEST) as file:
            file.write(json.dumps(seal(manifest, _plain), indent=1).encode())


def writable(path: str | Path) -> Path:
    """Return the absolute path; raise UsageError if something other than a native graph is there, or more than that."""
    path = Path(path).resolve()
    if path.is_dir():
        if any(path.iterdir()) and not is_native(path):
            raise UsageError(f"{path}: is a folder but no native graph, so it is not overwritten; name another folder")
        check_replaceable(path, FILES)
    elif path.exists():
        raise UsageError(f"{path}: is a file; a native graph is a folder, name another path")
    return path


def convert(
    src, dst, format: str | None = None, features=None, labels=None, split=None, progress: Progress = None, **options
) -> dict:
    """Read src by `load_graph`, which has these options, write it as the native folder dst, and return a report.

    Returns: nodes, nonzeros, duplicates, zeros, self_loops, isolated, symmetric, weighted, negative, dropped_lines,
             features, sparse_features, classes, task, labelled, splits, train, val, test, notes, seconds, out.
    Raises:  UsageError where dst is something other than a native graph, before src is read.
    """
    start = time.perf_counter()
    dst = writable(dst)
    graph = load_graph(src, format, features, labels, split, progress, **options)
    save_graph(graph, dst)
    return report(graph) | {"seconds": round(time.perf_counter() - start, 3), "out": str(dst)}


def check(
    source, format: str | None = None, progress: Progress = None, links: tuple[Edges, str, int] | None = None, **files
) -> dict:
    """Read all of source, verify the checksums of a native folder, and return a report.

    Args:    files  features, labels and split, as of `load_graph`.
             links  edges, split and seed of a training of links: they are split, and what leaks is among the notes.
    Returns: as `convert`, and `files`, the number of files whose SHA-256 was verified; of links Links.counts.
    Raises:  FormatError or GraphError naming the first thing that is wrong, such as a leak of a split that was drawn.
    """
    start = time.perf_counter()
    if format in (None, "native") and isinstance(source, (str, Path)) and has_manifest(Path(source)):
        graph = load_native(source, verify=True, progress=progress)
        seen = {"format": "native", "files": len(read_manifest(Path(source))["files"])}
    else:
        graph, seen = None, {"files": 0}
    if graph is None or files:
        graph = load_graph(source, format, progress=progress, **files)
    found = report(graph)
    if links is not None:
        edges, split, seed = links
        of = split_as(graph.with_edges(edges), split, seed).links
        assert of is not None
        seen, found["notes"] = of.counts() | seen, [*found["notes"], *of.notes]
    return found | seen | {"seconds": round(time.perf_counter() - start, 3)}


def report(graph: Graph) -> dict:
    """Return the report of an import: sizes, what was dropped, edges and nodes."""
    seen = graph.describe()
    head = {
        "name": seen.pop("name"), "format": seen.pop("format", "memory"), "nodes": seen.pop("n"),
        "nonzeros": seen.pop("nnz"), "duplicates": seen.pop("duplicates", 0), "zeros": seen.pop("zeros", 0),
        "dropped_lines": seen.pop("dropped_lines", 0),
    }  # fmt: skip
    return head | seen | {"notes": graph.notes() + graph.label_notes()}


class _File:
    """A new file that is hashed while it is written, and fsynced when it is closed."""

    def __init__(self, path: Path):
        self.stream = path.open("xb")
        self.sha = hashlib.sha256()
        self.size_bytes = 0

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error) -> None:
        with self.stream as stream:
            stream.flush()
            os.fsync(stream.fileno())

    def write(self, chunk: bytes) -> None:
        self.stream.write(chunk)
        self.sha.update(chunk)
        self.size_bytes += len(chunk)

    def write_header(self, array: np.ndarray) -> None:
        header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
        np.lib.format.write_array_header_1_0(self, header)

    def entry(self, array: np.ndarray) -> dict:
        """Return this array's entry in the manifest."""
        digest = self.sha.hexdigest()
        return {"bytes": self.size_bytes, "dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest}


def _chunks(array: np.ndarray) -> Iterator[bytes]:
    rows = max(1, CHUNK_BYTES * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), rows):
        yield array[start : start + rows].tobytes()


def _arrays(graph: Graph) -> dict[str, np.ndarray]:
    A, X = graph.A, graph.X
    arrays = {"indptr": A.indptr.astype(np.int64, copy=False), "indices": _narrow(A.indices, A.shape[1])}
    if np.any(A.data != 1):
        arrays["weights"] = A.data if A.data.dtype in (np.float32, np.float64) else A.data.astype(np.float32)
    if X is not None and not isinstance(X, np.ndarray):
        arrays |= zip(SPARSE_X, (X.indptr.astype(np.int64, copy=False), _narrow(X.indices, X.shape[1]), X.data))
    elif X is not None:
        arrays["features"] = X
    if graph.y is not None:
        arrays["labels"] = graph.y
    of = {name: getattr(graph, name) for name in ("split", "edge_attr", "edge_ids", "edge_split")}
    of["edge_labels"] = graph.edge_y
    arrays |= {name: array for name, array in of.items() if array is not None}
    return arrays | packed_ids(graph.ids)


def _narrow(indices: np.ndarray, width: int) -> np.ndarray:
    return indices.astype(np.int32 if width < 2**31 else np.int64, copy=False)


def _manifest(graph: Graph) -> dict:
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": graph.name,
        "n": graph.n_nodes,
        "nnz": graph.nnz,
        "n_features": graph.n_features,
        "n_classes": graph.n_classes,
        "task": graph.task,
        "directed": not graph.is_symmetric,
        "edges": graph.edges,
        "meta": {key: value for key, value in graph.meta.items() if key not in OF_FILE},
        "files": {},
    } | {name: names for name in NAMES if (names := getattr(graph, name)) is not None}


def _plain(value: object) -> object:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise GraphError(f"meta holds a {type(value).__name__}; expected what JSON can hold")


def write_npy(file: BinaryIO, array: np.ndarray) -> None:
    """Write an array as an .npy file. numpy.save does not notice that the disk is full at the last bytes."""
    array = np.ascontiguousarray(array)
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    file.write(array.reshape(-1).view(np.uint8).data)
