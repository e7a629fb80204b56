"""A training before it runs: the graph that it reads, the nodes that it trains on, and what it chooses by itself.

LinkRows: the exchange of rows of pairs in the first epoch of links, whose draw is known.
Shapes: N nodes, k parts, P = k c ranks; T training links, K negatives of each, U updates. Imports no communicator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy.sparse as sp

from ..config import EMBEDDING, MeasureConfig, PlanConfig, TrainConfig
from ..config.names import ITEMSIZE, SCHEMES, Edges, On
from ..cost.machines import Machine
from ..cost.memory import array_bytes, csr_bytes, sum_bytes
from ..cost.pairs import count_pairs, grid_of, on_ranks, reached_rows
from ..cost.seconds import choose_pruning, choose_scheme
from ..errors import GraphError
from ..graph import WITH_LOOPS, Graph, given_split, labelled, random_split, split_as, with_self_loops
from ..graph.links import TRAIN, Links
from ..partition import Partition
from .volume_report import Exchange, VolumeReport
from .volumes import counts_of_all, measure, stays_sparse

if TYPE_CHECKING:
    from ..spmm.dry.dry import DryRun
    from .epoch import FixedModel


# Bytes of a link and of a node in lists of links, of negatives, of what is left out of ranks, and of where rows are; of a
# pair; arrays as large as learned rows: gradient, two moments of Adam, the best ones.
LINK_BYTES, NODE_BYTES, PAIR_BYTES, STATES = 120, 36, 21, 4


class LinkRows:
    """The rows that Objective exchanges in each update of LinkStep. Args: F columns of Z; row_bytes of a row of them."""

    def __init__(self, links: Links, config: MeasureConfig | PlanConfig | TrainConfig, F: int, row_bytes: int):
        from ..links.scored_pairs import negatives_of

        self.links, self.config, self.F, self.row_bytes, train_T = links, config, F, row_bytes, links.of(TRAIN)
        self.size, T = config.batch or len(train_T), len(train_T)
        self.n_updates = -(-T // self.size)
        order = np.random.default_rng([config.seed, 1]).permutation(T) if self.n_updates > 1 else np.arange(T)
        self.update_T = np.argsort(order) // self.size
        self.source_T, target_T = links.source_T[train_T], links.target_T[train_T]
        self.others_TK = target_T[:, None]
        if config.loss != "softmax":
            drawn = negatives_of(links, config.negatives, config.seed).draw(self.source_T, target_T, train_T, 1)
            self.others_TK = np.concatenate([self.others_TK, drawn[0]], axis=1)

    def rows(self, owner_N: np.ndarray, P: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows of all updates, (P, P), of which each has a node once, and the most of one in and out, (P,)."""
        N, rank_T = len(owner_N), owner_N[self.source_T].astype(np.int64)
        keys_TK = (self.update_T * P + rank_T)[:, None] * N + self.others_TK
        place, node = np.divmod(np.unique(keys_TK[owner_N[self.others_TK] != rank_T[:, None]]), N)
        update, rank = np.divmod(place, P)
        most = lambda of: np.bincount(update * P + of, minlength=self.n_updates * P).reshape(-1, P).max(axis=0)
        rows_PP = np.bincount(owner_N[node] * P + rank, minlength=P * P).reshape(P, P)
        return rows_PP, most(rank), most(owner_N[node])

    def added(self, report: VolumeReport) -> VolumeReport:
        """Return the report of an epoch: passes of each update, then rows of pairs, their ids, and gradients back."""
        U, rows_PP = self.n_updates, self.rows(report.pairs.partition.owner_N, report.k)[0]
        back = Exchange(0, "backward", "pairs", self.F, self.row_bytes + 4, rows_PP.T)  # ids travel as gradients do
        sent = (
            *(replace(of, rows_PP=of.rows_PP * U) for of in report.sent),
            replace(back, direction="forward", row_bytes=self.row_bytes, rows_PP=rows_PP),
            back,
        )
        exchanges, names = [exchange.to_dict() for exchange in sent], ("rows_sent", "bytes", "multiply_adds")
        layers = tuple(replace(of, **{name: U * getattr(of, name) for name in names}) for of in report.layers)
        total = sum(exchange["bytes"] for exchange in exchanges)
        return replace(report, sent=sent, exchanges=exchanges, layers=layers, bytes_per_epoch=total)

    def memory(self, owner_N: np.ndarray, P: int, is_learned: bool) -> list[dict[str, int]]:
        """Return the bytes that links take of each rank: of lists, of rows and gradients of pairs, of learned rows."""
        n_P, (_, in_P, out_P) = np.bincount(owner_N, minlength=P), self.rows(owner_N, P)
        lists = LINK_BYTES * len(self.links.split_T) + NODE_BYTES * len(owner_N)
        lists += PAIR_BYTES * (1 + self.others_TK.shape[1]) * min(self.size, len(self.source_T)) // P
        tables_P = self.row_bytes * (2 * n_P + 3 * in_P + out_P if P > 1 else n_P)
        learned_P = STATES * n_P * self.config.hidden * self.row_bytes // self.F * is_learned
        parts = zip(tables_P.tolist(), learned_P.tolist())
        return [{"links": lists, "rows of pairs": rows, "learned rows": learned} for rows, learned in parts]


class PlannedGraph:
    """A graph and what the plan asks of it, each found once.

    Args: stored       as it was read; edges how it is used.
          n_features   of the dense float32 X that a training reads where the graph has none.
          operator     of the adjacency matrix, see `normalise`.
          split, seed  which nodes train, see `train_nodes`.
          on           links: they are split, and the graph has the message edges; relations: with their relations.
    """

    def __init__(
        self,
        stored: Graph,
        edges: Edges = "auto",
        n_features: int = 0,
        operator: str = "gcn",
        split: str = "auto",
        seed: int = 0,
        on: On | Literal["relations"] = "nodes",
    ):
        used = stored.with_edges(edges)
        self.graph = split_as(used, split, seed, on == "relations") if on in ("links", "relations") else used
        self.operator, self.split, self.seed = operator, split, seed
        self.is_symmetric = self.graph.is_both_ways
        A, X = used.A, used.X
        x_bytes = 4 * stored.n_nodes * n_features if X is None else array_bytes(X)
        if isinstance(X, sp.csr_array):
            x_bytes = csr_bytes(X.nnz, len(X.indptr), 4)
        self.read = {  # what rank 0 reads
            "nodes": stored.n_nodes,
            "stored_nnz": stored.nnz,
            "nnz": A.nnz,
            "x_bytes": x_bytes,
            "y_bytes": array_bytes(stored.y),
            "is_symmetrised": A is not stored.A,
        }

    @property
    def has_sparse_input(self) -> bool:
        return sp.issparse(self.graph.X)

    @cached_property
    def pattern(self) -> sp.csr_array:
        """The nonzeros that layers multiply with: A, with the self-loops of the operator."""
        return with_self_loops(self.graph.A) if self.operator in WITH_LOOPS else self.graph.A

    @cached_property
    def keeps_sparse(self) -> bool:
        """A X of sparse X is worth keeping, as distribute decides it."""
        return stays_sparse(self.graph, self.pattern)

    @cached_property
    def left_N(self) -> tuple[np.ndarray, ...]:
        """Nonzeros of each row of X, and of A X where it is kept, (N,) int64."""
        X: sp.csr_array = self.graph.X
        x_N = np.diff(X.indptr).astype(np.int64)
        if not self.keeps_sparse:
            return (x_N,)
        ones = lambda M: sp.csr_array((np.ones(M.nnz, np.float32), M.indices, M.indptr), shape=M.shape)
        return x_N, np.diff((ones(self.pattern) @ ones(X)).indptr).astype(np.int64)

    @cached_property
    def train_N(self) -> np.ndarray:
        """The nodes whose labels are trained on, (N,) bool."""
        return train_nodes(self.graph, self.split, self.seed)


def train_nodes(graph: Graph, split: str, seed: int) -> np.ndarray:
    """Return the nodes whose labels are trained on, (N,) bool, as `spgnn train --split SPLIT --seed SEED` has them.

    Raises: GraphError for a graph without labels, or without the split that is named; UsageError for another name.
    """
    split_N = given_split(graph.name, graph.split, split)
    if split_N is None and graph.y is None:
        raise GraphError(f"{graph.name} has no split and no labels, and row pruning needs training nodes; omit --prune")
    if split_N is None:
        split_N = random_split(graph.y, seed)
    return split_N == 0 if graph.y is None else (split_N == 0) & labelled(graph.y)


class PlannedTraining:
    """A training on the parts of a graph: what an epoch sends, and the choices that the training makes by itself.

    Args: planned  its graph; layers: its model, None: rows alone are predicted.
          config   options of the training, or of a command that predicts it.
    """

    def __init__(
        self, planned: PlannedGraph, layers: FixedModel | None, config: MeasureConfig | PlanConfig | TrainConfig
    ):
        self.planned, self.layers, self.config = planned, layers, config
        self.itemsize = ITEMSIZE[config.dtype]
        self._is_pruned: dict[int, bool] = {}

    @cached_property
    def links(self) -> LinkRows | None:
        """The rows of pairs of links, None of other trainings."""
        if (links := self.planned.graph.links) is None or self.layers is None:
            return None
        from ..layers.stack import layers_of

        F = layers_of(self.layers.model)[-1].f_out
        return LinkRows(links, self.config, F, F * sum_bytes(self.itemsize))

    def report(
        self, part: Partition, scheme: str, c: int, ranks_per_host: int = 0, is_pruned: bool = False
    ) -> VolumeReport:
        """Return what an epoch sends; is_pruned: its steps compute only the rows that reach a training node."""
        planned, options = self.planned, {}
        if self.layers is not None:
            options = {name: getattr(self.config, name) for name in ("order", "keep", "wire", "wire_gradients")}
            options |= {"sparse_input": True, "keep_sparse": planned.keeps_sparse} if planned.has_sparse_input else {}
            is_learned = getattr(self.config, "features", "") == EMBEDDING
            options |= {"keep": False, "input_gradient": True} if is_learned else {}
        train_N = planned.train_N if is_pruned else None
        grid = grid_of(part.k, c, ranks_per_host)
        report = measure(
            planned.graph, part, scheme, (), grid, self.itemsize, model=self.layers, train_N=train_N, **options
        )
        return report if self.links is None else self.links.added(report)

    def scheme(self, part: Partition, c: int, machine: Machine, names: Sequence[str] = SCHEMES) -> str:
        """Return the scheme that --scheme auto takes on a machine as its ranks are placed, of these names."""
        grid, A = grid_of(part.k, c, machine.ranks_per_host), self.planned.graph.A
        if grid.size == 1 or len(names) == 1:
            return "columns" if len(names) > 1 else names[0]
        loops_N = np.diff(self.planned.pattern.indptr) - np.diff(A.indptr)
        loops_k = np.bincount(part.owner_N, weights=loops_N, minlength=part.k).astype(np.int64)
        columns = count_pairs(A, part, grid, "columns")
        multiplied = columns.with_loops(loops_k)
        counts = {"own_nnz": multiplied.own_P, "ghost_nnz": multiplied.ghost_P, "n": np.repeat(part.sizes_k, c)}
        if "columns" in names:
            counts["columns_PP"] = columns.rows_PP
        if "cover" in names:
            cover = count_pairs(A, part, grid, "cover")
            counts |= {"cover_PP": cover.rows_PP, "moved_PP": on_ranks(cover.moved_kk, grid)}
        if "two-tier" in names and grid.is_tiered:
            tiers = count_pairs(A, part, grid, "two-tier")
            counts |= {"two_tier_PP": tiers.rows_PP, "two_tier_moved_PP": tiers.moved_kk}
        return choose_scheme(counts, machine, self.itemsize)[0]

    def is_pruned(self, part: Partition, c: int) -> bool:
        """Return whether steps prune rows, if memory takes it. That depends on the replication alone, and is decided once."""
        config, planned = self.config, self.planned
        if config.prune != "auto" or planned.graph.y is None or self.layers is None:
            return config.prune == "always" and planned.graph.links is None
        if c not in self._is_pruned:
            run = self.report(part, "columns", c).run
            self._is_pruned[c] = run is not None and self._saves(run, self.layers, c)
        return self._is_pruned[c]

    def _saves(self, run: DryRun, layers: FixedModel, c: int) -> bool:
        """Return whether pruned steps save work; run: of steps of all rows."""
        planned, (hops, problem) = self.planned, layers.hops(run.setting)
        if problem:
            return False
        masks = reached_rows(planned.graph.A, planned.train_N, hops)
        whole = [np.ones_like(planned.train_N)] * len(masks)
        full, less = self._work(run, whole, c), self._work(layers.run(run.setting, True), masks, c)
        return choose_pruning(full, less, self.config.eval_every, bool(layers.model.is_random))[0]

    def _work(self, run: DryRun, masks: Sequence[np.ndarray], c: int) -> int:
        """Return the multiply-adds of a forward pass on all ranks; c ranks multiply the same rows with weights.

        Args: masks  T_0 ... T_L, the rows of H that layers read and give, (N,) bool each.
        """
        planned = self.planned
        left_N = planned.left_N if run.setting.is_sparse else ()
        counts = counts_of_all(run.setting, masks if run.setting.steps else (), left_N, planned.pattern.indptr)
        forward = run.on({"n": len(masks[0])} | counts).passes("forward")
        lengths_N = np.diff(planned.pattern.indptr)
        nnz = [int(lengths_N[out_N].sum()) for out_N in masks]
        return c * forward.multiply_adds + sum(nnz[of.layer or 0] * of.width for of in forward.multiplied)
