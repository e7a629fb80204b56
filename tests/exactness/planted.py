"""Layers with one mistake each that people make on ranks, for `verify` to find."""

import numpy as np
import torch
from torch import nn

from spgnn.layers import Layer


class Plain(Layer):
    """H W, on which a mistake is planted."""

    operator = None

    def __init__(self, f):
        super().__init__(f, f)
        self.W_FF = self.weight(f, f)


class TorchNorm(Plain):
    """BatchNorm over the rows of a rank."""

    def __init__(self, f):
        super().__init__(f)
        self.inner = nn.BatchNorm1d(f)

    def forward(self, A, H_nF):
        return self.inner(H_nF @ self.W_FF)


class TorchDropout(Plain):
    """Dropout by torch's generator."""

    def __init__(self, f):
        super().__init__(f)
        self.inner = nn.Dropout(0.5)

    def forward(self, A, H_nF):
        return self.inner(H_nF @ self.W_FF)


class Unsteady(Plain):
    """Noise without a seed."""

    def forward(self, A, H_nF):
        return H_nF + torch.from_numpy(np.random.default_rng().random(H_nF.shape))


class Centred(Plain):
    """The mean over the rows of a rank."""

    def forward(self, A, H_nF):
        return (H_nF - H_nF.mean(0)) @ self.W_FF


class Counted(Plain):
    """The number of rows of a rank."""

    def forward(self, A, H_nF):
        return (H_nF @ self.W_FF) / len(H_nF) ** 0.5


class Numbered(Plain):
    """The number of a row as its id."""

    def forward(self, A, H_nF):
        return H_nF @ self.W_FF + torch.arange(len(H_nF))[:, None] / 10


class Accumulated(Plain):
    """A sum over the rows before."""

    def forward(self, A, H_nF):
        return (H_nF @ self.W_FF).cumsum(0)


class OfItsRank(Plain):
    """A number of the rank."""

    def forward(self, A, H_nF):
        return H_nF @ self.W_FF * (1 + A.comm.rank)


class Remembered(Plain):
    """A running mean of the rows of a rank, read in evaluation."""

    def __init__(self, f):
        super().__init__(f)
        self.register_buffer("mean_F", torch.zeros(f))

    def forward(self, A, H_nF):
        if self.training:
            self.mean_F.mul_(0.9).add_(0.1 * H_nF.detach().mean(0))
            return H_nF @ self.W_FF
        return (H_nF - self.mean_F) @ self.W_FF


def product(A, T_tF):
    """The rows of A times a table of own and ghost columns, as a dense product."""
    blocks = [torch.from_numpy(block.A.to_scipy().toarray()).double() for block in A.column_blocks]
    return torch.cat(blocks, 1) @ T_tF[: sum(block.shape[1] for block in blocks)]


class Exchange(torch.autograd.Function):
    """T = own and ghost rows of H; dH = those of dT, added up by their owners."""

    @staticmethod
    def forward(ctx, A, H_mF):
        ctx.A, ctx.m = A, len(H_mF)
        return torch.cat([rows.clone() for _, rows in A.over_columns(H_mF.detach())])

    @staticmethod
    def backward(ctx, G_tF):
        return None, ctx.A.add_columns(
            lambda is_ghost: (G_tF[ctx.m :] if is_ghost else G_tF[: ctx.m]).clone(), G_tF.dtype
        )


class OwnRows(Plain):
    """The own columns alone."""

    def forward(self, A, H_nF):
        return product(A, torch.cat([H_nF, H_nF.new_zeros(A.column_ids.size - len(H_nF), H_nF.shape[1])])) @ self.W_FF


class Detached(Plain):
    """Ghost rows without a gradient."""

    def forward(self, A, H_nF):
        T_tF = Exchange.apply(A, H_nF @ self.W_FF)
        return product(A, torch.cat([T_tF[: A.m], T_tF[A.m :].detach()]))


class OwnDegree(Plain):
    """The nonzeros of own columns as the degree."""

    def forward(self, A, H_nF):
        own = torch.from_numpy(np.diff(A.column_blocks[0].A.to_scipy().indptr)).double()
        return (H_nF @ self.W_FF) / (1 + own[:, None])


class Mirrored(Plain):
    """An exchange that sends the own rows which read another rank: those that it reads only where A is symmetric."""

    def forward(self, A, H_nF):
        T_tF = Exchange.apply(A, H_nF @ self.W_FF)
        read_by = A.comm.all_gather_json([[int(i), int(j)] for i, j in pairs(A)])
        back = {(i, j) for of in read_by for i, j in of}
        mask = torch.ones(len(A.out_ids), len(A.column_ids), dtype=torch.float64)
        ids, columns = A.out_ids, A.column_ids
        for row, i in enumerate(ids):
            for column in range(A.m, len(columns)):
                mask[row, column] = (int(columns[column]), int(i)) in back
        dense = torch.cat([torch.from_numpy(b.A.to_scipy().toarray()).double() for b in A.column_blocks], 1)
        return (dense * mask[:, : dense.shape[1]]) @ T_tF[: dense.shape[1]]


def pairs(A):
    """(row, column) of the nonzeros of a rank, in original ids."""
    for block in A.column_blocks:
        entries = block.A.to_scipy().tocoo()
        yield from zip(A.out_ids[entries.row], block.ids_c[entries.col])


class ForwardTwice(torch.autograd.Function):
    """Z = A H; dH = A dZ, which is A' dZ where A is symmetric."""

    @staticmethod
    def forward(ctx, A, H_nF):
        ctx.A = A
        return A.apply(H_nF.detach())

    @staticmethod
    def backward(ctx, G_nF):
        return None, ctx.A.apply(G_nF.contiguous())


class NoTranspose(Plain):
    """A for A' in backward."""

    def forward(self, A, H_nF):
        return ForwardTwice.apply(A, H_nF @ self.W_FF)


class PartOfAColumn(Plain):
    """Weights behind an exchange: in 1.5D a rank has a part of their gradient."""

    def forward(self, A, H_nF):
        T_tF = Exchange.apply(A, H_nF) @ self.W_FF
        return SumOfRow.apply(A, product(A, T_tF))


class SumOfRow(torch.autograd.Function):
    """The sum of the partial results of a process row."""

    @staticmethod
    def forward(ctx, A, Z_nF):
        return A.combine(Z_nF.detach().clone())

    @staticmethod
    def backward(ctx, G_nF):
        return None, G_nF


class HalfSummed(Plain):
    """The mean of all rows, of which the gradient knows the own ones alone."""

    def forward(self, A, H_nF):
        own_F = H_nF.sum(0)
        total_F = own_F.detach().clone()
        A.comm.all_reduce(total_F.numpy())
        return (H_nF - (own_F + (total_F - own_F).detach()) / 60) @ self.W_FF


class OnEdges(Plain):
    """sum_j mlp(H_i - H_j): rows of nonzeros go through a module."""

    def __init__(self, f, *more):
        super().__init__(f)
        self.mlp = nn.Sequential(nn.Linear(f, f), nn.Tanh(), *more)

    def forward(self, A, H_nF):
        T_tF, number = Exchange.apply(A, H_nF @ self.W_FF), {int(i): k for k, i in enumerate(A.out_ids)}
        column = {int(i): k for k, i in enumerate(A.column_ids)}
        rows, columns = zip(*[(number[int(i)], column[int(j)]) for i, j in pairs(A)])
        M_EF = H_nF[list(rows)] - T_tF[list(columns)]
        M_EF = self.mlp(M_EF if A.edge_attr is None else M_EF * A.edge_attr)
        return torch.zeros_like(H_nF).index_add(0, torch.tensor(rows), M_EF)


class CentredEdges(nn.Module):
    """The mean over the nonzeros of a rank."""

    def forward(self, M_EF):
        return M_EF - M_EF.mean(0)


class FirstEdge(nn.Module):
    """The first nonzero of a rank."""

    def forward(self, M_EF):
        return M_EF - M_EF[0]


class Foreign(nn.Module):
    """A model of plain torch modules, without a Stack."""

    def __init__(self, is_wrong=False):
        super().__init__()
        self.first, self.last, self.is_wrong = nn.Linear(6, 5), nn.Linear(5, 3), is_wrong

    def forward(self, A, X_nF):
        H_nF = torch.tanh(A @ self.first(X_nF))
        return self.last(H_nF - H_nF.mean(0) if self.is_wrong else H_nF)


class Raising(Plain):
    """What is only right on one rank, and says so."""

    def forward(self, A, H_nF):
        if A.comm.size > 1:
            raise ValueError("one rank alone")
        return H_nF


class Steady(Plain):
    """No mistake."""

    def forward(self, A, H_nF):
        return H_nF @ self.W_FF


class SideBySide(Plain):
    """A layer with a mistake and one without, which read the same rows."""

    def __init__(self, f):
        super().__init__(f)
        self.wrong, self.right = Detached(f), Steady(f)

    def forward(self, A, H_nF):
        return self.wrong(A, H_nF) + self.right(A, H_nF)


class Gathering(nn.Module):
    """sum_j mlp(x_j - x_i) as modules of one process have it, for `wrap`."""

    def __init__(self, f, *more):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(f, f), nn.Tanh(), *more)

    def forward(self, x, edge_index):
        messages = self.mlp(x[edge_index[0]] - x[edge_index[1]])
        return torch.zeros(len(x), messages.shape[1], dtype=x.dtype).index_add(0, edge_index[1], messages)


class OfOnePart(Plain):
    """A sum over the rows of all ranks, which out of core is over those of a part, though `hops` says that it is of none."""

    hops = 0

    def forward(self, A, H_nF):
        Z_nF = H_nF @ self.W_FF
        total_F = Z_nF.detach().sum(0)
        if hasattr(A, "comm"):
            A.comm.all_reduce(total_F.numpy())
        return Z_nF - total_F
