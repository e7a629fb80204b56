"""Parts that are cut for hosts first: balance on both levels, contiguous parts of a host, rows that keep their work."""

import numpy as np
import pytest

from spgnn.data import load_graph
from spgnn.errors import UsageError
from spgnn.partition import PARTITIONERS, part_graph
from spgnn.partition.hosts import equal_hosts, host_of, within
from spgnn.partition.metrics import row_work, rows_PP
from spgnn.partition.registry import Method

H, K = 2, 6
METHODS = ["metis", "volume", "block", "random", "entropy", "spring", "spring+", "dbh", "greedy", "hdrf", "2psl"]


@pytest.fixture(scope="module")
def graph():
    return load_graph("sbm:n=1500")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_cuts_for_hosts_first_and_inside_each_with_the_work_of_whole_rows(graph, monkeypatch, method):
    seen, inner = [], PARTITIONERS[method]

    def partition_by(graph, k, *, seed, balance, **options):
        seen.append((graph, k, seed, balance))
        return inner(graph, k, seed=seed, balance=balance, **options)

    monkeypatch.setitem(PARTITIONERS, method, Method(method, partition_by, inner.options))
    part = part_graph(graph, K, method, seed=4, hosts=H, balance=1.1)
    assert [call[1:] for call in seen] == [(k, 4, np.sqrt(1.1)) for k in (H, K // H, K // H)]
    whole = seen[0][0]
    host_N = part.owner_N // (K // H)
    np.testing.assert_array_equal(host_N, inner(whole, H, seed=4, balance=np.sqrt(1.1)))
    for host, (inside, *_) in enumerate(seen[1:]):
        node_n = np.flatnonzero(host_N == host)
        np.testing.assert_array_equal(row_work(inside.A), row_work(whole.A)[node_n])
        got = inner(inside, K // H, seed=4, balance=np.sqrt(1.1))
        np.testing.assert_array_equal(part.owner_N[node_n] - host * (K // H), got)
    np.testing.assert_array_equal(part.owner_N, part_graph(graph, K, method, seed=4, hosts=H, balance=1.1).owner_N)


@pytest.mark.parametrize("use", ["undirected", "directed"])
@pytest.mark.parametrize("method", ["metis", "volume", "block"])
def test_the_work_of_hosts_and_of_parts_is_balanced(graph, method, use):
    graph = graph.with_edges(use)
    part = part_graph(graph, K, method, hosts=H)
    work_k = np.bincount(part.owner_N, row_work(graph.in_use().A), minlength=K)
    for load in (work_k, work_k.reshape(H, -1).sum(1)):
        assert load.max() <= 1.031 * load.mean()


def test_inside_a_host_rows_of_others_are_on_the_diagonal(graph):
    A, node_n = graph.in_use().A, np.arange(0, 1500, 7)
    inside = within(graph.in_use(), node_n).A.toarray()
    want = (A.toarray() != 0)[np.ix_(node_n, node_n)].astype(float)
    want[np.diag_indices(len(node_n))] += np.diff(A.indptr)[node_n] - want.sum(1)
    np.testing.assert_array_equal(inside, want)


def test_fewer_rows_cross_between_hosts_than_between_parts_dealt_to_them():
    graph = load_graph("grid:rows=60,cols=60")
    between = lambda part: rows_PP(graph.in_use().A, part.owner_N // 4, 4).sum()
    assert between(part_graph(graph, 16, hosts=4)) < between(part_graph(graph, 16))


@pytest.mark.parametrize("hosts", [0, 4, 12])
def test_hosts_that_do_not_divide_k_are_refused(graph, hosts):
    with pytest.raises(UsageError, match=f"hosts = {hosts}; expected a divisor of k = 6"):
        part_graph(graph, K, hosts=hosts)


def test_ranks_in_equal_blocks_are_cut_by_host():
    assert equal_hosts(host_of(6, 2), 6) == 2 and equal_hosts(host_of(8, 2), 4) == 2
    assert equal_hosts(np.array([0, 1, 0, 1]), 4) == equal_hosts(np.array([0, 0, 0, 1]), 4) == 1
    assert equal_hosts(host_of(6, 2), 3) == equal_hosts(np.zeros(4, int), 4) == 1
