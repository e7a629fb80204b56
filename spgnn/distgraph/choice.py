"""What scheme = "auto" takes: the exchange that the cost model finds faster, on all ranks the same.

Shapes: P ranks, R block rows.
"""

from __future__ import annotations

import numpy as np

from ..config import Distribution
from ..cost.choose import choose_scheme
from ..cost.machines import load_machine, this_host
from ..dist import Communicator
from ..errors import from_root
from ..machine import core_ids
from ..partition.cover import Covers
from ..spmm.exchange.context import Layout
from ..spmm.exchange.covered import covers_of
from ..spmm.exchange.stages import Blocks, HostCovers, counts_of_hosts, covers_of_hosts


def decide_scheme(blocks: Blocks, layout: Layout, machine: str) -> tuple[str, str, Covers | HostCovers | None]:
    """Return the fastest scheme, why in a sentence, and the covers that were made for it, on several ranks. Collective.

    Hosts are equal in the cost model: each has as many ranks as the fullest, and by default the cores of the one with
    the fewest.
    Args: machine  a name or file of the cost model, read on rank 0.
    """
    covers = covers_of(blocks.A_og, blocks.index, layout.threads)
    tables = {"columns_PP": blocks.index.ghosts_P, "cover_PP": covers.sizes_B, "moved_PP": covers.moved_B}
    counts = {name: _table(counts_R, layout) for name, counts_R in tables.items()}
    own = np.array([[blocks.A_oo.nnz, blocks.A_og.nnz, blocks.A_oo.shape[0]]], np.int64)
    counts |= dict(zip(("own_nnz", "ghost_nnz", "n"), layout.comm.all_gather(own).T))
    host_P, of_hosts = layout.grid.host_P, None
    if layout.grid.is_tiered and layout.scheme == "auto":
        layout.use_hosts()
        of_hosts = covers_of_hosts(blocks, layout)
        tables = counts_of_hosts(blocks, layout, of_hosts)
        counts |= {name: layout.comm.all_gather(row_P[None]) for name, row_P in tables.items()}
        counts["two_tier_moved_PP"] = counts["two_tier_moved_PP"].T
        order = np.argsort(host_P, kind="stable")  # the machine's ranks are placed in blocks
        counts = {name: of[order][:, order] if of.ndim == 2 else of[order] for name, of in counts.items()}
    cores = fewest_cores(layout.comm, host_P)

    def choose() -> tuple[str, str]:
        here = this_host(cores) if machine == Distribution.machine else load_machine(machine)
        return choose_scheme(counts, here.placed(int(np.bincount(host_P).max())), layout.dtype.itemsize)

    name, why = from_root(layout.comm, choose)  # another host may have another file of that name
    return name, why, covers if of_hosts is None or name != "two-tier" else of_hosts


def fewest_cores(comm: Communicator, host_P: np.ndarray) -> int:
    """Return the cores that the ranks of a host may use, of the host with the fewest. Collective."""
    masks = comm.all_gather_json(f"{sum(1 << core for core in core_ids()):x}")
    cores: dict[int, int] = {}
    for host, mask in zip(host_P.tolist(), masks):
        cores[host] = cores.get(host, 0) | int(mask, 16)
    return min(mask.bit_count() for mask in cores.values())


def _table(from_R: np.ndarray, layout: Layout) -> np.ndarray:
    """Return what rank q sends rank p, (P, P), of what each rank gets from the blocks of its process column."""
    P, c = layout.comm.size, layout.grid.c
    own = np.zeros((1, P), np.int64)
    own[0, layout.column_number :: c] = from_R
    return layout.comm.all_gather(own).T
