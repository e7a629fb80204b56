"""The exchange of rows of pairs in the first epoch of links: its bytes, and what it takes of a rank; the draw is known.

Shapes: T training links, K negatives of each, U updates, P ranks; q sends, p receives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..config import MeasureConfig, PlanConfig, TrainConfig
from ..cost.memory import sum_bytes
from ..graph.links import MESSAGE, TRAIN, Links
from .volume_report import Exchange, VolumeReport

if TYPE_CHECKING:
    from ..cost.seconds import EpochTime

KNOWN_BYTES = 50  # of a known link, while lists of negatives and of what is left out of ranks are made
STATES = 4  # arrays as large as learned rows: gradient, two moments of Adam, the best ones


class LinkRows:
    """The rows of the first epoch; see Objective and LinkStep, which exchange them.

    Args: F  columns of Z; itemsize  bytes of an activation.
    """

    def __init__(self, links: Links, config: MeasureConfig | PlanConfig | TrainConfig, F: int, itemsize: int):
        from ..links.scored_pairs import negatives_of

        self.links, self.config, self.F, self.row_bytes = links, config, F, F * sum_bytes(itemsize)
        self.train_T = links.of(TRAIN)
        size, T = config.batch or len(self.train_T), len(self.train_T)
        self.n_updates = -(-T // size)
        order = np.random.default_rng([config.seed, 1]).permutation(T) if self.n_updates > 1 else np.arange(T)
        self.update_T = np.empty(T, np.int64)
        self.update_T[order] = np.arange(T) // size
        self.source_T, target_T = links.source_T[self.train_T], links.target_T[self.train_T]
        self.others_TK = target_T[:, None]
        if config.loss != "softmax":
            drawn = negatives_of(links, config.negatives, config.seed).draw(self.source_T, target_T, self.train_T, 1)
            self.others_TK = np.concatenate([self.others_TK, drawn[0]], axis=1)

    def rows(self, owner_N: np.ndarray, P: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows that q sends p, (P, P): in an update of nodes that pairs of p have, each once.

        And the most that a rank receives, and sends, in an update, (P,) each.
        """
        N, U, rank_T = len(owner_N), self.n_updates, owner_N[self.source_T].astype(np.int64)
        is_other = owner_N[self.others_TK] != rank_T[:, None]
        keys = ((self.update_T * P + rank_T)[:, None] * N + self.others_TK)[is_other]
        place, node = np.divmod(np.unique(keys), N)
        update, rank = np.divmod(place, P)
        most = lambda of: np.bincount(update * P + of, minlength=U * P).reshape(U, P).max(axis=0)
        rows_PP = np.bincount(owner_N[node] * P + rank, minlength=P * P).reshape(P, P)
        return rows_PP, most(rank), most(owner_N[node])

    def added(self, report: VolumeReport) -> VolumeReport:
        """Return the report of an epoch: passes of each update, then rows of pairs, their ids, and gradients back."""
        U, part = self.n_updates, report.pairs.partition
        rows_PP = self.rows(part.owner_N, part.k)[0]
        sent = tuple(replace(of, rows_PP=of.rows_PP * U) for of in report.sent)
        head = (0, "forward", "pairs", self.F, self.row_bytes)
        sent += (Exchange(*head, rows_PP), Exchange(0, "backward", "pairs", self.F, self.row_bytes + 4, rows_PP.T))
        exchanges = [exchange.to_dict() for exchange in sent]
        layers = tuple(
            replace(of, rows_sent=of.rows_sent * U, bytes=of.bytes * U, multiply_adds=of.multiply_adds * U)
            for of in report.layers
        )
        total = sum(exchange["bytes"] for exchange in exchanges)
        return replace(report, sent=sent, exchanges=exchanges, layers=layers, bytes_per_epoch=total)

    def memory(self, owner_N: np.ndarray, P: int, is_learned: bool) -> list[dict[str, int]]:
        """Return the bytes that links take of each rank: links, pairs of an update, their rows, learned rows beside X."""
        links, n_P = self.links, np.bincount(owner_N, minlength=P)
        _, in_P, out_P = self.rows(owner_N, P)
        places = (self.update_T * P + owner_N[self.source_T]).astype(np.int64)
        pairs_P = np.bincount(places, minlength=self.n_updates * P).reshape(-1, P).max(axis=0)
        known = len(links.of(TRAIN, MESSAGE)) * (2 if links.is_both else 1)
        lists = 13 * len(links.split_T) + 9 * len(self.train_T) + KNOWN_BYTES * known + 8 * links.n_nodes
        lists += 28 * links.n_nodes * (P > 1)  # where rows are
        tables = (
            (2 * n_P + 3 * in_P + out_P) if P > 1 else n_P
        )  # rows and gradients, those of others once more on their way
        learned = STATES * n_P * self.config.hidden * self.row_bytes // self.F
        of_pairs = pairs_P * 21 * (1 + self.others_TK.shape[1])
        return [
            {"links": int(lists + of_pairs[p]), "rows of pairs": int(tables[p] * self.row_bytes)}
            | ({"learned rows": int(learned[p])} if is_learned else {})
            for p in range(P)
        ]

    def seconds(self, epoch: EpochTime) -> EpochTime:
        """Return the seconds of the passes of all updates; those of pairs are not predicted."""
        return replace(epoch, **{name: getattr(epoch, name) * self.n_updates for name in epoch.__dataclass_fields__})
