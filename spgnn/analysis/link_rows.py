"""LinkRows: the exchange of rows of pairs in the first epoch of links, whose draw is known: bytes, and memory of a rank.

Shapes: T training links, K negatives of each, U updates, P ranks; q sends, p receives.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..config import MeasureConfig, PlanConfig, TrainConfig
from ..graph.links import TRAIN, Links
from .volume_report import Exchange, VolumeReport

# Bytes of a link and of a node in lists of links, of negatives, of what is left out of ranks, and of where rows are; of a
# pair; arrays as large as learned rows: gradient, two moments of Adam, the best ones.
LINK_BYTES, NODE_BYTES, PAIR_BYTES, STATES = 120, 36, 21, 4


class LinkRows:
    """The rows that Objective exchanges in each update of LinkStep. Args: F columns of Z; row_bytes of a row of them."""

    def __init__(self, links: Links, config: MeasureConfig | PlanConfig | TrainConfig, F: int, row_bytes: int):
        from ..links.scored_pairs import negatives_of

        self.links, self.config, self.F, self.row_bytes, train_T = links, config, F, row_bytes, links.of(TRAIN)
        self.size, T = config.batch or len(train_T), len(train_T)
        self.n_updates = -(-T // self.size)
        order = np.random.default_rng([config.seed, 1]).permutation(T) if self.n_updates > 1 else np.arange(T)
        self.update_T = np.argsort(order) // self.size
        self.source_T, target_T = links.source_T[train_T], links.target_T[train_T]
        self.others_TK = target_T[:, None]
        if config.loss != "softmax":
            drawn = negatives_of(links, config.negatives, config.seed).draw(self.source_T, target_T, train_T, 1)
            self.others_TK = np.concatenate([self.others_TK, drawn[0]], axis=1)

    def rows(self, owner_N: np.ndarray, P: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows of all updates, (P, P), of which each has a node once, and the most of one in and out, (P,)."""
        N, rank_T = len(owner_N), owner_N[self.source_T].astype(np.int64)
        keys_TK = (self.update_T * P + rank_T)[:, None] * N + self.others_TK
        place, node = np.divmod(np.unique(keys_TK[owner_N[self.others_TK] != rank_T[:, None]]), N)
        update, rank = np.divmod(place, P)
        most = lambda of: np.bincount(update * P + of, minlength=self.n_updates * P).reshape(-1, P).max(axis=0)
        rows_PP = np.bincount(owner_N[node] * P + rank, minlength=P * P).reshape(P, P)
        return rows_PP, most(rank), most(owner_N[node])

    def added(self, report: VolumeReport) -> VolumeReport:
        """Return the report of an epoch: passes of each update, then rows of pairs, their ids, and gradients back."""
        U, rows_PP = self.n_updates, self.rows(report.pairs.partition.owner_N, report.k)[0]
        back = Exchange(0, "backward", "pairs", self.F, self.row_bytes + 4, rows_PP.T)  # ids travel as gradients do
        sent = (
            *(replace(of, rows_PP=of.rows_PP * U) for of in report.sent),
            replace(back, direction="forward", row_bytes=self.row_bytes, rows_PP=rows_PP),
            back,
        )
        exchanges, names = [exchange.to_dict() for exchange in sent], ("rows_sent", "bytes", "multiply_adds")
        layers = tuple(replace(of, **{name: U * getattr(of, name) for name in names}) for of in report.layers)
        total = sum(exchange["bytes"] for exchange in exchanges)
        return replace(report, sent=sent, exchanges=exchanges, layers=layers, bytes_per_epoch=total)

    def memory(self, owner_N: np.ndarray, P: int, is_learned: bool) -> list[dict[str, int]]:
        """Return the bytes that links take of each rank: of lists, of rows and gradients of pairs, of learned rows."""
        n_P, (_, in_P, out_P) = np.bincount(owner_N, minlength=P), self.rows(owner_N, P)
        lists = LINK_BYTES * len(self.links.split_T) + NODE_BYTES * len(owner_N)
        lists += PAIR_BYTES * (1 + self.others_TK.shape[1]) * min(self.size, len(self.source_T)) // P
        tables_P = self.row_bytes * (2 * n_P + 3 * in_P + out_P if P > 1 else n_P)
        learned_P = STATES * n_P * self.config.hidden * self.row_bytes // self.F * is_learned
        parts = zip(tables_P.tolist(), learned_P.tolist())
        return [{"links": lists, "rows of pairs": rows, "learned rows": learned} for rows, learned in parts]
