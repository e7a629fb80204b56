"""Attributes of edges on any ranks: each nonzero keeps its row, and the input's order is the edge list's.

The oracle is a loop over the edge list in the order in which it was given.
"""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from part_folders import parts_of
from test_locality import shuffled_rows
from worlds import parallel

from spgnn import distribute, part_graph, save_partition, train
from spgnn.distgraph import Parts
from spgnn.errors import InputError, ShapeError, UsageError, together
from spgnn.experiment.checkpoint import graph_facts
from spgnn.graph import Graph, graph_from_coo
from spgnn.graph.structure import multi_from_coo
from spgnn.layers import GCN, Stack
from spgnn.partition import PartitionFolder, part_to_folder, partition_of
from spgnn.partition.folder.check import check_parts
from spgnn.partition.locality import in_order
from spgnn.spmm.operator.pruning import PrunedSpMM, needed_rows

N, E, F = 30, 150, 3


def edge_list(seed=0, n=N, edges=E):
    """A directed multigraph with self-loops, isolated nodes and edges in both directions, in random order."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, n - 4, (2, edges))
    src[:10], dst[:10] = src[10:20], dst[10:20]  # twice
    src[20:30], dst[20:30] = dst[10:20], src[10:20]  # and back
    return src, dst, rng.standard_normal((edges, F))


def edge_graph(use, seed=0, antisymmetric=(1,), **fields) -> Graph:
    src, dst, attr_EF = edge_list(seed)
    fields = {"X": np.random.default_rng(1).standard_normal((N, 4)), "meta": {"antisymmetric": antisymmetric}} | fields
    return graph_from_coo(src, dst, N, edge_attr=attr_EF, **fields).with_edges(use)


def used_edges(use, seed=0, antisymmetric=(1,)):
    """(row, column, attributes) of each nonzero, by a loop over the list."""
    src, dst, attr_EF = edge_list(seed)
    pairs, flip = set(zip(src.tolist(), dst.tolist())), np.ones(F)
    flip[list(antisymmetric)] = -1
    for e, (u, v) in enumerate(zip(src.tolist(), dst.tolist())):
        yield (v, u, attr_EF[e]) if use == "in" else (u, v, attr_EF[e])
        if use == "both" and (v, u) not in pairs:
            yield v, u, attr_EF[e] * flip


def row_sums(use, x_N=None, **of) -> np.ndarray:
    """sum over edges into i of attr, or of attr times x of the column, (N, F)."""
    out = np.zeros((N, F))
    for i, j, attr in used_edges(use, **of):
        out[i] += attr * (1 if x_N is None else x_N[j])
    return out


def local_sums(A, x_m=None) -> np.ndarray:
    """The same, of the rows of this rank, from the operator's blocks and its attributes."""
    out, start = np.zeros((A.n, F)), 0
    for block in A.column_blocks:
        row_b = np.repeat(np.arange(A.n), np.diff(block.A.indptr))
        x_b = 1 if x_m is None else x_m[block.ids_c[block.A.indices]][:, None]
        np.add.at(out, row_b, A.edge_attr[start : start + len(row_b)].numpy() * x_b)
        start += len(row_b)
    assert start == len(A.edge_attr) == A.nnz
    return out


def permuted(use, seed):
    """The same graph with its edge list in another order, and that order."""
    src, dst, attr_EF = edge_list()
    order = np.random.default_rng(seed).permutation(E)
    graph = graph_from_coo(src[order], dst[order], N, edge_attr=attr_EF[order], meta={"antisymmetric": [1]})
    return graph.with_edges(use), order


@parallel([1, 2, 3, 4, 7], mpi=[3])
@pytest.mark.parametrize("use", ["out", "in", "both"])
@pytest.mark.parametrize("holder", ["all", "root"])
def test_each_nonzero_keeps_its_attributes_on_any_ranks(comm, use, holder):
    graph = edge_graph(use)
    x_N = np.random.default_rng(5).standard_normal(N)
    owner_N = np.random.default_rng(2).integers(0, max(comm.size - 1, 1), N)  # the last rank has no rows
    owner_N[0] = comm.size - 1
    given = graph if holder == "all" or comm.rank == 0 else None
    for operator in ("none", "gcn"):
        dgraph = distribute(given, comm, owner_N, dtype="float64", operator=operator)
        for name in ("none", "gcn", "row"):
            A = dgraph.A.with_norm(name)
            assert np.abs(local_sums(A, x_N) - row_sums(use, x_N)[A.node_n]).max(initial=0) < 1e-12


@parallel([1, 2, 3, 4, 7], mpi=[])
@pytest.mark.parametrize("use", ["out", "in", "both"])
def test_rows_of_edges_go_out_and_come_back_in_the_order_of_the_list(comm, use):
    graph, order = permuted(use, 7)
    dgraph = distribute(graph, comm, method="random", dtype="float64", operator="none")
    attr_EF = edge_list()[2][order]
    own_EF = dgraph.edge_rows(attr_EF)
    assert torch.equal(dgraph.edge_rows(torch.from_numpy(attr_EF)), torch.from_numpy(own_EF))
    is_flipped = (own_EF != dgraph.A.edge_attr.numpy()).any(axis=1)
    assert (own_EF[:, [0, 2]] == dgraph.A.edge_attr.numpy()[:, [0, 2]]).all()
    assert use == "both" or not is_flipped.any()
    assert (dgraph.collect_edges(dgraph.A.edge_attr.numpy()) == attr_EF).all()
    with pytest.raises(ShapeError, match=f"got {E - 1} rows; the list of edges has {E}"):
        dgraph.edge_rows(attr_EF[1:])
    with pytest.raises(ShapeError, match="one for each nonzero of this rank"):
        dgraph.collect_edges(np.zeros((len(own_EF) + 1, 2)))


@parallel([4], mpi=[])
def test_in_15d_each_nonzero_is_on_one_rank(comm):
    graph = edge_graph("out")
    dgraph = distribute(graph, comm, method="random", dtype="float64", operator="none", replication=2)
    assert (dgraph.collect_edges(dgraph.A.edge_attr.numpy()) == edge_list()[2]).all()
    sums_NF = np.zeros((N, F))
    sums_NF[dgraph.node_n] = local_sums(dgraph.A)
    assert np.abs(comm.all_reduce(sums_NF) - row_sums("out")).max() < 1e-12


@parallel([1, 3], mpi=[])
def test_a_graph_without_attributes_says_how_to_keep_the_order_of_edges(comm):
    src, dst, _ = edge_list()
    dgraph = distribute(graph_from_coo(src, dst, N), comm, method="random")
    assert dgraph.A.edge_attr is None
    with pytest.raises(UsageError, match=r"edge_attr=np.empty\(\(E, 0\)\)"):
        dgraph.edge_rows(np.zeros(E))
    dgraph = distribute(graph_from_coo(src, dst, N, edge_attr=np.empty((E, 0))), comm, method="random")
    assert (dgraph.collect_edges(dgraph.edge_rows(np.arange(E))) == np.arange(E)).all()


@parallel([1, 2, 3], mpi=[])
@pytest.mark.parametrize("scheme", ["columns", "broadcast", "cover"])
def test_attributes_follow_reordered_rows(comm, scheme):
    graph = edge_graph("in")
    with shuffled_rows(comm):
        dgraph = distribute(graph, comm, method="random", dtype="float64", operator="none", scheme=scheme)
    assert comm.size > 3 or np.any(np.diff(dgraph.node_n) < 0)
    assert np.abs(local_sums(dgraph.A) - row_sums("in")[dgraph.node_n]).max(initial=0) < 1e-12
    assert (dgraph.collect_edges(dgraph.A.edge_attr.numpy()) == edge_list()[2]).all()


@parallel([1, 2, 3, 7], mpi=[])
@pytest.mark.parametrize("operator", ["none", "gcn"])
def test_pruned_rows_have_their_attributes(comm, operator):
    graph = edge_graph("both")
    x_N = np.random.default_rng(5).standard_normal(N)
    dgraph = distribute(graph, comm, method="random", dtype="float64", operator=operator)
    masks = needed_rows(dgraph.A, dgraph.node_n % 5 == 0, (1, 1))
    pruned = PrunedSpMM(dgraph.A, dgraph.X, masks, False)
    assert comm.all_reduce(np.array([pruned.layers[-1].n]))[0] < N
    for layer in pruned.layers:
        assert np.abs(local_sums(layer, x_N) - row_sums("both", x_N)[layer.out_ids]).max(initial=0) < 1e-12


def write_parts(comm, folder, use, hops=1, **fields):
    """The graph as a folder of 5 parts, of which the last rank may have none."""
    graph = edge_graph(use, **fields)
    together(comm, lambda: save_partition(part_graph(graph, 5, "random"), folder, graph, hops=hops), root=0)
    return graph, PartitionFolder(folder)


@parallel([1, 2, 3], mpi=[2])
@pytest.mark.parametrize("use", ["in", "both"])
def test_folders_of_parts_keep_attributes(comm, use, tmp_path):
    graph, folder = write_parts(comm, tmp_path / "parts", use, hops=2)
    dgraph = distribute(folder, comm, dtype="float64", operator="none")
    assert np.abs(local_sums(dgraph.A) - row_sums(use)[dgraph.node_n]).max(initial=0) < 1e-12
    assert (dgraph.collect_edges(dgraph.A.edge_attr.numpy()) == edge_list()[2]).all()
    whole = folder.graph()
    assert (whole.A != graph.A).nnz == 0 and whole.meta["antisymmetric"] == [1]
    both = (np.lexsort((g.edge_ids, g.A.indices, np.repeat(np.arange(N), np.diff(g.A.indptr)))) for g in (graph, whole))
    assert all((graph.edge_attr[a] == whole.edge_attr[b]).all() for a, b in [tuple(both)])
    assert check_parts(folder.path)["nonzeros"] == graph.nnz
    assert folder.describe()["edge_attr"] == F and folder.describe()["edges_listed"] == E


@parallel([1, 2, 3], mpi=[])
def test_the_fingerprint_of_a_graph_has_its_attributes_on_any_ranks(comm, tmp_path):
    graph, folder = write_parts(comm, tmp_path / "parts", "both")
    of = lambda graph: graph_facts(distribute(graph, comm, method="random", dtype="float64"))
    facts, changed = of(graph), np.array(graph.edge_attr)
    changed[7, 2] += 1e-9
    of_parts = graph_facts(Parts(folder, comm, dtype="float64"))
    assert of_parts.pop("parts") and facts == of(folder) == of_parts
    assert (
        facts["edges"]
        != of(Graph(graph.A, graph.X, edge_attr=changed, edge_ids=graph.edge_ids, edges="undirected"))["edges"]
    )


@parallel([2], mpi=[])
def test_parts_trained_alone_refuse_attributes_and_know_their_rows(comm, tmp_path):
    graph, folder = write_parts(comm, tmp_path / "parts", "in", hops=2)
    x_N = np.random.default_rng(5).standard_normal((N, 1))
    for parts in (
        Parts(folder, comm, dtype="float64"),
        parts_of(graph, folder.partition(), comm, dtype="float64"),
    ):
        dgraph = parts.open(parts.own[0], "none")
        with pytest.raises(UsageError, match="have no attributes of edges; distribute the folder"):
            _ = dgraph.A.edge_attr
        with pytest.raises(UsageError, match="edge_rows: a part"):
            dgraph.edge_rows(np.zeros(E))
        n = parts.sizes(parts.own[0])["n"]
        found = dgraph.A @ torch.from_numpy(x_N[dgraph.node_n])
        assert np.abs(found.numpy()[:n] - (graph.A @ x_N)[dgraph.node_n[:n]]).max() < 1e-12
        assert parts.graph(parts.own[0]).n_nodes == len(dgraph.node_n)


def test_partitioners_see_equal_edges_as_one_edge():
    graph = edge_graph("both")
    for method in ("metis", "volume", "entropy", "spring"):
        one = part_graph(graph, 3, method).owner_N
        assert (one == part_graph(graph.without_edge_attr(), 3, method).owner_N).all()


@pytest.mark.parametrize("use", ["out", "in", "both"])
@pytest.mark.parametrize("hops", [1, 2])
def test_parts_of_a_stream_with_attributes_are_those_of_the_graph(use, hops, tmp_path):
    src, dst, attr_EF = edge_list()
    src[30:34] = dst[30:34] = [3, 3, 5, 5]  # two self-loops at a node
    graph = graph_from_coo(src, dst, N, edge_attr=attr_EF, meta={"antisymmetric": [1]}).with_edges(use)
    owner_N = np.arange(N) % 4
    owner_N[owner_N == 2] = 0
    owner_N[N - 1] = 2  # its part has no edges
    save_partition(partition_of(graph, owner_N, 4), tmp_path / "whole", graph, hops=hops)
    np.save(tmp_path / "edges.npy", np.stack([src, dst], axis=1))
    np.save(tmp_path / "attr.npy", attr_EF)
    options = {
        "edge_features": tmp_path / "attr.npy", "antisymmetric": [1], "n_nodes": N, "owner": owner_N, "edges": use,
    }  # fmt: skip
    part_to_folder(tmp_path / "edges.npy", 4, tmp_path / "parts", hops=hops, **options)
    whole, parts = PartitionFolder(tmp_path / "whole"), PartitionFolder(tmp_path / "parts")
    for name in ("graph_digest", "fingerprint", "metrics"):
        assert whole.manifest[name] == parts.manifest[name]
    assert check_parts(parts.path)
    for p in range(4):
        for name in whole.manifest["parts"][p]:
            files = [np.load(folder.path / f"part-{p:05d}" / f"{name}.npy") for folder in (whole, parts)]
            assert np.array_equal(*files, equal_nan=name.endswith("sums")), (p, name)
    assert parts.graph().meta["edges_listed"] == E


def test_a_stream_names_what_is_wrong_with_its_attributes(tmp_path):
    edges, attr_EF = np.stack(edge_list()[:2], axis=1), edge_list()[2]
    bad = np.where(np.arange(E)[:, None] == 70, np.inf, attr_EF)
    for given, message in (
        ({"edge_features": attr_EF[1:]}, f"{E - 1} rows; expected {E}, one for each edge"),
        ({"edge_features": bad}, "edge 70, column 0 is inf"),
        ({"edge_features": attr_EF, "antisymmetric": [3]}, "names column 3; edges have 3 attributes"),
    ):
        with pytest.raises(InputError, match=message):
            part_to_folder(edges, 2, tmp_path / "parts", **given)
    with pytest.raises(UsageError, match="antisymmetric requires edge_features"):
        part_to_folder(edges, 2, tmp_path / "parts", antisymmetric=[0])
    with pytest.raises(InputError, match="use part_graph and save_partition"):
        part_to_folder(edge_graph("in"), 2, tmp_path / "parts")


@parallel([1, 2, 3, 7], mpi=[])
@pytest.mark.parametrize("scheme", ["columns", "cover", "broadcast"])
@pytest.mark.parametrize("operator", ["none", "gcn", "row"])
def test_products_add_up_equal_edges(comm, scheme, operator):
    graph = edge_graph("out")
    A_NN, rng = np.zeros((N, N)), np.random.default_rng(8)
    for i, j, _ in used_edges("out"):
        A_NN[i, j] += 1
    if operator == "gcn":
        A_NN += np.diag(1.0 * (np.diag(A_NN) == 0))
    sums = [np.maximum(A_NN.sum(axis), 1) for axis in (1, 0)]
    A_NN = A_NN / np.sqrt(sums[0][:, None] * sums[1]) if operator == "gcn" else A_NN
    A_NN = A_NN / sums[0][:, None] if operator == "row" else A_NN
    H_NF, G_NF = rng.standard_normal((2, N, 3))
    dgraph = distribute(graph, comm, method="random", dtype="float64", operator=operator, scheme=scheme)
    H_nF = torch.from_numpy(H_NF[dgraph.node_n]).requires_grad_()
    Z_nF = dgraph.A @ H_nF
    Z_nF.backward(torch.from_numpy(G_NF[dgraph.node_n]))
    assert np.abs(Z_nF.detach().numpy() - (A_NN @ H_NF)[dgraph.node_n]).max(initial=0) < 1e-12
    assert np.abs(H_nF.grad.numpy() - (A_NN.T @ G_NF)[dgraph.node_n]).max(initial=0) < 1e-12


@parallel([1, 3])
def test_several_edges_between_two_nodes_stay_in_their_order_in_long_rows(comm):
    # SciPy's sort swaps equal ones in rows of more than 16.
    src, dst = np.random.default_rng(0).integers(0, 40, (2, 3000))
    graph = graph_from_coo(src, dst, 40, edge_attr=np.arange(3000.0)).with_edges("out")
    dgraph = distribute(graph, comm, partition=np.arange(40) % comm.size, operator="none")
    A, ids_E = dgraph.A, dgraph.A.edge_table.ids_E
    place = np.concatenate([block.ids_c for block in A.column_blocks])
    column, row = A.edge_index.numpy()
    order = np.lexsort((place[column], dgraph.node_n[row]))  # stable
    is_next = (np.diff(row[order]) == 0) & (np.diff(place[column][order]) == 0)
    assert is_next.any() and (np.diff(ids_E[order])[is_next] > 0).all()
    assert np.array_equal(A.edge_attr[:, 0].numpy(), ids_E)


def test_reordered_rows_keep_several_equal_edges_in_their_order():
    rows, columns = np.random.default_rng(0).integers(0, 40, (2, 3000))
    A, of_E = multi_from_coo(rows, columns, 40)
    order_n = np.random.default_rng(1).permutation(40)
    B = in_order(sp.csr_array((of_E, A.indices, A.indptr), A.shape), order_n)
    row_E = np.repeat(np.arange(40), np.diff(B.indptr))
    assert np.array_equal(order_n[row_E], rows[B.data]) and np.array_equal(order_n[B.indices], columns[B.data])
    is_next = (np.diff(row_E) == 0) & (np.diff(B.indices) == 0)
    assert (np.diff(B.indices)[np.diff(row_E) == 0] >= 0).all() and (np.diff(B.data)[is_next] > 0).all()


@parallel([1, 2], mpi=[])
@pytest.mark.parametrize("prune", ["never", "always"])
def test_models_without_edges_train_on_parts_of_multigraphs(comm, prune):
    graph = edge_graph("both", y=np.arange(N) % 3, split=np.arange(N, dtype=np.int8) % 2)
    losses = []
    for of in (graph, graph.without_edge_attr()):
        parts = parts_of(of, part_graph(graph, 2, method="random"), comm, dtype="float64")
        losses.append(train(Stack(GCN(4, 8), GCN(8, 3)), parts, epochs=2, prune=prune).records[-1]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
