"""Convolutions and models of PyG in spgnn.wrap compute what they do by themselves; skipped where PyG is not installed."""

import sys
import warnings

import numpy as np
import pytest
import torch
from scripts import RUNS
from torch import nn

import spgnn
from spgnn.errors import UsageError
from spgnn.layers import Stack
from spgnn.layers.stack import set_epoch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    g = pytest.importorskip("torch_geometric.nn")
sys.path.insert(0, str(RUNS / "bench"))

import wrap_cases  # noqa: E402

CASES = wrap_cases.convolutions() | wrap_cases.models()
KERNELS = ("GCNConv", "SAGEConv", "GINConv", "GATConv", "GATv2Conv", "GCNConv, weights", "GATConv, weights")


def outcome(name):
    """(largest error on 1, 2 and 3 ranks, "") or (None, why not)."""
    return wrap_cases.outcome(CASES[name], (1, 2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_output_loss_and_gradients_are_those_of_pyg_or_the_reason_is_given(name):
    error, reason = outcome(name)
    assert bool(reason) or error <= 1e-10, error


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "GATConv, edges", "GCN, BatchNorm, cat"])
def test_it_also_is_on_ranks_without_edges(name):
    assert wrap_cases.largest_error(CASES[name], 7) <= 1e-10


@pytest.mark.parametrize("ranks", [1, 7, 30])
@pytest.mark.parametrize("aggr", ["median", ["mean", "median"]])
def test_medians_of_nodes_without_edges_into_them_are_those_of_pyg_though_a_rank_begins_with_one(aggr, ranks):
    assert wrap_cases.largest_error(wrap_cases.Case(lambda: g.SAGEConv(6, 4, aggr=aggr)), ranks) <= 1e-10


def test_weights_of_pyg_1_are_refused_with_the_line_that_mends_them():
    with pytest.raises(UsageError, match=r"state\['convs.0.lin.weight'\] = state.pop\('convs.0.weight'\).T"):
        spgnn.wrap(g.GCN(6, 8, 2, 4)).load_state_dict({"convs.0.weight": torch.ones(6, 8)})


@pytest.mark.parametrize("make, kind", [(lambda: g.RGCNConv(6, 4, 3), "plain"), (lambda: g.GENConv(6, 4), "edges")])
def test_what_a_convolution_refuses_names_its_arguments_and_call(make, kind):
    dgraph = spgnn.distribute(wrap_cases.graph_of(kind), dtype="float64")
    with pytest.raises(UsageError, match=r"called as module\(x, edge_index.*raised AssertionError.*give call="):
        spgnn.wrap(make().double())(dgraph.A, dgraph.X)


def test_at_least_40_convolutions_are_exact_and_each_one_of_pyg_has_a_case():
    named = {name.partition(",")[0].partition(" ")[0] for name in CASES}
    missing = [name for name in g.conv.__all__ if name != "MessagePassing" and name not in named]
    assert not missing
    refused = [name for name, case in wrap_cases.convolutions().items() if wrap_cases.reason_of(case)]
    assert len(named) - len({name.partition(",")[0] for name in refused}) >= 40


@pytest.mark.parametrize("name", KERNELS)
def test_what_spgnn_has_runs_on_its_kernels_and_other_settings_on_pygs(name):
    passes = []

    def body(comm):
        dgraph = spgnn.distribute(wrap_cases.graph_of(CASES[name].graph), comm, dtype="float64")
        module = wrap_cases.drawn(CASES[name])
        module.register_propagate_forward_pre_hook(lambda module, inputs: passes.append(name))
        spgnn.wrap(module)(dgraph.A, dgraph.X)
        return module, dgraph

    module, dgraph = spgnn.run_threads(1, body)[0]
    assert not passes
    module.flow = "target_to_source"
    spgnn.run_threads(1, body)
    index = torch.tensor([[0, 1], [1, 0]])
    module(torch.ones(2, 6, dtype=torch.float64), index)  # outside of wrap the module is what it was
    assert passes == [name]


def dropped():
    """Dropout in kernels, in PyG's propagate, between layers of a model, and in a norm's place."""
    return {
        "kernels": lambda: g.GATConv(6, 4, 2, dropout=0.5),
        "propagate": lambda: g.GATConv(6, 4, 2, dropout=0.5, residual=False, edge_dim=3),
        "no loops": lambda: g.GAT(6, 8, 2, 4, dropout=0.4, heads=2, add_self_loops=False),
        "model": lambda: g.GraphSAGE(6, 8, 3, 4, dropout=0.4, norm="BatchNorm"),
    }


@pytest.mark.parametrize("name, ranks", [("kernels", 3), ("propagate", 3), ("model", 3), ("no loops", 30)])
def test_masks_do_not_depend_on_the_ranks_of_which_some_have_no_edges(name, ranks):
    case = wrap_cases.Case(dropped()[name], None, "edges" if name == "propagate" else "plain")

    def body(comm, epoch):
        dgraph = spgnn.distribute(wrap_cases.graph_of(case.graph), comm, dtype="float64", method="random")
        model = spgnn.wrap(wrap_cases.drawn(case))
        set_epoch(model, seed=1, epoch=epoch)
        return dgraph.collect(model(dgraph.A, dgraph.X).detach().numpy())

    alone, other = (spgnn.run_threads(1, body, epoch)[0] for epoch in (1, 2))
    np.testing.assert_allclose(spgnn.run_threads(ranks, body, 1)[0], alone, rtol=0, atol=1e-11)
    assert np.abs(other - alone).max() > 1e-3


@pytest.mark.parametrize("is_stacked", [False, True])
def test_a_training_of_a_model_has_one_loss_and_its_bytes_are_predicted(is_stacked):
    def body(comm):
        dgraph = spgnn.distribute(wrap_cases.graph_of("plain"), comm, dtype="float64", method="random")
        whole = wrap_cases.Case(lambda: g.GCN(6, 8, 2, 4, dropout=0.3, norm="BatchNorm"))
        first = wrap_cases.Case(lambda: g.GATConv(6, 4, 2, dropout=0.3))
        last = wrap_cases.Case(lambda: g.SAGEConv(8, 4))
        model = spgnn.wrap(wrap_cases.drawn(whole))
        if is_stacked:
            layers = [spgnn.wrap(wrap_cases.drawn(case)) for case in (first, last)]
            model = Stack(layers[0], nn.ELU(), nn.BatchNorm1d(8), layers[1], dropout=0.2)
        return spgnn.train(model, dgraph, epochs=4, lr=0.05)

    histories = [spgnn.run_threads(ranks, body)[0] for ranks in (1, 2, 3)]
    losses = [[record["loss"] for record in history.records] for history in histories]
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-10)
    assert all(history.bytes_predicted == history.bytes_sent for history in histories)
    assert histories[2].bytes_sent > 0


class Needs(nn.Module):
    """A module of neither torch nor PyG."""


def test_attributes_go_to_modules_that_were_made_for_them():
    dgraph = spgnn.distribute(wrap_cases.graph_of("edges"), dtype="float64")
    assert spgnn.wrap(g.GATv2Conv(6, 4).double())(dgraph.A, dgraph.X).shape == (30, 4)  # would refuse edge_attr


@pytest.mark.parametrize("make, is_random", [
    (lambda: g.GCN(6, 8, 2, 4), False), (lambda: g.GCN(6, 8, 2, 4, dropout=0.1), True), (Needs, True),
    (lambda: g.GCN(6, 8, 2, 4, norm="BatchNorm"), True), (lambda: g.GATConv(6, 4, dropout=0.5), True)])  # fmt: skip
def test_a_module_without_dropout_and_running_means_is_scored_by_its_training_passes(make, is_random):
    assert spgnn.wrap(make()).is_random == is_random


def test_a_wrapped_module_trains_on_subgraphs_continues_and_predicts(tmp_path):
    graph = wrap_cases.graph_of("plain")

    def made():
        return spgnn.wrap(wrap_cases.drawn(wrap_cases.Case(lambda: g.GCN(6, 8, 2, 4, norm="BatchNorm", dropout=0.1))))

    sampled = spgnn.train(made(), spgnn.distribute(graph), sampler="node", budget=20, graph=graph, epochs=2)
    assert np.isfinite(sampled.records[-1]["loss"])
    model = made()
    spgnn.train(model, spgnn.distribute(graph), epochs=3, out=tmp_path / "run")
    on = spgnn.train(made(), spgnn.distribute(graph), epochs=5, out=tmp_path / "run", resume=True)
    whole = spgnn.train(made(), spgnn.distribute(graph), epochs=5)
    assert [r["loss"] for r in on.records] == [r["loss"] for r in whole.records]
    assert len(spgnn.predict(model, graph).classes) == 30
