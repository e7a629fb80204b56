"""What "auto" chooses from counts alone: the scheme of the exchanges, and row pruning.

Shapes: P ranks; q sends, p receives.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .machines import Machine
from .memory import MEMORY_SHARE
from .seconds import RankProduct, cheaper_scheme

WIDTH = 64  # columns of the product that is compared; the times of both schemes grow alike with it
SAVES = 0.95  # pruning has to take less than this share of the work, or the second operator is not worth its memory


def auto_scheme(counts: Mapping[str, np.ndarray], machine: Machine, itemsize: int) -> tuple[str, str]:
    """Return the scheme that is fastest on a machine as its ranks are placed, and why in a sentence.

    Args: counts  of one product with A: n own rows of each rank, own_nnz and ghost_nnz with own and with ghost rows, all of
                  them at the reader, (P,); columns_PP and cover_PP, rows that q sends p under each scheme; moved_PP,
                  nonzeros that q multiplies for p under cover. two_tier_PP, two_tier_moved_PP where ranks are on
                  several hosts and the two-tier exchange may be taken.
    """
    shared = {"width": WIDTH, "own_P": counts["own_nnz"], "out_P": counts["n"], "row_bytes": WIDTH * itemsize}
    tables = {"columns": ("columns_PP", ""), "cover": ("cover_PP", "moved_PP")}
    if "two_tier_PP" in counts:
        tables["two-tier"] = ("two_tier_PP", "two_tier_moved_PP")
    products = {}
    for name, (rows, moved) in tables.items():
        rows_PP, moved_PP = counts[rows], counts[moved] if moved else np.zeros_like(counts[rows])
        products[name] = RankProduct(
            ghost_P=counts["ghost_nnz"] - moved_PP.sum(axis=0), table_P=counts["n"] + rows_PP.sum(axis=0),
            rows_PP=rows_PP, sender_P=moved_PP.sum(axis=1), is_relayed=name == "two-tier", **shared,
        )  # fmt: skip
    return cheaper_scheme(products, machine, itemsize)


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
