"""predict: a partition, a model and a machine become bytes, seconds and memory of every rank."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.analysis import measure
from spgnn.analysis.epoch import gcn_of, without_values
from spgnn.analysis.plan import PlannedRanks, Prediction, fastest, predict, ranks_that_fit
from spgnn.analysis.planned import PlannedGraph, PlannedTraining
from spgnn.config import PlanConfig
from spgnn.cost import pairs
from spgnn.cost.machines import load_machine
from spgnn.cost.seconds import edge_price
from spgnn.errors import GraphError, UsageError
from spgnn.graph import Graph, graph_from_coo
from spgnn.layers import GAT, SAGE, Stack
from spgnn.partition import part_graph
from spgnn.partition.metrics import metrics

MACHINE = load_machine("ethernet-1g")


def stored(n=400, f=20, classes=5, sparse=False) -> Graph:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, f), dtype=np.float32)
    if sparse:
        X = sp.csr_array(X * (rng.random((n, f)) < 0.1))
    return graph_from_coo(rng.integers(0, n, 5 * n), rng.integers(0, n, 5 * n), n, X=X, y=rng.integers(0, classes, n))


def line(k=4, scheme="columns", c=1, machine=MACHINE, planned=None, **options) -> Prediction:
    training = training_of(planned, **options)
    return predict(training, part_graph(training.planned.graph, k, "block"), scheme, c, machine)


def training_of(planned=None, dropout=0.0, **options) -> PlannedTraining:
    """A training of 20 -> 16 -> 5 columns; options: what it reads of a config."""
    names = ("dtype", "wire", "wire_gradients", "order", "keep", "overlap", "prune", "eval_every")
    config = SimpleNamespace(**{name: getattr(PlanConfig(), name) for name in names} | options)
    return PlannedTraining(planned or PlannedGraph(stored()), gcn_of((20, 16, 5), dropout), config)


def test_the_bytes_are_those_that_measure_predicts():
    planned = PlannedGraph(stored())
    part = part_graph(planned.graph, 4, "block")
    for scheme, c in (("broadcast", 1), ("columns", 2), ("cover", 1)):
        found = predict(training_of(planned), part, scheme, c, MACHINE)
        assert found.report.bytes_per_epoch == measure(planned.graph, part, scheme, (20, 16, 5), c).bytes_per_epoch
        assert found.ranks == 4 * c


def test_training_nodes_are_those_with_a_label():
    graph = stored()
    graph = replace(graph, y=np.where(np.arange(400) % 3, graph.y, -1), split=np.zeros(400, np.int8))
    assert PlannedGraph(graph).train_N.sum() == (graph.y >= 0).sum() < 400


def test_replicated_rows_are_held_and_multiplied_c_times():
    one, two = line(4), line(4, c=2)
    assert (one.ranks, two.ranks) == (4, 8)
    assert two.memory.parts["features"] == one.memory.parts["features"]
    assert two.epoch.sums > 0 == one.epoch.sums


@pytest.mark.parametrize("scheme, c", [("columns", 1), ("cover", 2), ("broadcast", 2)])
def test_every_nonzero_is_multiplied_once_and_each_self_loop_where_the_own_block_is(scheme, c):
    planned = PlannedGraph(stored())
    part = part_graph(planned.graph, 4, "block")
    report = training_of(planned).report(part, scheme, c)
    ranks = PlannedRanks(planned, part, report)
    work = ranks.nonzeros
    assert work.total_P.sum() == planned.graph.nnz + 400
    np.testing.assert_array_equal(work.own_P > 0, report.work.own_P > 0)
    (product,) = (made for layer in ranks.layers("forward") for made in layer.products)
    assert sum(x.sum() for x in (product.own_P, product.ghost_P, product.sender_P)) == work.total_P.sum()


def test_sparse_features_are_counted_as_the_operator_keeps_them():
    planned = PlannedGraph(stored(sparse=True))
    found = line(planned=planned)
    x_N, kept_N = planned.left_N
    A, X = planned.graph.A + sp.eye_array(400), planned.graph.X
    assert x_N.sum() == X.nnz
    assert planned.keeps_sparse and kept_N.sum() == np.count_nonzero((abs(A) @ abs(X)).toarray())
    assert found.report.layers[0].is_kept


@pytest.mark.parametrize("options", [{"keep": False}, {"dropout": 0.3}], ids=str)
def test_what_training_refuses_is_not_planned(options):
    with pytest.raises(UsageError, match="spmm_first needs a dense X"):
        line(planned=PlannedGraph(stored(sparse=True)), order="spmm_first", **options)
    assert line(order="spmm_first", **options).report.layers[0].order == "spmm_first"


def test_a_host_fits_all_its_ranks_or_the_line_does_not_fit():
    shared = replace(MACHINE, ranks_per_host=2)
    found = line(machine=shared)
    assert found.hosts == 2 and found.host_bytes > 1.9 * found.memory.peak * 0.9
    tight = replace(shared, memory_bytes=0.9 * found.host_bytes)
    assert not line(machine=tight).fits and found.fits
    assert fastest([line(machine=tight)]) is None


def test_more_ranks_fit_until_what_every_rank_needs_is_too_much():
    big = PlannedGraph(stored(50_000))
    need = line(1, planned=big)
    whole = need.memory.parts["process"]
    small = replace(MACHINE, memory_bytes=whole + 0.6 * (need.host_bytes - whole))
    # Half of the rows does not fit beside what rank 0 reads, more ranks leave it less of them.
    assert ranks_that_fit(line(1, planned=big, machine=small), small) in (2, 4, 8)
    hopeless = replace(MACHINE, memory_bytes=0.9 * whole)
    assert ranks_that_fit(line(1, planned=big, machine=hopeless), hopeless) is None


def test_parts_on_disk_spare_rank_0_the_whole_graph():
    planned = PlannedGraph(stored(50_000))
    part = part_graph(planned.graph, 4, "block")
    reads, parts = (predict(training_of(planned), part, "columns", 1, MACHINE, from_parts=p) for p in (False, True))
    assert reads.rank == 0 and parts.memory.loading == 0
    assert parts.memory.peak < reads.memory.peak


def test_pruning_needs_training_nodes():
    with pytest.raises(GraphError, match="no split and no labels"):
        line(prune="always", planned=PlannedGraph(replace(stored(), y=None)))
    split = np.where(np.arange(400) < 4, 0, 2).astype(np.int8)
    pruned = PlannedGraph(replace(stored(), split=split))
    few, all_ = (line(planned=pruned, prune=p) for p in ("always", "never"))
    assert few.epoch.gemm < all_.epoch.gemm and few.report.bytes_per_epoch < all_.report.bytes_per_epoch


@pytest.mark.parametrize("sparse", [False, True])
def test_an_evaluation_is_of_all_rows_and_without_dropout_whatever_the_step_is(sparse):
    few = np.where(np.arange(400) < 4, 0, 2).astype(np.int8)
    planned = PlannedGraph(replace(stored(sparse=sparse), split=few))
    plain, pruned, dropped = (line(planned=planned, **step) for step in ({}, {"prune": "always"}, {"dropout": 0.5}))
    assert plain.evaluation_s == pruned.evaluation_s == dropped.evaluation_s
    assert pruned.epoch.spmm < plain.epoch.spmm < dropped.epoch.spmm


def test_a_pruned_step_multiplies_its_share_of_sparse_features():
    few = np.where(np.arange(400) < 4, 0, 2).astype(np.int8)
    planned = PlannedGraph(replace(stored(sparse=True), split=few))
    part = part_graph(planned.graph, 4, "block")
    step, whole = (training_of(planned).report(part, "columns", 1, is_pruned=pruned) for pruned in (True, False))
    first, all_ = (PlannedRanks(planned, part, of).layers("forward")[0].dense[0][2].sum() for of in (step, whole))
    assert first == pytest.approx(all_ * step.layers[0].rows / 400) and step.layers[0].rows < 400


FAMILIES = {
    "attend": lambda f, c: GAT(f, c, 2),
    "attend2": lambda f, c: GAT(f, c, 2, attention="v2"),
    "maximum": lambda f, c: SAGE(f, c, "max"),
}


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("k", [1, 4])
def test_attention_and_maximum_take_several_sparse_products_of_their_width(kind, k):
    """Layer 1 reads cached ghost rows of X, 20 columns, and goes over the nonzeros with the 8 that it makes of them."""
    layers = without_values(lambda: Stack(FAMILIES[kind](20, 8), FAMILIES[kind](8, 6)))
    planned = PlannedGraph(stored(), operator="loops")
    part = part_graph(planned.graph, k, "block")
    report = PlannedTraining(planned, layers, PlanConfig()).report(part, "columns", 1)
    ranks = PlannedRanks(planned, part, report)
    work, works = ranks.nonzeros, ranks.layers("forward", "backward")
    heads = 2 if kind == "attend" else 1
    for layer, width in zip(works, (8, 6)):
        multiplied = [product for product in layer.products if product.own_P.any()]
        for found, way in zip(multiplied, ("forward", "backward"), strict=True):
            price = edge_price(kind, width, heads, way)
            assert found.width == width and price > 1
            np.testing.assert_allclose(found.own_P + found.ghost_P, price * (work.own_P + work.ghost_P))
    sent = [product for layer in works for product in layer.products if product.rows_PP.any()]
    assert [product.width for product in sent] == ([6, 6] if k > 1 else [])  # beside the products, which hide them
    (evaluation, _) = ranks.layers("evaluate")
    assert len(evaluation.products) == 1 and evaluation.products[0].own_P.any()


def test_lines_of_one_partition_count_its_blocks_once(monkeypatch):
    planned, made = PlannedGraph(stored()), []
    part = part_graph(planned.graph, 4, "block")
    counted = pairs.cover_tables
    monkeypatch.setattr(pairs, "cover_tables", lambda *args: made.append(1) or counted(*args))
    for c in (1, 2):
        for dtype in ("float32", "float64"):
            predict(training_of(planned, dtype=dtype), part, "cover", c, MACHINE)
    assert len(made) == 1
    A = planned.graph.A[::-1]  # another matrix has other tables
    assert part.measured(A) == metrics(A, part.owner_N, 4) != part.metrics
