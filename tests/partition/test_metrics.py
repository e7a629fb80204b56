"""The metrics of a partition equal their definitions, counted one nonzero at a time; the entropies of its labels."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spgnn.errors import GraphError, PartitionError
from spgnn.graph import graph_from_coo
from spgnn.partition.metrics import label_entropies, metrics, rows_PP


def counted(A, owner_N, k):
    """rows_PP and metrics from their definitions, in Python sets and loops."""
    n = A.shape[0]
    edges = [(i, int(j)) for i in range(n) for j in A.indices[A.indptr[i] : A.indptr[i + 1]]]
    sent = {(int(owner_N[j]), int(owner_N[i]), j) for i, j in edges if owner_N[i] != owner_N[j]}
    table = np.zeros((k, k), int)
    for q, p, _ in sent:
        table[q, p] += 1
    send = [sum(table[q, p] for p in range(k)) for q in range(k)]
    recv = [sum(table[q, p] for q in range(k)) for p in range(k)]
    work, nodes = [0] * k, [0] * k
    for v in range(n):
        nodes[owner_N[v]] += 1
        work[owner_N[v]] += 1 + sum(i == v for i, _ in edges)
    holders = [{int(owner_N[v])} | {p for _, p, j in sent if j == v} for v in range(n)]
    return table, {
        "total_rows": len(sent),
        "max_send_rows": max(send),
        "mean_send_rows": len(sent) / k,
        "max_over_mean_send": max(send) * k / len(sent) if sent else 1.0,
        "max_recv_rows": max(recv),
        "messages": sum(table[q, p] > 0 for q in range(k) for p in range(k)),
        "edge_cut": sum(owner_N[i] != owner_N[j] for i, j in edges),
        "replication_factor": sum(map(len, holders)) / n,
        "nnz_imbalance": max(work) * k / sum(work),
        "node_imbalance": max(nodes) * k / n,
    }


@st.composite
def partitioned_graphs(draw):
    n, k = draw(st.integers(1, 14)), draw(st.integers(1, 6))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=50))
    src, dst = zip(*edges) if edges else ((), ())
    graph = graph_from_coo(np.array(src, np.int64), np.array(dst, np.int64), n)
    owner_N = np.array(draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)), np.int32)
    return graph.A, owner_N, k


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(partitioned_graphs())
def test_metrics_and_rows_equal_a_count_by_hand_on_random_directed_graphs(case):
    A, owner_N, k = case
    table, expected = counted(A, owner_N, k)
    np.testing.assert_array_equal(rows_PP(A, owner_N, k), table)
    assert metrics(A, owner_N, k) == pytest.approx(expected, rel=1e-12)


def test_edge_cut_is_the_same_over_several_chunks_of_rows():
    n = 200_000
    graph = graph_from_coo(np.arange(n - 1), np.arange(1, n), n)
    owner_N = (np.arange(n) % 2).astype(np.int32)
    assert metrics(graph.A, owner_N, 2)["edge_cut"] == n - 1


def test_a_thousand_parts_are_counted_as_a_sorted_set_counts_them():
    rng = np.random.default_rng(5)
    graph = graph_from_coo(rng.integers(0, 3000, 20_000), rng.integers(0, 3000, 20_000), 3000)
    k, owner_N = 1024, rng.permutation(3000).astype(np.int32) % 1024
    coo = graph.A.tocoo()
    reader, owner = owner_N[coo.row], owner_N[coo.col]
    keys = np.unique(coo.col[reader != owner].astype(np.int64) * k + reader[reader != owner])
    expected = np.zeros((k, k), np.int64)
    np.add.at(expected, (owner_N[keys // k], keys % k), 1)
    np.testing.assert_array_equal(rows_PP(graph.A, owner_N, k), expected)


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
