"""Run by an interpreter with torch_geometric: train small models of it, write their weights and logits.

PYTHON tests/pyg_export.py GRAPH.npz OUT.pt     edge_index (2, E), X (N, F), y (N,) -> {name: (state_dict, logits)}
"""

import sys

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv
from torch_geometric.nn.models import GCN, GraphSAGE


class Net(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.conv1, self.conv2 = first, second

    def forward(self, x, edge_index):
        return self.conv2(torch.relu(self.conv1(x, edge_index)), edge_index)


def dense(f, c):
    return nn.Sequential(nn.Linear(f, 16), nn.ReLU(), nn.Linear(16, c))


def models(f, c):
    return {
        "gcn": Net(GCNConv(f, 16), GCNConv(16, c)),
        "sage": Net(SAGEConv(f, 16), SAGEConv(16, c)),
        "gat": Net(GATConv(f, 8, heads=4), GATConv(32, c, heads=2, concat=False)),
        "gatv2": Net(GATv2Conv(f, 8, heads=4), GATv2Conv(32, c, heads=2, concat=False)),
        "gin": Net(GINConv(dense(f, 16), train_eps=True), GINConv(dense(16, c), eps=0.1)),
        "gcn of PyG": GCN(f, 16, 3, c),
        "sage of PyG": GraphSAGE(f, 16, 2, c),
    }


def main(graph: str, out: str) -> None:
    torch.manual_seed(0)
    with np.load(graph) as arrays:
        edge_index, x, y = (torch.from_numpy(arrays[name]) for name in ("edge_index", "X", "y"))
    made = {}
    for name, net in models(x.shape[1], int(y.max()) + 1).items():
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        for _ in range(20):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x, edge_index), y).backward()
            optimizer.step()
        with torch.no_grad():
            made[name] = net.state_dict(), net.eval()(x, edge_index)
    torch.save(made, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
