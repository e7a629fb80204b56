"""Graphs are checked at the door, and again where they are used; normalise and with_edges equal plain dense arithmetic."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from command_line import in_python
from graphs import dense_operator, random_graph
from hypothesis import given
from hypothesis import strategies as st

from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import GraphError, UsageError
from spgnn.graph import Graph, axis_sums, graph_from_coo, normalise, random_split, with_self_loops


@st.composite
def edge_lists(draw):
    n = draw(st.integers(1, 8))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.floats(0.5, 2.0)), max_size=25))
    src, dst, weights = (
        (np.array(column) for column in zip(*pairs)) if pairs else (np.empty(0, int), np.empty(0, int), np.empty(0))
    )
    return n, src, dst, weights


@given(edge_lists())
def test_undirected_has_both_directions_or_is_refused_and_reversed_is_the_transpose(edges):
    n, src, dst, weights = edges
    graph = graph_from_coo(src, dst, n, weights=weights)
    A = graph.A.toarray()
    if np.any((np.abs(A - A.T) > 1e-9 * np.maximum(A, A.T)) & (A != 0) & (A.T != 0)):  # by more than rounding
        with pytest.raises(GraphError, match=r"graph: edge \d+ -> \d+ weighs .*; with reverse edges added they must"):
            graph.in_use()
        graph = graph_from_coo(src, dst, n)
        A = graph.A.toarray()
    np.testing.assert_array_equal(graph.with_edges("undirected").A.toarray(), np.maximum(A, A.T))
    np.testing.assert_array_equal(graph.with_edges("reversed").A.toarray(), A.T)
    np.testing.assert_array_equal(graph.with_edges("directed").A.toarray(), A)
    np.testing.assert_array_equal(graph.in_use().A.toarray(), np.maximum(A, A.T))
    assert graph.with_edges("directed").in_use().edges == "directed"


@given(edge_lists(), st.sampled_from(["gcn", "sym", "row", "none"]))
def test_normalise_equals_dense_arithmetic_on_directed_weighted_graphs(edges, how):
    n, src, dst, weights = edges
    graph = graph_from_coo(src, dst, n, weights=weights)
    np.testing.assert_allclose(normalise(graph.A, how).toarray(), dense_operator(graph, how), rtol=1e-12, atol=0)


def test_the_directions_of_edges_have_two_names_and_auto_is_what_was_chosen():
    graph = graph_from_coo([0, 1, 1, 3], [1, 2, 0, 0], 5)
    for name, same in {"both": "undirected", "in": "reversed", "out": "directed", "auto": "undirected"}.items():
        used = graph.with_edges(name)
        assert used.edges == same and used.digest() == graph.with_edges(same).digest()
        assert used.with_edges(name) is used.with_edges("auto") is used


def broken(**change):
    parts = {
        "A": graph_from_coo([0, 1], [1, 2], 3).A,
        "X": np.ones((3, 2)),
        "y": np.array([0, 1, -1]),
        "split": np.zeros(3, np.int8),
    }
    return lambda: Graph(**parts | change)


@pytest.mark.parametrize("make, message", [
    (broken(A=np.eye(3)), "must be a scipy CSR"),
    (broken(A=sp.csr_array((2, 3))), "square"),
    (broken(A=sp.csr_array((np.array([1.0]), np.array([7]), np.array([0, 1, 1, 1])), shape=(3, 3))),
     "row 0 has column 7"),
    (broken(A=sp.csr_array((np.array([1.0, 1]), np.array([2, 1]), np.array([0, 2, 2, 2])), shape=(3, 3))),
     "row 0 has columns out of order"),
    (broken(A=sp.csr_array((np.array([np.nan]), np.array([1]), np.array([0, 1, 1, 1])), shape=(3, 3))),
     "entry 0 is nan"),
    (broken(X=np.ones((2, 2))), r"expected \(3, F\)"),
    (broken(X=np.array([[1.0], [np.inf], [1]])), "entry 1 is inf"),
    (broken(y=np.array([0, -2, 1])), "node 1 has label -2"),
    (broken(y=np.array([0.0, np.inf, 1])), "node 1 has the target inf; expected finite"),
    (broken(y=np.array([0, 1j, 1])), "labels are complex128; expected integers, or float for numbers"),
    (broken(y=np.array([[0, 2], [0, 0], [1, 1]])), "node 0 has label 2"),
    (broken(split=np.array([0, 1, 5], np.int8)), "node 2 has split 5"),
    (broken(split=np.zeros(3)), "expected int8"),
    (broken(X=[[1.0], [2], [3]]), "features: got a builtins.list; expected a numpy array or a scipy CSR"),
    (broken(feature_names=["age"]), "1 names of X, which has 2 columns: name each in feature_names, or none"),
    (broken(feature_names=["age", "age"]), "two columns of X are called 'age'; give each a name of its own"),
    (broken(edge_attr=np.ones((2, 1)), meta={"edge_features": "ab"}), "2 names of edge_attr, which has 1 columns"),
    (broken(y=[0, 1, 2]), "labels: got a builtins.list; expected a numpy array"),
    (broken(split=torch.zeros(3, dtype=torch.int16)), "split is int16 of shape"),
    (lambda: graph_from_coo([0, 5], [1, 1], 3), "edge 1 is 5 -> 1"),
    (lambda: graph_from_coo([0, -1], [1, 1]), "edge 1 is -1 -> 1"),
    (lambda: graph_from_coo([0.5], [1]), "must hold integers"),
    (lambda: graph_from_coo([0], [1], 2.5), "n_nodes = 2.5; expected an integer"),
    (lambda: graph_from_coo([], [], -1), "n_nodes = -1; expected an integer of 0 or more"),
    (lambda: graph_from_coo([0], [1], "2"), "n_nodes = '2'; expected an integer"),
    (lambda: graph_from_coo([0], [1, 2]), "one length"),
    (lambda: random_split(None), "needs labels"),
    (lambda: normalise(sp.csc_array(np.eye(3, k=1))), "got a csc; expected a scipy CSR"),
    (lambda: normalise(sp.coo_array(np.eye(3, k=1)), "none"), "got a coo"),
    (lambda: normalise(np.eye(3), "row"), "got a ndarray; expected a scipy CSR"),
])  # fmt: skip
def test_arrays_that_make_no_graph_are_named(make, message):
    with pytest.raises(GraphError, match=message):
        make()


def test_a_random_split_has_the_shares_and_leaves_unlabelled_nodes_out():
    y = np.where(np.arange(1000) % 10 == 0, -1, 1)
    split = random_split(y, seed=3)
    assert [(split == s).sum() for s in (0, 1, 2, -1)] == [540, 180, 180, 100]
    assert np.all(split[y < 0] == -1) and np.array_equal(split, random_split(y, seed=3))
    assert not np.array_equal(split, random_split(y, seed=4))


@pytest.mark.parametrize("seed", [-1, 0.5, "0", True])
def test_a_seed_of_a_split_is_an_integer(seed):
    with pytest.raises(UsageError, match=f"seed = {seed!r}; expected an integer of 0 or more"):
        random_split(np.zeros(5, int), seed)


@pytest.mark.parametrize(
    "fractions", [(0.5, 0.6, 0.2), (0.1, 0.1, 0.1), (0.8, 0.2), (1.2, -0.2, 0), (float("nan"), 0.5, 0.5)]
)
def test_fractions_of_a_split_that_are_no_shares_are_refused(fractions):
    with pytest.raises(UsageError, match="add up to 1"):
        random_split(np.zeros(10, int), fractions=fractions)


def test_describe_counts_loops_isolated_nodes_and_splits():
    graph = graph_from_coo(
        [0, 1, 2, 2], [1, 0, 2, 2], 5, y=np.array([0, 1, -1, 0, 0]), split=np.array([0, 1, 2, -1, 0], np.int8)
    )
    about = graph.describe()
    counts = {"n": 5, "nnz": 3, "self_loops": 1, "isolated": 3, "symmetric": True, "labelled": 4, "classes": 2}
    expected = counts | {"train": 2, "val": 1, "test": 1}
    assert expected.items() <= about.items() and about["duplicates"] == 1


def test_the_digest_tells_structures_apart_and_not_index_types():
    A = random_graph().A
    wide = sp.csr_array(A.shape, dtype=A.dtype)
    wide.data, wide.indices, wide.indptr = A.data, A.indices.astype(np.int64), A.indptr.astype(np.int64)
    assert Graph(A).digest() == Graph(wide).digest() != random_graph(seed=1).digest()


def test_self_loops_leave_stored_zeros_where_they_are():
    A = sp.csr_array(
        (np.array([0.0, 2.0, 0.0], np.float32), np.array([1, 0, 2]), np.array([0, 1, 2, 3, 3])), shape=(4, 4)
    )
    with_loops = with_self_loops(A)
    assert with_loops.indptr.tolist() == [0, 2, 4, 5, 6] and with_loops.indices.tolist() == [0, 1, 0, 1, 2, 3]
    assert with_loops.data.tolist() == [1, 0, 2, 1, 0, 1]


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_sums_of_float32_are_those_of_float64(monkeypatch, at_once):
    monkeypatch.setattr("spgnn.graph.normal.AT_ONCE", at_once)
    A = sp.csr_array(np.array([[1e8] + [1] * 7, [0] * 8, [3] * 8], np.float32))
    assert axis_sums(A, 1).tolist() == [100_000_007, 0, 24]
    assert axis_sums(A, 0).tolist() == [100_000_003] + [4] * 7
    assert axis_sums(A[:, :0], 1).tolist() == [0, 0, 0] and axis_sums(A[:0], 0).tolist() == [0] * 8


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
    done = in_python(BODY)
    assert done.returncode == 0, done.stderr


def test_dense_features_are_shared_with_the_operator_and_not_copied():
    graph, given = with_own_arrays(edges="directed")
    dgraph = distribute(graph, SelfCommunicator(), dtype=torch.float64, locality=False)
    assert np.shares_memory(dgraph.X.numpy(), given[1])
    given[1].flags.writeable = False
    dgraph = distribute(graph, SelfCommunicator(), dtype=torch.float64, locality=False)
    assert not np.shares_memory(dgraph.X.numpy(), given[1])
