"""Custom layers and models that several tests run."""

import torch

from spgnn.layers import GCN, Layer, Stack


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
