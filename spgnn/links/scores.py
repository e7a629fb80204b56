"""Scores of links: of ranks of q queries, of held-out items of users, and of p pairs with and m without a link."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.links import TEST, VAL, Links
from .ranks import LinkRanks


def link_scores(ranks: LinkRanks) -> dict[str, float]:
    """Return mrr, hits@1, hits@3 and hits@10 by mean ranks, and mrr_optimistic and mrr_pessimistic."""
    scores = {
        "mrr": ranks.mrr(),
        "mrr_optimistic": ranks.mrr("optimistic"),
        "mrr_pessimistic": ranks.mrr("pessimistic"),
    }
    return scores | {f"hits@{most}": ranks.hits(most) for most in (1, 3, 10)}


def rank_tables(links: Links, rank_T2: np.ndarray) -> dict[str, Any]:
    """Return scores of the test links, of those of val without any, by their mean ranks (T, 2), in several groups.

    per_relation  a row for each relation that has some, the most frequent first; None without relations.
    seen, unseen  of links both of whose ends a training link reaches, and of the others.
    """
    of = links.of(TEST) if len(links.of(TEST)) else links.of(VAL)

    def scores(group_t: np.ndarray, n_groups: int) -> list[dict[str, Any]]:
        values = {"mrr": 1 / rank_T2[of].astype(np.float64)} | {f"hits@{k}": rank_T2[of] <= k for k in (1, 3, 10)}
        sums = {name: np.bincount(group_t, value.mean(1), n_groups).tolist() for name, value in values.items()}
        counts = enumerate(np.bincount(group_t, minlength=n_groups).tolist())
        return [{"links": n} | {name: sums[name][g] / n if n else None for name in sums} for g, n in counts]

    seen, unseen = scores(links.is_unseen(of).astype(np.int64), 2)
    found: dict[str, Any] = {"seen": seen, "unseen": unseen}
    if links.relations is not None:
        rows = zip(links.relations, scores(links.relation_T[of], links.n_relations))
        named: list[dict[str, Any]] = [{"relation": name} | row for name, row in rows if row["links"]]
        found["per_relation"] = sorted(named, key=lambda row: -row["links"])
    return found


def recommender_scores(user_q: np.ndarray, ranks: LinkRanks, k: int = 20) -> dict[str, float]:
    """Return recall@k = h / H and ndcg@k = sum_h 1 / log2(1 + rank) / sum_(i <= min(k, H)) 1 / log2(1 + i).

    Means over the users of queries (user_q[i], a held-out item), ranked among all items but those that the user trains
    with; h of a user's H held-out items have a rank of at most k. Expectations over random orders of candidates with
    equal scores: a rank is uniform on above + 1 to above + equal + 1. Source: He et al. 2020 (LightGCN), 4.1.
    """
    gain_k = np.concatenate([[0], np.cumsum(1 / np.log2(2 + np.arange(k)))])  # of the first ranks together
    first_q, last_q = np.minimum(ranks.above_q, k), np.minimum(ranks.above_q + ranks.equal_q + 1, k)
    _, user_q, held = np.unique(user_q, return_inverse=True, return_counts=True)
    hits = np.bincount(user_q, (last_q - first_q) / (ranks.equal_q + 1))
    gains = np.bincount(user_q, (gain_k[last_q] - gain_k[first_q]) / (ranks.equal_q + 1))
    recall, ndcg = np.mean(hits / held), np.mean(gains / gain_k[np.minimum(held, k)])
    return {f"recall@{k}": float(recall), f"ndcg@{k}": float(ndcg)}


def auc_and_ap(positive_p: np.ndarray, negative_m: np.ndarray) -> tuple[float, float]:
    """Return ROC-AUC and average precision of the scores of positives and negatives, exact; nan without either.

    The first is the share of pairs of both that are ordered rightly, equal ones by half; the second is
    sum_i (R_i - R_(i-1)) P_i over the distinct scores, descending, R_i and P_i recall and precision down to score i.
    """
    if not (len(positive_p) and len(negative_m)):
        return float("nan"), float("nan")
    values, place = np.unique(np.concatenate([positive_p, negative_m]), return_inverse=True)
    positive = np.bincount(place[: len(positive_p)], minlength=len(values))
    negative = np.bincount(place[len(positive_p) :], minlength=len(values))
    auc = positive @ (np.cumsum(negative) - negative / 2) / (len(positive_p) * len(negative_m))
    hits, taken = np.cumsum(positive[::-1]), np.cumsum((positive + negative)[::-1])
    return float(auc), float(positive[::-1] @ (hits / taken) / len(positive_p))
