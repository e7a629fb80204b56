"""What has to be the same on all ranks before a graph is distributed."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..config import Distribution, shared_values
from ..dist.consistency import check_same, digest, versions
from ..errors import together
from ..graph import Graph, task_of
from ..partition import Partition, PartitionFolder, RowBlock


def check_options(comm, source, partition, how: Distribution, **options) -> None:
    """Raise, on all ranks, where options, kinds of sources, or versions differ between ranks; options: more of them. Collective."""
    is_folder = lambda given: isinstance(given, PartitionFolder)
    kinds = {"option.source": "folder" if is_folder(source) else "graph"}
    kinds["option.partition"] = "folder" if is_folder(partition) else "array or method"
    given = {f"option.{name}": value for name, value in options.items()}
    check_same(comm, kinds | shared_values(how) | versions() | given)


def graph_facts(graph: Graph) -> dict[str, Any]:
    """Return sizes and digests of a graph that every rank holds."""
    A, X = graph.A, graph.X
    facts = {"graph.name": graph.name, "graph.edges": graph.edges, "graph.nodes": graph.n_nodes, "graph.nnz": graph.nnz}
    facts["graph.A"] = digest(A.indptr.astype(np.int64), A.indices.astype(np.int64), A.data)
    facts["graph.X"] = _described(X) + digest(
        *((X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data) if sp.issparse(X) else (X,))
    )
    facts["graph.y"] = _described(graph.y) + digest(graph.y)
    facts["graph.split"] = _described(graph.split) + digest(graph.split)
    facts["graph.edge_attr"] = _described(graph.edge_attr) + digest(graph.edge_attr, graph.edge_ids)
    return facts


def partition_facts(partition: Partition | np.ndarray | None, rank: int) -> dict[str, Any]:
    """Return the digest of the partition in memory; ranks other than 0 need not be given it, and then say nothing of it."""
    nothing = None if rank else "none"
    facts = {"partition.k": getattr(partition, "k", nothing), "partition.owner": nothing}
    if partition is None:
        return facts
    try:
        owner_N = np.asarray(getattr(partition, "owner_N", partition))
    except ValueError:
        return facts | {"partition.owner": "unlike things"}
    has_integers = owner_N.dtype.kind in "iu"  # the gate refuses the rest
    return facts | {"partition.owner": digest(owner_N.astype(np.int64)) if has_integers else str(owner_N.dtype)}


def check_folder(comm, folder: PartitionFolder) -> None:
    """Raise, on all ranks, where they see different partition folders; a manifest has the digests of the rest. Collective."""
    is_there = lambda: (folder.path / "manifest.json").is_file()
    manifest = together(comm, lambda: folder.hash[:16] if is_there() else "missing")
    check_same(comm, {"partition.manifest": manifest})


def check_block(comm, block: RowBlock) -> None:
    """Raise, on all ranks, where row blocks are not of one graph. Collective."""
    widths = {"y": block.y_n, "split": block.split_n}
    facts = {f"graph.columns of {name}": "none" if rows is None else rows.shape[1:] for name, rows in widths.items()}
    facts["graph.edge_attr"] = "none" if block.edges is None else f"{block.edges.attr_EF.shape[1]} columns"
    facts["graph.task"] = task_of(block.y_n)
    X = block.X_nF
    facts["graph.features"] = (
        "none" if X is None else f"{'sparse' if sp.issparse(X) else 'dense'}, {X.shape[1]} columns"
    )
    check_same(comm, facts | {"graph.nodes": block.n_nodes, "partition.k": block.k})


def _described(array) -> str:
    return "" if array is None else f"{array.dtype} {'x'.join(map(str, array.shape))} "
