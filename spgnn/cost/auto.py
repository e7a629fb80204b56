"""What "auto" chooses from counts alone: the scheme of the exchanges, and row pruning.

Shapes: P ranks; q sends, p receives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .machines import Machine
from .seconds import RankProduct, cheaper_scheme

WIDTH = 64  # columns of the product that is compared; the times of both schemes grow alike with it
SAVES = 0.95  # pruning has to take less than this share of the work, or the second operator is not worth its memory
MEMORY_SHARE = 0.8  # of a host's memory for pruned steps: the rest is for what is not predicted, and for others


@dataclass(frozen=True, slots=True, eq=False)
class RankCounts:
    """What each rank of a job multiplies and sends in one product with A.

    own_P, ghost_P  nonzeros with own rows and with ghost rows, all of them at the reader; rows_P: own rows.
    columns_PP, cover_PP  rows that q sends p under each scheme; moved_PP: nonzeros that q multiplies for p under cover.
    """

    own_P: np.ndarray
    ghost_P: np.ndarray
    rows_P: np.ndarray
    columns_PP: np.ndarray
    cover_PP: np.ndarray
    moved_PP: np.ndarray


def auto_scheme(counts: RankCounts, machine: Machine, itemsize: int) -> tuple[str, str]:
    """Return cover or columns, whichever is faster on a machine as its ranks are placed, and why in a sentence."""
    shared = {"width": WIDTH, "own_P": counts.own_P, "out_P": counts.rows_P, "row_bytes": WIDTH * itemsize}
    columns, cover = (
        RankProduct(
            ghost_P=ghost_P,
            table_P=counts.rows_P + rows_PP.sum(axis=0),
            rows_PP=rows_PP,
            sender_P=sender_P,
            **shared,
        )
        for rows_PP, ghost_P, sender_P in (
            (counts.columns_PP, counts.ghost_P, None),
            (counts.cover_PP, counts.ghost_P - counts.moved_PP.sum(axis=0), counts.moved_PP.sum(axis=1)),
        )
    )
    return cheaper_scheme(columns, cover, machine, itemsize)


def pruning_saves(full: float, pruned: float, eval_every: int, is_random: bool) -> bool:
    """Return whether training steps that compute some rows save time over steps that compute all.

    A step is three passes: forward, and backward for weights and inputs. Evaluations compute all rows; where nothing is
    random, steps of all rows need none, as each gives the scores of the one before.
    Args: full, pruned  multiply-adds of a forward pass over all rows, and over those that reach a training node.
    """
    evaluation = full / eval_every
    return 3 * pruned <= SAVES * (3 * full + (evaluation if is_random else 0)) - evaluation


def pruning_fits(full_bytes: float, pruned_bytes: float, host_bytes: float) -> bool:
    """Return whether pruned steps leave a host enough memory, or take no more of it than steps of all rows do.

    Args: full_bytes, pruned_bytes  that all ranks of the host need with steps of all rows, and with pruned ones.
    """
    return pruned_bytes <= max(MEMORY_SHARE * host_bytes, full_bytes)
