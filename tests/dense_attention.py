"""Attention, maximum and values of edges by dense matrices, plain torch and its autograd: the oracle of the words on rows."""

import numpy as np
import scipy.sparse as sp
import torch
from edge_reference import kept

from spgnn.spmm.chains.dropout import nth_key
from spgnn.spmm.chains.end import NO_END
from spgnn.spmm.exchange.column_rows import ColumnRows, tensor_of
from spgnn.spmm.exchange.ghosts import ColumnBlock
from spgnn.spmm.kernels.attention_kernels import EdgeDrop
from spgnn.spmm.kernels.csr import LocalCSR


class DenseRowWords:
    """The words of DenseOperator that read rows; A (N, N) is its matrix, heads are innermost in columns."""

    selected, row_sum, holds_own = None, None, True

    def linear(self, H_NF, W_FC, bias_C=None, relu=False):
        Z = H_NF @ W_FC if bias_C is None else H_NF @ W_FC + bias_C
        return torch.relu(Z) if relu else Z

    def attend(self, X, left_DK, right_DK, slope=0.2, rate=0.0, draw=1, end=NO_END):
        x = _by_head(tensor_of(self, X), left_DK.shape[1])
        s, t = ((x * a).sum(1) for a in (left_DK, right_DK))
        scores = torch.nn.functional.leaky_relu(s[: self.n, None] + t[None], slope)
        return _ended(self._weighted(scores, x, rate, draw), *end)

    def attend2(self, left, right, a_DK, slope=0.2, rate=0.0, draw=1, end=NO_END):
        l, r = (_by_head(tensor_of(self, of), a_DK.shape[1]) for of in (left, right))
        scores = (a_DK * torch.nn.functional.leaky_relu(l[: self.n, None] + r[None], slope)).sum(2)
        return _ended(self._weighted(scores, r, rate, draw), *end)

    def _weighted(self, scores_NNK, x_NDK, rate, draw):
        alpha = torch.softmax(torch.where(self.A[:, :, None] != 0, scores_NNK, -torch.inf), dim=1).nan_to_num(0)
        if rate and self.key:
            drop = EdgeDrop(nth_key(self.key, draw), rate, self.out_ids, self.node_n)
            mask = torch.zeros_like(alpha.detach())
            pattern = self.column_blocks[0].A
            row = np.repeat(np.arange(self.n), np.diff(pattern.indptr))
            mask[row, pattern.indices] = kept(pattern, alpha.shape[2], drop, alpha.dtype)
            alpha = alpha * mask
        return torch.einsum("ijk,jdk->idk", alpha, x_NDK).reshape(self.n, -1)

    def maximum(self, H, relu=False):
        H = torch.relu(tensor_of(self, H)) if relu else tensor_of(self, H)
        masked = torch.where(self.A[:, :, None] != 0, H[None], -torch.inf)
        arg = masked.detach().argmax(1)  # the first of equal ones: the smallest id
        Z = H.gather(0, arg)
        return torch.where((self.A != 0).any(1)[:, None], Z, 0.0)

    # Words on edges, at the nonzeros of A in the order of its CSR.

    edge_attr = None

    @property
    def ends(self):
        row_E, column_E = (self.A != 0).nonzero().t()
        return row_E, column_E

    @property
    def n_edges(self):
        return len(self.ends[0])

    @property
    def edge_index(self):
        return torch.stack(self.ends[::-1])

    @property
    def edge_ids(self):
        return self.node_n[self.ends[1].numpy()]

    @property
    def edges(self):
        return self.edge_attr

    def fetch(self, H):
        return ColumnRows(H)

    def rows(self, U):
        return U[self.ends[0]]

    def cols(self, V):
        return tensor_of(self, V)[self.ends[1]]

    def map_edges(self, f, M, f_out):
        return f(M)

    def update_edges(self, f, g, H, E, W, b):
        F = H.shape[1]
        E = E + f(self.on_edges(H @ W[:F] + b, H @ W[F : 2 * F], E @ W[2 * F :]))
        return H + g(torch.cat([H, self.sum(E)], 1)), E

    def on_edges(self, U, V, add=None):
        return self.rows(U) + self.cols(V) + (0 if add is None else add)

    def dot(self, U, V, heads=1):
        return (_by_head(self.rows(U), heads) * _by_head(self.cols(V), heads)).sum(1)

    def max(self, M):
        filled = torch.where(self.of_row[:, :, None], M[None], -torch.inf)
        arg = filled.detach().argmax(1) if len(M) else None  # the first: columns ascend within a row
        return torch.where(self.of_row.any(1)[:, None], M.gather(0, arg), 0.0) if len(M) else self.sum(M)

    def min(self, M):
        return -self.max(-M)

    def std(self, M):
        variance = self.mean((M - self.mean(M)[self.ends[0]]).square())
        is_zero = variance.detach() < 1e-28
        return torch.where(is_zero, 0.0, torch.where(is_zero, 1.0, variance).sqrt())

    @property
    def of_row(self):
        return self.ends[0][None] == torch.arange(self.n)[:, None]

    def sum(self, M, V=None):
        if V is not None:
            M = (_by_head(self.cols(V), M.shape[1]) * M[:, None]).flatten(1)
        return torch.zeros(self.n, M.shape[1], dtype=M.dtype).index_add(0, self.ends[0], M)

    def mean(self, M):
        return self.sum(M) / self.of_row.sum(1, keepdim=True).clamp(min=1)

    def softmax(self, S):
        out = torch.zeros_like(S)
        for of in self.of_row:
            out[of] = torch.softmax(S[of], 0)
        return out

    def local_graph(self, H):
        return H, self.edge_index, self.edge_attr

    @property
    def column_blocks(self):
        pattern = sp.csr_array((self.A != 0).numpy().astype(np.float64))
        pattern.sort_indices()
        return (ColumnBlock(LocalCSR(pattern, self.dtype), self.node_n),)

    @property
    def column_ids(self):
        return self.node_n

    @property
    def out_ids(self):
        return self.node_n[: self.n]

    def over_columns(self, H, place=None):
        yield self.column_blocks[0], H

    def add_columns(self, rows_of, dtype, place=None):
        return rows_of(False)

    def combine(self, Z, add=None, place=None):
        return Z


def _ended(Z, bias, act):
    """act(Z + b)."""
    Z = Z if bias is None else Z + bias
    return {"none": Z, "relu": torch.relu(Z), "elu": torch.nn.functional.elu(Z)}[act]


def _by_head(X_cKD, K):
    return X_cKD.reshape(len(X_cKD), -1, K)
