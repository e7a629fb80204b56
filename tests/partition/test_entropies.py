"""Entropy of the labels of parts: by hand, against a loop, of multi-label nodes, of parts without labels."""

import math

import numpy as np
import pytest

from spgnn.errors import GraphError, PartitionError
from spgnn.partition.entropies import label_entropies


def slow(labels, owner, k):
    per_part, counts = [], []
    for part in range(k):
        own = [label for label, p in zip(labels.tolist(), owner.tolist()) if p == part and label >= 0]
        shares = [own.count(c) / len(own) for c in set(own)]
        per_part.append(sum(-p * math.log2(p) for p in shares))
        counts.append(len(own))
    return per_part, sum(h * n for h, n in zip(per_part, counts)) / max(sum(counts), 1)


@pytest.mark.parametrize("seed", range(20))
def test_entropies_equal_a_loop_over_nodes(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(7, 60)), int(rng.integers(1, 7))
    labels, owner = rng.integers(-1, 5, n), rng.permutation(np.arange(n) % k)
    per_part, average = label_entropies(labels, owner, k)
    expected, expected_average = slow(labels, owner, k)
    np.testing.assert_allclose(per_part, expected, atol=1e-12)
    assert average == pytest.approx(expected_average, abs=1e-12)


def test_multi_label_entropies_add_up_over_the_labels():
    labels = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0], [1, 0, 0]])
    per_part, average = label_entropies(labels, np.array([0, 0, 1, 1]), 2)
    assert per_part.tolist() == [1, 1] and average == 1


def test_class_numbers_may_be_far_apart():
    labels, owner = np.array([2**62, 0, 7, 7, -1]), np.array([0, 0, 1, 1, 1])
    per_part, average = label_entropies(labels, owner, 1000)
    assert per_part.tolist() == [1] + [0] * 999 and average == 0.5


def test_labels_or_owners_that_do_not_fit_are_refused():
    with pytest.raises(GraphError, match="expected an entry or row for each of 3"):
        label_entropies(np.zeros(2, int), np.zeros(3, int), 1)
    with pytest.raises(PartitionError):
        label_entropies(np.zeros(3, int), np.array([0, 1, 2]), 2)
