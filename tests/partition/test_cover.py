"""A minimum cover is a cover, is as small as a maximum matching, and takes each nonzero once."""

import time

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import maximum_bipartite_matching

from spgnn.data import load_graph
from spgnn.errors import PartitionError
from spgnn.graph import graph_from_coo
from spgnn.partition import part_graph
from spgnn.partition.cover import cover_PP, cover_tables, minimum_covers
from spgnn.partition.metrics import rows_PP


def blocks(seed):
    """A random matrix, up to 12 x 20, and bounds that cut its columns, some ranges empty."""
    rng = np.random.default_rng(seed)
    n, g, B = rng.integers(1, 13), rng.integers(0, 21), rng.integers(1, 7)
    A = sp.random_array((n, g), density=rng.choice([0.05, 0.15, 0.4, 1.0]), random_state=rng, format="csr")
    return sp.csr_array(A), np.sort(np.concatenate([[0, g], rng.integers(0, g + 1, B - 1)]))


def matching(block) -> int:
    return int((maximum_bipartite_matching(sp.csr_matrix(block)) >= 0).sum()) if block.nnz else 0


def all_minimum_covers(block, size):
    """(rows, columns) of every cover of that size, by trying every set of columns."""
    D = block.toarray() != 0
    for bits in range(2 ** D.shape[1]):
        columns = np.array([bits >> j & 1 for j in range(D.shape[1])], bool)
        rows = D[:, ~columns].any(axis=1)
        if rows.sum() + columns.sum() == size:
            yield rows, columns


@pytest.mark.parametrize("start", range(0, 200, 20))
def test_a_minimum_cover_is_as_small_as_a_maximum_matching_and_leaves_no_nonzero(start):
    for seed in range(start, start + 20):
        A, bounds = blocks(seed)
        covers = minimum_covers(A, bounds)
        for b, (first, last) in enumerate(zip(bounds[:-1], bounds[1:])):
            block = sp.csr_array(A[:, first:last])
            rows = covers.rows[covers.rows_ptr[b] : covers.rows_ptr[b + 1]]
            columns = covers.columns_g[first:last]
            assert covers.sizes_B[b] == len(rows) + columns.sum() == matching(block)
            assert covers.sizes_B[b] <= len(np.unique(block.indices))
            assert (np.diff(rows) > 0).all()
            left = block[:, ~columns].toarray() != 0
            assert set(np.flatnonzero(left.any(axis=1))) == set(rows), "a row travels where it has something to add"
            assert covers.moved_B[b] == left.sum()
            # Raw columns and partial sums together are the product.
            H = np.random.default_rng(seed).standard_normal((last - first, 3))
            Z = block[:, columns] @ H[columns]
            Z[rows] += block[:, ~columns][rows] @ H[~columns]
            np.testing.assert_allclose(Z, block @ H, atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_no_minimum_cover_moves_fewer_nonzeros_or_has_more_columns(seed):
    rng = np.random.default_rng(seed)
    block = sp.csr_array(sp.random_array((7, 6), density=rng.choice([0.1, 0.2, 0.4]), random_state=rng, format="csr"))
    found = minimum_covers(block, [0, 6])
    others = list(all_minimum_covers(block, int(found.sizes_B[0])))
    moved = [int((block.toarray() != 0)[:, ~columns].sum()) for _, columns in others]
    assert found.moved_B[0] == min(moved)
    assert found.columns_g.sum() == max(columns.sum() for _, columns in others)


@pytest.mark.parametrize("edges", ["directed", "undirected"])
@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_pairs_are_covered_as_their_blocks_are_one_by_one(k, edges):
    rng = np.random.default_rng(k)
    graph = graph_from_coo(rng.integers(0, 60, 200), rng.integers(0, 60, 200), 60, edges=edges)
    owner_N = rng.permutation(np.arange(60) % k)
    columns_PP, sums_PP, moved_PP = cover_tables(graph.A, owner_N, k)
    np.testing.assert_array_equal(cover_PP(graph.A, owner_N, k), columns_PP + sums_PP)
    for q in range(k):
        for p in range(k):
            block = sp.csr_array(graph.A[owner_N == p][:, owner_N == q])
            one = minimum_covers(block, [0, block.shape[1]])
            expected = (one.columns_g.sum(), len(one.rows), one.moved_B[0]) if p != q else (0, 0, 0)
            assert (columns_PP[q, p], sums_PP[q, p], moved_PP[q, p]) == expected
    assert (columns_PP + sums_PP <= rows_PP(graph.A, owner_N, k)).all()


def test_covers_are_the_same_on_any_number_of_threads():
    rng = np.random.default_rng(0)
    A = sp.csr_array(sp.random_array((300, 500), density=0.01, random_state=rng, format="csr"))
    bounds = np.arange(0, 501, 20)
    one = minimum_covers(A, bounds, threads=1)
    for threads in (2, 3, 40):
        other = minimum_covers(A, bounds, threads=threads)
        for name in one.__slots__:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    graph = graph_from_coo(rng.integers(0, 400, 900), rng.integers(0, 400, 900), 400)
    owner_N = np.arange(400) % 7
    assert np.array_equal(cover_tables(graph.A, owner_N, 7, threads=1), cover_tables(graph.A, owner_N, 7, threads=5))


def test_an_augmenting_path_through_all_columns_needs_no_deep_stack():
    # Column c has rows c and c + 1, the last has row 0 alone: the greedy start takes rows in order and leaves it out.
    n = 100_000
    rows, columns = np.concatenate([np.arange(n), np.arange(1, n)]), np.concatenate([np.arange(n), np.arange(n - 1)])
    rows[n - 1] = 0
    A = sp.csr_array((np.ones(2 * n - 1), (rows, columns)), shape=(n, n))
    assert minimum_covers(A, [0, n]).sizes_B.tolist() == [n]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (3, 4)])
def test_a_matrix_with_nothing_in_it_has_an_empty_cover(shape, dtype):
    A = sp.csr_array(shape, dtype=np.float32)
    A.indices, A.indptr = A.indices.astype(dtype), A.indptr.astype(dtype)
    covers = minimum_covers(A, [0, 0, shape[1]])
    assert (covers.columns_g.shape, covers.sizes_B.tolist(), covers.rows_ptr.tolist()) == (
        (shape[1],),
        [0, 0],
        [0, 0, 0],
    )
    assert minimum_covers(sp.csr_array((3, 0)), [0]).sizes_B.shape == (0,)


def test_a_nonzero_that_is_stored_twice_is_covered_once():
    A = sp.csr_array((np.ones(4), [1, 1, 0, 1], [0, 2, 4]), shape=(2, 2))
    assert minimum_covers(A, [0, 2]).sizes_B.tolist() == [2]


@pytest.mark.parametrize(
    ("indptr", "indices", "bounds", "message"),
    [
        ([0, 2, 1], [0], [0, 3], "indptr must rise"),
        ([0, 5, 2], [0, 1], [0, 3], "indptr must rise"),
        ([1, 1, 2], [0, 1], [0, 3], "indptr must rise"),
        ([0, 1, 2], [0, 3], [0, 3], "out of range"),
        ([0, 1, 2], [0, -1], [0, 3], "out of range"),
        ([0, 1, 2], [0, 1], [0, 2], "bounds must rise from 0"),
        ([0, 1, 2], [0, 1], [0, 4, 3], "bounds must rise from 0"),
        ([0, 1, 2], [0, 1], [1, 3], "bounds must rise from 0"),
        ([0, 1, 2], [0, 1], [], "bounds must be a vector"),
        ([0, 1, 2], [0, 1], [[0, 3]], "bounds must be a vector"),
    ],
)
def test_arrays_that_make_no_matrix_are_refused(indptr, indices, bounds, message):
    A = sp.csr_array((2, 3))
    A.data, A.indices, A.indptr = np.ones(len(indices)), np.array(indices), np.array(indptr)
    with pytest.raises(PartitionError, match=message):
        minimum_covers(A, np.array(bounds, dtype=np.int64))


def test_owners_that_do_not_fit_are_refused():
    A = graph_from_coo([0, 1], [1, 2], 3).A
    for owner_N in ([0, 1, 2], [0, -1, 0]):
        with pytest.raises(PartitionError, match="expected 0 to 1"):
            cover_PP(A, np.array(owner_N), 2)
    with pytest.raises(PartitionError, match="do not fit the matrix"):
        cover_PP(A, np.zeros(2, int), 1)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(("k", "columns"), [(4, 82_746), (16, 211_889), (64, 382_905)])
def test_covers_of_metis_parts_of_arxiv_send_58_percent_of_the_columns(k, columns, data_dir):
    graph = load_graph(data_dir / "arxiv_graphsaint").with_edges("undirected")
    part = part_graph(graph, k)
    start = time.perf_counter()
    sent_PP = cover_PP(graph.A, part.owner_N, k)
    seconds = time.perf_counter() - start
    read_PP = rows_PP(graph.A, part.owner_N, k)
    assert read_PP.sum() == pytest.approx(columns, rel=0.02)  # METIS's parts may differ by version
    assert (sent_PP <= read_PP).all()
    assert sent_PP.sum() <= 0.58 * read_PP.sum()
    assert seconds <= 2, "0.03 s on 2 quiet cores"
