"""A.fetch(H) has own rows, then ghost rows: differentiable, counted, through wires, on any ranks."""

import numpy as np
import pytest
import torch
from dense_model import gradients_are_the_dense_ones
from dense_operator import DenseOperator
from graphs import dense_operator, random_graph
from worlds import parallel, some

from spgnn.analysis import measure
from spgnn.config import TrainConfig
from spgnn.distgraph import distribute
from spgnn.layers import GCN, Layer, Stack
from spgnn.partition import part_graph
from spgnn.spmm.dry.dry import dry_run
from spgnn.spmm.dry.dry_operator import setting_of
from spgnn.spmm.operator.counts import sent_bytes
from spgnn.training import Trainer


def dgraph_of(comm, graph, scheme="cover", **options):
    c = 2 if comm.size == 4 else 1
    return distribute(graph, comm, method="random", scheme=scheme, replication=c, dtype=torch.float64, **options)


def column_ids(A):
    return np.concatenate([A.node_n, A.blocks.index.ghost_g])


@parallel([1, 3, 4], mpi=[4])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_they_are_the_rows_of_the_columns_of_a(comm, scheme):
    for use, seed in some(comm, (("directed", 0), ("undirected", 1))):
        graph = random_graph(use=use, seed=seed, weighted=True)
        A = dgraph_of(comm, graph, scheme).A
        H = np.random.default_rng(0).standard_normal((graph.n_nodes, 5))
        T = A.fetch(torch.from_numpy(H[A.node_n])).tensor
        np.testing.assert_array_equal(T.numpy(), H[column_ids(A)])
        blocks = np.concatenate([A.blocks.A_oo.toarray(), A.blocks.A_og.toarray()], axis=1)
        Z = torch.from_numpy(blocks) @ T
        if A.row_sum is not None:
            Z = A.row_sum.total(Z.contiguous())
        np.testing.assert_allclose(Z.numpy(), (dense_operator(graph) @ H)[A.node_n], rtol=1e-12, atol=1e-12)


@parallel([1, 3, 4], mpi=[4])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_their_gradient_is_added_at_the_owners(comm, scheme):
    """<fetch(x), y> = <x, fetch'(y)>, with y zero where a rank of a process row does not multiply."""
    graph = random_graph(use="directed")
    A = dgraph_of(comm, graph, scheme).A
    y = torch.randn(A.m + A.g, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(comm.rank))
    if A.row_sum is not None and A.row_sum.comm.rank != A.row_sum.holder:
        y[: A.m] = 7  # not used
    x = torch.randn(graph.n_nodes, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(99))
    x = x[A.node_n].requires_grad_()
    T = A.fetch(x).tensor
    (T * y).sum().backward()
    used = y.clone()
    if A.row_sum is not None and A.row_sum.comm.rank != A.row_sum.holder:
        used[: A.m] = 0
    both = np.array([float((T.detach() * used).sum()), float((x.detach() * x.grad).sum()) * A.layout.is_counted])
    comm.all_reduce(both)
    assert abs(both[0] - both[1]) <= 1e-10 * max(1, abs(both[0]))
    expected = np.zeros((graph.n_nodes, 4))
    np.add.at(expected, column_ids(A), used.numpy())
    np.testing.assert_allclose(x.grad.numpy(), comm.all_reduce(expected)[A.node_n], rtol=1e-12, atol=1e-12)


class Pulled(Layer):
    """The product with A, by the rows of its columns: relu(A H W), for 1D."""

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W_FC = self.weight(f_in, f_out)

    def forward(self, A, H_nF):
        T = A.fetch(H_nF @ self.W_FC).tensor
        if isinstance(A, DenseOperator):
            return torch.relu(A.A @ T)
        if A.device.type == "meta":  # a dry run knows sizes alone
            return torch.relu(T[: A.n])
        blocks = A.operator.blocks
        A_nt = np.concatenate([blocks.A_oo.toarray(), blocks.A_og.toarray()], axis=1)
        return torch.relu(torch.from_numpy(A_nt).to(T.dtype) @ T)


@parallel([1, 2, 3], mpi=[])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_a_layer_of_pulled_rows_has_the_dense_gradients_and_predicted_bytes(comm, scheme):
    graph = random_graph(use="directed")
    make = lambda: Stack(GCN(6, 5, act="relu"), Pulled(5, 4), Stack(Pulled(4, 3)))
    dgraph = gradients_are_the_dense_ones(comm, graph, make, "gcn", method="random", scheme=scheme).dgraph
    A, products = dgraph.A, dry_run(make(), setting_of(dgraph.A, dgraph.X)).passes("forward", "backward").exchanges
    assert [(p.kind, p.width) for p in products] == [("ghosts", 4), ("ghosts", 3), ("ghosts", 3), ("ghosts", 4)]
    labels = (f"layer {layer} {direction}" for layer in (1, 2) for direction in ("forward", "backward"))
    sent = sum(comm.traffic.sent_bytes(label=label).sum() for label in labels)
    assert sent == sum(sent_bytes(A, p.width, p.pass_name, p.kind) for p in products)
    report = measure(graph, part_graph(graph, comm.size, method="random"), scheme, model=make(), itemsize=8)
    assert comm.all_reduce(np.array([sent]))[0] == report.bytes_per_epoch


@parallel([4], mpi=[4])
@pytest.mark.parametrize("scheme", ["cover", "columns", "broadcast"])
def test_their_bytes_on_a_grid_are_the_predicted_ones(comm, scheme):
    graph = random_graph(use="undirected")
    A = dgraph_of(comm, graph, scheme, keep=False).A
    x = torch.ones(A.m, 3, dtype=torch.float64).requires_grad_()
    comm.traffic.reset()
    A.at(2).fetch(x).tensor.sum().backward()
    forward = comm.traffic.sent_bytes(label="layer 2 forward").sum()
    backward = sum(comm.traffic.sent_bytes(label=f"layer 2 {name}").sum() for name in ("backward", "backward sum"))
    assert (forward, backward) == (sent_bytes(A, 3, "forward", "ghosts"), sent_bytes(A, 3, "backward", "ghosts"))
    assert comm.all_reduce(np.array([backward]))[0] > comm.all_reduce(np.array([forward]))[0] > 0


@parallel([2], mpi=[])
def test_they_travel_by_wire(comm):
    graph = random_graph(use="undirected")
    dgraph = distribute(graph, comm, method="random", wire="float16", wire_gradients="bfloat16")
    A = dgraph.A
    H = torch.randn(graph.n_nodes, 5, generator=torch.Generator().manual_seed(0))
    expected = H[column_ids(A)]
    expected[A.m :] = expected[A.m :].half().float()
    assert torch.equal(A.fetch(H[A.node_n]).tensor, expected)
    comm.traffic.reset()
    A.at(1).fetch(torch.ones(A.m, 5, requires_grad=True)).tensor.sum().backward()
    plan = A.ghost_plan
    assert comm.traffic.sent_bytes(label="layer 1 forward").sum() == plan.sent_rows * 5 * 2
    assert comm.traffic.sent_bytes(label="layer 1 backward").sum() == plan.g * 5 * 2


@parallel([1, 3], mpi=[])
def test_pruned_operators_have_them_too(comm):
    graph = random_graph(use="undirected")
    config = TrainConfig(split="given", prune="always")
    trainer = Trainer(Stack(GCN(6, 5), GCN(5, 3)), dgraph_of(comm, graph, keep=False), config)
    for A in (trainer.steps.rows.A.at(layer).operator for layer in (1, 2)):
        H = np.random.default_rng(0).standard_normal((graph.n_nodes, 5))
        T = A.fetch(torch.from_numpy(H[A.node_n])).tensor
        np.testing.assert_array_equal(T.numpy(), H[column_ids(A)])
