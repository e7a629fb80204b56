"""An operator on a page, to copy for tests of layers: A as a tensor of torch on one process, which counts its products."""

import numpy as np
import scipy.sparse as sp
import torch

import spgnn
from spgnn.layers import GAT, GCN, GIN, MixHop
from spgnn.spmm.exchange.ghosts import ColumnBlock
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.operator.place import OUTSIDE
from spgnn.spmm.operator.protocol import Operator


class TorchOperator(Operator):
    """A (N, N) float64, H dense; products: how often A or A' was multiplied with."""

    dtype = torch.float64

    def __init__(self, A_NN):
        self.A, self.products = torch.as_tensor(A_NN, dtype=self.dtype), 0
        self.n = self.m = len(self.A)
        self.node_n = np.arange(self.n)  # original ids, of which the masks of dropout are a function
        csr = LocalCSR(sp.csr_array(self.A.numpy()), self.dtype)  # for attention, maximum and words on edges
        self.column_blocks = (ColumnBlock(csr, self.node_n),)

    def apply(self, H_mF, bias_F=None, relu=False, dtype=None, place=OUTSIDE, add_nF=None, ghosts_gF=None):
        """Return relu(A H + add + b)."""
        self.products += 1
        Z_nF = self.A @ H_mF
        Z_nF = Z_nF if add_nF is None else Z_nF + add_nF
        Z_nF = Z_nF if bias_F is None else Z_nF + bias_F
        return torch.relu(Z_nF) if relu else Z_nF

    def adjoint(self, G_nF, place=OUTSIDE, add_mF=None):
        """Return A' G + add."""
        self.products += 1
        return self.A.T @ G_nF if add_mF is None else self.A.T @ G_nF + add_mF


def result(layer, A):
    """Z and the gradient of sum Z^2 in H."""
    H_nF = torch.arange(16.0 * A.n, dtype=torch.float64).cos().reshape(A.n, 16).requires_grad_()
    Z_nC = layer(A, H_nF)
    return Z_nC.detach(), torch.autograd.grad(Z_nC.square().sum(), H_nF)[0]


def main():
    comm = spgnn.dist.SelfCommunicator()
    A = spgnn.distribute(spgnn.load_graph("sbm:n=60,seed=0"), comm, method="block", dtype="float64").A
    for layer in (GCN(16, 8, act="relu"), GIN(16, 8), MixHop(16, 8), GAT(16, 8, heads=2)):
        ours = TorchOperator(A @ torch.eye(A.n, dtype=torch.float64))
        same = all(map(torch.allclose, result(layer.double(), ours), result(layer, A)))
        print(
            f"{type(layer).__name__:8} {ours.products} products, {'as with' if same else 'unlike'} the operator of the graph"
        )


if __name__ == "__main__":
    main()
