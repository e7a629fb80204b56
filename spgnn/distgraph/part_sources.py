"""Where the parts of a graph come from: a partition folder, or a graph in memory that every rank holds.

Shapes: N nodes, n own nodes, k parts, S splits.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from ..atomic import open_regular
from ..config.names import Task
from ..errors import PartitionError
from ..graph import ColumnNames, Graph, GraphColumns, fingerprint
from ..partition import Partition, PartitionFolder, RowBlock
from ..partition.folder.blocks import Halo, HaloFinder, check_rank, matrix_sums, row_block, select_rows
from ..partition.folder.part_manifest import task_of_parts
from ..partition.folder.store import part_name, train_counts


@dataclass(frozen=True, slots=True)
class PartFacts:
    """What the parts of a graph have in common.

    fingerprint  of the graph, see spgnn.graph.fingerprint.
    nnz        of the graph; n_features: 0 without features.
    hops       of the halos that PartSource.part returns.
    is_sparse  X is; n_splits: None for a vector.
    sizes      of each part: n, g, nnz, nbytes; train: labelled training nodes in each split; names: of columns.
    """

    name: str
    method: str
    fingerprint: str
    n_nodes: int
    nnz: int
    n_features: int
    n_classes: int
    hops: int
    is_sparse: bool
    task: Task
    is_symmetric: bool
    has_split: bool
    n_splits: int | None
    sizes: list[dict[str, int]]
    train: list[list[int] | None]
    names: ColumnNames


class PartSource(Protocol):
    """What Parts reads: facts of all parts, and the arrays of one."""

    facts: PartFacts

    @property
    def partition(self) -> Partition:
        """The owners of all nodes."""

    def block(self, p: int) -> RowBlock:
        """Return the rows of the own nodes of a part, with values that are checked."""

    def part(self, p: int) -> tuple[RowBlock, np.ndarray, Halo | None]:
        """Return the rows, the sums and the halo of a part; the first time they are checked."""

    def labels(self, p: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the own nodes and their labels."""

    def advise(self, p: int, is_needed: bool) -> None:
        """Tell the system that the files of a part will be read, or that they will not."""


class FolderSource:
    """The parts of a folder; each call maps the files of one part.

    Raises: PartitionError unless it has halos of so many hops.
    """

    def __init__(self, folder: PartitionFolder, hops: int):
        folder.check_hops(hops)
        self.folder, self.hops, self._checked = folder, hops, set()
        manifest, where = folder.manifest, folder.path / "manifest.json"
        files = manifest["parts"]
        try:
            split = files[0].get("split")
            n_splits = None if split is None or len(split["shape"]) == 1 else split["shape"][1]
            self.facts = PartFacts(
                name=manifest.get("graph") or folder.path.name,
                **{
                    name: manifest[name]
                    for name in ("method", "fingerprint", "n_nodes", "nnz", "n_features", "n_classes", "train")
                },
                hops=manifest["hops"] if hops else 0,
                is_sparse="features_data" in files[0],
                task=task_of_parts(manifest),
                is_symmetric=manifest.get("edges") == "undirected" and "edge_meta" not in manifest,
                has_split=split is not None,
                n_splits=n_splits,
                sizes=[self._sizes(of_part) for of_part in files],
                names=folder.names,
            )
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise PartitionError(
                f"{where}: the parts are not described ({error!r}); write the partition again"
            ) from None
        splits = {None, 1 if n_splits is None else n_splits}
        if len(files) != manifest["k"] or not {counts and len(counts) for counts in manifest["train"]} <= splits:
            raise PartitionError(f"{where}: does not describe {manifest['k']} parts; write the partition again")

    @property
    def partition(self) -> Partition:
        """The owners of all nodes, read from the folder."""
        return self.folder.partition()

    def block(self, p: int) -> RowBlock:
        """Return the rows of the own nodes of a part, with values that are checked."""
        return self.folder.checked_block(p)

    def part(self, p: int) -> tuple[RowBlock, np.ndarray, Halo | None]:
        """Return the rows, the sums and the halo of a part; the first time all values are checked."""
        folder = self.folder
        block, halo = folder.block(p), folder.halo(p) if self.hops else None
        if p not in self._checked:
            folder.check_values(block)
            if halo is not None:
                folder.check_values(halo)
            self._checked.add(p)
        return block, folder.sums(p), halo

    def labels(self, p: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the own nodes and their labels."""
        block = self.folder.block(p)
        return block.own_n, block.y_n

    def advise(self, p: int, is_needed: bool) -> None:
        """Read the files of a part ahead into the page cache, or drop them from it; nothing where the system cannot."""
        if not hasattr(os, "posix_fadvise"):
            return
        check_rank(p, len(self.facts.sizes))
        advice = os.POSIX_FADV_WILLNEED if is_needed else os.POSIX_FADV_DONTNEED
        for name in self._files(self.folder.manifest["parts"][p]):
            with suppress(OSError), open_regular(self.folder.path / part_name(p) / f"{name}.npy") as file:
                os.posix_fadvise(file.fileno(), 0, 0, advice)  # a file that is wrong is named where it is read

    def _files(self, of_part: dict) -> dict:
        return {name: entry for name, entry in of_part.items() if self.hops or not name.startswith("halo")}

    def _sizes(self, of_part: dict) -> dict[str, int]:
        of_part = self._files(of_part)
        rows = lambda name: of_part[name]["shape"][0] if name in of_part else 0
        nbytes = sum(np.dtype(entry["dtype"]).itemsize * math.prod(entry["shape"]) for entry in of_part.values())
        return {"n": rows("own"), "g": rows("halo"), "nnz": rows("indices") + rows("halo_indices"), "nbytes": nbytes}


class GraphSource:
    """The parts of a graph in memory, each cut when it is requested."""

    def __init__(self, graph: Graph, partition: Partition, hops: int):
        self.graph, self.partition = graph, partition
        self.finder, self.sums_N3 = HaloFinder(graph.A, hops), matrix_sums(graph.A)
        sizes, train = [], []
        for p in range(partition.k):
            own_n = partition.own(p)
            halo_n, hop_g = self.finder.halo(own_n)
            known = np.concatenate([own_n, halo_n[hop_g < hops]])
            nnz = int(np.diff(graph.A.indptr)[known].sum())
            sizes.append({"n": len(own_n), "g": len(halo_n), "nnz": nnz, "nbytes": 0})
            train.append(train_counts(select_rows(graph.y, own_n), select_rows(graph.split, own_n)))
        self.facts = PartFacts(
            **{name: getattr(graph, name) for name in ("name", "n_nodes", "nnz", "n_features", "n_classes")},
            method=partition.method, fingerprint=fingerprint(graph), hops=hops, is_sparse=sp.issparse(graph.X), task=graph.task,
            is_symmetric=graph.is_both_ways, has_split=graph.split is not None,
            n_splits=graph.split.shape[1] if graph.split is not None and graph.split.ndim == 2 else None, sizes=sizes,
            train=train, names=GraphColumns.of(graph).names,
        )  # fmt: skip

    def block(self, p: int) -> RowBlock:
        """Return the rows of the own nodes of a part."""
        return row_block(self.graph, self.partition, p)

    def part(self, p: int) -> tuple[RowBlock, np.ndarray, Halo | None]:
        """Return the rows, the sums and the halo of a part."""
        block, finder = row_block(self.graph, self.partition, p), self.finder
        if not finder.hops:
            return block, self.sums_N3[block.own_n], None
        node_g, hop_g = finder.halo(block.own_n)
        rows = finder.rows(node_g, hop_g) if finder.hops > 1 else None
        X_gF = select_rows(self.graph.X, node_g)
        halo = Halo(node_g, hop_g, rows, X_gF, self.graph.n_nodes, p, self.sums_N3[node_g])
        return block, self.sums_N3[block.own_n], halo

    def labels(self, p: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the own nodes and their labels."""
        own_n = self.partition.own(p)
        return own_n, select_rows(self.graph.y, own_n)

    def advise(self, p: int, is_needed: bool) -> None:
        """Check that the part exists; a graph in memory has no files."""
        check_rank(p, len(self.facts.sizes))
