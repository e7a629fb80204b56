"""Blocks: the rows that a rank computes, cut in own and ghost columns, and the stages that fetch the ghosts.

Shapes: n rows out, m own rows in, g ghost rows, P ranks of one process column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ...dist.consistency import check_counts
from ...partition.cover import Covers
from ..kernels.csr import LocalCSR
from .context import Layout
from .covered import covered_plan, covers_of
from .exchange_plan import ExchangePlan, exchange_counts
from .index_map import IndexMap
from .relayed import Relay, RelayedPlan, make_relay, relayed_counts, relayed_plan


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Rows of A as A_oo (n, m) and A_og (n, g); index has the original ids of the m own and g ghost columns."""

    A_oo: sp.csr_array
    A_og: sp.csr_array
    index: IndexMap

    def of_owners(self, owners: range) -> Blocks:
        """Return the same rows with the ghosts of these owners alone."""
        index, where = self.index.of_owners(owners)
        return replace(self, A_og=sp.csr_array(self.A_og[:, where]), index=index)

    def restricted(self, out_n: np.ndarray, in_m: np.ndarray, ghost_g: np.ndarray) -> Blocks:
        """Return the rows of the mask out_n and the columns of the masks in_m and ghost_g."""
        owner_g = np.repeat(np.arange(len(self.index.ghosts_P)), self.index.ghosts_P)
        ghosts_P = np.bincount(owner_g[ghost_g], minlength=len(self.index.ghosts_P)).astype(np.int64)
        index = replace(
            self.index, own_n=self.index.own_n[in_m], ghost_g=self.index.ghost_g[ghost_g], ghosts_P=ghosts_P
        )
        return Blocks(_cut(self.A_oo, out_n, in_m), _cut(self.A_og, out_n, ghost_g), index)


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A (n, r), which multiplies what `plan` pulls."""

    plan: ExchangePlan | RelayedPlan
    A: LocalCSR


def make_stages(
    blocks: Blocks,
    layout: Layout,
    base: ExchangePlan | None,
    covers: Covers | HostCovers | None = None,
    like: list[Stage] | None = None,
) -> list[Stage]:
    """Return a Stage for each group of owners of the layout: together they are the product with A_og. Collective.

    Args: base    the plan of all ghosts, whose rows a single group would fetch too.
          covers  of all owners, where they are known; of two-tier those of covers_of_hosts.
          like    the stages of an operator with the same ghosts, whose plans serve again; not with cover, whose
                  plans have weights.
    """
    comm, pool, threads = layout.column, layout.pool, layout.threads
    if layout.scheme == "two-tier":
        return _of_hosts(blocks, layout, covers if isinstance(covers, tuple) else None)
    stages = []
    for number, owners in enumerate(layout.stages):
        part = blocks.of_owners(owners) if len(layout.stages) > 1 else blocks
        if layout.scheme == "cover":
            known = covers if isinstance(covers, Covers) and len(layout.stages) == 1 else None
            plan, A = covered_plan(comm, part.index, part.A_og, layout, known)
        else:
            known = like[number].plan if like else base if len(layout.stages) == 1 else None
            assert not isinstance(known, RelayedPlan)
            plan = ExchangePlan(comm, part.index, pool, threads, layout) if known is None else known.under(layout)
            A = part.A_og
        stages.append(_stage(plan, A, layout, f"rows of blocks {owners.start} to {owners.stop - 1}"))
    return stages


HostCovers = tuple[Covers, Relay]


def covers_of_hosts(blocks: Blocks, layout: Layout) -> HostCovers:
    """Return the covers between ranks of this host, and this rank's role in the covers of pairs of hosts. Collective."""
    index, A_og = _of_this_host(blocks, layout)
    return covers_of(A_og, index, layout.threads), make_relay(blocks.index, blocks.A_og, layout)


def counts_of_hosts(blocks: Blocks, layout: Layout, covers: HostCovers) -> dict[str, np.ndarray]:
    """Return what this rank sends each rank in one product, and the nonzeros that each multiplies for it, (P,); see choose_scheme.

    Collective.
    """
    (of_pairs, relay), here = covers, np.flatnonzero(layout.grid.host_P == layout.grid.host_P[layout.comm.rank])
    sent_P, moved_P = relayed_counts(blocks.index, blocks.A_og, layout, relay)
    sent_P[here] += exchange_counts(layout.on_host, of_pairs.sizes_B)
    moved_P[here] += of_pairs.moved_B
    return {"two_tier_PP": sent_P, "two_tier_moved_PP": moved_P}


def _of_hosts(blocks: Blocks, layout: Layout, covers: HostCovers | None) -> list[Stage]:
    """Return the stage inside this host, which ends first, and the one between hosts."""
    of_pairs, relay = covers or (None, None)
    plan, A = covered_plan(layout.on_host, *_of_this_host(blocks, layout), layout, of_pairs)
    stages = [_stage(plan, A, layout, "rows inside a host")]
    plan, A = relayed_plan(blocks.index, blocks.A_og, layout, relay)
    return [*stages, _stage(plan, A, layout, "rows between hosts")]


def _of_this_host(blocks: Blocks, layout: Layout) -> tuple[IndexMap, sp.csr_array]:
    """Return the ghosts of the ranks of this host, and A_og with these columns."""
    index, is_here_P = blocks.index, layout.grid.host_P == layout.grid.host_P[layout.comm.rank]
    is_here_g = np.repeat(is_here_P, index.ghosts_P)
    here = IndexMap(index.own_n, index.ghost_g[is_here_g], index.ghosts_P[is_here_P])
    return here, sp.csr_array(blocks.A_og[:, np.flatnonzero(is_here_g)])


def _stage(plan: ExchangePlan | RelayedPlan, A: sp.csr_array, layout: Layout, what: str) -> Stage:
    check_counts(plan.comm, plan.send_rows_P, plan.recv_rows_P, what)
    return Stage(plan, LocalCSR(A, layout.dtype, layout.threads))


def _cut(A: sp.csr_array, rows: np.ndarray, columns: np.ndarray) -> sp.csr_array:
    rows_only = sp.csr_array(A[np.flatnonzero(rows)])
    cut = sp.csr_array(rows_only[:, np.flatnonzero(columns)])
    cut.sort_indices()
    return cut
