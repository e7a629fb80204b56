"""Error feedback belongs to one product of a training step: any layer, several products in a layer, nested Stacks."""

import numpy as np
import pytest
import torch
from graphs import dense_operator, random_graph
from safetensors.torch import load, save
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.distgraph import distribute
from spgnn.layers import GCN, Layer, Stack
from spgnn.spmm import Feedback
from spgnn.training import Trainer

GRAPH = random_graph(use="undirected")
STEPS = 40


def dgraph_of(comm, **options):
    return distribute(GRAPH, comm, method="random", wire="int8", wire_gradients="int8", **options)


class TwoProducts(Layer):
    """Two products of the same width, of which one has rows a thousand times larger."""

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W_FC = self.weight(f_in, f_out)

    def forward(self, A, H_nF):
        S_nC = H_nF @ self.W_FC
        return A @ S_nC + A @ (1000 * S_nC) / 1000


@parallel([3, 4], mpi=[2])
@pytest.mark.parametrize("scheme", ["columns", "cover"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_what_was_sent_over_many_steps_adds_up_to_the_true_rows(comm, scheme, direction):
    dgraph = dgraph_of(comm, scheme=scheme, replication=2 if comm.size == 4 else 1, keep=False)
    A, A_NN = dgraph.A, torch.from_numpy(dense_operator(GRAPH)).float()
    H_NF = torch.randn(GRAPH.n_nodes, 5, generator=torch.Generator().manual_seed(0))
    H, expected = H_NF[A.node_n], (A_NN @ H_NF if direction == "forward" else A_NN.T @ H_NF)[A.node_n]

    def error(feedback):
        """The largest error of the sums over the steps of the products with H and 1000 H, the rows of a step."""
        small, large = torch.zeros(2, *H.shape)
        for _ in range(STEPS):
            if feedback is not None:
                A.layout.begin_step(feedback)
            for total, factor in ((small, 1), (large, 1000)):
                X = (factor * H).requires_grad_()
                Z = A @ X
                total += Z.detach() if direction == "forward" else torch.autograd.grad(Z, X, factor * H)[0]
            A.layout.end_step()
        errors = np.array(
            [float((total - STEPS * f * expected).abs().max() / f) for total, f in ((small, 1), (large, 1000))]
        )
        return comm.all_reduce(errors, "max").max()

    assert error(Feedback()) < 0.2 * error(None)


@parallel([2], mpi=[2])
def test_the_mean_logits_of_custom_layers_and_nested_stacks_approach_those_of_exact_rows(comm):
    def mean_logits(wire, has_feedback=True):
        dgraph = distribute(GRAPH, comm, method="random", wire=wire, wire_gradients=wire, keep=False)
        model = Stack(GCN(6, 8), Stack(TwoProducts(8, 8), TwoProducts(8, 8)), GCN(8, 3))
        trainer = Trainer(model, dgraph, TrainConfig(lr=0.0, optimizer="sgd", split="given"))
        if not has_feedback:
            trainer.steps.feedback.residual = lambda exchange, rows: torch.zeros(rows.shape)
        return sum(trainer.steps.forward(epoch).detach() for epoch in range(1, STEPS + 1)) / STEPS

    exact = mean_logits("float32")
    lossy, corrected = (mean_logits("int8", has_feedback) - exact for has_feedback in (False, True))
    errors = comm.all_reduce(np.array([float(corrected.abs().sum()), float(lossy.abs().sum())]))
    assert errors[0] < 0.2 * errors[1]


@parallel([2, 4], mpi=[])
def test_evaluations_and_products_outside_of_steps_leave_residuals_alone(comm):
    dgraph = dgraph_of(comm, replication=2 if comm.size == 4 else 1)
    trainer = Trainer(Stack(GCN(6, 8, act="relu"), TwoProducts(8, 8), GCN(8, 3)), dgraph, TrainConfig(split="given"))
    trainer.step(1)
    before = trainer.steps.feedback.state_dict()
    trainer.logits()
    dgraph.A @ torch.ones(dgraph.A.n, 8)
    after = trainer.steps.feedback.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert any(residual.any() for residual in before.values())


@parallel([1, 2, 4], mpi=[2])
@pytest.mark.parametrize("prune", ["never", "always"])
def test_a_training_goes_on_from_saved_residuals_as_if_it_had_not_stopped(comm, prune):
    dgraph = dgraph_of(comm, replication=2 if comm.size == 4 else 1)
    make = lambda: Trainer(
        Stack(GCN(6, 8, act="relu"), GCN(8, 8, act="relu"), GCN(8, 3)),
        dgraph,
        TrainConfig(split="given", optimizer="sgd", lr=0.1, prune=prune),
    )
    whole = make()
    losses = [whole.step(epoch) for epoch in range(1, 7)]
    stopped = make()
    assert [stopped.step(epoch) for epoch in (1, 2, 3)] == losses[:3]
    state = stopped.state_dict()
    residuals = load(save(state["step"]["feedback"]))
    assert bool(residuals) == (comm.size > 1)
    for kept in (residuals, {}):
        resumed = make()
        resumed.load_state_dict(state | {"step": {"feedback": kept}})
        assert ([resumed.step(epoch) for epoch in (4, 5, 6)] == losses[3:]) == (kept is residuals or comm.size == 1)


@parallel([2], mpi=[])
def test_the_number_of_residuals_does_not_grow_with_the_steps(comm):
    dgraph = dgraph_of(comm)
    trainer = Trainer(Stack(TwoProducts(6, 8), GCN(8, 3)), dgraph, TrainConfig(split="given"))
    sizes = []
    for epoch in range(1, 5):
        trainer.step(epoch)
        sizes.append(len(trainer.steps.feedback.state_dict()))
    assert sizes == sizes[:1] * 4
    assert all(residual.dtype == torch.float32 for residual in trainer.steps.feedback.state_dict().values())
