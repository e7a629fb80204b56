"""Graphs of every awkward kind for samplers: directed, weighted, with hubs, isolated nodes, self-loops, without edges."""

import numpy as np
import scipy.sparse as sp
from graphs import random_graph

from spgnn.graph import Graph, graph_from_coo


def with_hub(n=50, use="undirected") -> Graph:
    """A node that all others but the last two have as a neighbour, and a ring of chords."""
    spokes = np.arange(1, n - 2)
    src = np.concatenate([np.zeros(len(spokes), int), spokes])
    dst = np.concatenate([spokes, (spokes * 7) % (n - 2)])
    return graph_from_coo(src, dst, n).with_edges(use)


def wide_indices(graph: Graph) -> Graph:
    """The same graph with int64 indices, as graphs of 2^31 nonzeros have them."""
    A = sp.csr_array(graph.A)
    A.indptr, A.indices = A.indptr.astype(np.int64), A.indices.astype(np.int64)
    return Graph(A, edges=graph.edges)


GRAPHS = {
    "directed": random_graph(),
    "undirected": random_graph(use="undirected", seed=1),
    "weighted": random_graph(weighted=True, seed=2),
    "weighted-undirected": random_graph(weighted=True, use="undirected", seed=3),
    "dense": random_graph(n=12, edges=150, use="undirected", seed=4),
    "hub": with_hub(),
    "hub-directed": with_hub(use="directed"),
    "wide": wide_indices(random_graph(n=130, edges=500, seed=5)),
    # Its rows and columns have equal lengths.
    "cycle": graph_from_coo(np.arange(9), (np.arange(9) + 1) % 9, 9).with_edges("directed"),
    "no-edges": graph_from_coo([], [], 5).with_edges("undirected"),
    "one-node": graph_from_coo([0], [0], 1).with_edges("undirected"),
}
