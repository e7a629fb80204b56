"""Parts: the parts of a graph as graphs of one rank each, for model averaging.

Shapes: N nodes, n own nodes, g nodes of the halo, m = n + g rows, k parts, P ranks.
Source: SDT-GNN (cyclic parts, more than ranks); rows of the halo that are cut off are rescaled here, see part_rows.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch

from ..config import Distribution
from ..config.names import Norm
from ..dist import Communicator, SelfCommunicator
from ..dist.consistency import check_same
from ..dist.launch import share_of_threads
from ..errors import UsageError, together
from ..graph import NO_SPLIT, TRAIN, UNLABELLED, Graph, given_split, labelled, random_split, task_of
from ..graph.edge_attr import without_parallel
from ..partition import Partition, PartitionFolder, RowBlock, partition_of
from ..partition.checks import check_hops
from ..partition.folder.blocks import check_rank
from ..spmm.kernels.cuda.placement import place
from .assemble import GraphRows, assembled
from .distgraph import DistGraph
from .distribute import (
    built,
    check_folder,
    check_options,
    graph_facts,
    layout_of,
    partition_facts,
    rows_of_parts,
)
from .part_rows import part_rows
from .part_sources import FolderSource, GraphSource, PartSource


class Parts:
    """The parts of a graph, of which this rank trains those in `own`: part p belongs to rank p mod P.

        parts = Parts("parts", comm, hops=1)
        for p in parts.own:
            dgraph = parts.open(p)  # of one rank: a Trainer of it waits for nobody

    Args:
        folder   of `spgnn partition --hops H`, or the PartitionFolder; see of_graph for a graph in memory.
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
        self, folder: PartitionFolder | str | Path | Graph, comm: Communicator, hops: int = 1, split: str = "auto", *,
        owner_N=None, **options,
    ):  # fmt: skip
        given = PartitionFolder(folder) if isinstance(folder, (str, Path)) else folder
        how, hops = together(comm, _checked_options, given, owner_N, hops, options)
        check_options(comm, given, owner_N, how, hops=hops, split=split)
        source: PartSource
        if isinstance(given, Graph):
            graph, partition = together(comm, _checked_partition, given, owner_N)
            check_same(comm, graph_facts(graph) | partition_facts(partition, 0))
            source = GraphSource(graph, partition, hops)
        else:
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

    @classmethod
    def of_graph(
        cls, graph: Graph, owner_N, comm: Communicator, hops: int = 1, split: str = "auto", **options
    ) -> Parts:
        """Return the parts of a graph in memory; owner_N: (N,) integers or a Partition, the same on all ranks. Collective."""
        return cls(graph, comm, hops, split, owner_N=owner_N, **options)

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
        """Return the bytes of the files of part p, of any rank; 0 for a graph in memory."""
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
        rows.about = {"name": f"{self.name} part {p}", "method": self.method}
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
        found = together(self.comm, lambda: [self.source.labels(p) for p in self.own])
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


def _checked_options(source, owner_N, hops: int, options: dict) -> tuple[Distribution, int]:
    if not isinstance(source, (PartitionFolder, Graph)) or (isinstance(source, Graph) and owner_N is None):
        raise UsageError(f"Parts got a {type(source).__name__}; expected a partition folder; or Parts.of_graph(graph)")
    return built(options, "Parts"), check_hops(hops)


def _checked_partition(graph: Graph, owner_N) -> tuple[Graph, Partition]:
    graph = graph.in_use()
    partition = owner_N if isinstance(owner_N, Partition) else partition_of(graph, owner_N)
    partition.check_length(graph)
    return graph, partition


def merge_parts(parts: Parts, has_rows: bool = True) -> DistGraph:
    """Return the whole graph with each rank holding the rows of its parts, with the split and options of the parts.

    Ranks without a part have no rows. Collective.
    Args: has_rows  False: no rank has rows, for trainings that read the parts alone.
    """
    how, source = replace(parts.how, replication=1), parts.source
    how = how if has_rows else replace(how, scheme="columns", keep=False)
    layout, about = layout_of(parts.comm, how), {"name": parts.name, "fingerprint": source.facts.fingerprint}
    about["names"] = source.facts.names.written()
    layout.comm.phase = "partition and load"
    read = lambda: rows_of_parts(source.block, source.partition, layout, about, has_rows)
    dgraph = assembled(together(layout.comm, read), layout, how)
    if not has_rows:
        return replace(dgraph, n_classes=parts.n_classes, nnz=source.facts.nnz)
    if dgraph.y_n is None:
        return dgraph
    if parts.drawn_N is None:
        return replace(dgraph, split_n=given_split(parts.name, dgraph.split_n, parts.split))
    return replace(dgraph, split_n=parts.drawn_N[dgraph.node_n])
