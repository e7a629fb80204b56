"""METIS part files, `graph.part.K`: line v holds the part of node v."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ...atomic import new_file
from ...errors import FormatError, PartitionError
from ...graph import Graph
from ..checks import check_owner, count_parts
from ..partition import Partition, partition_of


def import_metis_parts(path: str | Path, graph: Graph | int, k: int | None = None) -> Partition:
    """Read a METIS part file, one part number a line.

    Args:   graph  the graph, or its number of nodes; without the graph there are no metrics.
            k      number of parts; else the K of a name that ends in .part.K, else 1 + the largest.
    Raises: FormatError or PartitionError naming file:line.
    """
    path = Path(path)
    n_nodes = graph.n_nodes if isinstance(graph, Graph) else int(graph)
    owner_N = _read_numbers(path, n_nodes)
    if k is None:
        suffix = re.search(r"\.part\.(\d{1,9})$", path.name)
        k = int(suffix[1]) if suffix and int(suffix[1]) else count_parts(owner_N)
    bad = (owner_N < 0) | (owner_N >= k)
    if bad.any():
        line = int(np.argmax(bad)) + 1
        raise PartitionError(f"{path}:{line}: part {owner_N[line - 1]}; expected 0 to {k - 1}, as there are {k} parts")
    owner_N = check_owner(owner_N, n_nodes, k, str(path))
    if isinstance(graph, Graph):
        return partition_of(graph, owner_N, k, method="given")
    return Partition(owner_N, k)


def export_metis_parts(partition: Partition, path: str | Path) -> Path:
    """Write one part number a line, in the graph's own order, whole or not at all, and return the path.

    A path without the ending gets it: graph -> graph.part.K.
    """
    path = Path(path)
    if not re.search(r"\.part\.\d+$", path.name):
        path = path.with_name(f"{path.name}.part.{partition.k}")
    with new_file(path) as file:
        for start in range(0, partition.n_nodes, 1 << 20):
            numbers = partition.owner_N[start : start + (1 << 20)].tolist()
            file.write(b"%s\n" % "\n".join(map(str, numbers)).encode())
    return path


def _read_numbers(path: Path, n_nodes: int) -> np.ndarray:
    limit = 24 * n_nodes + 4096  # 20 digits, CR LF: no part file of this graph is longer
    try:
        size = path.stat().st_size
        if size > limit:
            raise PartitionError(
                f"{path}: {size} bytes are too many for {n_nodes} nodes; was it made for another graph?"
            )
        data = path.read_bytes().rstrip()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None
    stray = re.search(rb"[^0-9 \t\r\n]|\d[ \t]+\d|\d{11}|^[ \t\r]*\n", data, re.MULTILINE)
    if stray:
        line = data.count(b"\n", 0, stray.start()) + 1
        text = data.splitlines()[line - 1][:40].decode("ascii", "replace")
        raise FormatError(f"{path}:{line}: {text!r}; expected one part number, 0 or more")
    numbers = np.fromstring(data, dtype=np.int64, sep=" ")
    if len(numbers) != n_nodes:
        raise PartitionError(
            f"{path}: {len(numbers)} lines, the graph has {n_nodes} nodes; was this partition made for another graph?"
        )
    return numbers
