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
from .covered import covered_plan
from .exchange_plan import ExchangePlan
from .index_map import IndexMap


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
        index = IndexMap(self.index.own_n[in_m], self.index.ghost_g[ghost_g], ghosts_P)
        return Blocks(_cut(self.A_oo, out_n, in_m), _cut(self.A_og, out_n, ghost_g), index)


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A (n, r), which multiplies what `plan` pulls."""

    plan: ExchangePlan
    A: LocalCSR


def make_stages(
    blocks: Blocks,
    layout: Layout,
    name: str,
    base: ExchangePlan | None,
    covers: Covers | None = None,
    like: list[Stage] | None = None,
) -> list[Stage]:
    """Return a Stage for each group of owners of the layout: together they are the product with A_og. Collective.

    Args: name    of the operator.
          base    the plan of all ghosts, whose rows a single group would fetch too.
          covers  of all owners, where they are known.
          like    the stages of an operator with the same ghosts, whose plans serve again; not with cover, whose
                  plans have weights.
    """
    comm, pool, threads = layout.column, layout.pool, layout.threads
    stages = []
    for number, owners in enumerate(layout.stages):
        part = blocks.of_owners(owners) if len(layout.stages) > 1 else blocks
        if layout.scheme == "cover":
            known = covers if len(layout.stages) == 1 else None
            plan, A = covered_plan(comm, part.index, part.A_og, layout, f"{name}.{number}", known)
        else:
            known = like[number].plan if like else base if len(layout.stages) == 1 else None
            plan = (
                ExchangePlan(comm, part.index, pool, threads, layout, f"{name}.{number}")
                if known is None
                else known.under(layout, f"{name}.{number}")
            )
            A = part.A_og
        check_counts(
            plan.comm, plan.send_rows_P, plan.recv_rows_P, f"rows of blocks {owners.start} to {owners.stop - 1}"
        )
        stages.append(Stage(plan, LocalCSR(A, layout.dtype, threads)))
    return stages


def _cut(A: sp.csr_array, rows: np.ndarray, columns: np.ndarray) -> sp.csr_array:
    rows_only = sp.csr_array(A[np.flatnonzero(rows)])
    cut = sp.csr_array(rows_only[:, np.flatnonzero(columns)])
    cut.sort_indices()
    return cut
