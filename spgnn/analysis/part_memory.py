"""The memory that training a part of a graph takes, predicted from the sizes of the graph and a dry run of the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .memory import RankMemory, RankSizes, rank_memory

if TYPE_CHECKING:
    from .epoch import FixedModel


@dataclass(frozen=True, slots=True)
class TrainedGraph:
    """The sizes of a graph that is trained in parts: nodes, nonzeros, features; x_nnz of sparse X, None: dense."""

    n: int
    nnz: int
    features: int
    x_nnz: int | None = None
    is_symmetric: bool = True


def part_memory(
    model: FixedModel, graph: TrainedGraph, k: int, *, halo: float = 1.0, process_bytes: float, itemsize: int = 4,
    order: str = "auto", is_cached: bool = True,
) -> RankMemory:  # fmt: skip
    """Return the predicted memory of a process that trains a k-th of a graph alone.

    Args: model          of `analysis.epoch.without_values`; k parts.
          halo           rows of a part with its halo over n / k.
          process_bytes  of Python and torch before any graph, see Machine.
    A X of sparse features counts as X does.
    """
    from ..spmm.dry_operator import RankRows
    from .epoch import epoch_of, epoch_setting, rank_setting

    share = min(halo / k, 1.0)
    n, nnz = math.ceil(share * graph.n), math.ceil(share * (graph.nnz + graph.n))  # with self-loops
    x_nnz = None if graph.x_nnz is None else int(share * graph.x_nnz)
    setting = epoch_setting(
        graph.features, itemsize=itemsize, order=order, is_cached=is_cached, is_sparse=x_nnz is not None
    )
    run = epoch_of(model, setting).on(rank_setting(setting, RankRows(n, n), [], x_nnz, x_nnz, None))
    kept_nnz = x_nnz if x_nnz is not None and is_cached else None
    sizes = RankSizes(n, nnz, 0, x_nnz=x_nnz, kept_nnz=kept_nnz)
    return rank_memory(sizes, run, n_ranks=1, n_nodes=n, process_bytes=process_bytes, is_symmetric=graph.is_symmetric)
