"""Whether the hosts' memory takes the second operator and the buffers of pruned training steps.

Shapes: n own rows, g ghost rows. Bytes throughout.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...cost.choose import HostMemory
from ...cost.memory import POINTER, csr_bytes, nonzero_bytes
from ...distgraph import DistGraph
from ...machine import free_address_bytes, host_id, memory_bytes, rss_bytes
from ...spmm.dry.dry import DryRun
from ...spmm.dry.dry_operator import Setting
from ...spmm.kernels.tile_rule import tile_bytes
from ...spmm.operator.dist_spmm import DistSpMM
from ...spmm.operator.features import SparseRows


def step_memory(dgraph: DistGraph, A: DistSpMM, run: DryRun, pruned: DryRun, masks: list[np.ndarray]) -> HostMemory:
    """Return what the hosts need and have, where rows are pruned to the masks of needed_rows; the same on all ranks.

    What processes hold now is measured; what steps and evaluations add is predicted.
    Args: A  operator of the first layer, which has A X; run: of all rows; pruned: of a pruned_setting.
    Collective.
    """
    added = [_buffer_bytes(A, pruned) + _operator_bytes(A, dgraph.X, run, masks), _buffer_bytes(A, run)]
    mine = [host_id(), os.getpid(), rss_bytes(), memory_bytes(), free_address_bytes(), *added]
    return tightest(dgraph.comm.all_gather_json(mine))


def tightest(ranks: list[list]) -> HostMemory:
    """Return the memory of the host, or of the process with a limit, that has least left.

    Args: ranks  host, process, bytes that it holds, bytes of the host, bytes that the process may map (None: any) and
                 what steps add, pruned and of all rows; of each rank.
    """
    held, host_bytes, pruned, full = {}, {}, Counter(), Counter()
    for host, process, rss, memory, _, with_pruned, with_full in ranks:
        held[host, process], host_bytes[host] = rss, memory
        pruned[host] += with_pruned
        full[host] += with_full
    for (host, _), rss in held.items():
        pruned[host] += rss
        full[host] += rss
    found = [HostMemory(pruned[host], full[host], memory) for host, memory in host_bytes.items()]
    for _, _, rss, _, free, with_pruned, with_full in ranks:
        if free is not None:
            found.append(HostMemory(rss + with_pruned, rss + with_full, rss + free))
    return min(found, key=lambda of: of.left)


def pruned_setting(run: DryRun, A: DistSpMM, X, masks: list[np.ndarray], hops: Sequence[int]) -> Setting:
    """Return the setting of pruned steps before their operators are made; at most as many rows are sent as without."""
    full, is_cached = run.setting, run.layer(1).is_cached
    counts = full.counts | {f"T{number}": int(mask.sum()) for number, mask in enumerate(masks)}
    for number in range(1, len(masks)):
        counts |= {f"{name}{number}": full.counts[name] for name in ("s", "g", "f", "edges")}
    if is_cached:
        counts["T0"] = full.counts["n"]
    left, read_n = (A.kept, masks[1]) if is_cached else (X, masks[0])
    if isinstance(left, SparseRows):
        counts["step_nnz"] = int(np.diff(left.csr.indptr)[read_n].sum())
    return replace(full, steps=tuple(hops), step_is_cached=is_cached, counts=counts)


def _buffer_bytes(A: DistSpMM, run: DryRun) -> int:
    """Return the bytes of buffers and of the tiles of the whole operator."""
    nonzero = nonzero_bytes(A.dtype.itemsize)
    return run.buffer_bytes + tile_bytes(A.n, A.m, A.A_oo.nnz, run.widest_sum, nonzero)


def _operator_bytes(A: DistSpMM, X, run: DryRun, masks: list[np.ndarray]) -> int:
    """Return the bytes of the operators of pruned layers, their transposes and tiles, and of rows of X or A X."""
    total, itemsize = 0, A.dtype.itemsize
    lengths_n = np.diff(A.blocks.A_oo.indptr) + np.diff(A.blocks.A_og.indptr)
    for number, (in_n, out_n) in enumerate(zip(masks, masks[1:]), start=1):
        layer = run.layer(number)
        if not layer.exchanges or out_n.all():  # A itself
            continue
        n, m, nnz = int(out_n.sum()), int(in_n.sum()), int(lengths_n[out_n].sum())
        widest = max(product.width for product in layer.exchanges) * itemsize
        block = csr_bytes(nnz, 0, itemsize) + tile_bytes(n, m, nnz, widest, nonzero_bytes(itemsize))
        total += (1 + layer.has_backward) * block + POINTER * (n + m)
    is_cached = run.layer(1).is_cached
    left, rows = (A.kept, masks[1]) if is_cached else (X, masks[0])
    if rows.all():
        return total
    if isinstance(left, SparseRows):
        return total + csr_bytes(2 * int(np.diff(left.csr.indptr)[rows].sum()), int(rows.sum()), itemsize)
    return total + int(rows.sum()) * left.shape[1] * left.element_size()
