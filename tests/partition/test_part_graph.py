"""Partitioners: block, random, metis and a user's own, all checked in one place."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from spgnn.data import load_graph
from spgnn.errors import GraphError, PartitionError, ResourceError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.partition import (
    PARTITIONERS,
    Partition,
    fill_empty_parts,
    part_graph,
    partition_of,
    partitioner,
)
from spgnn.partition.cover import cover_PP
from spgnn.partition.methods import metis
from spgnn.partition.methods.metis import neighbours
from spgnn.partition.metrics import metrics, rows_PP
from spgnn.partition.stream import STREAMING


def ring(n):
    return graph_from_coo(np.arange(n), (np.arange(n) + 1) % n, n, edges="directed")


def random_directed(n, edges, seed=0):
    rng = np.random.default_rng(seed)
    return graph_from_coo(rng.integers(0, n, edges), rng.integers(0, n, edges), n, edges="directed")


@pytest.fixture
def register():
    """Register a partitioner for one test only."""
    known = dict(PARTITIONERS)
    yield partitioner
    PARTITIONERS.clear()
    PARTITIONERS.update(known)


@pytest.mark.parametrize("method", sorted(PARTITIONERS))
@pytest.mark.parametrize("k", [1, 2, 7, 29, 30, 31, 100])
def test_every_part_owns_a_node_unless_there_are_more_parts_than_nodes(method, k):
    X = np.random.default_rng(1).standard_normal((30, 3))
    part = part_graph(replace(random_directed(30, 90), X=X), k, method)
    used = np.count_nonzero(part.sizes_k)
    assert part.owner_N.dtype == np.int32 and part.k == k
    assert used == min(k, 30) or (method in STREAMING and k > 30 and used >= 1)


@pytest.mark.parametrize("method", sorted(PARTITIONERS))
@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_graph_of_no_or_one_node_or_without_edges_is_partitioned(method, n):
    for k in (1, 2, 3):
        owner_N = part_graph(graph_from_coo([], [], n, X=np.ones((n, 2))), k, method).owner_N
        assert len(owner_N) == n and len(set(owner_N)) == min(n, k)


@pytest.mark.parametrize("method", ["block", "random", "metis"])
def test_the_same_seed_gives_the_same_partition_and_the_metrics_are_the_graphs(method):
    graph = random_directed(200, 800)
    first, second = (part_graph(graph, 5, method, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.owner_N, second.owner_N)
    assert first.metrics == metrics(graph.A, first.owner_N, 5)
    assert first.graph_digest == graph.digest()
    assert np.any(first.owner_N != part_graph(graph, 5, method, seed=4).owner_N) == (method != "block")


def slow_block(work, k):
    """Ends of k blocks: each at the row where the work so far is nearest to its share, and one row a block at least."""
    n, so_far = len(work), [sum(work[:i]) for i in range(len(work) + 1)]
    ends = []
    for p in range(1, k):
        share = so_far[-1] * p / k
        nearest = min(range(n + 1), key=lambda i: (abs(so_far[i] - share), -i))
        ends.append(max(nearest, ends[-1] + 1 if ends else 1))
    return [min(end, n - k + p) for p, end in enumerate(ends, 1)]


@pytest.mark.slow
def test_block_and_random_are_what_they_say_on_200_random_graphs():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 40))
        graph = random_directed(n, int(rng.integers(0, 4 * n)), seed)
        k = int(rng.integers(1, n + 1))
        work = [1 + int(graph.A.indptr[i + 1] - graph.A.indptr[i]) for i in range(n)]
        ends = [0, *slow_block(work, k), n]
        expected = [p for p in range(k) for _ in range(ends[p], ends[p + 1])]
        assert part_graph(graph, k, "block").owner_N.tolist() == expected, seed
        order = np.random.default_rng(seed).permutation(n).tolist()
        assert part_graph(graph, k, "random", seed=seed).owner_N.tolist() == [order.index(v) % k for v in range(n)]


def test_metis_in_two_threads_leaves_stdout_where_it_was(monkeypatch):
    """What METIS prints goes to a file meanwhile; a second thread must not take that for stdout and put it back as such."""
    dup2 = os.dup2
    monkeypatch.setattr("os.dup2", lambda *files: (dup2(*files), time.sleep(0.01)))
    before = os.fstat(1)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda seed: part_graph(ring(30), 3, "metis", seed=seed), range(8)))
    assert os.path.samestat(os.fstat(1), before)


def test_metis_says_nothing_where_its_parts_are_mended_and_an_error_has_its_last_words(monkeypatch, capfd):
    graph = load_graph("rmat:scale=8,degree=4")
    assert part_graph(graph, 100).sizes_k.min() > 0
    assert capfd.readouterr() == ("", "")

    def fails(*_, **__):
        os.write(1, b"first\n ***too many parts!\n\n")
        raise RuntimeError("code 3")

    monkeypatch.setattr("pymetis.part_graph", fails)
    with pytest.raises(
        ResourceError, match=r"METIS failed on rmat.*: code 3 \(\*\*\*too many parts!\); it needs about"
    ):
        part_graph(graph, 100)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("objective", ["cut", "vol"])
def test_metis_finds_the_two_rings_of_a_graph_of_two_rings(objective):
    src = np.concatenate([np.arange(50), 50 + np.arange(50)])
    dst = np.concatenate([(np.arange(50) + 1) % 50, 50 + (np.arange(50) + 1) % 50])
    part = part_graph(graph_from_coo(src, dst), 2, "metis", objective=objective)
    assert part.metrics["total_rows"] == 0 and part.metrics["node_imbalance"] == 1


def test_metis_balances_the_work_of_the_rows_and_not_their_number():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 60, 3000), rng.integers(0, 60, 3000)
    chain = np.arange(60, 1000)
    graph = graph_from_coo(np.concatenate([src, chain]), np.concatenate([dst, chain + 1]), 1001)
    got = part_graph(graph, 2).metrics
    assert got["nnz_imbalance"] < 1.04 and got["node_imbalance"] > 1.2


def test_metis_sees_a_symmetric_pattern_without_self_loops_only():
    graph = graph_from_coo([0, 1, 2, 2], [1, 1, 0, 3], 5, weights=[1.0, 2.0, -3.0, 3.0])
    lists = neighbours(graph.A)
    np.testing.assert_array_equal(lists.toarray() != 0, np.array(
        [[0, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]], bool))  # fmt: skip
    assert lists.indices.dtype == np.int64 and lists.indptr.dtype == np.int64


def test_a_graph_whose_arrays_were_spoiled_later_is_refused_before_metis():
    graph = ring(10)
    graph.A.indices.flags.writeable = True
    graph.A.indices[3] = -1
    with pytest.raises(GraphError, match="was changed in place .* row 3 has column -1; expected 0 to 9"):
        part_graph(graph, 2)


def test_filling_takes_the_lightest_node_of_the_heaviest_part():
    owner_N = np.array([0, 0, 0, 1, 1, 1])
    work_N = np.array([5, 9, 9, 1, 2, 3])
    np.testing.assert_array_equal(fill_empty_parts(owner_N, work_N, 3), [2, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(owner_N, [0, 0, 0, 1, 1, 1])


def test_a_partitioner_sees_the_reverse_edges_unless_others_were_chosen(register):
    seen = []
    register("look")(lambda graph, k, *, seed, balance: seen.append(graph.nnz) or np.zeros(graph.n_nodes, int))
    stored = graph_from_coo(np.arange(11), np.arange(1, 12))
    for graph in (stored, stored.with_edges("directed")):
        part_graph(graph, 1, "look")
    assert seen == [22, 11]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda n: np.zeros(n + 1, int), "'bad': owner has 13 entries, the graph has 12 nodes"),
        (lambda n: np.zeros(n), "'bad': owner is float64; expected integers, 0 to 2"),
        (lambda n: np.arange(n), "'bad': node 3 has owner 3; expected 0 to 2"),
        (lambda n: -(np.arange(n) == 5).astype(int), "'bad': node 5 has owner -1; expected 0 to 2"),
        (lambda n: np.arange(n) % 2, "'bad': part 2 owns no node"),
        (lambda n: np.zeros((n, 1), int), r"'bad': owner has shape \(12, 1\)"),
        (lambda n: None, r"'bad': owner has shape \(\)"),
        (
            lambda n: (np.zeros(n, int), {"details": 1}),
            "'bad': owner is a ragged tuple; expected one part number per node",
        ),
        (lambda n: 1 // 0, "'bad' failed with ZeroDivisionError"),
        (lambda n: np.full(n, 2**63, np.uint64), "node 0 has owner 9223372036854775808; expected 0 to 2"),
    ],
)
def test_nonsense_from_a_plug_in_is_named_with_node_got_and_expected(register, result, message):
    register("bad")(lambda graph, k, *, seed, balance: result(graph.n_nodes))
    with pytest.raises(PartitionError, match=message):
        part_graph(ring(12), 3, "bad")


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "two", None, 8193, 2**40])
def test_a_k_that_is_no_positive_integer_is_a_usage_error(k):
    with pytest.raises(UsageError, match="k = "):
        part_graph(ring(4), k)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "metsi"}, "'metsi' is not known; did you mean 'metis'"),
        ({"objectiv": "vol"}, "no option 'objectiv'; did you mean 'objective'"),
        ({"objective": "volume"}, "'volume' is not known; did you mean 'vol'"),
        ({"method": "block", "objective": "vol"}, "'block' has no option 'objective'; it has none"),
        ({"method": "hdrf", "weight": "heavy"}, "hdrf: weight = 'heavy'; expected a number"),
        ({"method": "hdrf", "epsilon": float("nan")}, "hdrf: epsilon = nan; expected a number"),
        ({"method": "entropy", "floor": True}, "entropy: floor = True; expected a number"),
    ],
)
def test_options_that_do_not_exist_or_fit_are_usage_errors(options, message):
    with pytest.raises(UsageError, match=message):
        part_graph(ring(8), 2, **options)


def test_a_built_in_name_cannot_be_taken_and_ones_own_can_be_defined_again(register):
    with pytest.raises(UsageError, match="'metis' is built in"):
        register("metis")(lambda graph, k, *, seed, balance: None)
    for value in (0, 1):
        register("mine")(lambda graph, k, *, seed, balance, value=value: np.full(graph.n_nodes, value) * (k - 1))
    assert part_graph(ring(3), 1, "mine").k == 1


def test_what_memory_runs_out_of_is_no_bad_partition(register):
    @register("greedy for memory")
    def hungry(graph, k, *, seed, balance):
        raise MemoryError("std::bad_alloc")

    with pytest.raises(MemoryError):
        part_graph(ring(3), 2, "greedy for memory")


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_a_partition_does_not_change_when_the_array_it_came_from_does(dtype):
    given = np.array([0, 1, 1, 0], dtype)
    for part in (partition_of(ring(4), given), Partition(given, 2), Partition(given[:], 2)):
        given[0] = 1
        assert part.owner_N[0] == 0 and part.owner_N.dtype == np.int32 and given.flags.writeable
        given[0] = 0
        with pytest.raises(ValueError, match="read-only"):
            part.owner_N[0] = 1


@pytest.mark.parametrize("scheme", ["auto", "cover"])
def test_volume_minimises_the_rows_of_the_scheme_that_is_given(scheme):
    graph = load_graph("rmat:scale=9,degree=8,seed=0")
    for_cover = part_graph(graph, 4, "volume", scheme=scheme).owner_N
    np.testing.assert_array_equal(for_cover, part_graph(graph, 4, "volume", objective="cover").owner_N)
    for options in ({}, {"scheme": "columns"}, {"scheme": "broadcast"}, {"scheme": scheme, "objective": "columns"}):
        for_columns = part_graph(graph, 4, "volume", **options).owner_N
        np.testing.assert_array_equal(for_columns, part_graph(graph, 4, "volume", objective="columns").owner_N)
    A = graph.in_use().A
    assert cover_PP(A, for_cover, 4).sum() < cover_PP(A, for_columns, 4).sum()
    assert rows_PP(A, for_columns, 4).sum() < rows_PP(A, for_cover, 4).sum()


def test_methods_without_a_choice_ignore_the_scheme_and_an_unknown_one_is_refused():
    metis = part_graph(ring(30), 3, "metis", scheme="cover").owner_N
    np.testing.assert_array_equal(metis, part_graph(ring(30), 3, "metis").owner_N)
    with pytest.raises(UsageError, match="scheme 'colums' is not known; did you mean 'columns'"):
        part_graph(ring(4), 2, scheme="colums")


def test_a_registered_partitioner_can_depend_on_the_scheme(register):
    @register("two ways", by_scheme={"cover": {"shift": 1}})
    def two_ways(graph, k, *, seed, balance, shift=0):
        return (np.arange(graph.n_nodes) + shift) % k

    owners = {of: part_graph(ring(6), 3, "two ways", scheme=of).owner_N[0] for of in (None, "auto", "cover")}
    assert owners == {None: 0, "auto": 0, "cover": 1}
    assert part_graph(ring(6), 3, "two ways", scheme="cover", shift=2).owner_N[0] == 2


@pytest.mark.parametrize("method", sorted(PARTITIONERS))
def test_seeds_and_balances_of_any_kind_of_number_are_taken_and_others_refused(method):
    graph = ring(20)
    if method == "entropy":
        pytest.skip("needs features")
    part = part_graph(graph, 3, method, seed=np.int64(2**63 - 1), balance=np.float32(1.25))
    assert (part.seed, part.balance) == (2**63 - 1, 1.25)
    for seed in (2**63, 2**64, -1, True, 1.0, "0"):
        with pytest.raises(UsageError, match="seed = .*; expected an integer from 0 to 9223372036854775807"):
            part_graph(graph, 3, method, seed=seed)
    for balance in (0.99, 1e308, float("inf"), float("nan"), True, "1.1"):
        with pytest.raises(UsageError, match=r"balance = .*; expected a number from 1 to 1e\+06"):
            part_graph(graph, 3, method, balance=balance)


@pytest.mark.parametrize(("method", "option", "value"), [
    ("spring", "threshold", 0.25), ("spring", "threshold", 2), ("spring+", "rounds", 3), ("hdrf", "weight", 2), ("2psl", "capacity", 1.5), ("volume", "effort", 0.5), ("volume", "effort", 1), ("entropy", "c", 4),
])  # fmt: skip
def test_options_of_any_kind_of_number_are_taken(method, option, value):
    graph = load_graph("sbm:n=60,classes=3")
    owners = [
        part_graph(graph, 3, method, **{option: number}).owner_N
        for number in (value, np.array([value])[0], np.float32(value) if isinstance(value, float) else np.int16(value))
    ]
    np.testing.assert_array_equal(owners[1:], [owners[0]] * 2)


def test_metis_gives_the_same_parts_with_a_c_library_that_has_no_mallopt(monkeypatch):
    graph, found = random_directed(2000, 8000), []
    for name in ("mallopt", "no_mallopt"):
        monkeypatch.setattr(metis, "MALLOPT", name)
        found.append(part_graph(graph, 4).owner_N)
    np.testing.assert_array_equal(*found)


def test_order_and_rank_are_inverse_and_stable_inside_a_part():
    part = partition_of(ring(6), np.array([1, 0, 2, 0, 1, 1]))
    np.testing.assert_array_equal(part.order_N, [1, 3, 0, 4, 5, 2])
    np.testing.assert_array_equal(part.rank_N[part.order_N], np.arange(6))
    np.testing.assert_array_equal(part.own(1), [0, 4, 5])
    np.testing.assert_array_equal(part.sizes_k, [2, 3, 1])
    most = Partition(np.array([8191, 3, 300, 0, 8191]), 8192)
    assert most.order_N.tolist() == [3, 1, 2, 0, 4] and most.own(8191).tolist() == [0, 4]
