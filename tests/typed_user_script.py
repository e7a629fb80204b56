"""A user's script that strict type checkers pass: a layer, a sampler and a loop of its own, on any number of ranks."""

import numpy as np
import torch
from typing_extensions import override

import spgnn
from spgnn.layers import GCN, Layer, Stack
from spgnn.samplers import InducedSampler
from spgnn.spmm import LayerView


class Residual(Layer):
    """Z = [relu(A H W + H V), mean_j H_j V]."""

    operator, hops, is_random = "row", 1, False

    def __init__(self, F: int, C: int) -> None:
        super().__init__(F, 2 * C)
        self.W_FC, self.V_FC = self.weight(F, C), self.weight(F, C)

    @override
    def forward(self, A: LayerView, H: torch.Tensor) -> torch.Tensor:
        return torch.cat([A.chain(H, self.W_FC, relu=True, V_FC=self.V_FC), A.mean(A.cols(H @ self.V_FC))], 1)


class Hubs(InducedSampler):
    """Draws nodes by their degrees."""

    name = "hubs"

    def draw(self, seed: int, index: int) -> np.ndarray:
        degree_N = np.diff(self.graph.indptr)
        return np.random.default_rng((seed, index)).choice(self.graph.N, 60, p=degree_N / degree_N.sum())


def train(graph: spgnn.Graph, comm: spgnn.Communicator, epochs: int) -> float:
    """Return the mean square error of the logarithm of degrees after some epochs. Collective."""
    dgraph = spgnn.distribute(graph, comm, method="random")
    target_n = torch.from_numpy(np.log1p(np.diff(graph.A.indptr)).astype(np.float32)[dgraph.node_n])
    model = Stack(Residual(graph.n_features, 8), GCN(16, 1), dropout=0.1)
    model.initialise(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    total = np.zeros(1)
    for epoch in range(1, epochs + 1):
        optimizer.zero_grad()
        Z_n1: torch.Tensor = model(dgraph.A, dgraph.X, seed=0, epoch=epoch)
        loss = (Z_n1[:, 0] - target_n).square().sum() / graph.n_nodes
        loss.backward()  # type: ignore[no-untyped-call]  # of torch
        for weight in model.parameters():
            comm.all_reduce(weight.grad)
        optimizer.step()
        total = comm.all_reduce(np.array([loss.item()]))
    return float(total[0])


if __name__ == "__main__":
    graph = spgnn.load_graph("sbm:n=300,seed=0")
    with spgnn.world() as comm:
        print(f"loss {train(graph, comm, 5):.4f}, {Hubs(graph).sample(0, 1).node_m.size} nodes in a subgraph")
