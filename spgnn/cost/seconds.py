"""The cost model: seconds of an epoch from what every rank multiplies and sends; what a training chooses by them.

A prediction asks the same functions with the same counts, so that it tells what the training does. Imports no torch.

A message of b bytes takes alpha + b / beta; nonzeros, flops and passes over memory are divided by measured
rates. Exchanges synchronise, so every step takes as long as its slowest rank.

Shapes: P ranks; q sends, p receives. Units: seconds, bytes, flop/s, bytes/s.
Source: sparsity-aware paper (ICPP'24), sections 4.1 and 4.2, T_comm; here with the real counts of every pair
of ranks instead of P cut_P(G), and with separate terms for links inside a host and for its network card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..errors import UsageError
from .machines import Machine
from .memory import MEMORY_SHARE, sum_bytes

Dense = tuple[int, int, np.ndarray | None, bool] | tuple[int, int, None, bool, np.ndarray]
# A dense product of EDGE columns takes twice as long per flop as a wide one, see docs/performance.md.
EDGE = 8
# Seconds of a pass over the nonzeros, forward and backward, over those of a sparse product of its width W: a + b K / W
# with K heads, see docs/performance.md.
EDGE_PRICES = {
    "attend": {"forward": (1.0, 4.0), "backward": (1.5, 20.0)},
    "attend2": {"forward": (2.7, 0.0), "backward": (8.6, 0.0)},
    "maximum": {"forward": (1.7, 0.0), "backward": (1.9, 0.0)},
}
# Seconds until another rank has its turn on a core that ranks share; measured with 2 ranks on each core, docs/performance.md.
# The two-tier exchange waits for two turns more than cover: rows are gathered, and spread.
TURN_S = 5e-3
# Calls of kernels, of torch and of Python per layer and per epoch, whatever their sizes.
CALLS_A_LAYER, CALLS_AN_EPOCH = 16, 20
PHASES = ("spmm", "gemm", "passes", "exchange", "sums", "all_reduce", "calls")
# Passes over memory in addition to the products: mask and column sums of a layer's gradient; loss and its gradient; Adam.
PASSES_A_LAYER, PASSES_A_LOSS, PASSES_A_STEP = 3, 9, 10


@dataclass(frozen=True, slots=True, eq=False)
class RankProduct:
    """One product with A on every rank, and the rows sent for it.

    width      columns of the dense operand.
    own_P      nonzeros multiplied during the exchange; ghost_P after it; sender_P before it (partial sums
               of `cover`), (P,).
    out_P      rows that a rank writes, (P,); table_P: own and ghost rows that it reads.
    rows_PP    rows that q sends p, row_bytes each.
    sum_PP     rows of the sum over process rows that q sends p, sum_bytes each; None in 1D.
    is_relayed  rows of `two-tier`: they are gathered and spread inside hosts before and after they cross.
    """

    width: int
    own_P: np.ndarray
    ghost_P: np.ndarray
    out_P: np.ndarray
    table_P: np.ndarray
    rows_PP: np.ndarray
    row_bytes: int
    sender_P: np.ndarray | int = 0
    sum_PP: np.ndarray | None = None
    sum_bytes: int = 0
    is_relayed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LayerWork:
    """One layer of an epoch, forward and backward, or of an evaluation.

    products   with A.
    dense      products of rows with weights (f_in, f_out), and their gradients for one of the two: (f_in, f_out,
               nonzeros of the rows where they are sparse, (P,), else None, whether it is a gradient), and the rows of
               those on edges, (P,).
    rows_P     rows that the layer computes, (P,).
    f_out      columns of its result; written: of all results that bias, activation and their gradients read.
    n_weights  numbers in its parameters.
    n_products  with A forward, those that are cached too: each takes as many calls as a layer of one product.
    """

    products: tuple[RankProduct, ...]
    dense: tuple[Dense, ...]
    rows_P: np.ndarray
    f_out: int
    written: int
    n_weights: int = 0
    n_products: int = 1


@dataclass(frozen=True, slots=True)
class EpochTime:
    """Seconds of one training epoch by phase; exchange includes `hidden`, the part that products overlap."""

    spmm: float = 0.0
    gemm: float = 0.0
    passes: float = 0.0
    exchange: float = 0.0
    hidden: float = 0.0
    sums: float = 0.0
    all_reduce: float = 0.0
    calls: float = 0.0
    epoch_s: float = 0.0


def exchange_seconds(machine: Machine, bytes_PP: np.ndarray) -> float:
    """Return the seconds of one exchange: alpha per message, bytes over the busiest link.

    Per rank the larger of bytes sent and received counts; ranks of one host share its network card; links inside a
    host work at the same time.
    """
    host_P = machine.host_of(np.arange(len(bytes_PP)))
    is_remote = host_P[:, None] != host_P[None, :]
    remote_PP, local_PP = np.where(is_remote, bytes_PP, 0), np.where(is_remote, 0, bytes_PP)
    np.fill_diagonal(local_PP, 0)
    alpha_P = machine.latency_s * larger(remote_PP > 0) + machine.local_latency_s * larger(local_PP > 0)
    by_host = np.zeros((host_P[-1] + 1,) * 2)
    np.add.at(by_host, (host_P[:, None], host_P[None, :]), remote_PP)
    card_P = larger(by_host)[host_P] / machine.card_bandwidth
    beta_P = np.maximum(
        np.maximum(larger(remote_PP) / machine.bandwidth, card_P), larger(local_PP) / machine.local_bandwidth
    )
    return float((alpha_P + beta_P).max())


def all_reduce_seconds(machine: Machine, size: int, n_bytes: float) -> float:
    """Return 2 log2(P) alpha + 2 (P - 1) / P bytes / beta. Source: Rabenseifner 2004."""
    if size == 1:
        return 0.0
    hosts = int(machine.host_of(size - 1)) + 1
    alpha = machine.latency_s if hosts > 1 else machine.local_latency_s
    beta = min(machine.bandwidth, machine.card_bandwidth) if hosts > 1 else machine.local_bandwidth
    return 2 * math.ceil(math.log2(size)) * alpha + 2 * (size - 1) / size * n_bytes / beta


def spmm_seconds(machine: Machine, nnz, width: int, table_rows, itemsize: int = 4):
    """Return nnz (t0 + row bytes / beta), beta the cache's for rows found there and the memory's for others.

    Rows are found in the cache in the share cache_bytes over the bytes of the table of rows.
    """
    row_bytes = width * itemsize
    hits = np.minimum(1.0, machine.cache_bytes / np.maximum(np.asarray(table_rows, np.float64) * row_bytes, 1.0))
    return np.asarray(nnz) * (
        machine.nonzero_s + row_bytes * (hits / machine.spmm_cached + (1 - hits) / machine.spmm_memory)
    )


def edge_price(kind: str, width: int, heads: int, way: str) -> float:
    """Return how many sparse products of its width a pass of attention or maximum over the nonzeros takes as long as."""
    base, of_heads = EDGE_PRICES[kind][way]
    return base + of_heads * heads / width


def gemm_seconds(machine: Machine, rows, f_in: int, f_out: int, itemsize: int = 4):
    """Return 2 n F C (1 + EDGE / min(F, C)) flops at the rate of their type, and a pass over the n (F + C) entries."""
    rows = np.asarray(rows, np.float64)
    return rows * (gemm_flops(f_in, f_out) / machine.gemm_rate(itemsize) + (f_in + f_out) * itemsize / machine.stream)


def gemm_flops(f_in: int, f_out: int) -> float:
    """Return the flops that a row of a dense product counts as: narrow ones run slower."""
    return 2.0 * f_in * f_out * (1 + EDGE / min(f_in, f_out))


def product_seconds(machine: Machine, product: RankProduct, itemsize: int = 4, overlap: bool = True) -> EpochTime:
    """Return the seconds of one product with A: sums on the sender, own block during the exchange, ghost block.

    With overlap, exchange and own block take the larger of their times; without, the sum.
    """
    of = lambda nnz_P: spmm_seconds(machine, nnz_P, product.width, product.table_P, itemsize)
    sent_P = product.rows_PP.sum(axis=1) + product.rows_PP.sum(axis=0)
    written_P = product.width * itemsize * (2 * sent_P + product.out_P) / machine.stream  # packed, read; result
    before, ghost = float(of(product.sender_P).max()), float(of(product.ghost_P).max())
    own = float((of(product.own_P) + written_P).max())
    bytes_PP, inside = product.rows_PP * product.row_bytes, 0.0
    if product.is_relayed:  # no product overlaps with what is gathered and spread
        host_P = machine.host_of(np.arange(len(bytes_PP)))
        is_here = host_P[:, None] == host_P[None, :]
        inside, bytes_PP = exchange_seconds(machine, bytes_PP * is_here), bytes_PP * ~is_here
        inside += 2 * TURN_S * machine.has_shared_cores
    between = exchange_seconds(machine, bytes_PP)
    sums = 0.0 if product.sum_PP is None else exchange_seconds(machine, product.sum_PP * product.sum_bytes)
    hidden = min(own, between) if overlap else 0.0
    spmm, exchange = before + own + ghost, inside + between
    return EpochTime(spmm=spmm, exchange=exchange, hidden=hidden, sums=sums, epoch_s=spmm + exchange - hidden + sums)


def epoch_seconds(
    machine: Machine, layers: Sequence[LayerWork], *, itemsize: int = 4, overlap: bool = True, training: bool = True
) -> EpochTime:
    """Return the seconds of one training epoch, or of one evaluation: the sum over its steps.

    Args: layers    of an epoch, input to output.
          itemsize  bytes of an activation: 2 bfloat16, 4 float32, 8 float64.
          overlap   exchanges overlap with the product of the own block.
          training  with loss, all-reduce and the optimiser's step.
    """
    if not layers:
        raise UsageError("epoch_seconds: no layer; expected at least one")
    machine = machine.with_ranks(len(layers[0].rows_P))
    parts = asdict(EpochTime())
    for layer in layers:
        for product in layer.products:
            time = product_seconds(machine, product, itemsize, overlap)
            for name in ("spmm", "exchange", "hidden", "sums"):
                parts[name] += getattr(time, name)
        for name, seconds in _dense(machine, layer, itemsize).items():
            parts[name] += seconds
        if training:
            written = float((layer.rows_P * layer.written).max())
            parts["passes"] += written * itemsize * PASSES_A_LAYER / machine.stream
    last = layers[-1]
    if training:
        weight_bytes = sum(layer.n_weights for layer in layers) * sum_bytes(itemsize)
        parts["passes"] += float(last.rows_P.max()) * last.f_out * itemsize * PASSES_A_LOSS / machine.stream
        parts["passes"] += weight_bytes * PASSES_A_STEP / machine.stream
        parts["all_reduce"] = all_reduce_seconds(machine, len(last.rows_P), weight_bytes)
    n_products = sum(max(layer.n_products, 1) for layer in layers)
    parts["calls"] = machine.call_s * (CALLS_A_LAYER * n_products + CALLS_AN_EPOCH) * (1.0 if training else 0.4)
    return EpochTime(**parts | {"epoch_s": sum(parts[name] for name in PHASES) - parts["hidden"]})


def _dense(machine: Machine, layer: LayerWork, itemsize: int) -> dict[str, float]:
    """Return the seconds of the products of a layer with weights; of sparse rows, of products with a sparse matrix."""
    seconds = {"gemm": 0.0, "spmm": 0.0}
    for f_in, f_out, left_P, is_gradient, *on_edges in layer.dense:
        if left_P is None:
            seconds["gemm"] += float(
                gemm_seconds(machine, on_edges[0] if on_edges else layer.rows_P, f_in, f_out, itemsize).max()
            )
        else:
            table_rows = layer.rows_P if is_gradient else f_in  # S W reads rows of W, dW = S' G those of G
            seconds["spmm"] += float(spmm_seconds(machine, left_P, f_out, table_rows, itemsize).max())
    return seconds


def larger(x_PP: np.ndarray) -> np.ndarray:
    """Return the larger of what each row sends and each column receives, (P,)."""
    return np.maximum(x_PP.sum(axis=1), x_PP.sum(axis=0))


WIDTH = 64  # columns of the product that is compared; the times of all schemes grow alike with it
SAVES = 0.95  # pruning has to take less than this share of the work, or the second operator is not worth its memory
TABLES = {  # rows that q sends p, and nonzeros that q multiplies for p
    "columns": ("columns_PP", ""),
    "cover": ("cover_PP", "moved_PP"),
    "two-tier": ("two_tier_PP", "two_tier_moved_PP"),
}


def choose_scheme(counts: Mapping[str, np.ndarray], machine: Machine, itemsize: int) -> tuple[str, str]:
    """Return the scheme whose product takes the fewest seconds on a machine as its ranks are placed, and why in a sentence.

    `cover` moves work from the reader to the owner, so fewer bytes may still take longer. On a tie it is the first. The
    answer depends on the arguments alone: give all ranks the same.
    Args: counts  of one product with A: n own rows of each rank, own_nnz and ghost_nnz with own and with ghost rows, all of
                  them at the reader, (P,); of the schemes that may be taken columns_PP, cover_PP and two_tier_PP, rows that
                  q sends p; moved_PP and two_tier_moved_PP, nonzeros that q multiplies for p.
    """
    machine, own_P, n_P = machine.with_ranks(len(counts["n"])), counts["own_nnz"], counts["n"]
    seconds, texts = {}, []
    for name, (rows, moved) in TABLES.items():
        if rows not in counts:
            continue
        rows_PP, moved_PP = counts[rows], counts[moved] if moved else np.zeros_like(counts[rows])
        ghost_P, sender_P = counts["ghost_nnz"] - moved_PP.sum(axis=0), moved_PP.sum(axis=1)
        product = RankProduct(
            width=WIDTH, own_P=own_P, ghost_P=ghost_P, sender_P=sender_P, out_P=n_P, table_P=n_P + rows_PP.sum(axis=0),
            rows_PP=rows_PP, row_bytes=WIDTH * itemsize, is_relayed=name == "two-tier",
        )  # fmt: skip
        seconds[name] = product_seconds(machine, product, itemsize).epoch_s
        sent, work = larger(rows_PP * product.row_bytes).max(), int((own_P + ghost_P + sender_P).max())
        texts.append(f"{name} {1e3 * seconds[name]:.3g} ms (busiest rank {sent / 1e6:.3g} MB, {work:,} nonzeros)")
    name = min(seconds, key=seconds.__getitem__)
    return name, f"{name}: one product of width {WIDTH} on {machine.name} takes {' and '.join(texts)}"


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Predicted bytes of all ranks of a host with pruned steps and with steps of all rows, and what the host has."""

    pruned: float
    full: float
    available: float

    @property
    def left(self) -> float:
        """Bytes that pruned steps could take beyond what they need; less than 0 where they do not fit."""
        return max(MEMORY_SHARE * self.available, self.full) - self.pruned

    @property
    def fits(self) -> bool:
        """Whether pruned steps may be taken: they leave enough memory, or take no more than steps of all rows do."""
        return self.left >= 0


def choose_pruning(
    full: float, pruned: float, eval_every: int, is_random: bool, is_auto: bool = True
) -> tuple[bool, str]:
    """Return whether training steps that compute some rows save time over steps that compute all, and why in a sentence.

    A step is three passes: forward, and backward for weights and inputs. Evaluations compute all rows; where nothing is
    random, steps of all rows need none, as each gives the scores of the one before.
    Args: full, pruned  multiply-adds of a forward pass over all rows, and over those that reach a training node.
          is_auto       False: rows are pruned in any case.
    """
    evaluation, share = full / eval_every, f"{pruned / max(full, 1):.0%} of the multiply-adds of all rows"
    if not is_auto or 3 * pruned <= SAVES * (3 * full + (evaluation if is_random else 0)) - evaluation:
        return True, f"rows that reach a training node: {share}"
    return False, f"all rows: those that train take {share}, and scores need a pass of their own"
