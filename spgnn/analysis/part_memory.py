"""The memory that training a part of a graph takes, predicted from the sizes of the graph and a dry run of the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .rank_memory import RankMemory, rank_memory

if TYPE_CHECKING:
    from ..spmm.dry_operator import Setting
    from .epoch import FixedModel


def part_memory(
    model: FixedModel,
    setting: Setting,
    graph: dict[str, int],
    k: int,
    *,
    halo: float = 1.0,
    process_bytes: float,
    is_symmetric: bool = True,
) -> RankMemory:
    """Return the predicted memory of a process that trains a k-th of a graph alone.

    Args: model          of `analysis.epoch.without_values`; setting: of its runs, k parts.
          graph          counts of the whole graph: n and own_nnz, the nonzeros of A; x_nnz of sparse X.
          halo           rows of a part with its halo over n / k.
          process_bytes  of Python and torch before any graph, see Machine.
    A X of sparse features counts as X does.
    """
    share = min(halo / k, 1.0)
    n, nnz = math.ceil(share * graph["n"]), math.ceil(share * (graph["own_nnz"] + graph["n"]))  # with self-loops
    counts = {"n": n, "own_nnz": nnz} | dict.fromkeys(("s", "g", "f", "ghost_nnz", "sender_nnz"), 0)
    if setting.is_sparse:
        x_nnz = int(share * graph["x_nnz"])
        counts |= {"x_nnz": x_nnz, "cached_nnz": x_nnz} | ({"kept_nnz": x_nnz} if setting.is_cached else {})
    run = model.run(setting, is_pruned=False).on(counts)
    return rank_memory(run, n_ranks=1, n_nodes=n, process_bytes=process_bytes, is_symmetric=is_symmetric)
