"""Custom layers and models that several tests run."""

import torch

from spgnn.layers import Layer


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
