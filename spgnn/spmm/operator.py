"""The operator A that layers see: Z = A H on own rows, whoever owns the rest.

Shapes: N nodes, n rows out, m own rows in (n = m but for pruned layers), g ghost rows, F columns, P ranks.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from typing import Protocol

import numpy as np
import scipy.sparse as sp
import torch

from ..cost.schedule import keeps_sparse
from ..errors import ShapeError, UsageError
from ..partition import Covers
from .autograd import Matmul, apply_chain, check_is_held
from .exchange.context import Layout
from .exchange.exchange_plan import ExchangePlan
from .exchange.stages import Blocks, Stage, make_stages
from .features import DenseRows, SparseRows
from .kernels.backend import kernels_on
from .kernels.buffers import sum_dtype
from .kernels.csr import LocalCSR
from .operations import Operations

IN_FLIGHT = 2  # exchanges of stages that are under way at once


class SpMM(Protocol):
    """What a layer may ask of A, (N, N) with H spread over the ranks. Every method is collective but `select`.

    H is a tensor (n, F), the rows of this rank's nodes, whose original ids are node_n; in the first layer it may be
    SparseRows, which know H @ W and A @ H.
    """

    node_n: np.ndarray

    def __matmul__(self, H):
        """Return A H on own rows, differentiable in H."""

    def chain(self, H, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu(A H W + b), (n, C), the cheaper product first; differentiable in H, W and b."""

    def apply(self, H_nF, bias_F=None, relu: bool = False, dtype=None) -> torch.Tensor:
        """Return relu(A H + b), (n, F), outside of autograd."""

    def adjoint(self, G_nF) -> torch.Tensor:
        """Return A' G, (n, F), outside of autograd."""

    def select(self, H):
        """Return the rows of H that stand beside the rows of A H: all, but in a pruned training step."""


class DistSpMM:
    """Own rows of A in two blocks, A_oo (n, m) and A_og (n, g), and the stages that bring what A_og reads.

    While a stage is under way, A_oo H is computed. Without stages and row_sum it is the local product.
    A is never assumed symmetric.
    Args: blocks   own and ghost columns, and `base`, the plan that fetches all ghosts (None on one rank).
          stages   of make_stages; together they are the product with A_og.
          layout   communicators, scheme, buffers and operations, shared by all operators of a graph.
    """

    def __init__(self, blocks: Blocks, base: ExchangePlan | None, stages: list[Stage], layout: Layout):
        self.plan, self.stages, self.layout = base, stages, layout
        self.comm, self.pool, self.dtype, self.threads = layout.comm, layout.pool, layout.dtype, layout.threads
        self.row_sum = layout.row_sum
        self.A_oo = LocalCSR(blocks.A_oo, self.dtype, self.threads)
        # Held for pruning and set-up, in the arrays of the products where these are the same.
        self.blocks = replace(blocks, A_oo=self.A_oo.to_scipy(), A_og=blocks.A_og.astype(self.A_oo.numpy_dtype))
        self.node_n = np.ascontiguousarray(blocks.index.own_n, dtype=np.int64)
        self.layer: int | None = None  # both named in the traffic's labels
        self.pass_name = "forward"
        self.out_dtype = self.dtype  # of A H and A H W: logits are not rounded to bfloat16
        self.order = "auto"  # of every chain; see schedule.chain_order
        self.X = None  # the fixed input, and the product with it that is kept
        self.X_version = 0  # of a tensor X: it is not to change
        self.kept = None
        self.setup_bytes = 0  # that this rank sent to make it
        self.selected: np.ndarray | None = None  # rows of H that are rows of Z; None: all

    @property
    def ops(self) -> Operations:
        """What does the products and exchanges; see Layout.use."""
        return self.layout.ops

    @property
    def device(self) -> torch.device:
        """Where H lies and the products run."""
        return self.pool.device

    @property
    def n(self) -> int:
        """Rows of A H."""
        return self.A_oo.shape[0]

    @property
    def m(self) -> int:
        """Own rows of H."""
        return self.A_oo.shape[1]

    @property
    def g(self) -> int:
        return self.blocks.A_og.shape[1]

    @property
    def nnz(self) -> int:
        return self.A_oo.nnz + self.blocks.A_og.nnz

    @property
    def A_og(self) -> LocalCSR:
        """The block of ghost columns, whatever the scheme makes of it."""
        return LocalCSR(self.blocks.A_og, self.A_oo.dtype, self.threads)

    @property
    def sent_rows(self) -> int:
        """Rows that this rank sends to others in one product, the sums over its process row aside."""
        return sum(stage.plan.sent_rows for stage in self.stages)

    def sent_bytes(self, width: int, direction: str) -> int:
        """Return the bytes that this rank sends in one product, forward or backward, with matrices of a width."""
        size = self.dtype.itemsize
        is_forward = direction == "forward"
        rows = sum(s.plan.sent_rows if is_forward else s.plan.g for s in self.stages)
        total = rows * self.layout.wires[0 if is_forward else 1].row_bytes(width, size)
        if self.row_sum is None:
            return total
        if is_forward:
            return total + self.row_sum.rows_of_total(self.n) * width * sum_dtype(self.dtype).itemsize
        return total + self.row_sum.rows_of_share(self.m) * width * size

    @property
    def multiplied_nnz(self) -> int:
        """Nonzeros that this rank multiplies in one product: with `cover`, some of its own and some of others."""
        moved = sum(s.plan.moved_nnz - s.plan.sums_read for s in self.stages)
        return self.A_oo.nnz + sum(s.A.nnz for s in self.stages) + moved

    def at(self, layer: int, is_last: bool = False) -> DistSpMM:
        """Return the same operator, its exchanges counted under `layer` and the pass that it is in."""
        view = copy(self)
        view.layer = layer
        view.out_dtype = sum_dtype(self.dtype) if is_last else self.dtype
        view.pass_name = "forward" if torch.is_grad_enabled() else "evaluate"
        return view

    def keep(self, X) -> None:
        """Compute A X once and use it from now on wherever A meets X; backward then needs no exchange.

        X must not change any more. Sparse X is kept only where A X stays sparse. Collective.
        """
        self.X, self.X_version = X, X._version if torch.is_tensor(X) else 0
        sent_before = self.comm.traffic.sent_bytes().sum()
        first = self.at(1)
        first.pass_name = "setup"
        if isinstance(X, SparseRows):
            self.kept = first._apply_sparse(X) if first._stays_sparse(X) else None
        else:
            self.kept = DenseRows(first.apply(X), self.layout)
        self.setup_bytes = int(self.comm.traffic.sent_bytes().sum() - sent_before)
        self.pool.trim()  # of buffers as wide as X, which no epoch may need

    def release_input(self) -> None:
        """Give up the memory of the dense X whose product is kept: X then stands for that alone: what reads it through A fails, else it is NaN."""
        self.X.data = self.X.new_full((), float("nan")).expand(self.X.shape)
        self.X.is_released = True
        self.pool.trim()

    def prepare_adjoint(self) -> None:
        """Make the transposes that backward needs, and copy all to the device, before buffers fill the memory."""
        kernels = kernels_on(self.device)
        for A in (self.A_oo, *(stage.A for stage in self.stages)):
            kernels.prepare(A)
            kernels.prepare(A.transposed())

    def product_with(self, H):
        """Return the kept rows A H where H is the fixed input, else None."""
        if H is not self.X or self.kept is None:
            return None
        if (
            torch.is_tensor(H)
            and not getattr(H, "is_released", False)
            and (H.requires_grad or H._version != self.X_version)
        ):
            what = "requires a gradient" if H.requires_grad else "was changed in place"
            raise UsageError(
                f"X {what}, and A X is kept, which knows nothing of it: distribute the graph with keep=False"
            )
        return self.kept

    def select(self, H):
        """Return the rows of H that stand beside the rows of A H: all, but for pruned layers."""
        check_is_held(H)
        if self.selected is None:
            return H
        return H.rows(self.selected) if isinstance(H, SparseRows) else H[self._selected]

    def set_selected(self, rows: np.ndarray) -> None:
        """Name the rows of H that stand beside those of A H."""
        self.selected, self._selected = rows, torch.from_numpy(rows).to(self.device)

    def __matmul__(self, H):
        """Return A H on own rows, differentiable in H."""
        kept = self.product_with(H)
        if kept is not None:
            return kept if kept.is_sparse else self.pool.copy(kept.tensor)  # the caller may write into it
        check_is_held(H)
        if isinstance(H, SparseRows):
            return self._apply_sparse(H)
        return Matmul.apply(self, H)

    def chain(self, H, W_FC, bias_C=None, relu: bool = False) -> torch.Tensor:
        """Return relu(A H W + bias), the order of the product chosen by the schedule.

        H (m, F) tensor or SparseRows; W (F, C); differentiable in H, W and bias. Collective.
        """
        return apply_chain(self, H, W_FC, bias_C, relu)

    def apply(
        self, H_mF: torch.Tensor, bias_F=None, relu: bool = False, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return relu(A_oo H + sum over stages of A_s pull_s(H) + bias), in A's dtype or another. Collective."""
        self._check(H_mF, self.m)
        dtype = dtype or self.dtype
        with self._label(self.pass_name):
            end = {"bias_F": bias_F, "relu": relu} if self.row_sum is None else {}
            waiting, flying = deque(self.stages), deque()
            self._start(waiting, flying, lambda stage: stage.plan.start_pull(H_mF))
            is_last = not flying
            Z_nF = self.pool.empty(self.n, H_mF.shape[1], dtype=dtype if is_last else sum_dtype(self.dtype))
            self.ops.own_spmm(self.A_oo, H_mF, Z_nF, **(end if is_last else {}))
            while flying:
                stage, flight = flying.popleft()
                received = flight.finish()
                self._start(waiting, flying, lambda stage: stage.plan.start_pull(H_mF))
                is_last = not flying and self.row_sum is None
                if is_last and Z_nF.dtype != dtype:  # own part and other stages are rounded with this one
                    sum_nF, Z_nF = Z_nF, self.pool.empty(*Z_nF.shape, dtype=dtype)
                    self.ops.ghost_spmm(stage.A, received, Z_nF, add_nF=sum_nF, **end)
                else:
                    self.ops.ghost_spmm(stage.A, received, Z_nF, accumulate=True, **(end if is_last else {}))
        if self.row_sum is None:
            return Z_nF
        with self._label(f"{self.pass_name} sum"):
            return self._rounded(self.row_sum.total(Z_nF, bias_F, relu), dtype)

    def adjoint(self, G_nF: torch.Tensor) -> torch.Tensor:
        """Return A' G on own rows: A_oo' G + sum over stages of push_add_s(A_s' G). Collective."""
        self._check(G_nF, self.n)
        F = G_nF.shape[1]

        def push(stage: Stage):
            A = stage.A.transposed()
            return stage.plan.start_push(self.ops.ghost_spmm(A, G_nF, self.pool.empty(A.shape[0], F, dtype=self.dtype)))

        with self._label("backward"):
            waiting, flying = deque(self.stages), deque()
            self._start(waiting, flying, push)
            out_mF = self.pool.empty(self.m, F, dtype=sum_dtype(self.dtype) if flying else self.dtype)
            self.ops.own_spmm(self.A_oo.transposed(), G_nF, out_mF)
            while flying:
                stage, flight = flying.popleft()
                received = flight.finish()
                self._start(waiting, flying, push)
                stage.plan.add(received, out_mF)
        out_mF = self._rounded(out_mF, self.dtype)
        if self.row_sum is None:
            return out_mF
        with self._label("backward sum"):
            return self.row_sum.share(out_mF)

    def _rounded(self, sum_nF: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return sum_nF if sum_nF.dtype == dtype else self.pool.copy(sum_nF, dtype)

    def _start(self, waiting: deque, flying: deque, start) -> None:
        while waiting and len(flying) < IN_FLIGHT:
            stage = waiting.popleft()
            flying.append((stage, start(stage)))

    def _apply_sparse(self, X: SparseRows) -> SparseRows:
        X_oF = X.csr.to_scipy()
        AX = self.A_oo.to_scipy() @ X_oF
        if self.plan is not None:
            with self._label("setup"):
                X_gF = self.plan.pull_csr(X_oF)
            AX = AX + self.blocks.A_og.astype(AX.dtype) @ X_gF
        AX = sp.csr_array(AX)
        if self.row_sum is not None:
            AX = self.row_sum.total_csr(AX)
        AX.sort_indices()
        return SparseRows(AX, self.pool, X.dtype, self.threads)

    def _stays_sparse(self, X: SparseRows) -> bool:
        # nnz(A X) <= sum over j of (nonzeros of column j of A) nnz(X_j); ranks must decide alike.
        counts_m1 = np.bincount(self.blocks.A_oo.indices, minlength=self.m).astype(np.float64)[:, None]
        if self.plan is not None:
            counts_g1 = np.bincount(self.blocks.A_og.indices, minlength=self.g).astype(np.float64)[:, None]
            with self._label("setup"):
                counts_m1 = self.plan.push_add(torch.from_numpy(counts_g1), torch.from_numpy(counts_m1)).numpy()
        lengths_m = np.diff(X.csr.indptr)
        # Of a process row one rank counts X; each counts its blocks of A.
        copies = 1 if self.row_sum is None else self.row_sum.comm.size
        sizes = np.array([counts_m1.ravel() @ lengths_m, X.csr.nnz / copies, self.nnz])
        self.comm.all_reduce(sizes)
        return keeps_sparse(*sizes)

    def _check(self, H, rows: int) -> None:
        if H.ndim != 2 or H.shape[0] != rows:
            raise ShapeError(
                f"rank {self.comm.rank}: H has shape {tuple(H.shape)}; expected ({rows}, F), a row for each own node"
            )

    def _label(self, direction: str):
        return nullcontext() if self.layer is None else self.comm.traffic.label(f"layer {self.layer} {direction}")


def make_operator(
    blocks: Blocks, layout: Layout, base: ExchangePlan | None = None, covers: Covers | None = None
) -> DistSpMM:
    """Return the operator of these blocks, with stages as the layout has them; covers: where they are known. Collective."""
    return DistSpMM(blocks, base, make_stages(blocks, layout, base, covers), layout)
