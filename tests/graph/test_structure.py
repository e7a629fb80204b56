"""From edges to CSR and its reverse edges, against dictionaries of edges."""

import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.errors import GraphError
from spgnn.graph import random_split
from spgnn.graph.structure import csr_from_coo, is_symmetric, symmetrised, with_reverse

WEIGHTS = {
    "none": lambda rng, E: None,
    "float32": lambda rng, E: rng.standard_normal(E).astype(np.float32),
    "float64": lambda rng, E: rng.standard_normal(E) * 10.0 ** rng.integers(-300, 300, E),
    "few": lambda rng, E: rng.integers(-2, 3, E).astype(np.float32),
    "small": lambda rng, E: rng.choice(np.array([0.0, 5e-324, -5e-324, 1e308, -1e308]), E),
}


def edges_of(A):
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    return dict(zip(zip(rows.tolist(), A.indices.tolist()), A.data.tolist()))


def of_pairs(src, dst, weights):
    """The weights (E,) changed so that an edge and its reverse have the same."""
    if weights is None:
        return None
    table = dict(zip(zip(np.minimum(src, dst).tolist(), np.maximum(src, dst).tolist()), weights))
    return np.array([table[min(u, v), max(u, v)] for u, v in zip(src.tolist(), dst.tolist())], weights.dtype)


def larger_of(entries):
    kept = {}
    for edge, weight in entries:
        kept[edge] = max(kept[edge], weight) if edge in kept else weight
    return kept


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("n, E", [(1, 0), (1, 3), (5, 0), (6, 40), (50, 30), (50, 700), (300, 2000)])
def test_of_duplicates_the_larger_weight_counts_and_reverse_edges_weigh_the_same(n, E, weights):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        src, dst, given = rng.integers(0, n, E), rng.integers(0, n, E), WEIGHTS[weights](rng, E)
        A, duplicates, zeros = csr_from_coo(src.astype(np.int32 if seed % 2 else np.uint16), dst, n, given, "max")
        weights_E = np.ones(E).tolist() if given is None else given.tolist()
        entries = [entry for entry in zip(zip(src.tolist(), dst.tolist()), weights_E) if entry[1]]
        expected = larger_of(entries)
        assert (
            edges_of(A) == expected
            and (duplicates, zeros) == (len(entries) - len(expected), E - len(entries))
            and A.dtype == (np.float32 if given is None else given.dtype)
        )
        A, *_ = csr_from_coo(src, dst, n, of_pairs(src, dst, given), "max")
        expected = edges_of(A)
        both = symmetrised(A)
        assert edges_of(both) == {(j, i): w for (i, j), w in expected.items()} | expected
        assert both.dtype == A.dtype and both.indices.dtype == both.indptr.dtype == np.int32
        for M in (A, both):
            assert all(np.all(np.diff(M.indices[a:b]) > 0) for a, b in zip(M.indptr, M.indptr[1:]))
        assert is_symmetric(both) and symmetrised(both) is both
        assert is_symmetric(A) == (edges_of(A.T.tocsr()) == edges_of(A))


@pytest.mark.parametrize("how, given, bare", [("auto", 4.5, 1), ("sum", 4.5, 3), ("mean", 1.5, 1), ("max", 2.5, 1)])
def test_duplicates_are_summed_averaged_or_the_largest(how, given, bare):
    src, dst, weights = [0, 0, 0, 1], [1, 1, 1, 0], np.array([2.5, 1.5, 0.5, 9])
    A, twice, _ = csr_from_coo(src, dst, 2, weights, how)
    assert (A[0, 1], A[1, 0], twice) == (given, 9, 2)
    assert csr_from_coo(src, dst, 2, None, how)[0][0, 1] == bare
    with pytest.raises(GraphError, match=r"1 edges are there more than once, 0 -> 1 first, 3 times; .*duplicates"):
        csr_from_coo(src, dst, 2, weights, "refuse")


def test_unequal_weights_of_two_directions_are_combined_or_equal_up_to_rounding():
    A = csr_from_coo([0, 1, 2, 1], [1, 0, 2, 2], 3, np.array([1.0, 3, 5, 7]))[0]
    for how, weight in (("sum", 4), ("mean", 2), ("max", 3)):
        assert with_reverse(A, how).toarray().tolist() == [[0, weight, 0], [weight, 0, 7], [0, 7, 5]]
    for dtype, rounding in ((np.float64, 1e-12), (np.float32, 1e-7)):
        A = csr_from_coo([0, 1], [1, 0], 2, np.array([0.1, 0.1 * (1 + rounding)], dtype))[0]
        assert is_symmetric(symmetrised(A)) and symmetrised(A)[0, 1] == A.data.max()
        A = csr_from_coo([0, 1], [1, 0], 2, np.array([0.1, 0.1 * (1 + 100 * rounding**0.5)], dtype))[0]
        with pytest.raises(GraphError, match=r"differ by .*: make them equal with combine"):
            symmetrised(A)


def test_of_a_matrix_with_other_widths_of_indices_the_reverse_is_the_same():
    A = sp.csr_array(sp.random_array((30, 30), density=0.1, format="csr", random_state=np.random.default_rng(0)))
    A.data[:] = A.data[0]
    wide = sp.csr_array((A.data, A.indices.astype(np.int64), A.indptr.astype(np.int64)), shape=A.shape)
    assert edges_of(symmetrised(wide)) == edges_of(symmetrised(A))


@pytest.mark.parametrize("dtype", [">f4", ">f8", "i4", "i8", "u1", "u8", "longdouble"])
def test_weights_of_another_type_or_byte_order_have_the_same_reverse_edges(dtype):
    weights = np.array([3, 3, 200, 2, 100], dtype)  # 200 has the sign bit of a byte
    weights = weights if weights.dtype.kind == "u" else weights * [1, 1, -1, 1, -1]
    A = sp.csr_array((weights.astype(dtype), np.array([1, 0, 2, 1, 2]), np.array([0, 1, 3, 5])), shape=(3, 3))
    if weights[2] != weights[3]:
        with pytest.raises(GraphError, match=f"edge 1 -> 2 weighs {weights[2]:g} and 2 -> 1 weighs 2; with reverse"):
            symmetrised(A)
        A.data[3] = A.data[2]
    edges = list(edges_of(A).items())
    both = symmetrised(A)
    assert edges_of(both) == larger_of(edges + [((j, i), weight) for (i, j), weight in edges])
    assert both.dtype in (np.float32, np.float64) and symmetrised(both) is both
    assert csr_from_coo([0], [1], 2, np.array([0.1], ">f8"))[0].data.tolist() == [0.1]  # not rounded


def test_more_nodes_than_pairs_of_ids_fit_into_63_bits_are_refused():
    with pytest.raises(GraphError, match="3037000500 nodes; a graph in memory has at most 3037000499"):
        csr_from_coo([0], [1], 3_037_000_500)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_two_weights_of_an_edge_are_refused_and_zeros_of_both_signs_are_equal(dtype):
    A = csr_from_coo([0, 3, 1, 2, 4], [1, 1, 3, 0, 4], 5, np.array([1, 2, 5, 7, 9], dtype))[0]
    with pytest.raises(GraphError, match="edge 1 -> 3 weighs 5 and 3 -> 1 weighs 2; with reverse edges"):
        symmetrised(A)
    zeros = sp.csr_array((np.array([0.0, -0.0, 1.0]), [1, 0, 0], [0, 1, 2, 3]), shape=(3, 3))
    assert symmetrised(zeros).nnz == 4


def test_a_random_split_takes_lists_and_text():
    words, numbers = ["a", "b", "", "a", None, "b"], [0, 1, -1, 0, -1, 1]
    for y in (words, np.array(words, object), numbers):
        np.testing.assert_array_equal(random_split(y, 3), random_split(np.array(numbers), 3))
    assert (random_split(np.array(["a", "b"]), 0) >= 0).all()
