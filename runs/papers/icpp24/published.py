"""Seconds of an epoch as the ICPP'24 paper's programs run it, and as spgnn does, from exact counts of pairs of ranks.

The published training has A H first in every layer, nothing kept, no overlap, and ships G of each layer backward
(A G serves the gradients of W and of H, X's too). "oblivious" broadcasts each block row in turn.
Shapes: P = k c ranks, R copies of the graph.
Source: sections 4.1, 4.2 and 6.2 of the paper; its code, CAGNET.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from spgnn.cost.machines import Machine
from spgnn.cost.pairs import Counts, ProcessGrid, grid_of
from spgnn.cost.schedule import chain_order
from spgnn.cost.seconds import EpochTime, LayerWork, RankProduct, epoch_seconds

ITEMSIZE = 4


def published_epoch(
    machine: Machine, counted: Counts, c: int, widths: tuple[int, ...], copies: int = 1, is_oblivious: bool = False
) -> EpochTime:
    """Return the time of the published training: `columns` or `cover` by all-to-all, oblivious by broadcasts.

    Args: counted  one product, of which the rows are those of the scheme (oblivious: not looked at).
          copies   the graph is that many copies side by side, each cut alike: all counts times copies.
    """
    counted = replace(counted, grid=grid_of(len(counted.rows_kk), c))
    grid, layers, exchange = counted.grid, [], 0.0
    for f_in, f_out in zip(widths, widths[1:]):
        # A is symmetric: backward is the same algorithm with G, section 4.1.
        products = tuple(_product(counted, f, copies, "forward", is_oblivious) for f in (f_in, f_out))
        layers.append(_chain(f_in, f_out, products, 3, _rows_P(counted, copies)))
        if is_oblivious:
            exchange += sum(
                broadcast_seconds(machine, copies * counted.in_k * f * ITEMSIZE, grid) for f in (f_in, f_out)
            )
    time = epoch_seconds(machine, layers, itemsize=ITEMSIZE, overlap=False)
    return replace(time, exchange=time.exchange + exchange, epoch_s=time.epoch_s + exchange)


def spgnn_epoch(machine: Machine, counted: Counts, c: int, widths: tuple[int, ...], copies: int = 1) -> EpochTime:
    """Return the time of spgnn's training: the narrower width travels, A X kept, exchanges behind the own block."""
    counted, layers = replace(counted, grid=grid_of(len(counted.rows_kk), c)), []
    for f_in, f_out in zip(widths, widths[1:]):
        is_first = not layers  # whose A X is cached
        order, rows_P = chain_order(f_in, f_out, is_kept=is_first), _rows_P(counted, copies)
        width = f_in if order == "spmm_first" else f_out
        products = () if is_first else ("forward", "backward")
        products = tuple(_product(counted, width, copies, direction) for direction in products)
        layers.append(_chain(f_in, f_out, products, 2 if is_first else 3, rows_P))  # X has no gradient
    return epoch_seconds(machine, layers, itemsize=ITEMSIZE, overlap=True)


def broadcast_seconds(machine: Machine, bytes_k: np.ndarray, grid: ProcessGrid) -> float:
    """Return the seconds in which every block row goes to all ranks of its process column, one after the other.

    A broadcast takes ceil(log2 ranks) latencies ("which scale logarithmically", section 7.1) and its bytes over the
    network cards of those ranks of a host that take part: NCCL cuts a message among them. Process columns run
    beside each other.
    """
    ranks = grid.rows
    if ranks == 1:
        return 0.0
    is_one_host = machine.hosts(grid.size) == 1
    here = max(1, min(machine.ranks_per_host, grid.size) // grid.c)
    cards = min(machine.local_bandwidth, machine.card_bandwidth * here / machine.ranks_per_host)
    bandwidth = machine.local_bandwidth if is_one_host else cards
    latency_s = math.ceil(math.log2(ranks)) * (machine.local_latency_s if is_one_host else machine.latency_s)
    columns = [bytes_k[list(grid.stages(j))] for j in range(grid.c)]
    return max(len(column) * latency_s + float(column.sum()) / bandwidth for column in columns)


def _product(counted: Counts, width: int, copies: int, direction: str, is_oblivious: bool = False) -> RankProduct:
    grid, work, is_backward = counted.grid, counted.with_loops(counted.in_k), direction == "backward"  # loops of gcn
    rows_PP = counted.rows_PP * (0 if is_oblivious else copies)
    rows_PP = rows_PP.T if is_backward else rows_PP
    out_P = _rows_P(counted, copies)
    own_k = counted.in_k * copies
    return RankProduct(
        width=width,
        own_P=work.own_P * copies,
        ghost_P=work.ghost_P * copies,
        sender_P=work.sender_P * copies,
        out_P=out_P,
        table_P=np.full(grid.size, own_k.sum()) if is_oblivious else out_P + rows_PP.sum(axis=0),
        rows_PP=rows_PP,
        row_bytes=width * ITEMSIZE,
        sum_PP=counted.sums_PP(is_backward) * copies if grid.c > 1 else None,
        sum_bytes=width * ITEMSIZE,
    )


def _chain(f_in: int, f_out: int, products: tuple[RankProduct, ...], n_dense: int, rows_P: np.ndarray) -> LayerWork:
    """Return the work of a layer A H W + b, n_dense products with weights among its gradients."""
    dense = tuple((f_in, f_out, None, number > 0) for number in range(n_dense))
    return LayerWork(products, dense, rows_P, f_out, f_out, f_in * f_out + f_out)


def _rows_P(counted: Counts, copies: int) -> np.ndarray:
    return np.repeat(counted.out_k, counted.grid.c) * copies
