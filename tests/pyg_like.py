"""PyG's convolutions as their papers write them, on a dense A (N, N), A[i, j]: i reads j; names and shapes are PyG's."""

import torch
from torch import nn


class GCNConv(nn.Module):
    """D^-1/2 (A + I) D^-1/2 X W + b."""

    def __init__(self, f_in, f_out, bias=True, improved=False):
        super().__init__()
        self.lin = nn.Linear(f_in, f_out, bias=False)
        self.bias = nn.Parameter(torch.randn(f_out)) if bias else None
        self.improved = improved

    def forward(self, X, A):
        A = torch.maximum(A, torch.eye(len(A)))
        d = A.sum(1) ** -0.5
        Z = d[:, None] * A * d[None, :] @ self.lin(X)
        return Z if self.bias is None else Z + self.bias


class SAGEConv(nn.Module):
    """lin_l(mean, sum or max of x_j) + lin_r(x_i), with project of relu(lin(x_j))."""

    def __init__(self, f_in, f_out, aggr="mean", project=False, root_weight=True, normalize=False):
        super().__init__()
        self.aggr, self.normalize = aggr, normalize
        if project:
            self.lin = nn.Linear(f_in, f_in)
        self.lin_l = nn.Linear(f_in, f_out)
        if root_weight:
            self.lin_r = nn.Linear(f_in, f_out, bias=False)

    def forward(self, X, A):
        P = torch.relu(self.lin(X)) if hasattr(self, "lin") else X
        if self.aggr == "max":
            found = torch.where(A[:, :, None] > 0, P[None], torch.tensor(-torch.inf)).amax(1)
            M = torch.where(A.sum(1, keepdim=True) > 0, found, torch.zeros(()))
        else:
            M = A @ P / (A.sum(1, keepdim=True).clamp(min=1) if self.aggr == "mean" else 1)
        return self.lin_l(M) + (self.lin_r(X) if hasattr(self, "lin_r") else 0)


class GATConv(nn.Module):
    """sum_j alpha_ij x_j + b, alpha the softmax of lrelu(a_src x_j + a_dst x_i) over the row and the node itself."""

    version = 1

    def __init__(self, f_in, f_out, heads=1, concat=True, negative_slope=0.2, bias=True, **settings):
        super().__init__()
        self.heads, self.out_channels, self.concat, self.negative_slope = heads, f_out, concat, negative_slope
        for name, value in settings.items():
            setattr(self, name, value)
        self.bias = nn.Parameter(torch.randn(heads * f_out if concat else f_out)) if bias else None
        self.weights(f_in, heads, f_out)

    def weights(self, f_in, heads, f_out):
        self.lin = nn.Linear(f_in, heads * f_out, bias=False)
        self.att_src = nn.Parameter(torch.randn(1, heads, f_out))
        self.att_dst = nn.Parameter(torch.randn(1, heads, f_out))

    def scores(self, X):
        """Return e (N, N, heads) before the softmax, and x (N, heads, D)."""
        x = self.lin(X).view(len(X), self.heads, -1)
        u = (x * self.att_dst).sum(-1)[:, None] + (x * self.att_src).sum(-1)[None, :]
        return nn.functional.leaky_relu(u, self.negative_slope), x

    def forward(self, X, A):
        e, x = self.scores(X)
        is_edge = (A + torch.eye(len(A)) > 0)[:, :, None]
        alpha = torch.where(is_edge, e, torch.tensor(-torch.inf)).softmax(dim=1)
        Z = torch.einsum("ijk,jkd->ikd", alpha, x)
        Z = Z.reshape(len(X), -1) if self.concat else Z.mean(1)
        return Z if self.bias is None else Z + self.bias


class GATv2Conv(GATConv):
    """The same with the scores a lrelu(lin_l(x_j) + lin_r(x_i)); what is summed is lin_l(x_j)."""

    def weights(self, f_in, heads, f_out):
        self.lin_l = nn.Linear(f_in, heads * f_out)
        self.lin_r = nn.Linear(f_in, heads * f_out)
        self.att = nn.Parameter(torch.randn(1, heads, f_out))

    def scores(self, X):
        l, r = (lin(X).view(len(X), self.heads, -1) for lin in (self.lin_l, self.lin_r))
        return (nn.functional.leaky_relu(r[:, None] + l[None, :], self.negative_slope) * self.att).sum(-1), l


class GINConv(nn.Module):
    """nn((1 + eps) x_i + sum_j x_j)."""

    def __init__(self, inner, eps=0.0, train_eps=False):
        super().__init__()
        self.nn = inner
        if train_eps:
            self.eps = nn.Parameter(torch.tensor([eps]))
        else:
            self.register_buffer("eps", torch.tensor([eps]))

    def forward(self, X, A):
        return self.nn((1 + self.eps) * X + A @ X)


def gin(f_in, hidden, f_out, **options):
    return GINConv(nn.Sequential(nn.Linear(f_in, hidden), nn.ReLU(), nn.Linear(hidden, f_out)), **options)


def output(items, X, A):
    """Return what a sequence of modules computes."""
    for module in items:
        X = module(X, A) if type(module).__name__.endswith("Conv") else module(X)
    return X
