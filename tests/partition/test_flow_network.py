"""The largest flow with terminals that grow, against SciPy's; the border between two parts, against all borders."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import random_graph
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from spgnn.partition.metrics import ones_of, row_work
from spgnn.partition.refine import _flow

SOURCE, TARGET = _flow.Network.Side.SOURCE, _flow.Network.Side.TARGET
MUCH = 1 << 29


def random_network(rng, n):
    """Return (Network, capacities): arcs at random, doubles and both directions among them, node v of weight v + 1."""
    network, capacities = _flow.Network(), np.zeros((n, n), np.int64)
    for v in range(n):
        assert network.add_node(v + 1) == v
    for start, end in rng.integers(0, n, (int(rng.integers(n, 4 * n)), 2)):
        if start != end:
            capacity = int(rng.integers(1, 20))
            network.add_arc(start, end, capacity)
            capacities[start, end] += capacity
    return network, capacities


def largest_flow(capacities, sources, targets):
    """Return (flow, what sources reach in its residual, what reaches targets), with one terminal more on either side."""
    n = len(capacities)
    whole = np.zeros((n + 2, n + 2), np.int32)
    whole[:n, :n] = capacities
    whole[n, list(sources)] = whole[list(targets), n + 1] = 1 << 20
    result = maximum_flow(sp.csr_array(whole), n, n + 1)
    left = sp.csr_array(whole - result.flow.toarray())
    reached = lambda A, v: set(breadth_first_order(A, v, return_predecessors=False).tolist()) - {n, n + 1}
    return result.flow_value, reached(left, n), reached(left.T.tocsr(), n + 1)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_flow_and_what_both_sides_reach_equal_scipys_while_terminals_are_added(first):
    grown = 0
    for seed in range(first, first + 10):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(4, 40))
        network, capacities = random_network(rng, n)
        terminals = {SOURCE: {0}, TARGET: {1}}
        assert network.start(0, 1, MUCH)
        for _ in range(8):
            flow, of_sources, of_targets = largest_flow(capacities, terminals[SOURCE], terminals[TARGET])
            assert network.flow() == flow
            for side, reached in ((SOURCE, of_sources), (TARGET, of_targets)):
                assert {v for v in range(n) if network.side(v) == side} == reached
                beyond = [v for v in reached if not network.is_settled(v)]
                assert sorted(network.reached(side)) == sorted(beyond)
                assert network.reached_weight(side) == sum(v + 1 for v in beyond)
            side = (SOURCE, TARGET)[rng.integers(2)]
            mine, others = (of_sources, of_targets) if side == SOURCE else (of_targets, of_sources)
            free = [
                v
                for v in range(n)
                if v not in mine
                and v not in terminals[TARGET if side == SOURCE else SOURCE]
                and not network.is_settled(v)
            ]
            if not free:
                break
            terminals[side] |= mine | {v := free[rng.integers(len(free))]}
            grown += v in others
            assert network.settle(side, v, MUCH)
    assert grown > 5, "terminals that let more flow pass were among them"


def test_a_flow_above_the_bound_is_given_up():
    network = _flow.Network()
    for _ in range(4):
        network.add_node(1)
    for start, end in ((0, 2), (2, 1), (0, 3), (3, 1)):
        network.add_arc(start, end, 5)
    assert network.start(0, 1, 10) and network.flow() == 10
    assert not network.start(0, 1, 9)


def price_of(A, owner_N, k, sent, read):
    """What all rows that travel cost: sent[q] + read[p] for each row of q that p reads."""
    A = sp.coo_array(A)
    reader, sender = owner_N[A.row], owner_N[A.col]
    away = reader != sender
    pairs = np.unique(A.col[away].astype(np.int64) * k + reader[away])
    return int((np.array(sent)[owner_N[pairs // k]] + np.array(read)[pairs % k]).sum())


def two_parts(seed, use):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(6, 13)), int(rng.integers(2, 5))
    A = random_graph(n, int(rng.integers(n, 3 * n)), seed=seed, use=use).in_use().A
    owner_N = np.append([0, 1], rng.integers(0, k, n - 2)).astype(np.int32)
    reads = ones_of(A)
    patterns = [
        array for M in (reads, reads.T.tocsr()) for array in (M.indptr.astype(np.int64), M.indices.astype(np.int32))
    ]
    prices = [rng.integers(lowest, 9, k).tolist() for lowest in (1, 0)]
    return rng, A, patterns, row_work(A).astype(np.int64), owner_N, k, prices


def corridor_of(A, work_N, owner_N, me, other, share):
    """Nodes of a part, from its border with the other inwards, as long as their work is at most that share."""
    neighbours = lambda v: [*A.indices[A.indptr[v] : A.indptr[v + 1]], *T.indices[T.indptr[v] : T.indptr[v + 1]]]
    A, T = ones_of(A), ones_of(A).T.tocsr()
    queue = [v for v in np.flatnonzero(owner_N == me) if np.any(owner_N[neighbours(v)] == other)]
    taken, room = [], int(share * work_N[owner_N == me].sum())
    for v in queue:
        if work_N[[*taken, v]].sum() > room:
            break
        taken.append(v)
        queue += sorted({u for u in neighbours(v) if owner_N[u] == me} - set(queue), key=neighbours(v).index)
    return taken


@pytest.mark.parametrize("use", ["directed", "undirected"])
@pytest.mark.parametrize("first", range(0, 80, 20))
def test_the_border_is_the_cheapest_of_all_where_any_work_fits(first, use):
    cheaper = 0
    for seed in range(first, first + 20):
        rng, A, patterns, work_N, owner_N, k, (sent, read) = two_parts(seed, use)
        share = float(rng.choice([0.5, 0.9]))
        moved = _flow.cut_pair(*patterns, work_N, owner_N, k, 0, 1, sent, read, int(work_N.sum()), share, seed)
        free = [v for me in (0, 1) for v in corridor_of(A, work_N, owner_N, me, 1 - me, share)]
        assert set(moved.tolist()) <= set(free)
        costs = []
        for sides in itertools.product((0, 1), repeat=len(free)):
            cut_N = owner_N.copy()
            cut_N[free] = sides
            costs.append(price_of(A, cut_N, k, sent, read))
        cut_N = owner_N.copy()
        cut_N[moved] = 1 - cut_N[moved]
        got = price_of(A, cut_N, k, sent, read)
        assert got == min(costs), f"seed {seed}"
        cheaper += got < price_of(A, owner_N, k, sent, read)
    assert cheaper > 3


@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_within_the_work_the_border_costs_no_more_than_the_one_that_is(use):
    cheaper = cheapest = 0
    for seed in range(150):
        rng, A, patterns, work_N, owner_N, k, (sent, read) = two_parts(seed, use)
        of_both = work_N[owner_N < 2].sum()
        most = max(int(rng.uniform(0.5, 0.8) * of_both), *(int(work_N[owner_N == p].sum()) for p in (0, 1)))
        moved = _flow.cut_pair(*patterns, work_N, owner_N, k, 0, 1, sent, read, most, 0.9, seed)
        cut_N = owner_N.copy()
        cut_N[moved] = 1 - cut_N[moved]
        assert np.array_equal(cut_N[owner_N > 1], owner_N[owner_N > 1]) and set(cut_N[owner_N < 2]) == {0, 1}
        assert max(work_N[cut_N == p].sum() for p in (0, 1)) <= most
        was, got = price_of(A, owner_N, k, sent, read), price_of(A, cut_N, k, sent, read)
        assert got <= was
        free = [v for me in (0, 1) for v in corridor_of(A, work_N, owner_N, me, 1 - me, 0.9)]
        least = was
        for sides in itertools.product((0, 1), repeat=len(free)):
            other_N = owner_N.copy()
            other_N[free] = sides
            if max(work_N[other_N == p].sum() for p in (0, 1)) <= most:
                least = min(least, price_of(A, other_N, k, sent, read))
        cheaper += got < was
        cheapest += got == least
    assert cheaper > 40 and cheapest > 60, "of 150; the heaviest allowed work is a hard bound"


def test_two_halves_of_a_barbell_are_parted_at_its_bar():
    # Two cliques of 8, a path of 6 between them; the border that is cuts one clique in two.
    A = np.eye(22, k=1, dtype=np.int8) * (np.arange(22) >= 7)[:, None] * (np.arange(22) < 14)[:, None]
    A[:8, :8] = A[14:, 14:] = 1
    np.fill_diagonal(A, 0)
    A = ones_of(sp.csr_array(A | A.T))
    owner_N = (np.arange(22) >= 4).astype(np.int32)
    patterns = [array for _ in range(2) for array in (A.indptr.astype(np.int64), A.indices.astype(np.int32))]
    work_N = np.ones(22, np.int64)
    moved = _flow.cut_pair(*patterns, work_N, owner_N, 2, 0, 1, [1, 1], [0, 0], 14, 0.7, 0)
    cut_N = owner_N.copy()
    cut_N[moved] = 1 - cut_N[moved]
    assert price_of(A, cut_N, 2, [1, 1], [0, 0]) == 2 and 8 <= (cut_N == 0).sum() <= 14
    assert np.all(np.diff(cut_N) >= 0), "one stretch each"
    assert not len(_flow.cut_pair(*patterns, work_N, owner_N, 2, 0, 1, [1, 1], [0, 0], 14, 0.01, 0)), "nothing may move"


def test_arguments_that_do_not_fit_are_refused():
    _, A, patterns, work_N, owner_N, k, (sent, read) = two_parts(0, "directed")
    n = len(work_N)
    make = lambda **changed: _flow.Borders(**(dict(zip(("reads_start", "reads", "readers_start", "readers"), patterns, strict=True)) | {
        "work": work_N, "owner": owner_N, "k": k, "most_work": int(work_N.sum()), "send": True, "receive": False, "seed": 0} | changed))  # fmt: skip
    for changed, message in (
        ({"owner": owner_N + np.int32(k)}, "an owner is not a part"),
        ({"work": work_N * 0}, "work must be positive"),
        ({"work": work_N[1:]}, "work and owner do not fit"),
        ({"readers_start": patterns[2][1:]}, "a pattern and the work"),
        ({"reads_start": patterns[0][::-1].copy()}, "indptr must rise"),
        ({"reads": patterns[1] + np.int32(n)}, "an index is out of range"),
        ({"k": 0}, "k is out of range"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**changed)
    borders = make()
    inside = np.flatnonzero(owner_N < 2).astype(np.int32)
    for parts, nodes, to, corridors, message in (
        ([0, 0], inside, owner_N[inside], (0.1, 0.2), "each once"),
        ([0, k], inside, owner_N[inside], (0.1, 0.2), "each once"),
        ([0, 1], inside[1:], owner_N[inside[1:]], (0.1, 0.2), "those of the parts"),
        ([0, 1], inside[::-1].copy(), owner_N[inside], (0.1, 0.2), "must rise"),
        ([0, 1], inside, owner_N[inside][1:], (0.1, 0.2), "do not fit each other"),
        ([0, 1], inside, np.full(len(inside), k, np.int32), (0.1, 0.2), "leave the parts"),
        ([0, 1], inside, owner_N[inside], (0.2, 0.1), "comes first"),
        ([0, 1], inside, owner_N[inside], (0.2, 1.0), "below 1"),
    ):
        with pytest.raises(ValueError, match=message):
            borders.recut(parts, nodes, to, 1, *corridors)
    with pytest.raises(ValueError, match="a part is empty"):
        _flow.cut_pair(*patterns, work_N, np.minimum(owner_N, 0), k, 0, 1, sent, read, 100, 0.5, 0)
