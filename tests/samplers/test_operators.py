"""Operators of a pattern equal spgnn.graph.normalise on the same submatrix, and their transposes SciPy's, exactly."""

import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import GRAPHS

from spgnn.config.names import NORMS
from spgnn.errors import UsageError
from spgnn.graph import WITH_LOOPS, normalise, with_self_loops
from spgnn.samplers import Pattern, graph_arrays, induce, operators

DTYPES = (np.float32, np.float64)


def matrix(csr, shape):
    values = np.ones(len(csr.indices)) if csr.values is None else csr.values
    return sp.csr_array((values, csr.indices, csr.indptr), shape=shape)


def check_transposed(operator, shape):
    """The transpose is SciPy's of the operator, and order_e where each of its nonzeros is."""
    A = matrix(operator.A, shape)
    numbered = sp.csr_array((np.arange(1, A.nnz + 1), A.indices, A.indptr), shape=shape).T.tocsr()
    numbered.sort_indices()
    np.testing.assert_array_equal(operator.transposed.indptr, numbered.indptr)
    np.testing.assert_array_equal(operator.transposed.indices, numbered.indices)
    np.testing.assert_array_equal(operator.order_e, numbered.data - 1)
    assert operator.transposed.indptr.dtype == np.int64 and operator.transposed.indices.dtype == np.int32
    if operator.A.values is None:
        assert operator.transposed.values is None
    else:
        np.testing.assert_array_equal(operator.transposed.values, A.data[operator.order_e])


def check_equal(operator, expected, dtype):
    """Indices and values are those of a SciPy CSR, to the last bit."""
    np.testing.assert_array_equal(operator.A.indptr, expected.indptr)
    np.testing.assert_array_equal(operator.A.indices, expected.indices)
    if operator.A.values is None:
        assert (expected.data == 1).all()
    else:
        assert operator.A.values.dtype == dtype
        np.testing.assert_array_equal(operator.A.values, expected.data.astype(dtype))
    check_transposed(operator, expected.shape)


def submatrix(graph, node_m, dtype):
    """A[V][:, V], with weights of the dtype in which normalise computes: it returns float64 for float64 alone."""
    A = sp.csr_array(graph.A[node_m][:, node_m], dtype=np.promote_types(graph.A.dtype, dtype))
    A.sort_indices()
    return A


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("share", [0.6, 1.0], ids=["some nodes", "all nodes"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_full", [False, True], ids=["own degrees", "degrees of the graph"])
def test_operators_of_nodes_are_those_of_the_submatrix_or_rows_of_the_graphs(name, share, dtype, is_full):
    graph = GRAPHS[name]
    node_m = np.flatnonzero(np.random.default_rng(9).random(graph.n_nodes) < share)
    sample = induce(graph_arrays(graph), node_m)
    made = operators(graph_arrays(graph), node_m, sample.patterns[0], NORMS, dtype, is_full=is_full)
    assert tuple(made) == NORMS
    whole, part = (submatrix(graph, nodes, np.float64) for nodes in (np.arange(graph.n_nodes), node_m))
    for how in NORMS:
        expected = normalise(whole, how)[node_m][:, node_m] if is_full else normalise(part, how)
        expected.sort_indices()
        check_equal(made[how], expected, dtype)


def random_block(graph, n, m, seed=0):
    """A block (n, m) of some nonzeros of some nodes in random order, with scales."""
    rng = np.random.default_rng(seed)
    node_m = rng.permutation(graph.n_nodes)[:m]
    A = sp.csr_array(graph.A)
    places = sp.csr_array((np.arange(1, A.nnz + 1), A.indices, A.indptr), shape=A.shape)[node_m[:n]][:, node_m].tocoo()
    kept = rng.random(places.nnz) < 0.7
    block = sp.csr_array((places.data[kept], (places.row[kept], places.col[kept])), shape=(n, m))
    block.sort_indices()
    scale_e = (rng.random(block.nnz) + 1).astype(np.float32)
    return node_m, Pattern(
        (n, m), block.indptr.astype(np.int64), block.indices.astype(np.int32), block.data.astype(np.int64) - 1, scale_e
    )


def expected_block(graph, node_m, pattern, how, alpha_E):
    """left_i w_ij right_j / alpha_ij scale_ij, nonzero after nonzero in plain Python."""
    (n, m), A = pattern.shape, sp.csr_array(graph.A, dtype=np.float64)
    rows, columns, values = [], [], []
    whole = with_self_loops(A) if how in WITH_LOOPS else A
    row_sum, column_sum = (np.asarray(whole.sum(axis)).ravel() for axis in (1, 0))
    for i in range(n):
        drawn = range(pattern.indptr[i], pattern.indptr[i + 1])
        entries = [
            (pattern.indices[e], A.data[pattern.place_e[e]], alpha_E[pattern.place_e[e]], pattern.scale_e[e])
            for e in drawn
        ]
        if how in WITH_LOOPS and i not in [j for j, *_ in entries]:
            has_loop = node_m[i] in A.indices[A.indptr[node_m[i]] : A.indptr[node_m[i] + 1]]
            entries.append((i, 0.0 if has_loop else 1.0, 1.0, 1.0))  # a loop of A that was not drawn
        for j, w, alpha, scale in sorted(entries):
            u, v = node_m[i], node_m[j]
            factor = {"none": 1.0}.get(how, 1 / row_sum[u] if row_sum[u] else 0)
            if how in ("gcn", "sym"):
                factor = 1 / np.sqrt(row_sum[u] * column_sum[v])
            rows.append(i)
            columns.append(j)
            values.append(1.0 if how == "loops" else w * factor / float(alpha) * float(scale))
    return sp.csr_array((values, (rows, columns)), shape=(n, m))


@pytest.mark.parametrize("name", ["directed", "undirected", "weighted", "hub", "dense"])
@pytest.mark.parametrize("shape", [(4, 11), (0, 5), (9, 9)])
def test_blocks_are_scaled_and_normalised_by_the_degrees_of_the_graph(name, shape):
    graph = GRAPHS[name]
    node_m, pattern = random_block(graph, *shape)
    alpha_E = (np.random.default_rng(1).random(graph.nnz) * 0.8 + 0.2).astype(np.float32)
    made = operators(graph_arrays(graph), node_m, pattern, NORMS, np.float64, alpha_E, is_full=True)
    for how in NORMS:
        expected = expected_block(graph, node_m, pattern, how, alpha_E)
        A = matrix(made[how].A, shape)
        np.testing.assert_array_equal(A.indptr, expected.indptr)
        np.testing.assert_array_equal(A.indices, expected.indices)
        np.testing.assert_allclose(A.data, expected.data, rtol=1e-14)
        check_transposed(made[how], shape)


@pytest.mark.parametrize("name", GRAPHS)
def test_symmetry_is_that_of_the_pattern(name):
    A = sp.csr_array(GRAPHS[name].A)
    pattern = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape).toarray()
    assert graph_arrays(GRAPHS[name]).is_symmetric == np.array_equal(pattern, pattern.T)


def test_what_is_not_known_or_does_not_fit_is_refused():
    graph = graph_arrays(GRAPHS["directed"])
    node_m, pattern = random_block(GRAPHS["directed"], 4, 11)
    with pytest.raises(UsageError, match="did you mean 'gcn'"):
        operators(graph, node_m, pattern, ["gnc"])
    with pytest.raises(UsageError, match="float32 or float64"):
        operators(graph, node_m, pattern, ["gcn"], np.float16)
    with pytest.raises(UsageError, match="4 rows and 11 columns"):
        operators(graph, node_m, pattern, ["gcn"])
