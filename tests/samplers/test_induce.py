"""induce is A[V][:, V] of SciPy with the place of each nonzero in A; sets of nodes are those of NumPy."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import in_python
from small_graphs import GRAPHS

from spgnn.samplers import InducedSampler, _samplers, graph_arrays, induce


def subsets(N, seed=0):
    rng = np.random.default_rng(seed)
    yield np.zeros(0, np.int64)
    yield np.arange(N)
    yield np.array([N - 1])
    for share in (0.1, 0.5, 0.9):
        yield np.flatnonzero(rng.random(N) < share)


def places(graph):
    A = sp.csr_array(graph.A)
    return sp.csr_array((np.arange(1, A.nnz + 1), A.indices, A.indptr), shape=A.shape)


def check_induced(graph, node_m):
    sample = induce(graph_arrays(graph), node_m)
    expected = places(graph)[node_m][:, node_m]
    expected.sort_indices()
    (pattern,) = sample.patterns
    assert sample.node_m is node_m
    assert pattern.shape == expected.shape and pattern.scale_e is None
    assert (pattern.indptr.dtype, pattern.indices.dtype, pattern.place_e.dtype) == (np.int64, np.int32, np.int64)
    np.testing.assert_array_equal(pattern.indptr, expected.indptr)
    np.testing.assert_array_equal(pattern.indices, expected.indices)
    np.testing.assert_array_equal(pattern.place_e, expected.data - 1)
    arrays = graph_arrays(graph)
    one_by_one = _samplers.induce(arrays.indptr, arrays.indices, node_m, uses_vectors=False)
    for mine, theirs in zip((pattern.indptr, pattern.indices, pattern.place_e), one_by_one):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", GRAPHS)
def test_induce_is_the_submatrix_of_scipy(name):
    for node_m in subsets(GRAPHS[name].n_nodes):
        check_induced(GRAPHS[name], node_m)


@pytest.mark.parametrize("nodes", (np.arange(4, dtype=np.int32), [0, 1, 2, 3], np.arange(8).reshape(4, 2)[:, 0] // 2))
def test_nodes_of_any_integer_type_and_layout_are_taken(nodes):
    class Mine(InducedSampler):
        def draw(self, seed, index):
            return nodes

    arrays = graph_arrays(GRAPHS["wide"])
    for sample in (induce(arrays, nodes), Mine(arrays).sample(0, 0)):
        np.testing.assert_array_equal(sample.node_m, np.arange(4))
    with pytest.raises(TypeError):
        induce(arrays, np.arange(4.0))


def test_threads_induce_at_once():
    graph = GRAPHS["wide"]
    sets = list(subsets(graph.n_nodes)) * 20
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda node_m: check_induced(graph, node_m), sets))


@pytest.mark.parametrize("nodes", [[1, 0], [2, 2], [-1, 3], [0, 40], [[0, 1]]])
def test_nodes_that_are_unsorted_repeated_or_outside_are_refused(nodes):
    arrays = graph_arrays(GRAPHS["directed"])
    with pytest.raises(ValueError, match="nodes must be sorted, distinct"):
        induce(arrays, np.array(nodes, np.int64))
    check_induced(GRAPHS["directed"], np.arange(40))  # nothing is left in the set of the thread


@pytest.mark.parametrize("N", [30, 10**7])  # by a bitmap, by sorting
def test_distinct_nodes_are_those_of_numpy(N):
    drawn = np.random.default_rng(0).integers(0, N, (3, 40))
    drawn[2] = drawn[1]
    np.testing.assert_array_equal(_samplers.distinct(drawn, N), np.unique(drawn))
    assert len(_samplers.distinct(np.zeros(0, np.int64), N)) == 0
    for outside in (-1, N):
        with pytest.raises(ValueError, match="nodes must be of 0 to N - 1"):
            _samplers.distinct(np.array([0, outside]), N)


def test_scratch_that_memory_did_not_suffice_for_is_whole_at_the_next_call():
    code = """
import resource
import numpy as np
from spgnn.samplers import _samplers

n = 1 << 22
indptr, indices, nodes = np.array([0, n, *[n] * (n - 1)]), np.arange(n, dtype=np.int32), np.zeros(1, np.int64)
held = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) << 10
limits = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (held + 13 * n, limits[1]))  # two arrays of 4 n bytes fit, that of 8 n does not
try:
    _samplers.induce(indptr, indices, nodes)
except MemoryError:
    resource.setrlimit(resource.RLIMIT_AS, limits)
    ends, ids, places = _samplers.induce(indptr, indices, np.arange(2))
    print(ends.tolist(), ids.tolist(), places.tolist())
"""
    done = in_python(code)
    assert done.stdout == "[0, 2, 2] [0, 1] [0, 1]\n", (done.returncode, done.stderr)
