"""The refinement against the same in plain Python, move for move, and the whole method on small graphs of every kind."""

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import random_graph
from volume_reference import Reference

from spgnn.graph import graph_from_coo
from spgnn.partition import part_graph
from spgnn.partition.metrics import metrics
from spgnn.partition.refine import _volume

# The default run has 60 of 200 graphs.
BATCHES = [*range(0, 60, 20), *(pytest.param(first, marks=pytest.mark.full) for first in range(60, 200, 20))]
SIDES = ({}, {"receive": True}, {"both": True}, {"send": False})


def refined_both_ways(seed: int, sides: dict) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    n, k, sweeps = 2 + seed % 23, 2 + seed % 6, 1 + seed % 4
    A = random_graph(n, 3 * n, seed=seed, use=("directed", "undirected")[seed % 2]).A
    T, work = sp.csr_array(A.T.tocsr()), np.diff(A.indptr).astype(np.int64) + 1
    owner_N = rng.integers(0, k, n).astype(np.int32)
    settings = sides | {"levels": 0, "last_sweeps": sweeps}
    nets = (T.indptr.astype(np.int64), T.indices.astype(np.int32))
    got, _, _ = _volume.refine(*nets, 1, work, owner_N, k, 1.03, seed, bool(seed // 2 % 2), 1, settings)
    order = np.argsort(owner_N, kind="stable")
    place = np.argsort(order)
    readers_of = [
        set(place[T.indices[T.indptr[j] : T.indptr[j + 1]]].tolist()) - {v} for v, j in enumerate(order.tolist())
    ]
    part = Reference(readers_of, owner_N[order].tolist(), work[order].tolist(), k, 1.03, seed, **sides).finish(sweeps)
    return got, np.array(part)[place]


@pytest.mark.parametrize("first", BATCHES)
def test_the_last_level_equals_its_reference(first):
    for seed in range(first, first + 20):
        got, want = refined_both_ways(seed, SIDES[seed // 4 % 4])
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")


def untidy_graph(seed: int):
    """Directed or not, with self-loops, duplicates, one or more isolated nodes, or without any edge."""
    rng = np.random.default_rng(seed)
    n = 1 + seed % 31
    src, dst = rng.integers(0, max(n - seed % 3, 1), (2, (seed % 5) * n))
    src, dst = np.concatenate([src, src[::2], src[:3]]), np.concatenate([dst, dst[::2], src[:3]])
    return graph_from_coo(src, dst, n).with_edges(("directed", "undirected", "reversed")[seed % 3])


@pytest.mark.parametrize("first", BATCHES)
def test_small_graphs_have_partitions_with_the_right_metrics(first):
    for seed in range(first, first + 20):
        graph, options = (
            untidy_graph(seed),
            {"objective": ("columns", "cover")[seed // 3 % 2], "receive": bool(seed % 2)},
        )
        A, n = graph.in_use().A, graph.n_nodes
        for k in (1 + seed % 9, (1, 2, n, n + 3)[seed % 4]):
            part = part_graph(graph, k, "volume", seed=seed, start="random", **options)
            assert len(part.owner_N) == n and np.count_nonzero(part.sizes_k) == min(k, n)
            assert part.metrics == metrics(A, part.owner_N, k)
            coo = A.tocoo()
            pairs = {
                (int(j), int(part.owner_N[i])) for i, j in zip(coo.row, coo.col) if part.owner_N[i] != part.owner_N[j]
            }
            sent = np.bincount([part.owner_N[j] for j, _ in pairs], minlength=k)
            assert part.metrics["total_rows"] == len(pairs) and part.metrics["max_send_rows"] == sent.max(initial=0)
        again = part_graph(graph, k, "volume", seed=seed, start="random", **options)
        np.testing.assert_array_equal(part.owner_N, again.owner_N)
