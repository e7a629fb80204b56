"""What a training chooses by itself, predicted from the graph and the partition: training nodes, scheme, row pruning.

Shapes: N nodes, k parts, P = k c ranks. Imports neither torch nor a communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..cost.auto import RankCounts, auto_scheme, pruning_saves
from ..cost.machines import Machine
from ..cost.pairs import count_pairs, grid_of, on_ranks, only_rows, reached_rows, reads, work_of
from ..graph import Graph, given_split, labelled, random_split, with_self_loops
from ..partition import Partition
from .volume_report import LayerVolume


def train_nodes(graph: Graph, split: str, seed: int) -> np.ndarray:
    """Return the nodes whose labels are trained on, (N,) bool: those of `spgnn train --split SPLIT --seed SEED`.

    Raises: GraphError for a graph without labels, or without the split that is named; UsageError for another name.
    """
    split_N = given_split(graph.name, graph.split, split)
    if split_N is None:
        split_N = random_split(graph.y, seed)
    return split_N == 0 if graph.y is None else (split_N == 0) & labelled(graph.y)


def choose_scheme_of(
    graph: Graph, part: Partition, c: int, machine: Machine, itemsize: int = 4, operator: str = "gcn"
) -> str:
    """Return the scheme that --scheme auto takes on a machine as its ranks are placed."""
    grid, A, k = grid_of(part.k, c), graph.in_use().A, part.k
    if grid.size == 1:
        return "columns"
    columns, cover = (count_pairs(A, part.owner_N, k, scheme) for scheme in ("columns", "cover"))
    multiplied = work_of(columns, grid)
    loops_k = np.zeros(k, np.int64)
    if operator == "gcn":
        added_N = np.diff(with_self_loops(A).indptr) - np.diff(A.indptr)
        loops_k = np.bincount(part.owner_N, weights=added_N, minlength=k).astype(np.int64)
    own_P, q = multiplied.own_P.copy(), np.arange(k)
    own_P[q * c + q // grid.n_stages] += loops_k
    tables = (on_ranks(table_kk, grid) for table_kk in (columns.rows_kk, cover.rows_kk, cover.moved_kk))
    return auto_scheme(RankCounts(own_P, multiplied.ghost_P, np.repeat(part.sizes_k, c), *tables), machine, itemsize)[0]


class PruningChoice:
    """Whether --prune auto takes the rows that reach the training nodes, in a training on parts held by c ranks.

    Args: layers    of a report of measure without pruning, all chains A H W.
          left_N    number of nonzeros of the sparse factor that layer 1 multiplies with W, a row each; None: it is dense.
          operator  of the adjacency matrix.
    """

    def __init__(self, graph: Graph, train_N: np.ndarray, operator: str = "gcn"):
        A = graph.in_use().A
        self.A, self.train_N = A, train_N
        self.lengths_N = np.diff((with_self_loops(A) if operator == "gcn" else A).indptr)

    def saves(
        self, layers: Sequence[LayerVolume], left_N: np.ndarray | None, c: int, eval_every: int, is_random: bool
    ) -> bool:
        masks = reached_rows(self.A, self.train_N, len(layers))
        masks.insert(0, masks[0] | reads(only_rows(self.A, masks[0])))
        work: Callable = lambda masks: sum(
            self._work(layer, in_N, out_N, left_N if layer.layer == 1 else None, c)
            for layer, in_N, out_N in zip(layers, masks, masks[1:])
        )
        full = work([np.ones_like(self.train_N)] * len(masks))
        return pruning_saves(full, work(masks), eval_every, is_random)

    def _work(self, layer: LayerVolume, in_N, out_N, left_N, c: int) -> int:
        """Return the multiply-adds of a layer forward on all ranks; each of c ranks multiplies the same rows with W."""
        rows_N = out_N if layer.order == "spmm_first" else in_N
        entries = int(rows_N.sum()) * layer.f_in if left_N is None else int(left_N[rows_N].sum())
        product_work = 0 if layer.is_kept else int(self.lengths_N[out_N].sum()) * layer.width
        return c * entries * layer.f_out + product_work
