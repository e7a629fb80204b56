"""A as a dense matrix with the protocol of operators, by plain torch: what the operators on ranks are compared with."""

from copy import copy

import numpy as np
import torch
from dense_attention import DenseRowWords

from spgnn.cost.schedule import Way
from spgnn.spmm.chains.dropout import NOTHING, dropout, nth_key
from spgnn.spmm.kernels.buffers import BufferPool
from spgnn.spmm.operator.place import OUTSIDE
from spgnn.spmm.operator.timing import Operations


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def near(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


class DenseOperator(DenseRowWords):
    """A (N, N), or a block (n, m) whose outputs are the first inputs, float64 on one process; node_n: ids of the inputs.

    Its products share no code with those of the package.
    """

    name, order, work, fixed_input, sent_so_far, threads, key = "dense", "auto", None, None, 0, 0, NOTHING
    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self, A_NN, with_norm=None, node_n=None):
        self.with_norm = with_norm or (lambda how: self)
        self.A = torch.as_tensor(np.asarray(A_NN), dtype=torch.float64)
        self.n, self.m = self.A.shape
        self.node_n = np.arange(self.m) if node_n is None else node_n
        self.pool, self.ops = BufferPool(), Operations()

    def at(self, layer=None, is_last=False, operator=None, key=NOTHING):
        view = copy(self if operator is None else self.with_norm(operator))
        view.key = key
        return view

    def drop(self, H_NF, rate, draw=1):
        return dropout(self, H_NF, rate, nth_key(self.key, draw))

    selects_first = False

    def select(self, H_NF):
        return H_NF[: self.n]

    def __matmul__(self, H_NF):
        return self.A @ H_NF

    def chain(self, H_NF, W_FC, bias_C=None, relu=False, add=None, power=1, V_FC=None):
        Z_NC = self.power(H_NF @ W_FC, power)
        Z_NC = Z_NC if V_FC is None else Z_NC + self.select(H_NF) @ V_FC
        Z_NC = Z_NC if add is None else Z_NC + add
        Z_NC = Z_NC if bias_C is None else Z_NC + bias_C
        return torch.relu(Z_NC) if relu else Z_NC

    def dense(self, H_nF, W_FC, bias_C=None, relu=False, add=None):
        Z_nC = H_nF @ W_FC if add is None else H_nF @ W_FC + add
        Z_nC = Z_nC if bias_C is None else Z_nC + bias_C
        return torch.relu(Z_nC) if relu else Z_nC

    def power(self, H_NF, j):
        return (self.A if j == 1 else torch.linalg.matrix_power(self.A, j)) @ H_NF

    def is_cached(self, H_NF, power=1):
        return False

    def way(self, H_NF, f_out, f_in=None, power=1):
        return Way(H_NF.shape[1], f_out, "gemm_first")

    def own_chain(self, H_NF, W_FC, own, bias_C=None, relu=False):
        return self.chain(H_NF, W_FC, bias_C, relu, add=own * self.select(H_NF) @ W_FC)

    def powers(self, H_NF, W, exponents, combine="cat"):
        parts = [(self.power(H_NF, j) if j else self.select(H_NF)) @ W_j for j, W_j in zip(exponents, W)]
        return torch.cat(parts, dim=1) if combine == "cat" else sum(parts)

    def power_mean(self, H_NF, powers):
        return sum((self.power(H_NF, j) for j in range(1, powers + 1)), self.select(H_NF)) / (powers + 1)

    def apply(self, H_NF, bias_F=None, relu=False, dtype=None, place=OUTSIDE, add_nF=None):
        Z_NF = self.A @ H_NF if bias_F is None else self.A @ H_NF + bias_F.detach()
        Z_NF = Z_NF if add_nF is None else Z_NF + add_nF
        return torch.relu(Z_NF) if relu else Z_NF

    def adjoint(self, G_NF, place=OUTSIDE, add_mF=None):
        return self.A.T @ G_NF if add_mF is None else self.A.T @ G_NF + add_mF

    def stays_sparse(self, S, place=OUTSIDE):
        return False

    def prepare_adjoint(self):
        pass
