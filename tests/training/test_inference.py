"""Passes over parts, layer by layer from disk, give the outputs of the whole graph, read what was predicted and leave nothing."""

import os
import resource
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import KINDS, dense_operator, random_graph
from models import ONE_HOP, SEVERAL_HOPS, Custom, two
from part_folders import parts_of
from worlds import parallel

from spgnn.config.names import NORMS
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.distgraph import Parts, distribute
from spgnn.distgraph.part_rows import own_part_rows, part_rows
from spgnn.errors import GraphError, NumericalError, RankError, ResourceError, ShapeError, UsageError
from spgnn.graph import random_split
from spgnn.layers import GCN, MLP, SAGE, SGC, MixHop, Stack
from spgnn.partition import part_graph, partition_of, save_partition
from spgnn.training.metrics import predicted
from spgnn.training.parts.inference import LayerwiseScorer
from spgnn.training.parts.out_of_core import OutOfCore
from spgnn.training.parts.scratch import Scratch
from spgnn.training.scorer import FullScorer


class Declared(Custom):
    """Reads direct neighbours."""

    hops = 1


class Undeclared(Declared):
    """The same, but its own forward declares nothing."""

    def forward(self, A, H):
        return super().forward(A, H)


MODELS = ONE_HOP | {
    "gcn, three layers": lambda: Stack(GCN(6, 9, act="relu"), GCN(9, 9, act="elu", norm="layer", residual=True), GCN(9, 3)),
    "mlp": lambda: Stack(MLP(6, 8, (5,), dropout=0.5), MLP(8, 3), dropout=0.3),
    "mixed": lambda: Stack(MLP(6, 5), MLP(5, 7), GCN(7, 8), MLP(8, 5), SAGE(5, 4, "sum"), MLP(4, 4), MLP(4, 3)),
    "sgc alone": lambda: Stack(SGC(6, 3, 3), dropout=0.5),
    "sgc inside": lambda: Stack(GCN(6, 5), SGC(5, 4, 2, act="relu", norm="layer"), SGC(4, 3, 1)),
    "mixhop inside": lambda: Stack(MLP(6, 5), MixHop(5, 6), MixHop(6, 3, (1, 3), combine="sum")),
    "custom": two(Declared, Declared),
    **{name: make for name, make in SEVERAL_HOPS.items() if name != "lightgcn"},
}  # fmt: skip


def small(kind="directed", k=4, n=40, **more):
    """A graph and unequal parts."""
    graph = random_graph(n=n, edges=2 * n, seed=1, **KINDS[kind] | more)
    owner_N = np.random.default_rng(3).integers(0, k, n)
    owner_N[:k], owner_N[k : n // 2] = np.arange(k), 0
    return graph, owner_N


def drawn(make, dtype=torch.float64, seed=0):
    model, rng = make(), torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, generator=rng, std=0.5)
    return model.to(torch.float32 if dtype == torch.bfloat16 else dtype)


def in_memory(make, graph, dtype="float64", **options):
    """Logits of all nodes in original order, on one rank."""
    dgraph = distribute(graph, SelfCommunicator(), dtype=dtype, locality=False, **options)
    model = drawn(make, getattr(torch, dtype)).eval()
    with torch.no_grad():
        return model(dgraph.A, dgraph.X).double().numpy()


def check_passes(make, parts, scratch, expected_NC, dtype=torch.float64, limit=1e-10):
    """Compare the logits of the own nodes, and the bytes read with those predicted; return Layerwise and the ids."""
    layerwise, ids, found = OutOfCore(drawn(make, dtype), parts, scratch), [], []
    layerwise.run(lambda rows, Z, _: (ids.append(rows.node_m[: rows.n]), found.append(Z.double())))
    ids, Z_nC = np.concatenate([np.empty(0, np.int64), *ids]), torch.cat([torch.empty(0, 3).double(), *found]).numpy()
    assert np.abs(Z_nC - expected_NC[ids]).max(initial=0) <= limit * np.abs(expected_NC).max()
    assert layerwise.bytes_read == layerwise.bytes_predicted()
    return layerwise, ids


def of_graph(graph, owner_N, comm, dtype="float64", **options):
    return parts_of(graph, owner_N, comm, hops=1, dtype=dtype, **options)


# Each model with each of: directed or not, weighted or not, sparse features or dense.
CASES = [(name, kind) for name in MODELS for kind in ("undirected", "weighted directed")]
CASES += [("gcn", "directed"), ("gat", "directed"), ("sage", "weighted"), ("sage max", "weighted")]


@pytest.mark.parametrize("name, kind", CASES)
def test_outputs_are_those_in_memory_for_each_family_and_graph(name, kind, tmp_path):
    graph, owner_N = small(kind)
    parts = of_graph(graph, owner_N, SelfCommunicator())
    layerwise, ids = check_passes(MODELS[name], parts, tmp_path, in_memory(MODELS[name], graph))
    assert sorted(ids) == list(range(graph.n_nodes)) and os.listdir(tmp_path) == []
    assert (layerwise.bytes_read > 0) == (name != "mlp")


@pytest.mark.parametrize("k", [1, 5])
@parallel([1, 2, 3], mpi=[2])
def test_any_ranks_and_parts_give_the_same_outputs_and_read_the_predicted_bytes(comm, k, tmp_path):
    graph, owner_N = small("weighted", k=k)
    make = MODELS["gcn, three layers"]
    parts = of_graph(graph, owner_N, comm)
    layerwise, ids = check_passes(make, parts, tmp_path, in_memory(make, graph))
    rows = sum(parts.sizes(p)["n"] + parts.sizes(p)["g"] for p in parts.own)
    assert layerwise.bytes_read == rows * (9 + 3) * 8  # H W of the last layer
    assert len(comm.all_gather(ids)) == graph.n_nodes
    comm.barrier()
    assert os.listdir(tmp_path) == []


@parallel([3], mpi=[2])
def test_counts_of_given_logits_raise_on_all_ranks_where_a_part_cannot_be_read(comm):
    graph, owner_N = small(k=4)
    scorer = LayerwiseScorer(drawn(MODELS["gcn"]), of_graph(graph, owner_N, comm))
    Z_nC = torch.zeros(int((owner_N % comm.size == comm.rank).sum()), 3, dtype=torch.float64)
    if comm.rank == 1:
        scorer.passes.reader.open = lambda p: 1 / 0
    with pytest.raises((ZeroDivisionError, RankError), match="rank 1 failed: division by zero|^division by zero"):
        scorer.counts(Z_nC)
    comm.barrier()  # no rank is left behind


@parallel([1, 3, 4], mpi=[])
def test_parts_without_nodes_are_passed_over(comm, tmp_path):
    graph = random_graph(n=5, edges=9, seed=1)
    parts = of_graph(graph, part_graph(graph, 8, "random"), comm)
    assert min(parts.sizes(p)["n"] for p in range(parts.k)) == 0
    expected_NC = in_memory(MODELS["sage max"], graph)
    layerwise, _ = check_passes(MODELS["sage max"], parts, tmp_path, expected_NC)
    found = LayerwiseScorer(layerwise.model, parts, tmp_path).predictions()
    assert comm.rank > 0 or np.array_equal(found, expected_NC.argmax(1))


@pytest.mark.parametrize("dtype, limit", [("float32", 1e-5), ("bfloat16", 5e-2)])
@pytest.mark.parametrize("name", ["gcn, three layers", "sage", "gat", "gin", "sgc"])
def test_smaller_types_differ_by_rounding_and_read_fewer_bytes(name, dtype, limit, tmp_path):
    graph, owner_N = small("undirected")
    expected_NC = in_memory(MODELS[name], graph, dtype)
    parts = of_graph(graph, owner_N, SelfCommunicator(), dtype)
    layerwise, _ = check_passes(MODELS[name], parts, tmp_path, expected_NC, getattr(torch, dtype), limit)
    assert layerwise.bytes_read > 0


@pytest.mark.parametrize("how", NORMS)
@pytest.mark.parametrize("hops", [1, 2])
def test_own_rows_are_the_complete_rows_of_the_whole_operator(hops, how):
    graph, owner_N = small("weighted directed")
    parts = parts_of(graph, owner_N, SelfCommunicator(), hops=hops, dtype="float64", operator=how)
    reader = OutOfCore(drawn(MODELS["gcn"]), parts).reader
    whole_NN = dense_operator(graph, how)
    for p in range(parts.k):
        rows, X = reader.open(p, 1)
        got = rows.wide.A.to_scipy().toarray()
        np.testing.assert_allclose(got, whole_NN[np.ix_(rows.node_m[: rows.n], rows.node_m)], atol=1e-13)
        np.testing.assert_allclose(got.sum(1), whole_NN[rows.node_m[: rows.n]].sum(1), atol=1e-12)  # no column is lost
        block, sums, halo = parts.source.part(p)
        near_g = np.flatnonzero(halo.hop_g == 1)
        lean, full = own_part_rows(block, sums, halo, near_g), part_rows(block, sums, halo, 1, is_symmetric=False)
        np.testing.assert_array_equal(lean.A.toarray(), full.A.toarray())
        np.testing.assert_array_equal(lean.node_n, full.node_n)


REFUSED = {
    "jump = cat needs the outputs": lambda: Stack(GCN(6, 5), GCN(5, 5), GCN(10, 3), jump="cat"),
    "layer 1, MixHop, 2 times": lambda: Stack(MixHop(6, 6, residual=True), GCN(6, 3)),
    "layer 1, Stack, must declare hops": lambda: Stack(Stack(GCN(6, 5)), GCN(5, 3)),
    "layer 2, Undeclared, must declare hops": lambda: Stack(GCN(6, 5), Undeclared(5, 3)),
    "layer 1, SGC, 3 times": lambda: Stack(SGC(6, 6, 3, residual=True), GCN(6, 3)),
    "got a GCN": lambda: GCN(6, 3),
}


@pytest.mark.parametrize("message", REFUSED)
def test_models_that_need_other_rows_are_refused_with_the_other_way(message):
    graph, owner_N = small()
    with pytest.raises(UsageError, match=f"{message}.*use evaluation together") as caught:
        OutOfCore(REFUSED[message](), of_graph(graph, owner_N, SelfCommunicator()))
    assert caught.value.exit_code == 2


def test_parts_that_do_not_fit_are_refused():
    graph, owner_N = small()
    comm, model = SelfCommunicator(), drawn(MODELS["gcn"])
    with pytest.raises(UsageError, match="need a halo"):
        OutOfCore(model, parts_of(graph, owner_N, comm, hops=0))
    with pytest.raises(ShapeError, match="has 6 features; layer 1 reads 7"):
        OutOfCore(Stack(GCN(7, 3)), of_graph(graph, owner_N, comm))
    with pytest.raises(GraphError, match="has no features"):
        OutOfCore(model, of_graph(type(graph)(graph.A, y=graph.y), owner_N, comm))


@parallel([1, 2, 5], mpi=[])
@pytest.mark.parametrize("several", [False, True])
def test_scores_and_predictions_are_those_of_an_evaluation_in_memory(comm, several, tmp_path):
    graph, owner_N = small("undirected")
    if several:
        Y = (np.random.default_rng(2).random((graph.n_nodes, 3)) < 0.4).astype(np.int8)
        graph = type(graph)(graph.A, X=graph.X, y=Y, split=graph.split)
    model = drawn(MODELS["sage"])
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", locality=False)
    full = FullScorer(model, dgraph, graph.split)
    scorer = LayerwiseScorer(model, of_graph(graph, owner_N, comm), tmp_path)
    counts = scorer.counts()
    np.testing.assert_array_equal(counts, full.counts())
    found = scorer.predictions()
    assert (found is None) == (comm.rank > 0)
    if comm.rank == 0:
        expected = predicted(full.logits(), scorer.task)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    own = np.flatnonzero(owner_N % comm.size == comm.rank)
    Z_nC = scorer.logits()
    np.testing.assert_allclose(Z_nC, full.logits()[own], atol=1e-10)
    np.testing.assert_array_equal(scorer.counts(Z_nC), counts)
    assert scorer.task == ("labels" if several else "classes")


@parallel([1, 3], mpi=[])
def test_a_drawn_split_is_that_of_the_parts_and_logits_that_are_not_finite_are_refused(comm, tmp_path):
    graph, owner_N = small("undirected")
    graph = type(graph)(graph.A, X=graph.X, y=graph.y)
    model = drawn(MODELS["gcn"])
    dgraph = distribute(graph, SelfCommunicator(), dtype="float64", locality=False)
    expected = FullScorer(model, dgraph, random_split(graph.y, 0)).counts()
    np.testing.assert_array_equal(LayerwiseScorer(model, of_graph(graph, owner_N, comm), tmp_path).counts(), expected)
    with torch.no_grad():
        model.layers[1].W_FC[0, 0] = float("nan")
    with pytest.raises(NumericalError, match="not finite"):
        LayerwiseScorer(model, of_graph(graph, owner_N, comm), tmp_path).counts()


def test_folders_with_more_hops_and_row_normalised_features_are_read(tmp_path):
    graph, _ = small("directed")
    graph = replace(graph, X=abs(graph.X))
    partition = part_graph(graph, 3, "random", seed=2)
    save_partition(partition, tmp_path / "parts", graph, hops=2)
    parts = Parts(tmp_path / "parts", SelfCommunicator(), hops=1, dtype="float64", feature_norm="row")
    expected_NC = in_memory(MODELS["sage"], graph, feature_norm="row")
    check_passes(MODELS["sage"], parts, tmp_path / "not" / "yet", expected_NC)
    assert not (tmp_path / "not").exists()


@contextmanager
def small_files():
    """Files of 1000 bytes at most, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_of_all_ranks_and_nothing_is_left(tmp_path):
    graph, _ = small(n=80)
    owner_N = (np.arange(80) >= 60).astype(int)  # only part 0 is too large
    save_partition(partition_of(graph, owner_N), tmp_path / "parts", graph)
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def body(comm):
        parts = Parts(tmp_path / "parts", comm, hops=1, dtype="float64")
        with pytest.raises(
            ResourceError if comm.rank == 0 else RankError, match="rank 0: scratch .* cannot be written"
        ) as e:
            OutOfCore(drawn(MODELS["gcn"]), parts, scratch).run(lambda *_: None)
        return e.value.exit_code

    with small_files():
        assert run_threads(2, body) == [4, 4]
    assert os.listdir(scratch) == []


def test_a_scratch_that_a_rank_does_not_see_is_named(tmp_path, monkeypatch):
    see = Scratch._check_seen

    def of_another_host(scratch):
        if scratch.comm.rank == 1:
            scratch.folder = tmp_path / "elsewhere"
        see(scratch)

    monkeypatch.setattr(Scratch, "_check_seen", of_another_host)

    def body(comm):
        with pytest.raises(
            (ResourceError, RankError), match="rank 1: scratch .* is not seen; give a folder that all hosts share"
        ) as e:
            Scratch(tmp_path, comm).__enter__()
        return e.value.exit_code

    assert run_threads(3, body) == [4, 4, 4] and os.listdir(tmp_path) == []


@pytest.mark.parametrize("home", ["file/scratch", "/proc/scratch"])
def test_a_scratch_that_cannot_be_made_is_an_error(home, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="scratch .*: cannot be written"):
        with Scratch(tmp_path / home, SelfCommunicator()):
            pass


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_after_an_error_or_an_interrupt(error, tmp_path):
    graph, owner_N = small()

    def fail(*_):
        raise error("in the last pass")

    with pytest.raises(error, match="in the last pass"):
        OutOfCore(drawn(MODELS["gcn"]), of_graph(graph, owner_N, SelfCommunicator()), tmp_path).run(fail)
    assert os.listdir(tmp_path) == []


def test_a_file_that_was_changed_is_an_error(tmp_path):
    with Scratch(tmp_path, SelfCommunicator()) as scratch:
        scratch.write("x", 0, np.zeros((4, 3)))
        scratch.path("x", 0).write_bytes(b"1234")
        with pytest.raises(ResourceError, match="bytes too few"):
            scratch.read("x", 0, np.empty((4, 3)))
        with pytest.raises(ResourceError, match="cannot be read"):
            scratch.rows("x", 0, 4, np.array([3]), np.empty((1, 3)))
        with pytest.raises(ResourceError, match="cannot be read"):
            scratch.read("x", 1, np.empty((4, 3)))


def test_layers_of_two_passes_are_on_disk_at_a_time(tmp_path, monkeypatch):
    graph, owner_N = small()
    model = Stack(*(GCN(6, 6) for _ in range(5)))
    seen, write = [], Scratch.write

    def look(scratch, name, p, rows):
        write(scratch, name, p, rows)
        seen.append(sorted(path.name for path in scratch.folder.glob("pass-*")))

    monkeypatch.setattr(Scratch, "write", look)
    OutOfCore(model, of_graph(graph, owner_N, SelfCommunicator(), "float32"), tmp_path).run(lambda *_: None)
    assert max(map(len, seen)) == 2 and seen[-1] == ["pass-3", "pass-4"]
