"""Predict the peak memory of every rank of a training, part by part, from sizes and a dry run of the model.

Shapes: N nodes, n own rows, g ghost rows, s sent rows, F features, P ranks. Bytes throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..partition.stream import STREAMING
from ..spmm.kernels.tile_rule import tile_bytes

if TYPE_CHECKING:
    from ..spmm.dry import DryRun

# Seen with the system's allocator, see docs/plan.md: bytes a nonzero while rank 0 adds reverse edges, and while METIS
# cuts, which from METIS_GROWS nonzeros on are more for each doubling; what of that stays in the allocator's lists;
# libraries that start with training.
EDGES_A_NONZERO, METIS_A_NONZERO, METIS_A_DOUBLING, LEFT_A_NONZERO = 18, 100, 15, 2
METIS_GROWS, MOST_DOUBLINGS = 4e6, 3
TRAINING_BYTES = 28e6
MPI_BYTES = 16e6
GHOSTS = "ghost rows of X"
BEFORE_KEPT, PRUNED = "X until A X is kept", "operator and features of pruned rows"


@dataclass(frozen=True, slots=True)
class RankSizes:
    """What one rank holds: rows and nonzeros of its blocks, rows of an exchange, nonzeros of sparse X and A X."""

    n: int
    own_nnz: int
    ghost_nnz: int
    g: int = 0
    s: int = 0
    sender_nnz: int = 0
    x_nnz: int | None = None  # None: X is dense
    kept_nnz: int | None = None  # of A X where training reads it sparse


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """The graph that rank 0 reads: nodes, nonzeros as stored and as used, bytes of features and labels."""

    n: int
    stored_nnz: int
    nnz: int
    x_bytes: int
    y_bytes: int
    is_symmetrised: bool


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Predicted bytes of a rank by what takes them; peak is the larger of loading and training."""

    parts: dict[str, int] = field(default_factory=dict)
    loading: int = 0

    @property
    def training(self) -> int:
        return sum(self.parts.values())

    @property
    def peak(self) -> int:
        return max(self.training, self.loading)

    @property
    def largest(self) -> str:
        """Return the part that takes most: what to shrink first."""
        if self.loading > self.training:
            return "reading and partitioning the graph on rank 0"
        return max(self.parts, key=self.parts.__getitem__)


def rank_memory(
    sizes: RankSizes,
    run: DryRun,
    *,
    n_ranks: int,
    n_nodes: int,
    process_bytes: float,
    is_symmetric: bool = True,
    steps: Sequence[RankSizes] = (),
    root: GraphSizes | None = None,
    method: str = "metis",
    index_bytes: int = 4,
) -> RankMemory:
    """Return the predicted memory of one rank.

    Args: sizes          of this rank; run: of the model, in terms of its rows.
          process_bytes  of Python and torch before any graph: Machine.process_bytes.
          is_symmetric   the own block is its own transpose.
          steps          the layers of a pruned training step that have their own operator.
          root           the graph that this rank reads and hands out, for rank 0 without --partition.
          method         partitioner that rank 0 runs.
    """
    s, setting, itemsize = sizes, run.setting, run.setting.dtype.itemsize
    nonzero = index_bytes + max(itemsize, 4)
    copies = 1 if is_symmetric else 2
    parts = {"process": int(process_bytes + TRAINING_BYTES + (MPI_BYTES if n_ranks > 1 else 0))}
    parts["operator"] = _operator(s, copies, nonzero)
    tiles = copies * _tiles(s, run, nonzero)
    if s.x_nnz is None:
        parts["features"] = s.n * setting.features * itemsize * (2 if keeps_both(run) else 1)
    else:
        # X, its transpose for the gradient or A X with its own, and what making that leaves.
        left = s.x_nnz if s.kept_nnz is None else s.kept_nnz
        parts["features"] = s.x_nnz * nonzero + 8 * s.n + 2 * nonzero * left
        parts["features"] += 0 if s.kept_nnz is None else nonzero * s.kept_nnz
        if s.kept_nnz is not None or not run.reads_input:  # of the transpose, whose rows are the features
            tiles += tile_bytes(setting.features, s.n, left, _first_width(run) * itemsize, nonzero)
    ghosts = ghost_features(s, run, nonzero)
    if ghosts:
        parts[GHOSTS] = ghosts
    if steps:
        parts[PRUNED] = sum(_operator(step, 2, nonzero) for step in steps) + step_features(s, run, nonzero)
        tiles += 2 * sum(_tiles(step, run, nonzero) for step in steps)
    parts["tiles"] = tiles
    parts["activations and exchange buffers"] = run.buffer_bytes
    if s.x_nnz is None:
        parts[BEFORE_KEPT] = before_kept(s, run, tiles + parts["activations and exchange buffers"])
    parts["weights and optimiser"] = 8 * run.n_weights * max(itemsize, 4)
    parts["labels, scores, predictions"] = 60 * s.n + 24 * n_nodes
    loading = 0
    if root is not None:
        parts["left over from loading"] = LEFT_A_NONZERO * root.nnz
        loading = parts["process"] - int(TRAINING_BYTES) + _loading(root, n_ranks, method)
    return RankMemory({name: int(value) for name, value in parts.items()}, int(loading))


def _loading(root: GraphSizes, n_ranks: int, method: str) -> float:
    """Return the most that rank 0 holds beside the process while it reads, partitions and hands out the graph."""
    from ..distgraph.scatter import ROUND_BYTES

    graph = root.nnz * 8 + root.n * 8 + root.x_bytes + root.y_bytes
    stored = root.stored_nnz * 8 + root.n * 8 if root.is_symmetrised else 0
    edges = EDGES_A_NONZERO * root.nnz if root.is_symmetrised else 0
    partition = partition_bytes(root.nnz, method) if n_ranks > 1 else 0
    given, largest = root.nnz * 8 + root.x_bytes, max(root.nnz * 8, root.x_bytes)
    a_round = min(largest, max(ROUND_BYTES, largest / n_ranks))
    # Rank 0's own rows, and those that are copied for a round.
    handing = given / n_ranks + a_round if n_ranks > 1 else 0
    return graph + stored + max(edges, partition, handing)


def _operator(sizes: RankSizes, copies: int, nonzero: int) -> int:
    """Return the bytes of the blocks of an operator, with the transposes that backward multiplies with."""
    s = sizes
    own = copies * (s.own_nnz * nonzero + 8 * s.n)
    return own + 2 * (s.ghost_nnz + s.sender_nnz) * nonzero + 8 * (s.n + s.g + 3 * s.s)


def partition_bytes(nnz: int, method: str) -> float:
    """Return the bytes of a partitioner beside the graph: METIS's for all that do not take one edge after the other."""
    if method in STREAMING or method in ("block", "random"):
        return 0.0
    doublings = np.clip(np.log2(max(nnz, 1) / METIS_GROWS), 0, MOST_DOUBLINGS)
    return float(nnz * (METIS_A_NONZERO + METIS_A_DOUBLING * doublings))


def keeps_both(run: DryRun) -> bool:
    """Return whether dense X stays beside A X: a layer adds X, dropout acts on it, or a pruned step takes rows of it."""
    takes_rows = bool(run.setting.steps) and not run.setting.step_is_cached
    return run.setting.is_cached and (run.reads_input or takes_rows)


def reads_ghosts(run: DryRun) -> set[str]:
    """Return the passes that read cached ghost rows of X, of which pruned steps have their own."""
    reads = lambda product: product.rows == "cached ghosts" and product.pass_name != "backward"
    passes = {product.pass_name for product in run.products if reads(product)}
    return passes if run.setting.steps else set(sorted(passes)[:1])


def ghost_features(sizes: RankSizes, run: DryRun, nonzero: int) -> int:
    """Return the bytes of the cached ghost rows of X: of steps, and of evaluations of all rows."""
    setting, total = run.setting, 0
    for pass_name in reads_ghosts(run):
        step = setting.steps[0].ghosts if setting.steps and pass_name == "forward" else ()
        g = step[1] if step else sizes.g
        if sizes.x_nnz is None:
            total += g * setting.features * setting.dtype.itemsize
        elif g:  # with the transpose for the gradient, which dropout fills by places
            arrays = 4 if run.reads_input else 2
            total += arrays * nonzero * (setting.ghost_nnz or 0) * g // sizes.g + 8 * (g + setting.features)
    return total


def step_features(sizes: RankSizes, run: DryRun, nonzero: int) -> int:
    """Return the bytes of the rows of X, or of A X, that a pruned training step reads: a copy."""
    setting = run.setting
    rows = setting.steps[0].n if setting.step_is_cached else setting.steps[0].m
    if sizes.x_nnz is None:
        return rows * setting.features * setting.dtype.itemsize
    return 2 * nonzero * setting.step_nnz + 8 * rows


def before_kept(sizes: RankSizes, run: DryRun, later: int) -> int:
    """Return what dense X and the buffers of making A X take beyond `later`, the bytes that their memory has from then on."""
    s, itemsize = sizes, run.setting.dtype.itemsize
    if not run.setting.is_cached:
        return 0
    x = 0 if keeps_both(run) else s.n
    wide_sum = s.n * 4 if itemsize == 2 and (s.g or s.s) else 0  # bfloat16 is added up in float32
    return max(0, ((x + s.g + s.s) * itemsize + wide_sum) * run.setting.features - later)


def _tiles(sizes: RankSizes, run: DryRun, nonzero: int) -> int:
    """Return the bytes of the tiles of the own and the ghost block."""
    s = sizes
    return sum(tile_bytes(s.n, m, nnz, run.widest_sum, nonzero) for m, nnz in ((s.n, s.own_nnz), (s.g, s.ghost_nnz)))


def _first_width(run: DryRun) -> int:
    """Return the columns of the product of sparse X, or A X, with the first weight."""
    return next((product.shape[1] for product in run.products if product.shape), 0)


def largest_rank(memories: Sequence[RankMemory]) -> tuple[int, RankMemory]:
    """Return the rank with the largest peak, and its memory."""
    rank = int(np.argmax([m.peak for m in memories]))
    return rank, memories[rank]
