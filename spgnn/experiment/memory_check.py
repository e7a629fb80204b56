"""A training that memory cannot hold: refused when its graph has been read, or explained when its device runs out.

The refusal is by prediction, as in `spgnn plan`: from counts and a dry run of the model, for ranks with equal shares of
the graph and no ghost rows, the least that a rank needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..analysis.epoch import FixedModel, without_values
from ..analysis.plan import PlannedRanks
from ..analysis.planned import PlannedGraph, PlannedTraining
from ..analysis.training_memory import RankMemory, gigabytes, part_memory, rank_memory
from ..config import Distribution, TrainConfig
from ..config.names import ITEMSIZE, Norm, Task
from ..cost.machines import load_machine
from ..errors import ResourceError, SpgnnError
from ..graph import Graph, count_classes, targets_of, task_of
from ..layers.registry import ModelSpec
from ..partition import PartitionFolder
from ..partition.folder.part_manifest import task_of_parts
from ..partition.partition import partition_of
from ..spmm.dry.dry import dry_run
from ..spmm.dry.dry_operator import Setting
from ..training.trainer import Trainer

# No training keeps more: rows of the widest layer for each node and layer, and arrays of the nonzeros. Where these fit, no
# prediction is made. The rows of a graph: input, output, gradients, buffers.
ROWS, NONZEROS = 16, 16


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """What predictions of memory read of a graph, or of a folder of its parts.

    task           what labels are; hops: of the halos of the parts.
    x_nnz          nonzeros of sparse features; None: they are dense. edge_features: of edges; None: they have none.
    is_symmetric   A is its transpose.
    """

    n_nodes: int
    nnz: int
    n_features: int
    n_classes: int
    task: Task
    x_nnz: int | None = None
    edge_features: int | None = None
    is_symmetric: bool = True
    hops: int = 1

    @classmethod
    def of_graph(cls, graph: Graph) -> GraphSizes:
        """Return the sizes of a graph in memory."""
        x_nnz, f_edge = getattr(graph.X, "nnz", None), None if graph.edge_attr is None else graph.n_edge_features
        sizes = (graph.n_nodes, graph.nnz, graph.n_features, count_classes(graph.y))
        return cls(*sizes, task_of(graph.y), x_nnz, f_edge, graph.is_both_ways)

    @classmethod
    def of_folder(cls, folder: PartitionFolder) -> GraphSizes:
        """Return the sizes of the graph of a partition folder, without reading its arrays."""
        about = folder.manifest
        x_nnz = [files["features_data"]["shape"][0] for files in about["parts"] if "features_data" in files]
        return cls(
            about["n_nodes"], about["nnz"], about["n_features"], about["n_classes"], task_of_parts(about),
            sum(x_nnz) if x_nnz else None, None, about.get("edges") == "undirected", about["hops"],
        )  # fmt: skip


def memory_of_parts(
    of: GraphSizes, model: FixedModel, config: TrainConfig, halo: float = 1.0
) -> Callable[[int], RankMemory]:
    """Return the function k -> predicted memory of a process that trains a k-th of a graph alone."""
    is_sparse = of.x_nnz is not None
    setting = Setting(
        features=of.n_features, dtype=getattr(torch, config.dtype), order=config.order, is_sparse=is_sparse,
        is_cached=config.keep, has_ghosts=is_sparse and config.keep, edge_features=of.edge_features,
    )  # fmt: skip
    sizes = {"n": of.n_nodes, "own_nnz": of.nnz} | ({} if of.x_nnz is None else {"x_nnz": of.x_nnz})
    known = {"process_bytes": load_machine(Distribution.machine).process_bytes, "is_symmetric": of.is_symmetric}
    return lambda k: part_memory(model, setting, sizes, k, halo=halo, **known)


def check_fits(graph: Graph, config: TrainConfig, operator: Norm, parts: int, M: int) -> None:
    """Raise ResourceError where a rank with a share of the graph needs more than M bytes, with the largest --hidden that fits.

    Args: config, operator  of a training on all nodes; parts: P / c; M: bytes of a rank, as memory_of_rank.
    """
    n_classes = count_classes(y := targets_of(graph, config.on))
    width = max(graph.n_features, n_classes, config.hidden) * max(config.powers, 1)
    rows = graph.n_nodes if config.on == "nodes" and graph.edge_attr is None else max(graph.n_nodes, graph.nnz)
    row_bytes = ITEMSIZE[config.dtype] * ROWS * config.layers * rows * width
    if graph.X is None or y is None or row_bytes + NONZEROS * config.heads * 8 * graph.nnz < M:
        return
    try:
        if (
            memory_of_parts(GraphSizes.of_graph(graph), model_of(graph, config), config)(parts).training <= M
        ):  # with steps of all rows
            return
        training = PredictedTraining(graph, config, operator)
        need = training.memory(config.hidden, parts)
    except SpgnnError:  # of a model that looks at values, or that is refused when it is built
        return
    if need.training <= M:
        return
    step = config.heads if config.model == "gat" else 1
    widths = range(step, config.hidden if config.layers > 1 else 0, step)
    fitting = bisect_right(widths, M, key=lambda hidden: training.memory(hidden, parts).training)
    most = f"--hidden {widths[fitting - 1]} is the largest that fits" if fitting else "no --hidden fits"
    raise ResourceError(
        f"--hidden {config.hidden} does not fit: a rank needs {gigabytes(need.training)}, and has {gigabytes(M)} by "
        f"{f'--memory {config.memory}' if config.memory else 'its share of this host'}; {most}; "
        f"--dtype bfloat16 and ranks on more hosts need less\n  per rank: {need.arithmetic()}"
    )


def check_rank_fits(trainer: Trainer, config: TrainConfig, M: int) -> None:
    """Raise ResourceError where a rank, whose rows are set up, needs more than M bytes: of parts that were made before."""
    rows = getattr(trainer.steps, "rows", None)
    if rows is None:  # of parts that are trained alone
        return
    comm, own = trainer.comm, rows.operators[0].A_oo
    host = {"n_nodes": trainer.dgraph.n_nodes, "process_bytes": load_machine(Distribution.machine).process_bytes}
    try:
        need = rank_memory(rows.own_run(), n_ranks=comm.size, is_symmetric=own.transposed() is own, **host)
    except SpgnnError:  # of a model that looks at values
        return
    need = need if config.device == "cpu" else need.beside_device()
    if need.training > M:
        limit = f"--memory {config.memory}" if config.memory else "its share of this host"
        raise ResourceError(
            f"rank {comm.rank} needs {gigabytes(need.training)}, and has {gigabytes(M)} by {limit}; "
            f"use more ranks on more hosts, or --dtype bfloat16\n  {need.arithmetic()}"
        )


class PredictedTraining:
    """The memory of a training on all nodes for any --hidden, on one rank and on equal shares of it."""

    def __init__(self, graph: Graph, config: TrainConfig, operator: Norm):
        self.config = config
        self.planned = PlannedGraph(graph, "auto", 0, operator, config.split, config.seed)
        self.part = partition_of(graph, np.zeros(graph.n_nodes, np.int32), 1)
        training = PlannedTraining(self.planned, model_of(graph, config), config)
        steps = {"never": (False,), "always": (True,), "auto": (False, True)}[config.prune]
        steps = steps if training.is_pruned(self.part, 1) else (False,)
        self.reports = [training.report(self.part, "columns", 1, is_pruned=is_pruned) for is_pruned in steps]

    def memory(self, hidden: int, parts: int) -> RankMemory:
        """Return the least that a rank needs, with steps of all rows or of those that are pruned."""
        graph = self.planned.graph
        model = model_of(graph, replace(self.config, hidden=hidden)).model
        host = {"n_ranks": 1, "n_nodes": graph.n_nodes, "is_symmetric": self.planned.is_symmetric}
        process_bytes = load_machine(Distribution.machine).process_bytes
        found = []
        for report in self.reports:
            assert report.run is not None
            run = PlannedRanks(self.planned, self.part, replace(report, run=dry_run(model, report.run.setting))).on(0)
            need = rank_memory(run, process_bytes=process_bytes, **host).shared(parts)
            found.append(need if self.config.device == "cpu" else need.beside_device())
        return min(found, key=lambda need: need.training)


def model_of(graph: Graph, config: TrainConfig) -> FixedModel:
    """Return the model of a graph, without values."""
    return without_values(
        ModelSpec.of(config, graph.n_features, count_classes(targets_of(graph, config.on)), graph).build
    )


@contextmanager
def explaining_memory(trainer: Trainer) -> Iterator[None]:
    """Raise ResourceError with what the device has when it is out of memory."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        device, rank = trainer.dgraph.A.device, trainer.comm.rank
        free, total = torch.cuda.mem_get_info(device)
        raise ResourceError(
            f"rank {rank}: out of memory on {device}, which has {gigabytes(total)}, {gigabytes(free)} of them free; "
            f"use more ranks, each on its own device, a narrower model, or --dtype bfloat16"
        ) from error
