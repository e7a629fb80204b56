"""What a training chooses by itself, predicted from the graph and the partition: training nodes, scheme, row pruning.

Shapes: N nodes, k parts, P = k c ranks. Imports neither torch nor a communicator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..cost.auto import RankCounts, auto_scheme, pruning_saves
from ..cost.machines import Machine
from ..cost.pairs import count_pairs, grid_of, on_ranks, only_rows, reached_rows, reads, work_of
from ..errors import GraphError
from ..graph import Graph, given_split, labelled, random_split
from ..partition import Partition
from .volume_report import LayerVolume

if TYPE_CHECKING:
    from .plan import PlannedGraph


def train_nodes(graph: Graph, split: str, seed: int) -> np.ndarray:
    """Return the nodes whose labels are trained on, (N,) bool: those of `spgnn train --split SPLIT --seed SEED`.

    Raises: GraphError for a graph without labels, or without the split that is named; UsageError for another name.
    """
    split_N = given_split(graph.name, graph.split, split)
    if split_N is None and graph.y is None:
        raise GraphError(
            f"{graph.name} has neither a split nor labels, and row pruning needs training nodes; omit --prune"
        )
    if split_N is None:
        split_N = random_split(graph.y, seed)
    return split_N == 0 if graph.y is None else (split_N == 0) & labelled(graph.y)


def choose_scheme_of(planned: PlannedGraph, part: Partition, c: int, machine: Machine, itemsize: int = 4) -> str:
    """Return the scheme that --scheme auto takes on a machine as its ranks are placed."""
    grid, A, k = grid_of(part.k, c), planned.graph.A, part.k
    if grid.size == 1:
        return "columns"
    columns, cover = (count_pairs(A, part.owner_N, k, scheme) for scheme in ("columns", "cover"))
    multiplied, q = work_of(columns, grid), np.arange(k)
    loops_N = np.diff(planned.pattern.indptr) - np.diff(A.indptr)
    own_P = multiplied.own_P.copy()
    own_P[q * c + q // grid.n_stages] += np.bincount(part.owner_N, weights=loops_N, minlength=k).astype(np.int64)
    tables = (on_ranks(table_kk, grid) for table_kk in (columns.rows_kk, cover.rows_kk, cover.moved_kk))
    return auto_scheme(RankCounts(own_P, multiplied.ghost_P, np.repeat(part.sizes_k, c), *tables), machine, itemsize)[0]


def saves_by_pruning(
    planned: PlannedGraph, layers: Sequence[LayerVolume], c: int, eval_every: int, is_random: bool
) -> bool:
    """Return whether --prune auto computes only the rows that reach a training node.

    Args: layers     of a report of measure without pruning, each a chain A H W.
          is_random  a training pass differs from an evaluation, by dropout.
    """
    masks = reached_rows(planned.graph.A, planned.train_N, len(layers))
    masks.insert(0, masks[0] | reads(only_rows(planned.graph.A, masks[0])))
    everything = [np.ones_like(planned.train_N)] * len(masks)
    full, pruned = (
        sum(_work(planned, layer, of[layer.layer - 1], of[layer.layer], c) for layer in layers)
        for of in (everything, masks)
    )
    return pruning_saves(full, pruned, eval_every, is_random)


def _work(planned: PlannedGraph, layer: LayerVolume, in_N: np.ndarray, out_N: np.ndarray, c: int) -> int:
    """Return the multiply-adds of a layer's forward pass on all ranks; c ranks multiply the same rows with W."""
    rows_N = out_N if layer.order == "spmm_first" else in_N
    entries = int(rows_N.sum()) * layer.f_in
    if layer.layer == 1 and planned.has_sparse_input:
        x_N, kept_N = planned.left_N
        entries = int((kept_N if layer.is_kept else x_N)[rows_N].sum())
    nnz = 0 if layer.is_kept else int(np.diff(planned.pattern.indptr)[out_N].sum())
    return c * entries * layer.f_out + nnz * layer.width
