"""Each streaming partitioner equals its slow reference on 200 random small graphs."""

import numpy as np
import pytest
import scipy.sparse as sp
import streaming as slow
from command_line import in_python
from scipy.sparse.csgraph import breadth_first_order

from spgnn import load_graph
from spgnn.graph import graph_from_coo
from spgnn.partition import part_graph
from spgnn.partition.checks import fill_empty_parts
from spgnn.partition.metrics import rows_PP
from spgnn.partition.stream import StreamPasses, _stream, edge_stream, part_stream
from spgnn.partition.stream import spring as spring_module
from spgnn.partition.stream.spring import node_cap

METHODS = ("spring", "spring+", "dbh", "greedy", "hdrf", "2psl")
GRAPHS = 200
DEFAULT = 60  # of them in the default run; the kinds of random_edges repeat after 30
SEEDS = pytest.mark.parametrize(
    "seeds", [range(DEFAULT), pytest.param(range(DEFAULT, GRAPHS), marks=pytest.mark.full)], ids=["default", "rest"]
)


def random_edges(seed, most_nodes=90):
    """Edges of a graph with hubs, isolated nodes, self-loops and duplicates; once, or in both directions; in any of three orders."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, most_nodes))
    m = int(rng.integers(0, 4 * n))
    edges = (
        np.minimum(rng.geometric(rng.choice([0.05, 0.1, 0.3]), (m, 2)) - 1, n - 1)
        if seed % 2
        else rng.integers(0, n, (m, 2))
    )
    if seed % 3 == 0:
        edges = np.concatenate([edges, edges[:, ::-1]])
    if seed % 5 == 1:
        edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]  # row by row, as a graph's file has them
    elif seed % 5 == 2:
        edges = breadth_first(edges, n)
    # k > N now and then, and now and then more parts than a word has bits.
    k = int(rng.integers(60, 135)) if seed % 10 == 7 else int(rng.integers(1, 9))
    return np.ascontiguousarray(edges, [np.int32, np.int64][seed % 2]), n, k


def breadth_first(edges, n):
    """The edges by the place of their ends in a search from node 0, and from what it does not reach."""
    A = sp.coo_array((np.ones(2 * len(edges)), np.concatenate([edges, edges[:, ::-1]]).T), shape=(n, n)).tocsr()
    reached = breadth_first_order(A, 0, directed=False, return_predecessors=False)
    place = np.empty(n, int)
    place[np.concatenate([reached, np.setdiff1d(np.arange(n), reached)])] = np.arange(n)
    return edges[np.lexsort((place[edges].max(axis=1), place[edges].min(axis=1)))]


def filled(owner, n, k):
    owner = np.array(owner, np.int32)
    return fill_empty_parts(owner, np.ones(n, np.int64), k) if k <= n else owner


@SEEDS
@pytest.mark.parametrize(
    "options", [{}, {"threshold": 0.5}, {"threshold": 2.0}, {"degrees": "online", "threshold": 1.0}], ids=str
)
def test_spring_is_the_algorithm(options, seeds):
    for seed in seeds:
        edges, n, k = random_edges(seed)
        balance = (1.0, 1.05, 1.5)[seed % 3]
        part = part_stream(edges, k, balance=balance, n_nodes=n, **options)
        owner, before, after = slow.spring(
            edges.tolist(), n, k, balance, options.get("threshold", 0.1), options.get("degrees") == "online"
        )
        assert part.details["clusters"].tolist() == before, seed
        assert part.details["merged_clusters"].tolist() == after, seed
        np.testing.assert_array_equal(part.owner_N, filled(owner, n, k), err_msg=f"{seed}")


@SEEDS
@pytest.mark.parametrize("most", [9, 5000, 2**32])
def test_spring_passes_over_no_edge_that_changes_something(most, seeds):
    # In chunks, and with degrees that 15 bits hold in part: edges are passed over by what was known of their nodes before.
    for seed in seeds:
        edges, n, k = random_edges(seed)
        rng = np.random.default_rng(seed)
        edges = rng.permutation(np.concatenate([edges] * 4))
        given = most - 1 - rng.integers(0, min(most, 4000), n) * (rng.random(n) < 0.9)
        chunks, threshold = np.array_split(edges, range(5, len(edges), 5)), (0.02, 0.1, 1.0)[seed % 3]
        part = part_stream(chunks, k, n_nodes=n, degrees=given, threshold=threshold)
        owner, before, after = slow.spring(edges.tolist(), n, k, 1.05, threshold, degrees=given.tolist())
        assert part.details["clusters"].tolist() == before, seed
        assert part.details["merged_clusters"].tolist() == after, seed
        np.testing.assert_array_equal(part.owner_N, filled(owner, n, k), err_msg=f"{seed}")


def test_spring_takes_large_clusters_in_the_order_of_their_sizes():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sizes = rng.permutation([1025, 1100, 1101, 1300, 1300, 1700, 1023, 1024, 40, 3])
        hubs = np.cumsum(sizes) - sizes
        leaves = np.stack([np.repeat(hubs, sizes - 1), np.setdiff1d(np.arange(sizes.sum()), hubs)], axis=1)
        edges = np.concatenate([rng.permutation(leaves), rng.choice(hubs, (30, 2))])
        owner, before, after = slow.spring(edges.tolist(), n := int(sizes.sum()), 3, 1.05, 0.9)
        part = part_stream(edges, 3, n_nodes=n, threshold=0.9)
        assert part.details["clusters"].tolist() == before and max(before) > 1024, seed
        assert part.details["merged_clusters"].tolist() == after and len(after) < len(before), seed
        np.testing.assert_array_equal(part.owner_N, filled(owner, n, 3), err_msg=f"{seed}")


@pytest.fixture
def nothing_is_held(monkeypatch):
    """Leave spring+ no room for the graph itself, as if it were large."""
    monkeypatch.setattr(spring_module, "HELD", 0)


def blocks_of(edges, n, entries, most, k, cap):
    degrees = np.array(slow.degrees_of(edges.tolist(), n), np.uint32)
    return _stream.Blocks(degrees, entries, most, k, cap, 0)


def each_block(blocks, edges):
    while blocks.next():
        blocks.add(edges)
        yield


def test_moves_end_where_no_node_gains_by_another_part_with_room():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n, k, cap = 300, 4, 90
        edges = rng.integers(0, n, (900, 2))
        blocks = blocks_of(edges, n, 200, 100, k, cap)  # about 9 blocks
        blocks.start(rng.integers(0, k, n, np.int32), k)
        for _ in range(40):
            assert sum(1 for _ in each_block(blocks, edges) if blocks.move(2, cap, 0) is None) > 5
        owner, load = blocks.owners(), np.bincount(blocks.owners(), minlength=k)
        counts = np.zeros((n, k), int)
        for u, v in edges[edges[:, 0] != edges[:, 1]]:
            counts[u, owner[v]] += 1
            counts[v, owner[u]] += 1
        price = np.maximum(0, 512 * (load * k - n) // n)
        score = 1024 * counts - counts.sum(axis=1, keepdims=True) * price
        own = score[np.arange(n), owner]
        assert load.max() <= cap
        # A node that moved last pays for itself in its new part: prices differ by that of one node.
        slack = counts.sum(axis=1) * (512 * k // n + 1)
        reachable = np.where((counts > 0) & (load < cap), score, np.iinfo(int).min).max(axis=1)
        assert (reachable <= own + slack).all(), seed


def test_clusters_of_blocks_stay_inside_components_and_below_their_limit():
    rng = np.random.default_rng(0)
    n, group = 400, rng.permutation(np.arange(400) % 20)
    members = [np.flatnonzero(group == g) for g in range(19)]  # those of group 19 have no edge
    edges = rng.permutation(np.concatenate([rng.choice(m, (120, 2)) for m in members]))
    blocks = blocks_of(edges, n, 500, 100, 4, n)
    for most in (3, 8):
        for _ in each_block(blocks, edges):
            blocks.join(most)
    number, count = blocks.clusters()
    degrees = np.array(slow.degrees_of(edges.tolist(), n))
    assert ((number == -1) == (degrees == 0)).all() and count < (degrees > 0).sum() / 3
    assert np.unique(number[number >= 0]).tolist() == list(range(count))
    for c in range(count):
        assert len(np.unique(group[number == c])) == 1 and (number == c).sum() <= 8


def test_a_hub_is_moved_by_a_sample_of_its_neighbours():
    n, k = 6000, 3
    start = np.repeat([0, 1, 2, 0, 1, 2], [1200, 3600, 1200, 2800, 400, 2800]).astype(np.int32)
    leaves = np.arange(1, n)  # more of part 0 come first than are held; parts are equal by nodes without edges
    edges = np.stack([np.zeros(n - 1, int), leaves], axis=1)
    for hub in (0, 1, 2):
        start[0] = hub
        blocks = blocks_of(edges, 2 * n, 1000, 7, k, 2 * n)  # 7,000 of the 11,998 ends are held
        blocks.start(start, k)
        assert sum(1 for _ in each_block(blocks, edges)) <= 8
        blocks.next()
        blocks.add(edges)  # the hub is in the first block
        blocks.move(1, 2 * n, 0)
        assert blocks.owners()[0] == 1


def groups(n, k, rng, degree=12, mixed=0.0):
    """Random edges inside k equal groups of n nodes, a share of them anywhere; the group of each node."""
    group = rng.permutation(np.arange(n) % k)
    order = np.argsort(group, kind="stable").reshape(k, -1)
    u = rng.integers(0, n, n * degree // 2)
    v = order[group[u], rng.integers(0, n // k, len(u))]
    return np.stack([u, np.where(rng.random(len(u)) < mixed, rng.integers(0, n, len(u)), v)], axis=1), group


def test_a_table_that_is_full_keeps_the_heavy_pairs():
    rng = np.random.default_rng(0)
    n, k = 2000, 4
    edges, group = groups(n, k, rng)
    edges = np.concatenate([np.repeat(edges, 8, axis=0), rng.integers(0, n, (4000, 2))])
    cluster = np.arange(n, dtype=np.int32)  # a cluster for each node: some 16,000 pairs
    graph = _stream.ClusterGraph(cluster, n, 12_288)
    graph.add(rng.permutation(edges))
    owner = graph.partition(k, n // k, 0, 2 * len(edges))
    assert sum(np.bincount(group[owner == p]).max() for p in range(k)) > 0.99 * n


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_found_whether_the_graph_is_held_or_not(seed, monkeypatch):
    n, k = 6000, 6
    edges, group = groups(n, k, np.random.default_rng(seed), mixed=0.1)
    cross = (group[edges[:, 0]] != group[edges[:, 1]]).sum()
    for room in (spring_module.HELD, 0):
        monkeypatch.setattr(spring_module, "HELD", room)
        part = part_stream(edges, k, "spring+", seed=seed, n_nodes=n)
        assert bool(room) == ("clusters" not in part.details)
        assert (part.owner_N[edges[:, 0]] != part.owner_N[edges[:, 1]]).sum() <= (1.0 if room else 1.05) * cross


@SEEDS
def test_a_held_graph_is_parted_alike_in_any_order_of_its_stream(seeds):
    for seed in seeds:
        edges, n, k = random_edges(seed, 600)
        rng = np.random.default_rng(seed)
        expected = part_stream(edges, k, "spring+", seed=seed, n_nodes=n)
        assert expected.sizes_k.max(initial=0) <= node_cap(n, k, 1.05)
        for other in (rng.permutation(edges), edges[:, ::-1], np.concatenate([edges, edges[:7], edges[:, ::-1]])):
            owner_N = part_stream(np.ascontiguousarray(other), k, "spring+", seed=seed, n_nodes=n).owner_N
            np.testing.assert_array_equal(owner_N, expected.owner_N, err_msg=f"{seed}")


@pytest.mark.slow
@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("source", ["sbm:n=4000,classes=12,features=1", "rmat:scale=12,degree=8", "wordnet"])
def test_replicas_are_at_most_a_tenth_more_than_those_of_metis(source, is_held, request):
    if not is_held:
        request.getfixturevalue("nothing_is_held")
    graph = load_graph(source).with_edges("undirected")
    for k in (8, 16):
        rows = [rows_PP(graph.A, part_graph(graph, k, method).owner_N, k).sum() for method in ("spring+", "metis")]
        assert rows[0] <= 1.1 * rows[1], k


def cut_of(method, edges, n, k, seed):
    """The cut, and the part of each edge by the loads before and after it, of the fast version edge by edge."""
    d = np.array(slow.degrees_of(edges.tolist(), n), np.uint32)
    cut = {
        "dbh": lambda: _stream.DegreeHash(d, k, seed),
        "greedy": lambda: _stream.Greedy(d, k),
        "hdrf": lambda: _stream.Hdrf(n, k, 1.0, 1.0),
        "2psl": lambda: _stream.TwoPhase(d, k, 1.05, seed),
    }[method]()
    if method == "2psl":
        for chunk in np.array_split(edges, range(7, len(edges), 7)):
            cut.cluster(chunk)
        cut.place_clusters()
    parts = np.full(len(edges), -1)
    for add in (cut.add_inner, cut.add_other) if method == "2psl" else (cut.add,):
        for e in range(len(edges)):
            before = cut.load
            add(edges[e : e + 1])
            changed = np.flatnonzero(cut.load - before)
            if len(changed):
                assert parts[e] == -1, "an edge goes to one part"
                (parts[e],) = changed
    return cut, parts


@SEEDS
@pytest.mark.parametrize("method, options", [
    ("dbh", {}), ("greedy", {}), ("hdrf", {}), ("hdrf", {"weight": 0.0}), ("hdrf", {"weight": 5.0, "epsilon": 0.1}),
    ("2psl", {}), ("2psl", {"capacity": 1.0}), ("2psl", {"capacity": 1.5}),
], ids=str)  # fmt: skip
def test_vertex_cuts_are_those_of_their_papers(method, options, seeds):
    reference = {
        "dbh": lambda e, n, k, seed: slow.dbh(e, n, k, seed),
        "greedy": lambda e, n, k, seed: slow.greedy(e, n, k),
        "hdrf": lambda e, n, k, seed: slow.hdrf(e, n, k, **options),
        "2psl": lambda e, n, k, seed: slow.two_phase(e, n, k, seed, **options),
    }[method]
    for seed in seeds:
        edges, n, k = random_edges(seed)
        expected, expected_parts = reference(edges.tolist(), n, k, seed)
        owner = slow.targets(expected.replicas, n, k, seed)
        if not options:
            cut, parts = cut_of(method, edges, n, k, seed)
            assert parts.tolist() == expected_parts and cut.owners(seed).tolist() == owner, seed
        part = part_stream(edges, k, method, seed=seed, n_nodes=n, **options)
        assert part.details["edges_k"].tolist() == expected.load, seed
        assert part.details["cut_replicas"] == sum(map(len, expected.replicas)), seed
        np.testing.assert_array_equal(part.owner_N, filled(owner, n, k))


@SEEDS
@pytest.mark.slow
def test_what_is_reported_is_what_a_count_by_hand_gives(seeds):
    for seed in seeds:
        edges, n, k = random_edges(seed)
        part = part_stream(edges, k, METHODS[seed % len(METHODS)], seed=seed, n_nodes=n, hops=1)
        owner = part.owner_N.tolist()
        near = [set() for _ in range(n)]
        for u, v in edges.tolist():
            near[u].add(v)
            near[v].add(u)
        held = [{v for v in range(n) if owner[v] == p} for p in range(k)]
        copies = [{u for v in mine for u in near[v]} - mine for mine in held]
        send = [sum(owner[u] == q for theirs in copies for u in theirs) for q in range(k)]
        rows = sum(send)
        got = part.describe()
        assert (got["n"], got["edges"], got["k"]) == (n, len(edges), k)
        assert part.sizes_k.tolist() == [len(mine) for mine in held]
        most = max(send), max(map(len, copies))
        assert (got["total_rows"], got["max_send_rows"], got["max_recv_rows"]) == (rows, *most), seed
        assert got["messages"] == sum(len({owner[u] for u in theirs}) for theirs in copies)
        assert got["replication_factor"] == pytest.approx(sum(len(m) + len(c) for m, c in zip(held, copies)) / n, 1e-12)
        assert got["node_imbalance"] == pytest.approx(max(map(len, held)) * k / n, rel=1e-12)
        assert got["max_over_mean_send"] == pytest.approx(max(send) * k / rows if rows else 1, rel=1e-12)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_halo_holds_all_neighbours_within_the_hops(hops):
    for seed in range(GRAPHS // 4):
        edges, n, k = random_edges(seed)
        part = part_stream(edges, k, n_nodes=n, hops=hops)
        assert part.rows_PP.tolist() == slow.halo(edges.tolist(), part.owner_N.tolist(), k, hops), seed


@pytest.mark.parametrize("method", METHODS)
def test_a_graph_is_the_stream_of_what_each_row_reads(method):
    edges = np.random.default_rng(2).integers(0, 300, (900, 2))
    graph = graph_from_coo(edges[:, 0], edges[:, 1], 310).with_edges("undirected")
    A = graph.A.tocoo()
    pairs = np.stack([A.col, A.row], axis=1)
    from_graph = part_graph(graph, 6, method, seed=4, balance=1.05)
    np.testing.assert_array_equal(from_graph.owner_N, part_stream(pairs, 6, method, seed=4, n_nodes=310).owner_N)
    np.testing.assert_array_equal(from_graph.owner_N, part_stream(graph, 6, method, seed=4).owner_N)


@pytest.mark.parametrize("method", ["spring", "spring+"])
@pytest.mark.parametrize("balance", [1.0, 1.03, 1.2])
def test_the_balance_of_nodes_is_kept(method, balance, monkeypatch):
    for seed in range(10):
        monkeypatch.setattr(spring_module, "HELD", 0 if seed % 2 else 40 << 20)
        edges = np.random.default_rng(seed).integers(0, 2000, (5000, 2))
        large_clusters = {"threshold": 3.0} if method == "spring" else {}
        part = part_stream(edges, 7, method, balance=balance, n_nodes=2000, **large_clusters)
        assert part.sizes_k.max() <= max(balance * 2000 / 7, -(-2000 // 7))


@pytest.mark.parametrize("method", METHODS)
def test_chunks_and_types_make_no_difference(method):
    edges = np.random.default_rng(5).integers(0, 200, (900, 2))
    expected = part_stream(edges, 5, method, n_nodes=200).owner_N
    of_types = edges.astype(np.int32), edges.T.astype(np.uint8)
    for source in (*of_types, list(np.array_split(edges, 13)), list(map(tuple, edges))):
        np.testing.assert_array_equal(part_stream(source, 5, method, n_nodes=200).owner_N, expected)


@pytest.mark.parametrize("degrees", ["exact", "online"])
def test_an_online_pass_knows_the_nodes_that_it_has_seen(degrees):
    part = part_stream(np.array([[0, 5], [5, 9]]), 2, degrees=degrees)
    assert part.n_nodes == 10 and part.n_edges == 2
    assert StreamPasses(edge_stream(np.zeros((3, 2), int))).n_edges == 3


TAKES = """
import sys
import numpy as np
from spgnn.machine import peak_rss_mb
from spgnn.partition import part_stream

N, method, n_edges = 1 << 20, sys.argv[1], int(sys.argv[2])

class Stream:
    def __iter__(self):
        return (np.random.default_rng(seed).integers(0, N, (1 << 16, 2), np.int32) for seed in range(n_edges >> 16))

part_stream(next(iter(Stream()))[:1], 8, method)
before = peak_rss_mb()
part_stream(Stream(), 8, method, n_nodes=N, **({"rounds": 2} if method == "spring+" else {}))
print((peak_rss_mb() - before) * 1e6 / N)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spring", "spring+"])
@pytest.mark.parametrize("n_edges", [pytest.param(1 << 19, marks=pytest.mark.full), 1 << 22])
def test_a_node_takes_at_most_40_bytes_however_many_edges_there_are(method, n_edges):
    done = in_python(TAKES, method, n_edges)
    assert done.returncode == 0, done.stderr
    constant = 4  # bytes a node of buffers and chunks, 4 MB
    assert float(done.stdout) <= 40 + constant
