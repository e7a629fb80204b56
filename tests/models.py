"""Layers and models that several tests run."""

import torch

from spgnn.layers import APPNP, GAT, GCN, GCNII, GIN, MLP, NGNN, SAGE, SGC, Layer, LightGCN, MixHop, Stack


class Residual(Layer):
    """relu(A (H W) + H)."""

    def __init__(self, f):
        super().__init__(f, f)
        self.W_FF = self.weight(f, f)

    def forward(self, A, H_nF):
        return torch.relu(A @ (H_nF @ self.W_FF) + H_nF)


class TwoProducts(Layer):
    """A (H W) + (A H) V."""

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W, self.V = self.weight(f_in, f_out), self.weight(f_in, f_out)

    def forward(self, A, H):
        return A @ (H @ self.W) + (A @ H) @ self.V


class TwoHops(Layer):
    """A (A (H W))."""

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W = self.weight(f_in, f_out)

    def forward(self, A, H):
        return A @ (A @ (H @ self.W))


class Custom(Layer):
    """relu(A H W + H V), which declares no hops."""

    def __init__(self, f_in, f_out):
        super().__init__(f_in, f_out)
        self.W, self.V = self.weight(f_in, f_out), self.weight(f_in, f_out)

    def forward(self, A, H):
        return torch.relu(A @ (H @ self.W) + A.select(H) @ self.V)


class Bare(torch.nn.Module):
    """A model without a Stack: its exchanges have no layer."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 4), torch.nn.Linear(4, 3)

    def forward(self, A, X):
        return A @ self.last(torch.tanh(A @ self.first(X)))


def frozen(number):
    """Three layers, the weights of one of which are not trained."""
    model = Stack(GCN(6, 9, act="relu"), GCN(9, 5, act="relu"), GCN(5, 3))
    model.layers[number].requires_grad_(False)
    return model


def normal(module):
    """The module in float64, with normal weights of a seed."""
    generator = torch.Generator().manual_seed(1)
    for weight in module.double().parameters():
        torch.nn.init.normal_(weight, std=0.5, generator=generator)
    return module


def drawn(model):
    """The model in float64, in which no bias is 0 and no LayerNorm the identity."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in model.double().parameters():
            weight.add_(torch.rand(weight.shape, dtype=torch.float64, generator=generator), alpha=0.3)
    return model


CUSTOM = {
    "a Stack in a Stack": lambda: Stack(GCN(6, 8, act="relu"), Stack(GCN(8, 4, act="relu"), GCN(4, 7)), GCN(7, 3)),
    "two products in a layer": lambda: Stack(GCN(6, 4, act="relu"), TwoProducts(4, 3)),
    "a residual of its own": lambda: Stack(GCN(6, 5), Residual(5), GCN(5, 3)),
    "frozen first layer": lambda: frozen(0),
    "frozen middle layer": lambda: frozen(1),
    "two hops": lambda: Stack(TwoHops(6, 4), TwoHops(4, 3)),
    "no Stack": Bare,
}


def two(first, second):
    return lambda: Stack(first(6, 8), second(8, 3))


ONE_HOP = {  # two layers multiply, once each
    "gcn": two(lambda f, c: GCN(f, c, act="relu"), GCN),
    "gcn, wide": lambda: Stack(GCN(6, 9, act="relu"), GCN(9, 9, act="elu", norm="layer", residual=True), MLP(9, 3)),
    "sage": two(lambda f, c: SAGE(f, c, act="relu"), SAGE),
    "sage sum": two(lambda f, c: SAGE(f, c, "sum", act="tanh", norm="layer"), lambda f, c: SAGE(f, c, "sum")),
    "sage gcn": two(lambda f, c: SAGE(f, c, "gcn", act="relu"), lambda f, c: SAGE(f, c, "gcn", bias=False)),
    "sage max": two(lambda f, c: SAGE(f, c, "max", act="relu"), lambda f, c: SAGE(f, c, "max", pool=3)),
    "sage cat": two(lambda f, c: SAGE(f, c, combine="cat", act="elu"), lambda f, c: SAGE(f, c, residual=True)),
    "gat": two(lambda f, c: GAT(f, c, 4, dropout=0.4, act="elu"), lambda f, c: GAT(f, c, 1)),
    "gat v2": two(lambda f, c: GAT(f, c, 2, "v2", residual=True), lambda f, c: GAT(f, c, 3, "v2", "mean", dropout=0.2)),
    "gin": two(lambda f, c: GIN(f, c, eps=0.5, act="relu"), lambda f, c: GIN(f, c, hidden=9, train_eps=True)),
    "ngnn": two(lambda f, c: NGNN(GCN(f, c, act="relu"), 2), lambda f, c: NGNN(SAGE(f, c), act=None, bias=False)),
    "mlps": lambda: Stack(MLP(6, 5, (4,), dropout=0.5, act="relu"), GCN(5, 8), MLP(8, 5), GCN(5, 4), MLP(4, 3)),
    "one power": lambda: Stack(MixHop(6, 5, (0, 1), act="relu"), MixHop(5, 4, (0, 1), "sum"), MLP(4, 3)),
    "one step": lambda: Stack(SGC(6, 5, 1), MLP(5, 5), APPNP(5, 1, 0.2), MLP(5, 3)),
    "one mean": lambda: Stack(GCN(6, 5), LightGCN(5, 1), MLP(5, 3)),
    "gcnii": lambda: Stack(GCN(6, 5), GCNII(5, 1, dropout=0.4), MLP(5, 3)),
}
SEVERAL_HOPS = {
    "sgc": lambda: Stack(GCN(6, 5), SGC(5, 3, 3)),
    "lightgcn": lambda: Stack(MLP(6, 5, act="relu"), LightGCN(5, 3), MLP(5, 3)),
    "appnp": lambda: Stack(MLP(6, 5, act="relu"), MLP(5, 3), APPNP(3, 4, 0.2, dropout=0.3)),
    "gcnii deep": lambda: Stack(MLP(6, 5, act="relu"), GCNII(5, 3, dropout=0.4), MLP(5, 3)),
    "mixhop": two(lambda f, c: MixHop(f, c, act="relu"), lambda f, c: MixHop(f, c, combine="sum")),
}
