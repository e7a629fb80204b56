"""The metrics of a partition equal their definitions, counted one nonzero at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spgnn.graph import graph_from_coo
from spgnn.partition.metrics import metrics, rows_PP


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
