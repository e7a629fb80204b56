"""Predict the peak memory of every rank of a training, part by part, from sizes alone.

The buffers of an epoch are replayed: the same requests in the same order as spmm/operator.py and
spmm/autograd.py make, on a pool that takes blocks of one size back and hands them out again.
Shapes: N nodes, n own rows, g ghost rows, s sent rows, F in, C out, P ranks. Bytes throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..partition.stream import STREAMING
from ..spmm.kernels.panels import panel_bytes

PAGE, SMALL = 4096, 1 << 15  # of spmm.buffers
ROUND_BYTES = 1 << 26  # of distgraph.scatter
# Seen with the system's allocator, see docs/plan.md: bytes a nonzero while rank 0 adds reverse edges, and while METIS
# cuts, which from METIS_GROWS nonzeros on are more for each doubling; what of that stays in the allocator's lists;
# libraries that start with training.
EDGES_A_NONZERO, METIS_A_NONZERO, METIS_A_DOUBLING, LEFT_A_NONZERO = 18, 100, 15, 2
METIS_GROWS, MOST_DOUBLINGS = 4e6, 3
TRAINING_BYTES = 28e6
MPI_BYTES = 16e6
BEFORE_KEPT = "X until A X is kept"


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
    kept_nnz: int | None = None  # of A X where it is kept sparse


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """One layer as the schedule has it: widths, order, whether A X is kept, whether its output is a ReLU, whether it adds H."""

    f_in: int
    f_out: int
    order: str
    is_kept: bool
    is_relu: bool
    reads_input: bool = False


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
    layers: Sequence[LayerSizes],
    *,
    n_ranks: int,
    n_nodes: int,
    process_bytes: float,
    itemsize: int = 4,
    dropout: bool = False,
    input_dropout: bool = True,
    norm: bool = False,
    keep: bool = True,
    is_symmetric: bool = True,
    root: GraphSizes | None = None,
    method: str = "metis",
    index_bytes: int = 4,
) -> RankMemory:
    """Return the predicted memory of one rank.

    Args: sizes          of this rank; layers of the model, input to output.
          process_bytes  of Python and torch before any graph: Machine.process_bytes.
          norm           hidden layers are normalised: each keeps what went in.
          keep           A X is kept where nothing changes X, for evaluations if dropout does in training.
          is_symmetric   the own block is its own transpose.
          root           the graph that this rank reads and hands out, for rank 0 without --partition.
          method         partitioner that rank 0 runs.
    """
    s = sizes
    wide = layers[0].f_in
    parts = {"process": int(process_bytes + TRAINING_BYTES + (MPI_BYTES if n_ranks > 1 else 0))}
    nonzero = index_bytes + max(itemsize, 4)
    copies = 1 if is_symmetric else 2
    own = copies * (s.own_nnz * nonzero + 8 * s.n)
    others = 2 * (s.ghost_nnz + s.sender_nnz) * nonzero + 8 * (s.n + s.g + 3 * s.s)
    parts["operator"] = own + others
    panels = copies * _panels(s, layers, itemsize, nonzero)
    if s.x_nnz is None:
        stays = keeps_both(layers[0], keep and dropout and input_dropout)
        parts["features"] = s.n * wide * itemsize * (2 if stays else 1)
    else:
        # X, its transpose for the gradient or A X with its own, and what making that leaves.
        parts["features"] = s.x_nnz * nonzero + 8 * s.n + 2 * nonzero * (s.x_nnz if s.kept_nnz is None else s.kept_nnz)
        parts["features"] += 0 if s.kept_nnz is None else nonzero * s.kept_nnz
        # Of the transpose, whose rows are the features.
        if s.kept_nnz is not None or not (dropout and input_dropout):
            panels += panel_bytes(
                wide, s.n, s.x_nnz if s.kept_nnz is None else s.kept_nnz, layers[0].f_out * itemsize, nonzero
            )
    parts["column panels"] = panels
    parts["activations and exchange buffers"] = epoch_buffers(s, layers, itemsize, dropout, input_dropout, norm)
    if s.x_nnz is None:
        later = panels + parts["activations and exchange buffers"]
        parts[BEFORE_KEPT] = before_kept(s, layers[0], itemsize, keep and dropout and input_dropout, later)
    weights = sum(layer.f_in * layer.f_out + layer.f_out for layer in layers)
    parts["weights and optimiser"] = 8 * weights * max(itemsize, 4)
    parts["labels, scores, predictions"] = 60 * s.n + 24 * n_nodes
    loading = 0
    if root is not None:
        graph = root.nnz * 8 + root.n * 8 + root.x_bytes + root.y_bytes
        stored = root.stored_nnz * 8 + root.n * 8 if root.is_symmetrised else 0
        edges = EDGES_A_NONZERO * root.nnz if root.is_symmetrised else 0
        partition = partition_bytes(root.nnz, method) if n_ranks > 1 else 0
        left = LEFT_A_NONZERO * root.nnz
        parts["left over from loading"] = left
        given = root.nnz * 8 + root.x_bytes
        largest = max(root.nnz * 8, root.x_bytes)
        a_round = min(largest, max(ROUND_BYTES, largest / n_ranks))
        handing = (
            given / n_ranks + a_round if n_ranks > 1 else 0
        )  # rank 0's own rows, and those that are copied for a round
        loading = parts["process"] - int(TRAINING_BYTES) + graph + stored + max(edges, partition, handing)
    return RankMemory({name: int(value) for name, value in parts.items()}, int(loading))


def partition_bytes(nnz: int, method: str) -> float:
    """Return the bytes of a partitioner beside the graph: METIS's for all that do not take one edge after the other."""
    if method in STREAMING or method in ("block", "random"):
        return 0.0
    doublings = np.clip(np.log2(max(nnz, 1) / METIS_GROWS), 0, MOST_DOUBLINGS)
    return float(nnz * (METIS_A_NONZERO + METIS_A_DOUBLING * doublings))


def keeps_both(first: LayerSizes, is_for_evaluation: bool) -> bool:
    """Return whether dense X stays beside A X: the first layer adds X to its output, or dropout acts on X and evaluations take A X."""
    return first.is_kept and first.reads_input or is_for_evaluation


def before_kept(sizes: RankSizes, first: LayerSizes, itemsize: int, is_for_evaluation: bool, later: int) -> int:
    """Return what dense X and the buffers of making A X take beyond `later`, the bytes that their memory has from then on."""
    s = sizes
    if not (first.is_kept or is_for_evaluation):
        return 0
    x = 0 if keeps_both(first, is_for_evaluation) else s.n
    wide_sum = s.n * 4 if itemsize == 2 and (s.g or s.s) else 0  # bfloat16 is added up in float32
    return max(0, ((x + s.g + s.s) * itemsize + wide_sum) * first.f_in - later)


def epoch_buffers(
    sizes: RankSizes,
    layers: Sequence[LayerSizes],
    itemsize: int = 4,
    dropout: bool = False,
    input_dropout: bool = True,
    norm: bool = False,
) -> int:
    """Return the bytes that the buffer pool of an operator holds after the first epoch and an evaluation."""
    pool, between = _Pool(itemsize), 0  # of torch, between norm, activation and sum: one layer's at a time
    n, g, s = sizes.n, sizes.g, sizes.s
    kept: list[list] = []  # what each layer keeps for backward
    for l, layer in enumerate(layers, start=1):
        F, C, mine, dropped = layer.f_in, layer.f_out, [], None
        if dropout and (l > 1 or (input_dropout and sizes.x_nnz is None)):
            dropped = pool.take(n, F)
        if layer.is_kept:
            Z = pool.take(n, C)
        elif layer.order == "spmm_first":
            mine.append(_applied(pool, n, g, s, F))
            Z = pool.take(n, C)
        else:
            U = pool.take(n, C)
            Z = _applied(pool, n, g, s, C)
            pool.give(U)
        if dropped is not None and layer.order == "gemm_first":
            mine.append(dropped)
        else:
            pool.give(dropped)
        further = norm + layer.reads_input if l < len(layers) else 0
        mine += [pool.take(n, C) for _ in range(further)]
        between = max(between, n * C * itemsize if further else 0)
        mine.append(Z)
        kept.append(mine)
    G = kept[-1].pop()  # the gradient of the loss is written over the logits
    for l in range(len(layers), 0, -1):
        layer = layers[l - 1]
        F, C = layer.f_in, layer.f_out
        given = G  # held by autograd until the layer's backward has ended
        if l < len(layers):
            if dropout:  # without it the layer above has masked its gradient in place
                G = pool.take(n, C)
            pool.give(kept[l - 1].pop())
        masked = G if G is not given else None
        if layer.order == "gemm_first" and not layer.is_kept:
            U = _adjoint(pool, n, g, s, C)
            pool.give(masked)
            G = pool.take(n, F) if l > 1 else None
            pool.give(U)
        elif l > 1:
            T = pool.take(n, F)
            G = _adjoint(pool, n, g, s, F)
            pool.give(T)
            pool.give(masked)
        pool.give(given)
        for block in kept[l - 1]:
            pool.give(block)
        if dropout and l > 1:
            dropped = pool.take(n, F)
            pool.give(G)
            G = dropped
    return pool.held + between


def _panels(sizes: RankSizes, layers: Sequence[LayerSizes], itemsize: int, nonzero: int) -> int:
    """Return the bytes of the column panels of the own and the ghost block: of products that are made every epoch.

    In bfloat16 those that are added up in float32: beside a ghost part, and the logits.
    """
    s = sizes
    in_float = layers if itemsize >= 4 or s.g or s.s else layers[-1:]
    width = max(
        (layer.f_out if layer.order == "gemm_first" else layer.f_in for layer in in_float if not layer.is_kept),
        default=0,
    )
    return sum(panel_bytes(s.n, m, nnz, width * itemsize, nonzero) for m, nnz in ((s.n, s.own_nnz), (s.g, s.ghost_nnz)))


def largest_rank(memories: Sequence[RankMemory]) -> tuple[int, RankMemory]:
    """Return the rank with the largest peak, and its memory."""
    rank = int(np.argmax([m.peak for m in memories]))
    return rank, memories[rank]


def _applied(pool: _Pool, n: int, g: int, s: int, F: int) -> tuple[int, ...]:
    """Z = A H: the packed rows, the ghost rows, the result."""
    packed, ghosts = pool.take(s, F), pool.take(g, F)
    Z = _summed(pool, n, F, is_sum=g > 0)
    pool.give(packed)
    pool.give(ghosts)
    return Z


def _adjoint(pool: _Pool, n: int, g: int, s: int, F: int) -> tuple[int, ...]:
    """dH = A' G: the ghosts' gradients, those received from readers, the result."""
    ghosts, received = pool.take(g, F), pool.take(s, F)
    out = _summed(pool, n, F, is_sum=s > 0)
    pool.give(ghosts)
    pool.give(received)
    return out


def _summed(pool: _Pool, n: int, F: int, is_sum: bool) -> tuple[int, ...]:
    """Return the block of a result; in bfloat16 one with several parts is added up in float32 first."""
    wide = pool.take(n, F, 4) if is_sum and pool.itemsize == 2 else ()
    result = pool.take(n, F)
    pool.give(wide)
    return result


class _Pool:
    """spmm.buffers.BufferPool without memory: blocks by size, small ones not counted."""

    def __init__(self, itemsize: int):
        from ..spmm.kernels.buffers import FreeBlocks

        self.itemsize = itemsize
        self.free: FreeBlocks[None] = FreeBlocks()
        self.held = 0

    def take(self, rows: int, width: int, itemsize: int = 0) -> tuple[int, ...]:
        size = rows * width * (itemsize or self.itemsize)
        if size < SMALL:
            return ()
        size = -(-size // PAGE) * PAGE
        found = self.free.take(size)
        if found is not None:
            return (found[0],)
        self.held += size - self.free.make_room(size)
        return (size,)

    def give(self, block: tuple[int, ...] | None) -> None:
        for size in block or ():
            self.free.put(size, None)
