"""The operator A that layers see: Z = A H on own rows, whoever owns the rest.

Shapes: N nodes, n own rows, g ghost rows, F columns, P ranks.
"""

from __future__ import annotations

from contextlib import nullcontext
from copy import copy
from typing import Protocol

import numpy as np
import scipy.sparse as sp
import torch

from ..dist import Communicator
from ..errors import ShapeError
from .autograd import Matmul, apply_chain
from .buffers import BufferPool
from .local import LocalCSR
from .plan import ExchangePlan
from .rows import DenseRows, SparseRows
from .schedule import keeps_sparse


class SpMM(Protocol):
    """What a layer may ask of A. Every method is collective."""

    node_n: np.ndarray  # original ids of the own rows

    def __matmul__(self, H): ...
    def chain(self, H, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor: ...
    def apply(self, H_nF, bias_F=None, relu: bool = False) -> torch.Tensor: ...
    def adjoint(self, G_nF) -> torch.Tensor: ...


class DistSpMM:
    """Own rows of A in two blocks, A_oo (n, n) and A_og (n, g), and the plan that fetches H_gF.

    Without a plan (one rank) it is the local product. A is never assumed symmetric.
    """

    def __init__(
        self,
        A_oo: sp.csr_array,
        A_og: sp.csr_array,
        plan: ExchangePlan | None,
        node_n: np.ndarray,
        comm: Communicator,
        pool: BufferPool,
        dtype: torch.dtype = torch.float32,
        threads: int = 0,
    ):
        self.A_oo = LocalCSR(A_oo, dtype, threads)
        self.A_og = LocalCSR(A_og, dtype, threads)
        self.plan = plan
        self.node_n = np.ascontiguousarray(node_n, dtype=np.int64)
        self.comm = comm
        self.pool = pool
        self.dtype = dtype
        self.threads = threads
        self.layer: int | None = None  # both named in the traffic's labels
        self.pass_name = "forward"
        self.X = None  # the fixed input, and the product with it that is kept
        self.kept = None

    @property
    def n(self) -> int:
        return self.A_oo.shape[0]

    @property
    def g(self) -> int:
        return self.A_og.shape[1]

    @property
    def nnz(self) -> int:
        return self.A_oo.nnz + self.A_og.nnz

    def at(self, layer: int) -> DistSpMM:
        """Return the same operator, its exchanges counted under `layer` and the pass that it is in."""
        view = copy(self)
        view.layer = layer
        view.pass_name = "forward" if torch.is_grad_enabled() else "evaluate"
        return view

    def keep(self, X) -> None:
        """Compute A X once and use it from now on wherever A meets X; backward then needs no exchange.

        X must not change any more. Sparse X is kept only where A X stays sparse. Collective.
        Source: DESIGN, "The schedule".
        """
        self.X = X
        if isinstance(X, SparseRows):
            self.kept = self._apply_sparse(X) if self._stays_sparse(X) else None
        else:
            first = self.at(1)
            first.pass_name = "setup"
            self.kept = DenseRows(first.apply(X), self.pool)

    def prepare_adjoint(self) -> None:
        """Make the transposes that backward needs, before buffers fill the memory."""
        self.A_oo.transposed()
        self.A_og.transposed()

    def product_with(self, H):
        """Return the kept rows A H where H is the fixed input, else None."""
        return self.kept if H is self.X else None

    def __matmul__(self, H):
        """Return A H on own rows, differentiable in H."""
        kept = self.product_with(H)
        if kept is not None:
            return kept if kept.is_sparse else kept.tensor
        if isinstance(H, SparseRows):
            return self._apply_sparse(H)
        return Matmul.apply(self, H)

    def chain(self, H, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu(A H W + bias), the order of the product chosen by the schedule.

        H (n, F) tensor or SparseRows; W (F, C); differentiable in H, W and bias. Collective.
        """
        return apply_chain(self, H, W_FC, bias_C, relu)

    def apply(self, H_nF: torch.Tensor, bias_F=None, relu: bool = False) -> torch.Tensor:
        """Return relu(A_oo H + A_og pull(H) + bias). Collective."""
        if H_nF.ndim != 2 or H_nF.shape[0] != self.n:
            raise ShapeError(f"rank {self.comm.rank}: H has shape {tuple(H_nF.shape)}; expected ({self.n}, F), a row for each own node")
        Z_nF = self.pool.empty(self.n, H_nF.shape[1], dtype=self.dtype)
        if self.plan is None:
            return self.A_oo.apply(H_nF, Z_nF, bias_F=bias_F, relu=relu)
        H_gF = self._labelled(self.pass_name, self.plan.pull, H_nF)
        self.A_oo.apply(H_nF, Z_nF)
        return self.A_og.apply(H_gF, Z_nF, accumulate=True, bias_F=bias_F, relu=relu)

    def adjoint(self, G_nF: torch.Tensor) -> torch.Tensor:
        """Return A' G on own rows: A_oo' G + push_add(A_og' G). Collective."""
        out_nF = self.pool.empty(self.n, G_nF.shape[1], dtype=self.dtype)
        if self.plan is None:
            return self.A_oo.adjoint(G_nF, out_nF)
        G_gF = self.A_og.adjoint(G_nF, self.pool.empty(self.g, G_nF.shape[1], dtype=self.dtype))
        self.A_oo.adjoint(G_nF, out_nF)
        return self._labelled("backward", self.plan.push_add, G_gF, out_nF)

    def _apply_sparse(self, X: SparseRows) -> SparseRows:
        X_oF = X.csr.to_scipy()
        AX = self.A_oo.to_scipy() @ X_oF
        if self.plan is not None:
            X_gF = self.at(1)._labelled("setup", self.plan.pull_csr, X_oF)
            AX = AX + self.A_og.to_scipy() @ X_gF
        AX = sp.csr_array(AX)
        AX.sort_indices()
        return SparseRows(AX, self.pool, self.dtype, self.threads)

    def _stays_sparse(self, X: SparseRows) -> bool:
        # nnz(AX) <= sum over nonzeros A_ij of nnz(X_j); ranks must decide alike.
        counts_n1 = torch.from_numpy(np.diff(X.csr.indptr).astype(np.float64)[:, None])
        exact = copy(self)
        exact.A_oo, exact.A_og = (LocalCSR(_pattern(A), torch.float64, self.threads) for A in (self.A_oo, self.A_og))
        exact.dtype = torch.float64
        with torch.no_grad():
            bound = exact.at(1)._labelled("setup", exact._plain_apply, counts_n1)
        sizes = np.array([float(bound.sum()), X.csr.nnz, self.nnz])
        self.comm.all_reduce(sizes)
        return keeps_sparse(*sizes)

    def _plain_apply(self, H_nF):
        Z_nF = self.A_oo.apply(H_nF, torch.empty(self.n, H_nF.shape[1], dtype=self.dtype))
        return Z_nF if self.plan is None else self.A_og.apply(self.plan.pull(H_nF), Z_nF, accumulate=True)

    def _labelled(self, direction: str, function, *args):
        label = nullcontext() if self.layer is None else self.comm.traffic.label(f"layer {self.layer} {direction}")
        with label:
            return function(*args)


def _pattern(A: LocalCSR) -> sp.csr_array:
    return sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
