"""Parts: the parts of a graph as graphs of one rank each, for model averaging.

Shapes: N nodes, n own nodes, g nodes of the halo, m = n + g rows, k parts, P ranks.
Source: SDT-GNN (cyclic parts, more than ranks); rows of the halo that are cut off are rescaled here, see part_rows.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch

from ..atomic import open_regular
from ..config import Distribution
from ..config.names import Norm, Task
from ..dist import Communicator, SelfCommunicator
from ..dist.launch import share_of_threads
from ..errors import PartitionError, UsageError, together
from ..graph import NO_SPLIT, TRAIN, UNLABELLED, ColumnNames, Graph, given_split, labelled, random_split, task_of
from ..graph.edge_attr import without_parallel
from ..machine import drop_pages
from ..partition import Partition, PartitionFolder, RowBlock
from ..partition.checks import check_hops
from ..partition.folder.blocks import Halo, check_rank
from ..partition.folder.part_manifest import task_of_parts
from ..partition.folder.store import part_name
from ..spmm.kernels.cuda.placement import place
from .assemble import GraphRows, assembled
from .distgraph import DistGraph
from .distribute import built, check_folder, check_options, layout_of, rows_of_parts
from .part_rows import part_rows


class Parts:
    """The parts of a graph, of which this rank trains those in `own`: part p belongs to rank p mod P.

        parts = Parts("parts", comm, hops=1)
        for p in parts.own:
            dgraph = parts.open(p)  # of one rank: a Trainer of it waits for nobody

    Args:
        folder   of `spgnn partition --hops H` or save_partition, or the PartitionFolder.
        hops     of the halo that is used, at most H. Outputs of own nodes of L layers are exact from hops = L on; with
                 fewer, rows of the last hop are computed from the entries that are known.
        split    which nodes train: given, a number, random, or auto, see TrainConfig. It is chosen here once for all
                 parts: training of a part reads it with split="given".
        options  fields of spgnn.config.Distribution. Those of partitioners and exchanges are ignored, and rows are not
                 reordered.
    own      numbers of the parts of this rank, rising; k: parts of all ranks.
    drawn_N  the split of all nodes, (N,) int8, where none is given; else None.
    Raises: PartitionError for a folder without row sums, or with halos of fewer hops; UsageError for unknown options. Collective; the
            methods are not.
    """

    def __init__(
        self, folder: PartitionFolder | str | Path, comm: Communicator, hops: int = 1, split: str = "auto", **options
    ):  # fmt: skip
        given = PartitionFolder(folder) if isinstance(folder, (str, Path)) else folder
        how, hops = together(comm, _checked_options, given, hops, options)
        check_options(comm, given, None, how, hops=hops, split=split)
        check_folder(comm, given)
        source = together(comm, FolderSource, given, hops)
        threads = how.threads or min(share_of_threads(comm), torch.get_num_threads())
        self.comm, self.hops, self.how = comm, hops, replace(how, threads=threads)
        self.source, self.own = source, range(comm.rank, len(source.facts.sizes), comm.size)
        self._placement = place(comm, how.device)
        self.split = split
        self.drawn_N: np.ndarray | None = None
        self._train_k = np.zeros(self.k, np.int64)
        if together(comm, self._is_given, split):
            column = int(split) if split.isdigit() else 0
            self._train_k += [0 if of_part is None else of_part[column] for of_part in source.facts.train]
        elif self.n_classes:
            self._draw_split(how.seed)

    name, method, n_nodes, n_classes = (
        property(attrgetter(f"source.facts.{fact}")) for fact in ("name", "method", "n_nodes", "n_classes")
    )

    @property
    def k(self) -> int:
        """Parts of all ranks."""
        return len(self.source.facts.sizes)

    def __repr__(self) -> str:
        return f"Parts({self.name}: {len(self.own)} of {self.k} parts of {self.method} on rank {self.comm.rank}, hops = {self.hops})"

    @property
    def n_train(self) -> int:
        """Labelled training nodes of all parts."""
        return int(self._train_k.sum())

    def n_train_of(self, p: int) -> int:
        """Return the labelled training nodes of part p, of any rank."""
        check_rank(p, self.k)
        return int(self._train_k[p])

    def sizes(self, p: int) -> dict[str, int]:
        """Return of part p, of any rank: n own nodes, g of the halo, nnz of their rows, nbytes of its files.

        Without opening it; the halo is the folder's, whose hops may be more than those that are used.
        """
        check_rank(p, self.k)
        return dict(self.source.facts.sizes[p])

    def nbytes(self, p: int) -> int:
        """Return the bytes of the files of part p, of any rank."""
        return self.sizes(p)["nbytes"]

    def prefetch(self, p: int) -> None:
        """Have the system read the files of part p ahead, while another one is trained."""
        self.source.advise(p, True)

    def release(self, p: int) -> None:
        """Drop the files of part p from the page cache, after its DistGraph is deleted: mapped pages stay."""
        self.source.advise(p, False)

    def open(self, p: int, operator: Norm | None = None) -> DistGraph:
        """Return part p as a graph of one rank: rows of its own nodes first, then of its halo, each by rising id.

        Ids are the whole graph's (node_n), and so are dropout masks, degrees and classes. Rows of the halo have
        split -1 and label -1 or NaN, or no labels where nodes have several.
        Args:   operator  of layers that name none; None: the options'.
        Raises: PartitionError naming file and node for damaged arrays.
        """
        check_rank(p, self.k)
        block, sums_n3, halo = self.source.part(p)
        rows = part_rows(block, sums_n3, halo, self.hops, self.source.facts.is_symmetric)
        rows.y_n, rows.split_n = self.labels(block, len(rows.node_n))
        del block, sums_n3, halo
        return self.alone(rows, p, operator)

    def alone(self, rows: GraphRows, p: int, operator: Norm | None = None, keep: bool = True) -> DistGraph:
        """Return the DistGraph of rows of part p, on one rank and its device; see how_alone."""
        how = self.how_alone(operator, keep)
        types = self.source.folder.manifest.get("node_types")
        rows.about = {"name": f"{self.name} part {p}", "method": self.method, "node_types": types}
        dgraph = assembled(rows, layout_of(SelfCommunicator(), how, self._placement), how)
        return replace(dgraph, n_classes=self.n_classes)  # of which a part may lack the last

    def how_alone(self, operator: Norm | None = None, keep: bool = True) -> Distribution:
        """Return the options of a part on one rank, which exchanges nothing and keeps the order of its rows.

        Args: operator  None: the options'; keep: False: A X is not cached, whatever the options are.
        """
        return replace(
            self.how, scheme="columns", replication=1, locality=False, wire="float32", wire_gradients="float32",
            operator=self.how.operator if operator is None else operator, keep=keep and self.how.keep,
        )  # fmt: skip

    def graph(self, p: int) -> Graph:
        """Return the rows that part p knows, in the order of `open`, as a Graph of their own, from which subgraphs are drawn.

        Its ids are 0 to m - 1. The sums of rows of the last hop, and their degrees, are of the entries that are
        known; labels and split as in `open`.
        """
        check_rank(p, self.k)
        block, sums_n3, halo = self.source.part(p)
        rows = part_rows(block, sums_n3, halo, self.hops, self.source.facts.is_symmetric)
        y_m, split_m = self.labels(block, len(rows.node_n))
        edges = "undirected" if self.source.facts.is_symmetric else "directed"
        return Graph(without_parallel(rows.A), rows.X_nF, y_m, split_m, f"{self.name} part {p}", edges)

    def labels(self, block: RowBlock, m: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return labels and split of the m rows of a part; the halo's are unknown here."""
        if block.y_n is None:
            return None, None
        n, none = len(block.own_n), {"classes": UNLABELLED, "labels": 0, "numbers": np.nan}[task_of(block.y_n)]
        y_m = np.full((m, *block.y_n.shape[1:]), none, block.y_n.dtype)
        y_m[:n] = block.y_n
        split_m = np.full(m, NO_SPLIT, np.int8)
        drawn_N = self.drawn_N
        split_n = given_split(self.name, block.split_n, self.split) if drawn_N is None else drawn_N[block.own_n]
        assert split_n is not None
        split_m[:n] = split_n
        return y_m, split_m

    def _is_given(self, split: str) -> bool:
        """Return whether the parts have the requested split; UsageError or GraphError where it does not exist."""
        source = self.source.facts
        shape = (0,) if source.n_splits is None else (0, source.n_splits)
        return given_split(self.name, np.empty(shape, np.int8) if source.has_split else None, split) is not None

    def _draw_split(self, seed: int) -> None:
        """Draw a split over the labelled nodes of all parts, the same on any ranks. Collective."""
        found = together(self.comm, lambda: [(b.own_n, b.y_n) for b in map(self.source.folder.block, self.own)])
        ids = np.concatenate([np.empty(0, np.int64), *(own_n for own_n, _ in found)])
        known = [labelled(y_n).astype(np.int8) for _, y_n in found if y_n is not None]
        ids_N = self.comm.all_gather(ids)
        known_N = self.comm.all_gather(np.concatenate([np.empty(0, np.int8), *known]))
        label_N = np.full(self.n_nodes, UNLABELLED, np.int8)
        label_N[ids_N] = known_N - 1
        self.drawn_N = random_split(label_N, seed)
        counts_k = np.zeros(self.k, np.int64)
        for p, (own_n, _) in zip(self.own, found):
            counts_k[p] = np.count_nonzero(self.drawn_N[own_n] == TRAIN)
        self.comm.all_reduce(counts_k)
        self._train_k += counts_k


def _checked_options(folder, hops: int, options: dict) -> tuple[Distribution, int]:
    if not isinstance(folder, PartitionFolder):
        raise UsageError(
            f"Parts got a {type(folder).__name__}; expected a partition folder, as save_partition writes it"
        )
    return built(options, "Parts"), check_hops(hops)


def merge_parts(parts: Parts, has_rows: bool = True) -> DistGraph:
    """Return the whole graph with each rank holding the rows of its parts, with the split and options of the parts.

    Ranks without a part have no rows. Collective.
    Args: has_rows  False: no rank has rows, for trainings that read the parts alone.
    """
    how, source = replace(parts.how, replication=1), parts.source
    how = how if has_rows else replace(how, scheme="columns", keep=False)
    layout, about = layout_of(parts.comm, how), {"name": parts.name, "fingerprint": source.facts.fingerprint}
    about |= {"names": source.facts.names.written(), "node_types": source.folder.manifest.get("node_types")}
    about["read"] = {"graph": str(source.folder.path.absolute())}
    layout.comm.phase = "partition and load"
    read = lambda: rows_of_parts(source.folder.checked_block, source.partition, layout, about, has_rows)
    dgraph = assembled(together(layout.comm, read), layout, how)
    if not has_rows:
        return replace(dgraph, n_classes=parts.n_classes, nnz=source.facts.nnz)
    if dgraph.y_n is None:
        return dgraph
    if parts.drawn_N is None:
        return replace(dgraph, split_n=given_split(parts.name, dgraph.split_n, parts.split))
    return replace(dgraph, split_n=parts.drawn_N[dgraph.node_n])


@dataclass(frozen=True, slots=True)
class PartFacts:
    """What the parts of a graph have in common.

    fingerprint  of the graph, see spgnn.graph.fingerprint.
    nnz        of the graph; n_features: 0 without features.
    hops       of the halos that `FolderSource.part` returns.
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

    def part(self, p: int) -> tuple[RowBlock, np.ndarray, Halo | None]:
        """Return the rows, the sums and the halo of a part; the first time all values are checked."""
        folder = self.folder
        block, halo = folder.block(p), folder.halo(p) if self.hops else None
        if p not in self._checked:
            folder.check_values(block)
            if halo is not None:
                folder.check_values(halo)
                drop_pages(halo.X_gF)
            drop_pages(block.X_nF)
            self._checked.add(p)
        return block, folder.sums(p), halo

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
