"""What a training chooses by itself, predicted from the graph and the partition: scheme, row pruning.

Shapes: N nodes, k parts, P = k c ranks. Imports no communicator, and torch for pruning alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..config.names import SCHEMES
from ..cost.choose import choose_pruning, choose_scheme
from ..cost.machines import Machine
from ..cost.pairs import count_pairs, grid_of, on_ranks, reached_rows
from ..partition import Partition
from .exchanges import counts_of_all
from .planned_graph import PlannedGraph
from .volume_report import VolumeReport

if TYPE_CHECKING:
    from ..spmm.dry.dry import DryRun
    from .epoch import FixedModel


def predict_scheme(
    planned: PlannedGraph, part: Partition, c: int, machine: Machine, itemsize: int = 4, names: Sequence[str] = SCHEMES
) -> str:
    """Return the scheme that a training with --scheme auto takes on a machine as its ranks are placed, of these names."""
    grid, A = grid_of(part.k, c, machine.ranks_per_host), planned.graph.A
    if grid.size == 1 or len(names) == 1:
        return "columns" if len(names) > 1 else names[0]
    loops_N = np.diff(planned.pattern.indptr) - np.diff(A.indptr)
    loops_k = np.bincount(part.owner_N, weights=loops_N, minlength=part.k).astype(np.int64)
    columns = count_pairs(A, part, grid, "columns")
    multiplied, counts = columns.with_loops(loops_k), {}
    if "columns" in names:
        counts |= {"columns_PP": columns.rows_PP}
    if "cover" in names:
        cover = count_pairs(A, part, grid, "cover")
        counts |= {"cover_PP": cover.rows_PP, "moved_PP": on_ranks(cover.moved_kk, grid)}
    if "two-tier" in names and grid.is_tiered:
        tiers = count_pairs(A, part, grid, "two-tier")
        counts |= {"two_tier_PP": tiers.rows_PP, "two_tier_moved_PP": tiers.moved_kk}
    counts |= {"own_nnz": multiplied.own_P, "ghost_nnz": multiplied.ghost_P, "n": np.repeat(part.sizes_k, c)}
    return choose_scheme(counts, machine, itemsize)[0]


def saves_by_pruning(planned: PlannedGraph, layers: FixedModel, report: VolumeReport, eval_every: int) -> bool:
    """Return whether --prune auto computes only the rows that reach a training node.

    Args: report  of measure without pruning.
    """
    if layers.why_whole(report.run.setting):
        return False
    pruned, masks = layers.run(report.run.setting, True), reached_rows(planned.graph.A, planned.train_N, layers.hops)
    everything, c = [np.ones_like(planned.train_N)] * len(masks), report.replication
    full, less = (_work(planned, run, of, c) for run, of in ((report.run, everything), (pruned, masks)))
    return choose_pruning(full, less, eval_every, layers.model.is_random)[0]


def _work(planned: PlannedGraph, run: DryRun, masks: Sequence[np.ndarray], c: int) -> int:
    """Return the multiply-adds of a forward pass on all ranks; c ranks multiply the same rows with weights.

    Args: masks  T_0 ... T_L, the rows of H that layers read and give, (N,) bool each.
    """
    left_N = planned.left_N if run.setting.is_sparse else ()
    counts = counts_of_all(run.setting, masks if run.setting.steps else (), left_N, planned.pattern.indptr)
    total = run.on({"n": len(masks[0])} | counts)
    lengths_N = np.diff(planned.pattern.indptr)
    nnz = [int(lengths_N[out_N].sum()) for out_N in masks]
    forward = total.passes("forward")
    return c * forward.multiply_adds + sum(nnz[of.layer or 0] * of.width for of in forward.multiplied)
