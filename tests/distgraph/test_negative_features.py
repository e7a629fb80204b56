"""feature_norm row divides by the sums of rows: negative ones are refused on all ranks alike, in memory and in parts."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import random_graph
from part_folders import parts_of
from worlds import parallel

from spgnn import cli
from spgnn.distgraph import distribute
from spgnn.errors import InputError
from spgnn.graph import Graph
from spgnn.partition import part_graph


def graph_with(negative: list[int], is_sparse: bool = False) -> Graph:
    """A graph of features of both signs, whose rows of these nodes have a negative sum, and row 0 the sum 0."""
    graph = random_graph()
    X = np.ones((graph.n_nodes, 3), np.float32) * [3, -1, 0]
    X[negative], X[0] = [-3, 1, 0], [1, -1, 0]
    return replace(graph, X=sp.csr_array(X.astype(np.float32)) if is_sparse else X.astype(np.float32))


@parallel([1, 3, 4], mpi=[])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_of_a_negative_sum_are_refused_by_number_and_first_node(comm, is_sparse):
    c = 2 if comm.size == 4 else 1
    with pytest.raises(InputError, match=r"is negative in 3 rows of the features, node 7 first: .*X - X.min\(\)"):
        distribute(graph_with([31, 7, 12], is_sparse), comm, method="random", feature_norm="row", replication=c)
    graph = graph_with([], is_sparse)
    dgraph = distribute(graph, comm, method="random", feature_norm="row", replication=c, keep=False)
    if not is_sparse:
        expected = np.tile(np.float32([1.5, -0.5, 0]), (graph.n_nodes, 1))
        expected[0] = 0
        np.testing.assert_array_equal(dgraph.X.numpy(), expected[dgraph.node_n])
    distribute(graph_with([31, 7, 12], is_sparse), comm, method="random", replication=c)


@parallel([1, 2], mpi=[])
def test_a_part_with_rows_of_a_negative_sum_is_refused(comm):
    graph = graph_with([31, 7, 12])
    part = part_graph(graph, 2, "random")
    parts = parts_of(graph, part, comm, hops=1, feature_norm="row")
    for p in range(2):
        own = np.intersect1d(part.own(p), [7, 12, 31])
        with pytest.raises(InputError, match=f"negative in {len(own)} rows of the features, node {own[0]} first"):
            parts.open(p)


@pytest.mark.parametrize("mode", [[], ["--mode", "average", "--evaluation", "layerwise"], ["--sampler", "node"]])
def test_a_training_on_standardised_features_is_refused_with_the_way_out(tmp_path, capsys, mode):
    graph = graph_with([31, 7, 12])
    X = (graph.X - graph.X.mean(axis=0)) / (graph.X.std(axis=0) + 1)
    negative = np.flatnonzero(X.sum(axis=1, dtype=np.float64) < 0)
    coo, last = graph.A.tocoo(), graph.n_nodes - 1
    np.savetxt(tmp_path / "edges.txt", [*zip(coo.row, coo.col), (last, last)], "%d")  # node 39 has no other edge
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", graph.y)
    files = [str(tmp_path / "edges.txt"), "--features", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy")]
    assert (
        cli.main(["train", *files, "--hidden", "8", "--epochs", "1", "--feature-norm", "row", "--out", "none", *mode])
        == 3
    )
    err = capsys.readouterr().err
    assert f"negative in {len(negative)} rows of the features, node {negative[0]} first" in err and "omit it" in err
