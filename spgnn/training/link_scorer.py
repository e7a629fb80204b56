"""LinkScorer: exact ranks of links among all candidates, ROC-AUC and average precision; what an evaluation of links needs.

Shapes: N nodes, n own rows, F columns of Z, q queries.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
import torch

from ..config.names import Task
from ..distgraph import DistGraph
from ..graph.links import MESSAGE, TEST, TRAIN, VAL, Links
from ..layers.decoders import Decoder, MLPScore
from ..links.mlp_ranks import MLPCandidates
from ..links.ranks import Candidates, LinkRanks
from ..links.scored_pairs import negatives_of
from ..links.scores import auc_and_ap, link_scores, recommender_scores
from ..spmm.chains.autograd import mixed_precision
from ..spmm.kernels.buffers import sum_dtype
from ..terminal import say
from .metrics import SCORES, SPLITS
from .not_finite import naming_source

WHILE_TRAINING = 4096  # validation links that are ranked after an epoch; all are at the end
QUERIES = 4096  # that all ranks hold at once
LONG = 1e12  # multiply-adds from which on a line says what is ranked
ALL = (MESSAGE, TRAIN, VAL, TEST)


class LinkScorer:
    """Ranks the links of val and test among all nodes, without those that are known.

    Collective, as every method.
    """

    task: Task = "links"

    def __init__(self, model: torch.nn.Module, dgraph: DistGraph, decoder: Decoder, seed: int):
        assert dgraph.links is not None
        self.model, self.dgraph, self.decoder, self.links, self.seed = model, dgraph, decoder, dgraph.links, seed
        self._ranks: np.ndarray | None = None
        self._known: dict[tuple, sp.csr_array] = {}

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores of these links; recall and NDCG are of users."""
        return tuple(
            name for name in SCORES["links"] if self.links.n_sources or not name.startswith(("recall", "ndcg"))
        )

    def labels(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield nothing: links have no labels."""
        yield from ()

    def split(self) -> np.ndarray:
        """Return what each link is for, (T,) int8: 0 train, 1 val, 2 test, -1 for a message alone."""
        return self.links.split_T

    @torch.no_grad()
    def logits(self) -> torch.Tensor:
        """Return the rows Z of the own nodes in evaluation mode, (n, F) float32 or float64."""
        self.model.eval()
        with mixed_precision(self.dgraph.A):
            Z_nF = self.model(self.dgraph.A, self.dgraph.X)
        return Z_nF.to(sum_dtype(Z_nF.dtype)).contiguous()

    def predictions(self) -> np.ndarray:
        """Return the mean rank of the target of each link, and of its source unless sources are users, (T, 2) or (T, 1) float32.

        NaN of links that are neither of val nor of test.
        """
        if self._ranks is None:
            self.final()
        assert self._ranks is not None
        return self._ranks

    def scored(self, Z_nF: torch.Tensor | None = None) -> dict[str, dict[str, float]]:
        """Return split -> scores while training: of at most WHILE_TRAINING validation links, NaN of the other splits."""
        val = self.links.of(VAL)
        if len(val) > WHILE_TRAINING:
            val = np.sort(np.random.default_rng(self.seed).permutation(val)[:WHILE_TRAINING])
        none = dict.fromkeys(self.metrics, float("nan"))
        Z_nF = self.logits() if Z_nF is None else Z_nF
        return dict.fromkeys(SPLITS, none) | {"val": self.scores_of(Z_nF, val, VAL)}

    def final(self) -> dict[str, dict[str, float]]:
        """Return split -> scores of all links of val and test; NaN of train."""
        Z_nF, none = self.logits(), dict.fromkeys(self.metrics, float("nan"))
        ways = 1 if self.links.is_directed_query else 2
        self._ranks = np.full((len(self.links.split_T), ways), np.nan, np.float32)
        return {"train": none} | {SPLITS[role]: self.scores_of(Z_nF, self.links.of(role), role) for role in (VAL, TEST)}

    @torch.no_grad()
    def scores_of(self, Z_nF: torch.Tensor, links_t: np.ndarray, role: int) -> dict[str, float]:
        """Return the scores of some links: of ranks without what is known; of users, also without what they trained on."""
        links, found = self.links, dict.fromkeys(self.metrics, float("nan"))
        if not len(links_t):
            return found
        with naming_source(self.model, self.dgraph, self.logits):
            ranks = self.ranks(Z_nF, links_t)
        if self._ranks is not None:
            self._ranks[links_t] = ranks.rank_q().reshape(-1, len(links_t)).T
        found |= link_scores(ranks)
        if links.n_sources:
            seen = (MESSAGE, TRAIN) if role == VAL else (MESSAGE, TRAIN, VAL)
            found |= recommender_scores(links.source_T[links_t], self.ranks(Z_nF, links_t, seen))
        drawn = negatives_of(links, 1, self.seed, ALL)
        links_t = links_t[drawn.is_possible(links.source_T[links_t], links.target_T[links_t])]
        if not len(links_t):
            return found
        source_t, target_t = links.source_T[links_t], links.target_T[links_t]
        node_tk, is_source_tk = drawn.draw(source_t, target_t, links_t, 0, self.dgraph.A.threads)
        node_t, is_source_t = node_tk[:, 0], is_source_tk[:, 0]
        wrong = np.where(is_source_t, node_t, source_t), np.where(is_source_t, target_t, node_t)
        scores = [self.pair_scores(Z_nF, *ends, links.relation_T[links_t]) for ends in ((source_t, target_t), wrong)]
        found["roc_auc"], found["average_precision"] = auc_and_ap(*scores)
        return found

    def pair_scores(
        self, Z_nF: torch.Tensor, source_p: np.ndarray, target_p: np.ndarray, relation_p: np.ndarray
    ) -> np.ndarray:
        """Return the scores of pairs (p,), on all ranks."""
        candidates, scores = self.candidates(Z_nF), [np.empty(0, Z_nF.numpy().dtype)]
        for start in range(0, len(source_p), QUERIES):
            at = slice(start, start + QUERIES)
            scores.append(candidates.scores(self.query(Z_nF, source_p[at], relation_p[at]), target_p[at]))
        return np.concatenate(scores)

    def ranks(self, Z_nF: torch.Tensor, links_t: np.ndarray, seen: tuple[int, ...] = ALL) -> LinkRanks:
        """Return the rank of each link among the targets, and among the sources unless those are users.

        Args: seen  roles of the links that are left out of the candidates, but for the link itself.
        """
        links, ways = self.links, (False,) if self.links.is_directed_query else (False, True)
        if len(ways) * len(links_t) * self.dgraph.n_nodes * Z_nF.shape[1] > LONG and self.dgraph.comm.rank == 0:
            say(f"ranking {len(ways) * len(links_t):,} queries among {self.dgraph.n_nodes:,} nodes")
        above, equal = [], []
        for is_reversed in ways:
            candidates = self.candidates(Z_nF, is_reversed)
            known = self.known(seen, is_reversed)
            nodes, ends = (links.target_T, links.source_T) if is_reversed else (links.source_T, links.target_T)
            for at, x_qF in self._queries(Z_nF, links_t, is_reversed):
                of = links_t[at]
                rows = nodes[of].astype(np.int64) * links.n_relations + links.relation_T[of]
                left_out = known[rows]
                found = candidates.ranks(
                    x_qF, ends[of], (left_out.indptr.astype(np.int64), left_out.indices.astype(np.int64))
                )
                above.append(found.above_q)
                equal.append(found.equal_q)
        return LinkRanks(np.concatenate(above), np.concatenate(equal))

    def candidates(self, Z_nF: torch.Tensor, is_reversed: bool = False) -> Candidates:
        """Return the rows that queries are scored with: of all nodes, or of the items."""
        among = self.links.among if self.links.n_sources else None
        if isinstance(self.decoder, MLPScore):
            return MLPCandidates(self.dgraph, Z_nF, among, self.decoder, is_reversed)
        return Candidates(self.dgraph, Z_nF, among)

    def known(self, roles: tuple[int, ...], is_reversed: bool) -> sp.csr_array:
        """Return Links.known, kept from one evaluation to the next."""
        key = roles, is_reversed and not self.links.is_both
        if key not in self._known:
            self._known[key] = self.links.known(*key)
        return self._known[key]

    @torch.no_grad()
    def query(
        self, Z_nF: torch.Tensor, node_q: np.ndarray, relation_q: np.ndarray, is_reversed: bool = False
    ) -> np.ndarray:
        """Return x of nodes and relations, (q, F), on all ranks."""
        rows_qF = torch.from_numpy(Candidates(self.dgraph, Z_nF).rows(node_q))
        return np.ascontiguousarray(self.decoder.query(rows_qF, torch.from_numpy(relation_q), is_reversed).numpy())

    def _queries(self, Z_nF: torch.Tensor, links_t: np.ndarray, is_reversed: bool):
        """Yield (places in links_t, x of them (q, F)), on all ranks."""
        links = self.links
        nodes = (links.target_T if is_reversed else links.source_T)[links_t]
        for start in range(0, len(links_t), QUERIES):
            at = slice(start, start + QUERIES)
            yield at, self.query(Z_nF, nodes[at], links.relation_T[links_t[at]], is_reversed)


def note_of(links: Links) -> str:
    """Return what val is while a model trains, "" where it is of all links."""
    count = len(links.of(VAL))
    if count <= WHILE_TRAINING:
        return ""
    return f"val of an epoch is of {WHILE_TRAINING:,} of the {count:,} val links, drawn once; at the end all are ranked"
