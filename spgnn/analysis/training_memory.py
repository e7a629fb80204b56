"""Predict the peak memory of a rank, and of a process that trains a part alone.

Item by item, from counts and a dry run of the model.

Shapes: N nodes, n own rows, g ghost rows, s sent rows, F features, P ranks. Bytes throughout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ..cost.memory import MPI_BYTES, POINTER, csr_bytes, nonzero_bytes, sum_bytes
from ..partition.stream import STREAMING
from ..spmm.kernels.tile_rule import tile_bytes

if TYPE_CHECKING:
    from ..spmm.dry.dry import DryRun
    from ..spmm.dry.dry_operator import Setting
    from .epoch import FixedModel

PROCESS, WEIGHTS, LEFT = "process", "weights and optimiser", "left over from loading"
GHOSTS, BUFFERS, TILES = "ghost rows of X", "activations and exchange buffers", "tiles"
BEFORE_KEPT, PRUNED = "X until A X is kept", "operator and features of pruned rows"
OF_ANY_RANK = (PROCESS, WEIGHTS, LEFT)  # do not depend on the rows of a rank
# Seen with glibc's allocator, see docs/performance.md: bytes per nonzero while rank 0 adds reverse edges, and while METIS
# cuts, which from METIS_GROWS nonzeros on are more for each doubling; what of that stays in the allocator's lists.
EDGES_PER_NONZERO, METIS_PER_NONZERO, METIS_PER_DOUBLING, LEFT_PER_NONZERO = 18, 100, 15, 2
METIS_GROWS, MOST_DOUBLINGS = 4e6, 3
TRAINING_BYTES = 28e6  # libraries that start with training
LABEL_BYTES, SCORE_BYTES = 60, 24  # labels and masks per own node; scores and predictions per node of the graph


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

    def shared(self, ranks: int) -> RankMemory:
        """Return the memory of one of several ranks with equal shares of the rows."""
        parts = {name: size if name in OF_ANY_RANK else size // ranks for name, size in self.parts.items()}
        return replace(self, parts=parts)

    def arithmetic(self) -> str:
        """Return 1.2 GB operator + ... = 3 GB, the largest first."""
        largest_first = sorted(self.parts.items(), key=lambda part: -part[1])
        sums = " + ".join(f"{gigabytes(size)} {name}" for name, size in largest_first if size >= 0.005 * self.training)
        return f"{sums} = {gigabytes(self.training)}"

    def beside_device(self) -> RankMemory:
        """Return the memory of the host of a rank whose products are made on a device: no activations, no tiles, one X."""
        return replace(self, parts=self.parts | {BUFFERS: 0, TILES: 0, BEFORE_KEPT: 0})


def gigabytes(size: float) -> str:
    """Return bytes as 1.23 GB, or 12,345 GB."""
    return f"{size / 1e9:.3g} GB" if size < 1e12 else f"{size / 1e9:,.0f} GB"


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
    copies, process = 1 if is_symmetric else 2, process_bytes + TRAINING_BYTES + (MPI_BYTES if n_ranks > 1 else 0)
    epochs = epoch_parts(run, copies)
    parts = {PROCESS: process} | _blocks(run, copies) | epochs
    if not run.setting.is_sparse:
        parts[BEFORE_KEPT] = _before_kept(run, epochs[TILES] + epochs[BUFFERS])
    parts[WEIGHTS] = 8 * run.n_weights * sum_bytes(run.setting.dtype.itemsize)
    parts["labels, scores, predictions"] = LABEL_BYTES * run.setting.counts["n"] + SCORE_BYTES * n_nodes
    loading = 0.0
    if root is not None:
        parts[LEFT] = LEFT_PER_NONZERO * root["nnz"]
        loading = int(process) - int(TRAINING_BYTES) + _loading(root, n_ranks, method)
    return RankMemory({name: int(value) for name, value in parts.items()}, int(loading))


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
    """Return the predicted memory of a process that trains a k-th of a graph alone; A X of sparse features counts as X does.

    Args: model          of `analysis.epoch.without_values`; setting: of its runs, k parts.
          graph          counts of the whole graph: n and own_nnz, the nonzeros of A; x_nnz of sparse X.
          halo           rows of a part with its halo over n / k.
          process_bytes  of Python and torch before any graph, see Machine.
    """
    share = min(halo / k, 1.0)
    n, nnz = math.ceil(share * graph["n"]), math.ceil(share * (graph["own_nnz"] + graph["n"]))  # with self-loops
    counts = {"n": n, "own_nnz": nnz, "edges": nnz} | dict.fromkeys(("s", "g", "f", "ghost_nnz", "sender_nnz"), 0)
    if setting.is_sparse:
        x_nnz = int(share * graph["x_nnz"])
        counts |= {"x_nnz": x_nnz, "cached_nnz": x_nnz} | ({"kept_nnz": x_nnz} if setting.is_cached else {})
    run = model.run(setting, is_pruned=False).on(counts)
    return rank_memory(run, n_ranks=1, n_nodes=n, process_bytes=process_bytes, is_symmetric=is_symmetric)


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


def epoch_parts(run: DryRun, copies: int = 1) -> dict[str, int]:
    """Return the bytes that steps and evaluations add to what set-up holds, by what takes them.

    Args: copies  of the own block: 1 where it is its own transpose.
    """
    parts = {BUFFERS: run.buffer_bytes}
    if steps := own_steps(run):
        parts[PRUNED] = _step_features(run) + sum(_operator(run, 2, step) for step in steps)
    parts[TILES] = copies * _tiles(run) + sum(2 * _tiles(run, step) for step in steps) + _feature_tiles(run)
    return parts


def own_steps(run: DryRun) -> list[str]:
    """Return the numbers of the layers of a pruned step that have an operator: not of one that takes rows of A X, or all rows."""
    setting, counts = run.setting, run.setting.counts
    numbers = range(1 + setting.step_is_cached, len(setting.steps) + 1)
    return [str(number) for number in numbers if not counts[f"T{number}"] == counts[f"T{number - 1}"] == counts["n"]]


def _rows_out(counts: Mapping[str, int], step: str) -> int:
    """Return the rows of an operator; step: number of the layer of a pruned step, "" of all rows."""
    return counts[f"T{step}"] if step else counts["n"]


def _blocks(run: DryRun, copies: int) -> dict[str, int]:
    """Return the bytes of operators and features; copies: of the own block."""
    parts = {"operator": _operator(run, copies, "")}
    parts["features"] = _sparse_features(run) if run.setting.is_sparse else _dense_features(run)
    if ghosts := _ghost_features(run):
        parts[GHOSTS] = ghosts
    return parts


def _operator(run: DryRun, copies: int, step: str) -> int:
    """Return the bytes of the blocks of an operator, with the transposes that backward multiplies with."""
    counts, itemsize = run.setting.counts, run.setting.dtype.itemsize
    own_nnz, ghost_nnz, sender_nnz, g, s = (counts[x + step] for x in ("own_nnz", "ghost_nnz", "sender_nnz", "g", "s"))
    n, others = _rows_out(counts, step), 2 * (ghost_nnz + sender_nnz) * nonzero_bytes(itemsize)
    if run.setting.edge_features is not None:  # with the place of each in the list of edges
        others += counts["edges" + step] * (run.setting.edge_features * sum_bytes(itemsize) + POINTER)
    return copies * csr_bytes(own_nnz, n, itemsize) + others + POINTER * (n + g + 3 * s)


def _tiles(run: DryRun, step: str = "") -> int:
    """Return the bytes of the tiles of the own and the ghost block."""
    counts, nonzero = run.setting.counts, nonzero_bytes(run.setting.dtype.itemsize)
    n, blocks = _rows_out(counts, step), (("own_nnz", None), ("ghost_nnz", "g"))
    columns = lambda g: n if g is None else counts[g + step]
    return sum(tile_bytes(n, columns(g), counts[nnz + step], run.widest_sum, nonzero) for nnz, g in blocks)


def _feature_tiles(run: DryRun) -> int:
    """Return the bytes of the tiles of the transpose of sparse X or A X, whose rows are the features."""
    counts, itemsize = run.setting.counts, run.setting.dtype.itemsize
    if not run.setting.is_sparse or ("kept_nnz" not in counts and run.reads_input):
        return 0
    width = next((product.shape[1] for product in run.products if product.shape), 0) * itemsize
    left = counts.get("kept_nnz", counts["x_nnz"])
    return tile_bytes(run.setting.features, counts["n"], left, width, nonzero_bytes(itemsize))


def _sparse_features(run: DryRun) -> int:
    """Return the bytes of sparse X, its transpose for the gradient or A X with its own, and what making that leaves."""
    counts, itemsize = run.setting.counts, run.setting.dtype.itemsize
    x_nnz, kept_nnz = counts["x_nnz"], counts.get("kept_nnz")
    left = x_nnz if kept_nnz is None else kept_nnz
    return csr_bytes(x_nnz + 2 * left + (kept_nnz or 0), counts["n"], itemsize)


def _dense_features(run: DryRun) -> int:
    """Return the bytes of dense X and of A X; one of them where training reads no other."""
    return run.setting.counts["n"] * run.setting.features * run.setting.dtype.itemsize * (2 if _keeps_both(run) else 1)


def _keeps_both(run: DryRun) -> bool:
    """Return whether both dense X and A X are kept: a layer adds X, dropout acts on it, or a pruned step takes rows of it."""
    takes_rows = bool(run.setting.steps) and not run.setting.step_is_cached
    return run.setting.is_cached and (run.reads_input or takes_rows)


def _ghost_features(run: DryRun) -> int:
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


def _step_features(run: DryRun) -> int:
    """Return the bytes of the rows of X, or of A X, that a pruned training step reads: a copy, unless it reads all."""
    setting, counts = run.setting, run.setting.counts
    rows = counts["T1" if setting.step_is_cached else "T0"]
    if rows == counts["n"]:
        return 0
    if not setting.is_sparse:
        return rows * setting.features * setting.dtype.itemsize
    return csr_bytes(2 * counts["step_nnz"], rows, setting.dtype.itemsize)


def _before_kept(run: DryRun, later: float) -> float:
    """Return what dense X and the buffers of making A X take beyond `later`, the bytes that their memory has from then on."""
    counts, itemsize = run.setting.counts, run.setting.dtype.itemsize
    if not run.setting.is_cached:
        return 0
    n, g, s = counts["n"], counts["g"], counts["s"]
    wide_sum = n * 4 if itemsize == 2 and (g or s) else 0  # bfloat16 is added up in float32
    x = 0 if _keeps_both(run) else n
    return max(0, ((x + g + s) * itemsize + wide_sum) * run.setting.features - later)
