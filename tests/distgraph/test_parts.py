"""Parts of a graph as graphs of one rank: rows, values, labels and outputs are those of the whole graph, or scaled as documented."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from edited_parts import replaced
from graphs import KINDS, dense_operator, random_graph
from models import normal
from part_folders import parts_of
from worlds import parallel

from spgnn.config.names import NORMS
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import Parts, distribute
from spgnn.errors import GraphError, PartitionError, UsageError, together
from spgnn.graph import WITH_LOOPS, random_split
from spgnn.layers import GCN, SAGE, Stack
from spgnn.partition import part_graph, save_partition


def cut(kind="undirected", k=3, **more):
    graph = random_graph(n=50, edges=90, seed=1, **KINDS[kind] | more)
    return graph, part_graph(graph, k, "random", seed=2)


def alone(graph, partition, hops, **options):
    return parts_of(graph, partition, SelfCommunicator(), hops=hops, dtype="float64", **options)


def local_rows(dgraph):
    """The dense operator of a part on its own columns, and the nodes."""
    return dgraph.A.A_oo.to_scipy().toarray(), dgraph.node_n


def known_entries(graph, own_n, hops):
    """Nodes, known entries of A + NaN where unknown, and hops, by plain loops."""
    A = graph.A.toarray().astype(np.float64)
    pattern = np.zeros(A.shape, bool)
    pattern[np.repeat(np.arange(len(A)), np.diff(graph.A.indptr)), graph.A.indices] = True
    hop = np.full(len(A), 99)
    hop[own_n] = 0
    for h in range(hops):
        for u in np.flatnonzero(hop == h):
            hop[pattern[u] & (hop > h + 1)] = h + 1
    nodes = np.concatenate([own_n, np.flatnonzero((hop > 0) & (hop < 99))])
    is_in = np.isin(np.arange(len(A)), nodes)
    known = np.zeros(A.shape, bool)
    for u in nodes:
        for v in nodes:
            if not pattern[u, v]:
                continue
            is_whole = hop[u] < hops or hops == 0
            mirrored = graph.edges == "undirected" and hop[v] < hops
            known[u, v] = is_whole or mirrored or u == v
    return nodes, known & is_in[None, :], hop, pattern


def test_a_part_has_the_feature_norm_of_its_options_and_keeps_the_order_of_its_rows():
    graph, partition = cut()
    graph = replace(graph, X=np.abs(graph.X))
    parts = alone(graph, partition, 1, feature_norm="row", locality=True)
    dgraph = parts.open(1)
    assert dgraph.feature_norm == "row" and dgraph.n_classes == graph.n_classes and dgraph.scheme == "columns"
    np.testing.assert_array_equal(dgraph.node_n[: len(partition.own(1))], partition.own(1))


@pytest.mark.parametrize("hops", [0, 1, 2])
@pytest.mark.parametrize("how", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_whole_operator_or_known_entries_scaled_to_its_sum(kind, how, hops):
    graph, partition = cut(kind)
    whole = dense_operator(graph, how)
    A = graph.A.toarray().astype(np.float64)
    parts = alone(graph, partition, hops, operator=how)
    for p in range(parts.k):
        rows, node_m = local_rows(parts.open(p))
        nodes, known, hop, pattern = known_entries(graph, partition.own(p), hops)
        np.testing.assert_array_equal(node_m, nodes)
        loops = np.diag(~np.diag(pattern)) if how in WITH_LOOPS else np.zeros_like(pattern)
        all_of, of_known = A + loops, A * known + loops
        for i, u in enumerate(nodes):
            expected = np.where((known | loops.astype(bool))[u], whole[u], 0.0)
            lost = np.count_nonzero(pattern[u] & ~known[u])
            if lost and how != "loops":
                known_sum = of_known[u].sum()
                expected = expected * (all_of[u].sum() / known_sum if known_sum else 0.0)
            assert lost == 0 or hop[u] == hops
            np.testing.assert_allclose(rows[i], expected[nodes], rtol=1e-12, atol=1e-14, err_msg=f"part {p}, node {u}")


@pytest.mark.parametrize("first", NORMS)
def test_every_normalisation_of_a_part_can_be_made_from_any_other(first):
    graph, partition = cut("weighted")
    parts = alone(graph, partition, 1)
    A = parts.open(1, operator=first).A
    for how in NORMS:
        expected, _ = local_rows(parts.open(1, operator=how))
        np.testing.assert_allclose(A.with_norm(how).A_oo.to_scipy().toarray(), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("first", ["gcn", "row", "loops"])
def test_means_of_a_part_do_not_depend_on_the_scale_of_the_weights(first):
    graph, partition = cut("weighted")
    parts = [alone(replace(graph, A=graph.A * scale), partition, 1) for scale in (1, 1e-6, 1e-17)]
    means = [of.open(1, operator=first).A.with_norm("row").A_oo.to_scipy().toarray() for of in parts]
    for mean in means[1:]:
        np.testing.assert_allclose(mean, means[0], rtol=1e-13)


def gcn(f, c):
    return Stack(GCN(f, 5, act="relu"), GCN(5, c))


def sage(f, c):
    return Stack(SAGE(f, 5, act="relu"), SAGE(5, c))


@pytest.mark.parametrize("make, how", [(gcn, how) for how in NORMS] + [(sage, "none")])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_of_own_nodes_are_exact_from_as_many_hops_as_layers_on(kind, make, how):
    graph, partition = cut(kind)
    dgraph = distribute(graph, SelfCommunicator(), operator=how, dtype="float64", keep=False)
    model = normal(make(6, 3))
    Z_NC = np.empty((50, 3))
    with torch.no_grad():
        Z_NC[dgraph.node_n] = model(dgraph.A, dgraph.X).numpy()
        for hops, is_exact in ((2, True), (3, True), (1, False)):
            parts = alone(graph, partition, hops, operator=how, keep=False)
            errors = []
            for p in range(parts.k):
                of_part = parts.open(p)
                n = parts.sizes(p)["n"]
                Z_mC = model(of_part.A, of_part.X).numpy()
                errors.append(np.abs(Z_mC[:n] - Z_NC[of_part.node_n[:n]]).max())
            assert (max(errors) < 1e-12) == is_exact


@pytest.mark.parametrize("features", ["dense", "sparse"])
def test_labels_and_splits_of_the_halo_are_unknown_and_features_are_those_of_the_graph(features):
    graph, partition = cut(sparse=features == "sparse")
    X_NF = graph.X.toarray() if features == "sparse" else graph.X
    parts = alone(graph, partition, 1)
    assert parts.n_train == np.count_nonzero((graph.split == 0) & (graph.y >= 0))
    for p in range(parts.k):
        dgraph, n = parts.open(p), len(partition.own(p))
        own_n, halo_n = dgraph.node_n[:n], dgraph.node_n[n:]
        np.testing.assert_array_equal(own_n, partition.own(p))
        assert len(halo_n) == parts.sizes(p)["g"] > 0 and np.all(partition.owner_N[halo_n] != p)
        np.testing.assert_array_equal(dgraph.y_n[:n], graph.y[own_n])
        np.testing.assert_array_equal(dgraph.split_n[:n], graph.split[own_n])
        assert (dgraph.y_n[n:] == -1).all() and (dgraph.split_n[n:] == -1).all()
        X = dgraph.X.csr.to_scipy().toarray() if features == "sparse" else dgraph.X
        np.testing.assert_array_equal(X, X_NF[dgraph.node_n])
        assert dgraph.n_classes == 3 and dgraph.n_nodes == 50
        assert parts.n_train_of(p) == int(((dgraph.split_n == 0) & (dgraph.y_n.numpy() >= 0)).sum())
        with pytest.raises(UsageError, match="collect needs the rows of all 50 nodes"):
            dgraph.collect(dgraph.split_n)


def test_a_part_may_lack_the_last_class():
    graph, _ = cut()
    owner_N = (graph.y == graph.n_classes - 1).astype(int)
    parts = alone(graph, owner_N, 1)
    assert parts.open(0).y_n.max() < 2 and parts.open(0).n_classes == 3


@parallel([1, 2, 3], mpi=[2])
def test_the_split_of_parts_does_not_depend_on_the_ranks(comm):
    graph, partition = cut(k=4)
    for split in ("auto", "random"):
        parts = parts_of(graph, partition, comm, split=split, seed=5)
        split_N = graph.split if split == "auto" else random_split(graph.y, 5)
        assert list(parts.own) == [p for p in range(4) if p % comm.size == comm.rank]
        assert parts.n_train == np.count_nonzero((split_N == 0) & (graph.y >= 0))
        for p in range(4):
            is_train = (split_N == 0) & (graph.y >= 0) & (partition.owner_N == p)
            assert parts.n_train_of(p) == is_train.sum()
        for p in parts.own:
            dgraph, n = parts.open(p), parts.sizes(p)["n"]
            np.testing.assert_array_equal(dgraph.split_n[:n], split_N[dgraph.node_n[:n]])


@parallel([1, 2, 4], mpi=[2])
def test_a_folder_gives_the_same_parts_as_the_graph(comm, tmp_path):
    graph, partition = cut("weighted", k=3)
    path = tmp_path / f"{comm.size}"
    together(comm, lambda: save_partition(partition, path, graph, hops=3), root=0)
    for hops in (0, 1, 2):
        folder = Parts(path, comm, hops=hops, operator="row", dtype="float64")
        memory = parts_of(graph, partition, comm, hops=hops, operator="row", dtype="float64")
        assert (folder.k, folder.n_train, folder.n_classes) == (memory.k, memory.n_train, memory.n_classes)
        for p in folder.own:
            folder.prefetch(p)
            one, other = folder.open(p), memory.open(p)
            np.testing.assert_array_equal(one.node_n, other.node_n)
            for name in ("X", "y_n", "split_n"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            np.testing.assert_array_equal(local_rows(one)[0], local_rows(other)[0])
            assert one.comm.size == 1 and folder.n_train_of(p) == memory.n_train_of(p)
            assert folder.nbytes(p) >= folder.sizes(p)["nnz"] * 8
            del one
            folder.release(p)


def test_the_bytes_of_a_part_are_those_of_the_files_that_it_reads(tmp_path):
    graph, partition = cut()
    save_partition(partition, tmp_path / "parts", graph, hops=2)
    sizes = {path.stem: np.load(path).nbytes for path in (tmp_path / "parts" / "part-00001").iterdir()}
    comm = SelfCommunicator()
    assert Parts(tmp_path / "parts", comm, hops=1).nbytes(1) == sum(sizes.values())
    own = sum(size for name, size in sizes.items() if not name.startswith("halo"))
    assert Parts(tmp_path / "parts", comm, hops=0).nbytes(1) == own


def test_what_does_not_fit_is_refused_with_the_fix(tmp_path):
    (graph, partition), comm, path = cut(), SelfCommunicator(), tmp_path / "parts"
    save_partition(partition, path, graph, hops=1)
    bare = type(graph)(graph.A, y=graph.y)
    for error, message, call in (
        (PartitionError, "has a halo of 1 hops, got hops = 2; partition the graph", lambda: Parts(path, comm, hops=2)),
        (UsageError, "hops = -1; expected an integer from 0 to 127", lambda: Parts(path, comm, hops=-1)),
        (UsageError, "Parts: unknown key 'sheme'; did you mean 'scheme'", lambda: Parts(path, comm, sheme="cover")),
        (UsageError, "split 4 does not exist", lambda: Parts(path, comm, split="4")),
        (UsageError, "part 3 does not exist", lambda: Parts(path, comm).open(3)),
        (PartitionError, "manifest.json: cannot be read", lambda: Parts(tmp_path / "none", comm)),
        (UsageError, "Parts got a int; expected a partition folder", lambda: Parts(7, comm)),
        (GraphError, "has no split", lambda: parts_of(bare, partition.owner_N, comm, split="given")),
    ):
        with pytest.raises(error, match=message):
            call()
    replaced(path, "halo_features", lambda X: X * np.nan)
    with pytest.raises(PartitionError, match="halo_features.npy: node .* has a feature that is not finite"):
        Parts(path, comm).open(1)


@parallel([3], mpi=[])
def test_ranks_with_other_hops_are_told_apart(comm):
    graph, partition = cut()
    with pytest.raises(UsageError, match="option.hops"):
        parts_of(graph, partition, comm, hops=comm.rank)


def test_advice_is_given_for_the_files_of_a_part(tmp_path, monkeypatch):
    graph, partition = cut()
    save_partition(partition, tmp_path / "parts", graph)
    parts, advised = Parts(tmp_path / "parts", SelfCommunicator()), []
    monkeypatch.setattr(os, "posix_fadvise", lambda handle, start, size, advice: advised.append(advice))
    parts.prefetch(0)
    files = len(list((tmp_path / "parts" / "part-00000").iterdir()))
    assert advised == [os.POSIX_FADV_WILLNEED] * files
    parts.release(0)
    assert advised[files:] == [os.POSIX_FADV_DONTNEED] * files


@pytest.mark.parametrize("name", ["halo", "halo_hops"])
def test_a_folder_in_the_place_of_an_array_is_named_where_it_is_read(tmp_path, name):
    graph, partition = cut()
    save_partition(partition, tmp_path / "p", graph)
    path = tmp_path / "p" / "part-00001" / f"{name}.npy"
    path.unlink(), path.mkdir()
    parts = Parts(tmp_path / "p", SelfCommunicator())
    parts.prefetch(1)
    with pytest.raises(PartitionError, match=f"{name}.npy: cannot be read"):
        parts.source.part(1)
