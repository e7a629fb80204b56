"""What a training chooses by itself, from counts and a machine: the scheme of the exchanges, and row pruning.

A prediction asks the same functions with the same counts, so that it tells what the training does.
Shapes: P ranks; q sends, p receives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .machines import Machine
from .memory import MEMORY_SHARE
from .seconds import RankProduct, larger, product_seconds

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
