"""Process grids, and what measure() predicts of every pair, layer and direction, counted one row and one nonzero at a time."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import maximum_bipartite_matching

from spgnn import ProcessGrid
from spgnn.analysis import measure
from spgnn.cost.pairs import count_pairs, grid_of, reached_rows
from spgnn.cost.schedule import row_bytes
from spgnn.errors import UsageError
from spgnn.graph import graph_from_coo
from spgnn.partition import partition_of

WIDTHS = (9, 5, 7, 3)


def graph_and_parts(k, edges, seed=0, n=40):
    rng = np.random.default_rng(seed)
    graph = graph_from_coo(rng.integers(0, n, 3 * n), rng.integers(0, n, 3 * n), n, edges=edges)
    return graph, partition_of(graph, rng.permutation(np.arange(n) % k), k)


def edges_of(A, rows):
    return [(i, int(j)) for i in sorted(rows) for j in A.indices[A.indptr[i] : A.indptr[i + 1]]]


def rows_of_a_pair(A, owner_N, scheme, wanted, q, p):
    """Rows that q sends p for Z[wanted] = A[wanted] H, from the definition of the scheme."""
    edges = [(i, j) for i, j in edges_of(A, wanted) if owner_N[i] == p and owner_N[j] == q]
    if scheme == "broadcast":
        return sum(owner_N[j] == q for j in wanted | {j for _, j in edges_of(A, wanted)})
    if scheme == "columns" or not edges:
        return len({j for _, j in edges})
    block = sp.csr_matrix((np.ones(len(edges)), tuple(zip(*edges))), shape=A.shape)
    return int((maximum_bipartite_matching(block) >= 0).sum())


def counted(A, owner_N, k, c, scheme, direction, out, into):
    """(rows, rows of sums) that each rank sends each other for one product, from the algorithm's loops."""
    rows, sums = np.zeros((k * c, k * c), int), np.zeros((k * c, k * c), int)
    s = k // c
    for j in range(c):
        for q in range(j * s, (j + 1) * s):
            for i in range(k):
                if i != q:
                    pair = (q * c + j, i * c + j) if direction == "forward" else (i * c + j, q * c + j)
                    rows[pair] = rows_of_a_pair(A, owner_N, scheme, out, q, i)
    for i in range(k):
        n = sum(owner_N[v] == i for v in (out if direction == "forward" else into))
        cut = [b * n // c for b in range(c + 1)]
        for a in range(c):
            for b in range(c):
                if a != b and direction == "forward":
                    sums[i * c + a, i * c + b] += cut[b + 1] - cut[b]  # reduce-scatter: b adds up slice b
                    sums[i * c + b, i * c + a] += cut[b + 1] - cut[b]  # all-gather: b hands it out
                elif a != b and a == i // s:
                    sums[i * c + a, i * c + b] += n
    return rows, sums


@pytest.mark.parametrize("edges", ["directed", "undirected"])
@pytest.mark.parametrize("scheme", ["broadcast", "columns", "cover"])
@pytest.mark.parametrize(("k", "c"), [(1, 1), (3, 1), (4, 1), (2, 2), (4, 2), (4, 4), (6, 3)])
@pytest.mark.parametrize("is_pruned", [False, True])
def test_every_pair_layer_and_direction_is_what_the_algorithm_sends(edges, scheme, k, c, is_pruned):
    graph, part = graph_and_parts(k, edges, seed=k + c)
    train_N = np.zeros(graph.n_nodes, bool)
    train_N[[3, 17]] = True
    report = measure(graph, part, scheme, WIDTHS, c, itemsize=8, train_N=train_N if is_pruned else None)
    wanted = [set(range(graph.n_nodes))] * 4
    if is_pruned:
        wanted[3] = {3, 17}
        for l in (3, 2, 1):
            wanted[l - 1] = wanted[l] | {j for _, j in edges_of(graph.A, wanted[l])}
        assert len(wanted[2]) < len(wanted[1]) < graph.n_nodes
    total = np.zeros((k * c, k * c), int)
    for layer, width in ((2, 5), (3, 3)):
        for direction in ("forward", "backward"):
            rows, sums = counted(graph.A, part.owner_N, k, c, scheme, direction, wanted[layer], wanted[layer - 1])
            np.testing.assert_array_equal(report.bytes_PP(layer, direction), (rows + sums) * width * 8)
            found = [e["rows"] for e in report.exchanges if (e["layer"], e["direction"]) == (layer, direction)]
            assert found == ([rows.sum()] if c == 1 else [rows.sum(), sums.sum()])
            total += (rows + sums) * width * 8
    np.testing.assert_array_equal(report.bytes_PP(), total)
    assert report.bytes_per_epoch == total.sum()
    assert [v.rows for v in report.layers] == [len(rows) for rows in wanted[1:]]
    assert [v.bytes for v in report.layers] == [report.bytes_PP(l).sum() for l in (1, 2, 3)]


@pytest.mark.parametrize(("k", "c"), [(4, 1), (4, 2), (4, 4)])
def test_every_nonzero_is_multiplied_by_one_rank(k, c):
    graph, part = graph_and_parts(k, "directed")
    own_P, ghost_P = np.zeros(k * c, int), np.zeros(k * c, int)
    for i, j in edges_of(graph.A, range(graph.n_nodes)):
        p, q = part.owner_N[i], part.owner_N[j]
        (own_P if p == q else ghost_P)[p * c + q // (k // c)] += 1
    columns, cover = (count_pairs(graph.A, part, grid_of(k, c), scheme) for scheme in ("columns", "cover"))
    np.testing.assert_array_equal(columns.own_P, own_P)
    np.testing.assert_array_equal(columns.ghost_P, ghost_P)
    np.testing.assert_array_equal(cover.own_P, own_P)
    assert not columns.sender_P.any() and cover.sender_P.any()
    assert cover.total_P.sum() == graph.nnz
    # A nonzero moves inside its process column.
    for j in range(c):
        assert cover.total_P[j::c].sum() == columns.total_P[j::c].sum()


def test_layers_that_multiply_nearly_all_edges_take_all_rows_and_those_before_them_too():
    leaves = list(range(1, 9))
    A = graph_from_coo([0] * 8 + leaves, leaves + [0] * 8, 10).A  # a star: node 9 has no edges
    centre_N, leaf_N = np.arange(10) == 0, np.arange(10) == 1
    count = lambda train_N, layers: [int(rows.sum()) for rows in reached_rows(A, train_N, (1,) * layers)]
    assert count(leaf_N, 2) == [9, 2, 1]  # layer 1 multiplies 9 of 16 edges
    assert count(leaf_N, 3) == [10, 10, 2, 1] and count(centre_N, 2) == [10, 10, 1]
    assert count(centre_N | (np.arange(10) > 1), 1) == [10, 9]  # T_L stays the rows of the loss
    reached = reached_rows(A, centre_N | leaf_N | (np.arange(10) > 2), (1, 1, 0))
    assert [int(rows.sum()) for rows in reached] == [10, 10, 9, 9]  # and T of the layer before a local one


def test_the_baseline_ships_the_input_every_epoch_and_its_gradient():
    graph, part = graph_and_parts(4, "directed")
    base = measure(graph, part, "columns", (300, 16, 24), order="spmm_first", keep=False)
    assert [(e["layer"], e["direction"], e["width"]) for e in base.exchanges] == [
        (1, "forward", 300), (2, "forward", 16), (2, "backward", 16),
    ]  # fmt: skip
    more = measure(graph, part, "columns", (300, 16, 24), order="spmm_first", keep=False, input_gradient=True)
    assert more.exchanges[:-1] == base.exchanges and more.exchanges[-1]["width"] == 300
    assert more.bytes_PP(1, "backward").sum() == base.bytes_PP(1, "forward").sum()
    wide = measure(graph, part, "columns", (16, 24, 8), order="spmm_first")
    assert [e["width"] for e in wide.exchanges] == [24, 24], "A X kept all the same, layer 2 in the order asked"


@pytest.mark.parametrize("wire", ["float32", "bfloat16", "float16"])
def test_rows_are_as_wide_as_their_wire_type_and_sums_keep_their_own(wire):
    graph, part = graph_and_parts(4, "directed")
    report = measure(graph, part, "cover", (9, 5, 7), 2, itemsize=4, wire=wire)
    size = {"float32": 20, "bfloat16": 10, "float16": 10}[wire]
    assert row_bytes(5, 4, wire) == size
    for e in report.exchanges:
        assert e["bytes"] == e["rows"] * (size if (e["direction"], e["kind"]) == ("forward", "rows") else 20)
    gradients = measure(graph, part, "cover", (9, 5, 7), itemsize=4, wire_gradients=wire)
    np.testing.assert_array_equal(gradients.bytes_PP(2, "backward"), gradients.rows_PP.T * size)
    np.testing.assert_array_equal(gradients.bytes_PP(2, "forward"), gradients.rows_PP * 20)


def test_sums_of_bfloat16_are_float32_forward_and_bfloat16_backward():
    graph, part = graph_and_parts(4, "directed")
    report = measure(graph, part, "columns", (9, 5, 7), 2, itemsize=2)
    sizes = {(e["direction"], e["kind"]): e["bytes"] // e["rows"] for e in report.exchanges}
    assert sizes == {("forward", "rows"): 10, ("forward", "sum"): 20, ("backward", "rows"): 10, ("backward", "sum"): 10}


def test_an_evaluation_computes_all_rows_beside_a_pruned_step():
    graph, part = graph_and_parts(4, "undirected")
    train_N = np.arange(40) == 3
    step, both, full = (
        measure(graph, part, "columns", (9, 5, 7), **options)
        for options in ({"train_N": train_N}, {"train_N": train_N, "evaluations": 2}, {})
    )
    np.testing.assert_array_equal(both.bytes_PP(2), step.bytes_PP(2) + 2 * full.bytes_PP(2, "forward"))
    np.testing.assert_array_equal(step.rows_PP, full.rows_PP)
    assert step.bytes_per_epoch < full.bytes_per_epoch


def test_multiply_adds_are_those_of_the_products():
    graph, part = graph_and_parts(4, "directed")
    n, nnz = graph.n_nodes, graph.nnz
    first, second = measure(graph, part, "columns", (9, 5, 7)).layers
    assert (first.order, first.multiply_adds) == ("spmm_first", 2 * n * 9 * 5)  # (A X) W and dW
    assert (second.order, second.multiply_adds) == ("spmm_first", 2 * nnz * 5 + 3 * n * 5 * 7)
    assert measure(graph, part, "columns", (9, 5, 7), 2).layers[1].multiply_adds == 2 * nnz * 5 + 2 * 3 * n * 5 * 7
    changing = measure(graph, part, "columns", (9, 3, 7), input_is_fixed=False).layers[0]
    assert (changing.order, changing.multiply_adds) == ("gemm_first", 2 * nnz * 3 + 2 * n * 9 * 3)
    pruned = measure(graph, part, "columns", (9, 5, 7), train_N=np.arange(n) == 3).layers[1]
    row = int(np.diff(graph.A.indptr)[3])
    assert pruned.multiply_adds == 2 * row * 5 + 3 * 5 * 7


@pytest.mark.parametrize("input_is_fixed", [True, False], ids=["kept", "changing"])
def test_of_sparse_features_a_pruned_step_multiplies_the_rows_that_it_needs(input_is_fixed):
    graph, part = graph_and_parts(4, "directed")
    n, train_N = graph.n_nodes, np.arange(graph.n_nodes) == 3
    graph = replace(graph, X=sp.eye_array(n, format="csr", dtype=np.float32))
    first = measure(graph, part, "columns", (n, 5, 7), input_is_fixed=input_is_fixed, train_N=train_N).layers[0]
    A = (graph.A != 0).toarray()
    rows_N = train_N | A[3]  # what layer 2 reads
    read_N = rows_N | A[rows_N].any(axis=0)
    if input_is_fixed:
        assert first.is_kept and first.multiply_adds == 2 * int((A[rows_N].sum(axis=1) + 1).sum()) * 5
    else:
        assert first.multiply_adds == 2 * int(A[rows_N].sum()) * 5 + 2 * int(read_N.sum()) * 5
    assert read_N.sum() < n


def test_the_report_shows_what_cover_moves_and_each_layer():
    graph, part = graph_and_parts(4, "directed")
    text = str(measure(graph, part, "cover", (9, 5, 7), 2))
    assert text.startswith("given, k = 4, cover, c = 2 (8 ranks): 40 nodes")
    assert "move to the owner" in text and "(A X) W, kept" in text and "layer 2 backward sum" in text
    assert "move to the owner" not in str(measure(graph, part, "columns", (9, 5, 7)))


@pytest.mark.parametrize("P, c", [(1, 1), (6, 1), (4, 2), (8, 2), (12, 2), (9, 3), (16, 4), (np.int64(8), np.int32(2))])
def test_each_block_row_is_on_c_ranks_that_share_its_blocks_out(P, c):
    grid = ProcessGrid(P, c)
    assert (grid.rows, grid.n_stages) == (P // c, P // c**2)
    for i in range(grid.rows):
        ranks = [r for r in range(P) if grid.row_of(r) == i]
        stages = [q for r in ranks for q in grid.stages(grid.column_of_rank(r))]
        assert len(ranks) == c and stages == list(range(grid.rows))
        assert all(grid.column_of(q) == j for j in range(c) for q in grid.stages(j))


@pytest.mark.parametrize("P, c, said", [
    (4, 3, "replication 3 does not fit 4 rank.*those that work: 1, 2"), (8, 4, "those that work: 1, 2"), (2, 2, "those that work: 1"), (4, 0, "replication 0"),
    (4, 2.0, "replication = 2.0; expected an integer"), (4, True, "replication = True"), (4, "2", "replication = '2'"), (0, 1, "ranks = 0; expected an integer of 1 or more"), (4.0, 1, "ranks = 4.0"),
])  # fmt: skip
def test_what_makes_no_grid_is_refused_with_what_would(P, c, said):
    with pytest.raises(UsageError, match=said):
        ProcessGrid(P, c)
