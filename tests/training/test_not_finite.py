"""A training that meets a number that is not finite names module, rank and node, and leaves the weights as they were."""

import re

import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

import spgnn
from spgnn.errors import NumericalError, RankError
from spgnn.layers import GCN, Stack

OPTIONS = {
    "full": {},
    "pruned": {"prune": "always"},
}


class Hurt(GCN):
    """A GCN that adds NaN to one row of its output, or of the gradient by it, on the rank that has a node."""

    hops, node, what, first = 1, 7, "output", -1

    def forward(self, A, H):
        Z = super().forward(A, H)
        if self.what == "all":
            self.first = A.out_ids[0]
            return Z * float("nan")
        row = np.flatnonzero(A.out_ids == self.node)
        if Z.device.type == "meta" or not len(row):
            return Z
        bad = torch.zeros_like(Z)
        bad[row[0]] = float("nan")
        if self.what == "output":
            return Z + bad
        if Z.requires_grad:
            Z.register_hook(lambda G: G + bad)
        return Z


def failure(comm, what, model=None, **options):
    """Train, and return the message, the rank that owns the hurt node, and the model."""
    graph = random_graph(use="undirected")
    dgraph = spgnn.distribute(graph, comm, method="block")
    model = model or Stack(GCN(6, 5), Hurt(5, 4), GCN(4, 3))
    model.layers[1].what = what
    owners = comm.all_gather_json(bool((dgraph.node_n == Hurt.node).any()))
    with pytest.raises((NumericalError, RankError)) as caught:
        more = {"graph": graph} if "sampler" in options else {}
        spgnn.train(model, dgraph, epochs=3, **more, **options)
    return str(caught.value), owners.index(True), model


@parallel([1, 2, 3], mpi=[3])
@pytest.mark.parametrize("name", OPTIONS)
def test_an_output_that_is_not_finite_is_named_with_module_rank_and_original_node(comm, name):
    said, owner, _ = failure(comm, "output", **OPTIONS[name])
    at = f", rank {owner}" if comm.size > 1 else ""
    assert said.startswith("epoch 1: the ")
    assert f": the output of layers.1 (Hurt) is nan at node 7{at}. Lower lr" in said


@parallel([1, 2, 3], mpi=[])
def test_in_a_subgraph_the_rank_that_has_it_names_the_module_and_the_original_node(comm):
    said, _, model = failure(comm, "all", sampler="walk", budget=40)
    found = re.search(r"the loss of subgraph \d is nan; .*: the output of layers.1 \(Hurt\) is nan at node (\d+)", said)
    if not said.startswith("rank "):  # else of another rank
        assert int(found[1]) == model.layers[1].first


@parallel([1, 2, 3], mpi=[])
def test_a_gradient_that_is_not_finite_is_named_before_the_weights_move(comm):
    said, owner, model = failure(comm, "gradient", lr=0.5)
    source = "the gradient of the output of layers.1 (Hurt) is nan at node 7" + (
        f", rank {owner}" if comm.size > 1 else ""
    )
    assert said.startswith(f"epoch 1: the gradient is not finite: {source}. Lower lr (now 0.5)")
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


@parallel([1, 3], mpi=[])
def test_a_loss_that_is_not_finite_leaves_the_weights_as_they_were(comm):
    model = Stack(GCN(6, 5), Hurt(5, 4), GCN(4, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.is_trained = True
    failure(comm, "output", model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@parallel([2], mpi=[])
def test_a_weight_that_differs_on_one_rank_is_named_with_that_rank(comm):
    def hurt(layer, args):
        if comm.rank == 1:
            layer.W_FC.data[2, 3] = float("inf")

    model = Stack(GCN(6, 5), GCN(5, 3))
    model.layers[0].register_forward_pre_hook(hurt)
    with pytest.raises(NumericalError, match=r": weight layers\.0\.W_FC is inf at \[2, 3\], rank 1\. Lower"):
        spgnn.train(model, spgnn.distribute(random_graph(use="undirected"), comm, method="block"), epochs=2)
