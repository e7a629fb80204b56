"""A graph whose arrays were changed after it was made is refused before compiled code reads outside them."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import random_graph

from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.graph import Graph


def arrays_of(M):
    return [M.data, M.indices, M.indptr] if sp.issparse(M) else [M]


def with_own_arrays(sparse=False, edges="stored"):
    """A graph and the arrays that it was made of."""
    graph = random_graph(sparse=sparse)
    given = [M.copy() for M in (graph.A, graph.X, graph.y, graph.split)]
    return Graph(*given, edges=edges), given


@pytest.mark.parametrize("sparse", [False, True])
def test_the_arrays_are_views_that_cannot_be_written_and_the_given_ones_stay_writable(sparse):
    graph, given = with_own_arrays(sparse)
    for held, mine in zip((graph.A, graph.X, graph.y, graph.split), given):
        for view, array in zip(arrays_of(held), arrays_of(mine)):
            assert np.shares_memory(view, array) and array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                view[0] = 0


def test_arrays_that_cannot_be_written_are_taken_as_they_are():
    graph, _ = with_own_arrays()
    assert graph.with_edges("directed").A is graph.A and Graph(graph.A, X=graph.X).X is graph.X


BODY = """
import numpy as np, spgnn
from spgnn.dist import SelfCommunicator
from spgnn.errors import GraphError
from spgnn.graph import Graph
from spgnn.partition import partition_of
uses = [
    lambda graph: spgnn.distribute(graph, SelfCommunicator()), lambda graph: spgnn.part_graph(graph, 2, method="block"),
    lambda graph: graph.with_edges("reversed"), Graph.in_use, Graph.normalise, lambda graph: graph.is_symmetric,
    lambda graph: partition_of(graph, part.owner_N), Graph.describe,
]
made = spgnn.load_graph("sbm:n=80,seed=1")
part = spgnn.part_graph(made, 2, method="block")
X = np.eye(80, dtype=np.float32)
import scipy.sparse as sp
for what, name, at, value in (("A", "indices", 0, 10**6), ("A", "indices", 5, -7), ("A", "indptr", 3, 10**6),
                              ("A", "indptr", -1, 10**6), ("A", "data", 0, np.nan), ("X", "indices", 3, 10**6)):
    for use in uses:
        for edges in ("stored", "undirected"):
            given = {"A": made.A.copy(), "X": sp.csr_array(X)}
            graph = Graph(**given, name="mine", edges=edges)
            getattr(given[what], name)[at] = value
            if edges == "undirected" and use is uses[2]:
                continue
            try:
                use(graph)
            except GraphError as error:
                assert "mine was changed in place after it was made: " in str(error), error
            else:
                raise AssertionError((what, name, use))
graph = Graph(made.A)
graph.A.indices = np.full(graph.nnz, 10**6)  # SciPy puts new arrays in place of those that cannot be written
try:
    graph.in_use()
except GraphError as error:
    assert "row 0 has column 1000000; expected 0 to 79" in str(error), error
else:
    raise AssertionError("indices of another array")
"""


@pytest.mark.slow
def test_a_changed_array_is_named_and_never_ends_the_process():
    done = subprocess.run([sys.executable, "-c", BODY], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_dense_features_are_shared_with_the_operator_and_not_copied():
    graph, given = with_own_arrays(edges="directed")
    dgraph = distribute(graph, SelfCommunicator(), dtype=torch.float64, locality=False)
    assert np.shares_memory(dgraph.X.numpy(), given[1])
    given[1].flags.writeable = False
    dgraph = distribute(graph, SelfCommunicator(), dtype=torch.float64, locality=False)
    assert not np.shares_memory(dgraph.X.numpy(), given[1])
