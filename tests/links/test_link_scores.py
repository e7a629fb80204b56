"""Scores of links are those of their formulas, ties in the mean of all orders."""

from itertools import permutations

import numpy as np
import pytest

from spgnn.links import LinkRanks, auc_and_ap, link_scores, recommender_scores


def ranks_of(*pairs):
    return LinkRanks(*np.array(pairs).T)


def test_link_scores_are_of_mean_ranks_with_the_others_beside():
    assert link_scores(ranks_of((0, 0), (1, 2), (9, 0), (10, 4))) == pytest.approx(
        {
            "mrr": (1 + 1 / 3 + 1 / 10 + 1 / 13) / 4,
            "mrr_optimistic": (1 + 1 / 2 + 1 / 10 + 1 / 11) / 4,
            "mrr_pessimistic": (1 + 1 / 4 + 1 / 10 + 1 / 15) / 4,
            "hits@1": 0.25,
            "hits@3": 0.5,
            "hits@10": 0.75,
        }
    )


def test_recommender_scores_by_hand():
    found = recommender_scores(np.array([7, 3, 7, 3, 3]), ranks_of((0, 0), (1, 0), (2, 0), (5, 0), (1, 1)), k=3)
    # User 7 has ranks 1 and 3; user 3 has ranks 2, 6, and 2 or 3.
    assert found["recall@3"] == pytest.approx((1 + 2 / 3) / 2)
    gain = {rank: 1 / np.log2(1 + rank) for rank in (1, 2, 3)}
    of_3 = (gain[2] + (gain[2] + gain[3]) / 2) / sum(gain.values())
    assert found["ndcg@3"] == pytest.approx(((gain[1] + gain[3]) / (gain[1] + gain[2]) + of_3) / 2)


@pytest.mark.parametrize("k", [1, 2, 3, 20])
def test_recommender_scores_are_the_mean_over_all_orders_of_equal_scores(k):
    score_uI = np.array([[3, 1, 1, 1, 2, 1], [0, 0, 5, 0, 5, 0], [1, 2, 3, 4, 5, 6]])
    held = [[0, 1, 3], [2, 4, 5], [0]]
    recalls, gains = [], []
    for score_I, items in zip(score_uI, held):
        orders = {tuple(np.lexsort((order, -score_I))) for order in permutations(range(6))}
        is_hit = np.isin(np.array(sorted(orders)), items)[:, :k]
        discount = 1 / np.log2(2 + np.arange(is_hit.shape[1]))
        recalls.append(np.mean(is_hit.sum(1) / len(items)))
        gains.append(np.mean(is_hit @ discount) / discount[: len(items)].sum())
    pairs = [((score > score[i]).sum(), (score == score[i]).sum() - 1) for score, of in zip(score_uI, held) for i in of]
    found = recommender_scores(np.repeat([4, 9, 2], [3, 3, 1]), ranks_of(*pairs), k)
    assert found == pytest.approx({f"recall@{k}": np.mean(recalls), f"ndcg@{k}": np.mean(gains)})


def test_auc_and_ap_are_those_of_all_pairs_and_of_all_thresholds():
    rng = np.random.default_rng(0)
    for n_values in (2, 7, 1000):
        positive, negative = rng.integers(0, n_values, 60) + n_values // 3, rng.integers(0, n_values, 90)
        auc, ap = auc_and_ap(positive, negative)
        pairs = positive[:, None] - negative
        assert auc == pytest.approx(np.mean((pairs > 0) + (pairs == 0) / 2))
        expected = recall = 0
        for value in np.unique([*positive, *negative])[::-1]:
            hits, wrong, before = (positive >= value).sum(), (negative >= value).sum(), recall
            recall = hits / len(positive)
            expected += (recall - before) * hits / (hits + wrong)
        assert ap == pytest.approx(expected)
    assert auc_and_ap(np.ones(3), np.zeros(2)) == (1, 1) and auc_and_ap(np.ones(3), np.ones(1)) == (0.5, 0.75)
    assert np.isnan(auc_and_ap(np.ones(3), np.zeros(0))).all()
