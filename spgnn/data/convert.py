"""convert: any graph to a native folder; check: verify a graph; both return a report."""

from __future__ import annotations

import time
from pathlib import Path

from ..graph import Graph
from .formats import Progress
from .load import load_graph
from .native import has_manifest, load_native, read_manifest
from .save import save_graph, writable


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


def check(source, format: str | None = None, progress: Progress = None, **files) -> dict:
    """Read all of source, verify the checksums of a native folder, and return a report.

    Args:    files  features, labels and split, as of `load_graph`.
    Returns: as `convert`, and `files`, the number of files whose SHA-256 was verified.
    Raises:  FormatError or GraphError naming the first thing that is wrong.
    """
    start = time.perf_counter()
    if format in (None, "native") and isinstance(source, (str, Path)) and has_manifest(Path(source)):
        graph = load_native(source, verify=True, progress=progress)
        seen = {"format": "native", "files": len(read_manifest(Path(source))["files"])}
    else:
        graph, seen = None, {"files": 0}
    if graph is None or files:
        graph = load_graph(source, format, progress=progress, **files)
    return report(graph) | seen | {"seconds": round(time.perf_counter() - start, 3)}


def report(graph: Graph) -> dict:
    """Return the report of an import: sizes, what was dropped, edges and nodes."""
    seen = graph.describe()
    head = {
        "name": seen.pop("name"), "format": seen.pop("format", "memory"), "nodes": seen.pop("n"),
        "nonzeros": seen.pop("nnz"), "duplicates": seen.pop("duplicates", 0), "zeros": seen.pop("zeros", 0),
        "dropped_lines": seen.pop("dropped_lines", 0),
    }  # fmt: skip
    return head | seen | {"notes": graph.notes() + graph.label_notes()}
