"""Predict the peak memory of every rank of a training, part by part, from counts and a dry run of the model.

Shapes: N nodes, n own rows, g ghost rows, s sent rows, F features, P ranks. Bytes throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..cost.memory import (
    EDGES_PER_NONZERO,
    LABEL_BYTES,
    LEFT_PER_NONZERO,
    METIS_GROWS,
    METIS_PER_DOUBLING,
    METIS_PER_NONZERO,
    MOST_DOUBLINGS,
    MPI_BYTES,
    POINTER,
    SCORE_BYTES,
    TRAINING_BYTES,
    csr_bytes,
    nonzero_bytes,
    sum_bytes,
)
from ..partition.stream import STREAMING
from ..spmm.kernels.tile_rule import tile_bytes

if TYPE_CHECKING:
    from ..spmm.dry import DryRun

PROCESS, WEIGHTS, LEFT = "process", "weights and optimiser", "left over from loading"
GHOSTS, BUFFERS, TILES = "ghost rows of X", "activations and exchange buffers", "tiles"
BEFORE_KEPT, PRUNED = "X until A X is kept", "operator and features of pruned rows"


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
    run: DryRun,
    *,
    n_ranks: int,
    n_nodes: int,
    process_bytes: float,
    is_symmetric: bool = True,
    root: Mapping[str, int] | None = None,
    method: str = "metis",
) -> RankMemory:
    """Return the predicted memory of one rank.

    Args: run            of the model, on the counts of the rank: the names of Setting, and nonzeros of its blocks: own_nnz,
                         ghost_nnz and sender_nnz, own_nnz1 ... in a pruned step; kept_nnz of A X that training reads sparse.
          process_bytes  of Python and torch before any graph: Machine.process_bytes.
          is_symmetric   the own block is its own transpose.
          root           counts of the graph that this rank reads and hands out, for rank 0 without --partition: nodes,
                         stored_nnz and nnz as used, x_bytes, y_bytes, is_symmetrised.
          method         partitioner that rank 0 runs.
    """
    counts, itemsize, copies = run.setting.counts, run.setting.dtype.itemsize, 1 if is_symmetric else 2
    n, kept_nnz = counts["n"], counts.get("kept_nnz")
    parts = {PROCESS: process_bytes + TRAINING_BYTES + (MPI_BYTES if n_ranks > 1 else 0)}
    parts["operator"] = _operator(counts, copies, itemsize)
    tiles = copies * _tiles(run)
    if run.setting.is_sparse:
        # X, its transpose for the gradient or A X with its own, and what making that leaves.
        left = counts["x_nnz"] if kept_nnz is None else kept_nnz
        held = counts["x_nnz"] + 2 * left + (kept_nnz or 0)
        parts["features"] = csr_bytes(held, n, itemsize)
        if kept_nnz is not None or not run.reads_input:  # of the transpose, whose rows are the features
            width = next((product.shape[1] for product in run.products if product.shape), 0) * itemsize
            tiles += tile_bytes(run.setting.features, n, left, width, nonzero_bytes(itemsize))
    else:
        parts["features"] = dense_features(run)
    if ghosts := ghost_features(run):
        parts[GHOSTS] = ghosts
    if own_steps(run):
        parts[PRUNED] = step_features(run)
        for number in own_steps(run):
            parts[PRUNED] += _operator(counts, 2, itemsize, number)
            tiles += 2 * _tiles(run, number)
    parts[TILES], parts[BUFFERS] = tiles, run.buffer_bytes
    if not run.setting.is_sparse:
        parts[BEFORE_KEPT] = before_kept(run, tiles + parts[BUFFERS])
    parts[WEIGHTS] = 8 * run.n_weights * sum_bytes(itemsize)
    parts["labels, scores, predictions"] = LABEL_BYTES * n + SCORE_BYTES * n_nodes
    loading = 0
    if root is not None:
        parts[LEFT] = LEFT_PER_NONZERO * root["nnz"]
        loading = int(parts[PROCESS]) - int(TRAINING_BYTES) + _loading(root, n_ranks, method)
    return RankMemory({name: int(value) for name, value in parts.items()}, int(loading))


def _loading(root: Mapping[str, int], n_ranks: int, method: str) -> float:
    """Return the most that rank 0 holds in addition to the process while it reads, partitions and hands out the graph."""
    from ..distgraph.scatter import ROUND_BYTES

    nnz, n, x_bytes = root["nnz"], root["nodes"], root["x_bytes"]
    graph = nnz * 8 + n * 8 + x_bytes + root["y_bytes"]
    stored = root["stored_nnz"] * 8 + n * 8 if root["is_symmetrised"] else 0
    edges = EDGES_PER_NONZERO * nnz if root["is_symmetrised"] else 0
    partition = partition_bytes(nnz, method) if n_ranks > 1 else 0
    given, largest = nnz * 8 + x_bytes, max(nnz * 8, x_bytes)
    a_round = min(largest, max(ROUND_BYTES, largest / n_ranks))
    # Rank 0's own rows, and those that are copied for a round.
    handing = given / n_ranks + a_round if n_ranks > 1 else 0
    return graph + stored + max(edges, partition, handing)


def partition_bytes(nnz: int, method: str) -> float:
    """Return the bytes that a partitioner needs in addition to the graph: METIS's for all that do not take one edge after the other."""
    if method in STREAMING or method in ("block", "random"):
        return 0.0
    doublings = np.clip(np.log2(max(nnz, 1) / METIS_GROWS), 0, MOST_DOUBLINGS)
    return float(nnz * (METIS_PER_NONZERO + METIS_PER_DOUBLING * doublings))


def own_steps(run: DryRun) -> list[str]:
    """Return the numbers of the layers of a pruned step that have an operator: not of one that takes rows of A X."""
    return [str(number + 1) for number in range(run.setting.step_is_cached, len(run.setting.steps))]


def rows_out(counts: Mapping[str, int], step: str) -> int:
    """Return the rows of an operator; step: number of the layer of a pruned step, "" of all rows."""
    return counts[f"T{step}"] if step else counts["n"]


def _operator(counts: Mapping[str, int], copies: int, itemsize: int, step: str = "") -> int:
    """Return the bytes of the blocks of an operator, with the transposes that backward multiplies with."""
    own_nnz, ghost_nnz, sender_nnz, g, s = (counts[x + step] for x in ("own_nnz", "ghost_nnz", "sender_nnz", "g", "s"))
    n = rows_out(counts, step)
    others = 2 * (ghost_nnz + sender_nnz) * nonzero_bytes(itemsize) + POINTER * (n + g + 3 * s)
    return copies * csr_bytes(own_nnz, n, itemsize) + others


def _tiles(run: DryRun, step: str = "") -> int:
    """Return the bytes of the tiles of the own and the ghost block."""
    counts, nonzero = run.setting.counts, nonzero_bytes(run.setting.dtype.itemsize)
    n, blocks = rows_out(counts, step), (("own_nnz", None), ("ghost_nnz", "g"))
    columns = lambda g: n if g is None else counts[g + step]
    return sum(tile_bytes(n, columns(g), counts[nnz + step], run.widest_sum, nonzero) for nnz, g in blocks)


def dense_features(run: DryRun) -> int:
    """Return the bytes of dense X and of A X; one of them where training reads no other."""
    return run.setting.counts["n"] * run.setting.features * run.setting.dtype.itemsize * (2 if _keeps_both(run) else 1)


def _keeps_both(run: DryRun) -> bool:
    """Return whether both dense X and A X are kept: a layer adds X, dropout acts on it, or a pruned step takes rows of it."""
    takes_rows = bool(run.setting.steps) and not run.setting.step_is_cached
    return run.setting.is_cached and (run.reads_input or takes_rows)


def ghost_features(run: DryRun) -> int:
    """Return the bytes of the cached ghost rows of X: of steps, and of evaluations of all rows."""
    setting, counts, total = run.setting, run.setting.counts, 0
    reads = {of.pass_name for of in run.products if of.kind == "cached ghosts" and of.pass_name != "backward"}
    for pass_name in reads if setting.steps else sorted(reads)[:1]:  # pruned steps have ghost rows of their own
        is_step = pass_name == "forward" and "1" in own_steps(run) and setting.steps[0]
        g = counts["g1" if is_step else "g"]
        if not setting.is_sparse:
            total += g * setting.features * setting.dtype.itemsize
        elif g:  # with the transpose for the gradient, which dropout fills by places
            nnz = (4 if run.reads_input else 2) * counts["x_ghost_nnz"] * g // counts["g"]
            total += csr_bytes(nnz, g + setting.features, setting.dtype.itemsize)
    return total


def step_features(run: DryRun) -> int:
    """Return the bytes of the rows of X, or of A X, that a pruned training step reads: a copy."""
    setting, counts = run.setting, run.setting.counts
    rows = counts["T1" if setting.step_is_cached else "T0"]
    if not setting.is_sparse:
        return rows * setting.features * setting.dtype.itemsize
    return csr_bytes(2 * counts["step_nnz"], rows, setting.dtype.itemsize)


def before_kept(run: DryRun, later: int) -> int:
    """Return what dense X and the buffers of making A X take beyond `later`, the bytes that their memory has from then on."""
    counts, itemsize = run.setting.counts, run.setting.dtype.itemsize
    if not run.setting.is_cached:
        return 0
    n, g, s = counts["n"], counts["g"], counts["s"]
    wide_sum = n * 4 if itemsize == 2 and (g or s) else 0  # bfloat16 is added up in float32
    x = 0 if _keeps_both(run) else n
    return max(0, ((x + g + s) * itemsize + wide_sum) * run.setting.features - later)


def largest_rank(memories: Sequence[RankMemory]) -> tuple[int, RankMemory]:
    """Return the rank with the largest peak, and its memory."""
    rank = int(np.argmax([m.peak for m in memories]))
    return rank, memories[rank]
