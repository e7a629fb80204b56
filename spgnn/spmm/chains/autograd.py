"""Gradients through A: of A H and of the chain A H W + bias.

Where A works in bfloat16, so do H, Z and their gradients; weights, bias and their gradients stay float32.
Shapes: n own rows, F in, C out.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from ...errors import UsageError
from ..exchange.cached_ghosts import cached_ghosts
from ..exchange.column_rows import of_table, share_gradient, table_of
from ..kernels.buffers import sum_dtype
from ..operator.facts import AtLayer, SpMM
from ..operator.features import DenseRows, Gradients, SparseRows, gemm
from .backward import first_order, is_own, own
from .end import through_end

Left = DenseRows | SparseRows  # a left factor
Lefts = tuple[Left, ...]
Made = tuple[torch.Tensor, Lefts]
Needs = tuple[bool, bool]  # the gradients of H, and of W


class Matmul(torch.autograd.Function):
    """Z = A H; dH = A' dZ."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, H_nF):
        ctx.A = A
        return A.apply(_stored(A, H_nF), dtype=A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nF):
        return None, ctx.A.adjoint(_stored(ctx.A, G_nF))


class Columns(torch.autograd.Function):
    """T = own rows of H, then ghost rows; dH = own rows of dT, and ghost rows of the ranks that read them."""

    gives_whole_gradients = True

    @staticmethod
    def forward(ctx: Any, A: AtLayer, H_mF):
        ctx.A = A
        return table_of(A, H_mF)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_tF):
        return None, of_table(ctx.A, G_tF.contiguous())


class Chain(torch.autograd.Function):
    """Z = relu(A H W + H V + add + b), dadd = dZ, db = the sum of the rows of dZ; its Order makes A H W, dW and dH.

    Args: how   see Making; H is None where S is known and V does not read H.
          V_FC  weights of the rows of H at the rows of A H, by `own_rows`; None: there is no such product.
    """

    @staticmethod
    def forward(ctx: Any, A: AtLayer, how: Making, H_mF, W_FC, V_FC, bias_C, add_nC):
        order, S, relu = how
        last = (bias_C, relu, _summed(A, add_nC))
        if V_FC is None:
            Z_nC, lefts = order.forward(A, S, H_mF, W_FC, *last)
        elif order.ends_in_gemm:
            Z_nC, lefts = order.forward(A, S, H_mF, W_FC, None, False, None)
            gemm(A, own_rows(A, H_mF.detach()), V_FC, Z_nC, bias_C, Z_nC, relu)
        else:
            add_nC = DenseRows(own_rows(A, H_mF.detach()), A).times(V_FC)
            Z_nC, lefts = order.forward(A, S, H_mF, W_FC, bias_C, relu, add_nC)
        ctx.A, ctx.order, ctx.relu_of = A, order, _Once(Z_nC if relu else None)
        ctx.add_dtype = None if last[2] is None else add_nC.dtype
        ctx.sparse = [None if isinstance(S, DenseRows) else S for S in lefts]
        dense = [S.tensor for S in lefts if isinstance(S, DenseRows)]
        ctx.save_for_backward(H_mF if order.reads_H or V_FC is not None else None, W_FC, V_FC, *dense)
        if any(ctx.needs_input_grad) and not relu and not Z_nC.is_inference():
            ctx.unread = Z_nC._version
        return Z_nC

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nC):
        A, order, (H_mF, W_FC, V_FC, *dense) = ctx.A, ctx.order, ctx.saved_tensors
        _, _, needs_H, needs_W, needs_V, needs_bias, needs_add = ctx.needs_input_grad
        lefts = tuple(DenseRows(dense.pop(0), A) if S is None else S for S in ctx.sparse)
        is_ours = is_own(G_nC)
        Z_nC, dbias_C = ctx.relu_of.take(), None
        given = (lefts, H_mF, W_FC, (needs_H, needs_W))
        if order.is_one_pass(lefts) and G_nC.dtype == A.dtype:
            G_nC = G_nC.contiguous()
            is_kept = Z_nC is not None and (needs_add or V_FC is not None)
            dZ_nC = (G_nC if is_ours else A.pool.empty(*G_nC.shape, dtype=G_nC.dtype)) if is_kept else None
            is_spent = is_ours and not needs_add and V_FC is None
            dH_mF, dW_FC, dbias_C = order.gradients(A, G_nC, *given, (Z_nC, dZ_nC), is_spent)
            dZ_nC = G_nC if dZ_nC is None else dZ_nC
        else:
            dZ_nC, dbias_C = through_end(A, G_nC, Z_nC, 1, is_ours)
            keeps = needs_add or V_FC is not None
            del G_nC, Z_nC  # the output may live no longer
            G_nC, dZ_nC = dZ_nC, dZ_nC if keeps else None
            dH_mF = dW_FC = None
            if needs_H or needs_W:
                U_C = order.gradient(A, G_nC)
                del G_nC  # its buffer may be the next one's
                dH_mF, dW_FC, _ = order.gradients(A, U_C, *given)
        dV_FC = None
        if V_FC is not None and (needs_H or needs_V):
            add_to = None if dH_mF is None else own_rows(A, dH_mF)
            K = DenseRows(own_rows(A, H_mF.detach()), A)
            dV_FC = K.gradients(dZ_nC, V_FC if needs_H else None, needs_V, add_to=add_to).weights
        dH_mF = None if dH_mF is None else own(dH_mF)
        dadd_nC = dZ_nC.to(ctx.add_dtype) if dZ_nC is not None and needs_add else None
        return None, None, dH_mF, dW_FC, dV_FC, dbias_C if needs_bias else None, dadd_nC


class OwnSum(torch.autograd.Function):
    """Z = relu(A U + own U + b), own a number or a parameter; dU = A' dZ + own dZ, down = sum of dZ U, db = the sum of the rows of dZ.

    U has all own rows; those at the rows of A U are added.
    """

    @staticmethod
    def forward(ctx: Any, A: AtLayer, U_mC, own, bias_C, relu):
        U, factor = _stored(A, U_mC), own.detach() if torch.is_tensor(own) else torch.tensor(float(own))
        add_nC = A.select(U)
        if torch.is_tensor(own) or own != 1:
            add_nC = torch.mul(add_nC, factor, out=A.pool.empty(*add_nC.shape, dtype=add_nC.dtype))
        Z_nC = A.apply(U, bias_C, relu, A.out_dtype, add_nF=_summed(A, add_nC))
        ctx.A, ctx.factor, ctx.relu_of = A, factor, _Once(Z_nC if relu else None)
        ctx.save_for_backward(U_mC if torch.is_tensor(own) else None)
        return Z_nC

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nC):
        A, factor, (U_mC,) = ctx.A, ctx.factor, ctx.saved_tensors
        is_ours = is_own(G_nC)
        G_nC, dbias_C = through_end(A, G_nC, ctx.relu_of.take(), 1, is_ours)
        G_nC = _stored(A, G_nC)
        dU_mC = A.adjoint(G_nC)
        down = None if U_mC is None else (G_nC.double() * A.select(_stored(A, U_mC))).sum().to(factor.dtype)
        _add_at_own_rows(A, dU_mC, G_nC, factor)
        return None, own(dU_mC), down, dbias_C if ctx.needs_input_grad[3] else None, None


def has_own_rows(A: AtLayer) -> bool:
    """Return whether the rows of H that are those of A H are a part of H, to which gradients can be added."""
    return A.selected is None if A.n == A.m else A.selects_first


def own_rows(A: AtLayer, H_mF: torch.Tensor) -> torch.Tensor:
    """Return the rows of H that are those of A H, without a copy; see has_own_rows."""
    return H_mF if A.n == A.m else H_mF[: A.n]


class PowerMean(torch.autograd.Function):
    """Z = S_K / (K + 1), S_k = H + A S_(k-1), S_0 = H: Horner's scheme for the sum of A^k H. dH is the same of A' and dZ."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, H_mF, powers: int):
        ctx.A, ctx.powers, S_mF = A, powers, _stored(A, H_mF)
        add_nF = _summed(A, A.select(S_mF))
        for k in range(1, powers + 1):
            S_mF = A.apply(S_mF, dtype=A.out_dtype if k == powers else None, add_nF=add_nF)
        return S_mF.mul_(1 / (powers + 1))

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nF):
        A, G_nF = ctx.A, _stored(ctx.A, G_nF).contiguous()
        is_square = A.n == A.m and A.selected is None
        T_mF, add_mF = G_nF, _summed(A, G_nF) if is_square else None
        for _ in range(ctx.powers):
            T_mF = A.adjoint(T_mF, add_mF=add_mF)
        if not is_square:
            _add_at_own_rows(A, T_mF, G_nF)
        return None, own(T_mF.mul_(1 / (ctx.powers + 1))), None


def _add_at_own_rows(A: AtLayer, dH_mF: torch.Tensor, G_nF: torch.Tensor, factor: torch.Tensor | float = 1.0) -> None:
    """dH += factor G, at the rows of H that are those of A H."""
    if has_own_rows(A):
        own_rows(A, dH_mF).addcmul_(G_nF, torch.as_tensor(factor, dtype=G_nF.dtype))
    else:
        dH_mF.index_add_(0, torch.from_numpy(A.selected).to(A.device), G_nF * factor)


class Order:
    """H W alone, without A; dW = H' dZ; dH = dZ W'. A subclass has A in it.

    Orders have no state: forward returns the left factors S of products with W that backward multiplies with, S' G, and
    the Chain keeps them. S is H where it is sparse.
    """

    reads_H = ends_in_gemm = True

    def is_one_pass(self, lefts: Lefts) -> bool:
        """Return whether `gradients` takes the gradient of relu(Z), and masks it on the way."""
        return not any(S.is_sparse for S in lefts)

    def forward(self, A: AtLayer, S: Left | None, H_mF, W_FC, bias_C, relu: bool, add_nC) -> Made:
        """Return relu(H W + add + b), and the left factors."""
        lefts = () if S is None else (S,)
        S = S or DenseRows(_stored(A, H_mF), A)
        return _left(A, S, S.times, W_FC, bias_C, relu, A.out_dtype, add_nC), lefts

    def gradient(self, A: AtLayer, G_nC: torch.Tensor) -> torch.Tensor:
        """Return what both gradients are made of."""
        return _stored(A, G_nC)

    def gradients(
        self, A: AtLayer, U_C, lefts: Lefts, H_mF, W_FC, needs: Needs, through=(None, None), is_spent: bool = False
    ) -> Gradients:
        """Return the gradients of H, W and the bias, of H and W where they are needed; see DenseRows.gradients.

        Args: U_C  of one pass the gradient of relu(Z), else what `gradient` returned.
        """
        needs_H, needs_W = needs
        if lefts and isinstance(lefts[0], SparseRows):
            return Gradients(None, _left(A, lefts[0], lefts[0].transposed_times, U_C) if needs_W else None, None)
        S = lefts[0] if lefts and isinstance(lefts[0], DenseRows) else DenseRows(_stored(A, H_mF), A)
        return S.gradients(U_C, W_FC if needs_H else None, needs_W, through, is_spent=is_spent)


class SpMMFirst(Order):
    """(A H) W; dW = (A H)' dZ; dH = A' (dZ W'). S is A H where it is known."""

    reads_H = False

    def forward(self, A: AtLayer, S: Left | None, H_mF, W_FC, bias_C, relu: bool, add_nC) -> Made:
        """Return relu((A H) W + add + b), and A H."""
        return super().forward(A, S or DenseRows(A.apply(_stored(A, H_mF)), A), None, W_FC, bias_C, relu, add_nC)

    def gradients(
        self, A: AtLayer, U_C, lefts: Lefts, H_mF, W_FC, needs: Needs, through=(None, None), is_spent: bool = False
    ) -> Gradients:
        """Return the gradients of H, W and the bias."""
        dS, dW_FC, dbias_C = super().gradients(A, U_C, lefts, None, W_FC, needs, through, is_spent)
        del U_C
        return Gradients(None if dS is None else A.adjoint(dS), dW_FC, dbias_C)


class GEMMFirst(Order):
    """A (H W); U = A' dZ; dW = H' U; dH = U W'. S is H where it is sparse."""

    ends_in_gemm = False

    def is_one_pass(self, lefts: Lefts) -> bool:
        """Return False: U is of all of dZ."""
        return False

    def forward(self, A: AtLayer, S: Left | None, H_mF, W_FC, bias_C, relu: bool, add_nC) -> Made:
        """Return relu(A (H W) + add + b), and H where it is sparse."""
        lefts = () if S is None else (S,)
        S = S or DenseRows(_stored(A, H_mF), A)
        return A.apply(_left(A, S, S.times, W_FC), bias_C, relu, A.out_dtype, add_nF=add_nC), lefts

    def gradient(self, A: AtLayer, G_nC: torch.Tensor) -> torch.Tensor:
        """Return U."""
        return A.adjoint(_stored(A, G_nC))

    def gradients(
        self, A: AtLayer, U_C, lefts: Lefts, H_mF, W_FC, needs: Needs, through=(None, None), is_spent: bool = False
    ) -> Gradients:
        """Return the gradients of H and W from U, which may be overwritten."""
        return super().gradients(A, U_C, lefts, H_mF, W_FC, needs, is_spent=True)


class GhostsCached(GEMMFirst):
    """A_t (H_t W) from the own and ghost rows H_t of a fixed input; dW = sum over own and ghost columns c of H_c' (A_c' dZ).

    Nothing is exchanged but, in 1.5D, the sums over a process row of Z and dW. H has no gradient.
    """

    reads_H = False

    def forward(self, A: AtLayer, S: Left | None, H_mF, W_FC, bias_C, relu: bool, add_nC) -> Made:
        """Return relu(A_t (H_t W) + add + b), and own and ghost rows."""
        ghosts_gF = cached_ghosts(A, H_mF)
        assert ghosts_gF is not None, "A.way said that ghost rows of H are cached"
        own, ghosts = (
            rows if isinstance(rows, SparseRows) else DenseRows(_stored(A, rows), A) for rows in (H_mF, ghosts_gF)
        )
        U_mC = _left(A, own, own.times, W_FC)
        U_gC = _left(A, ghosts, ghosts.times, W_FC) if A.column_blocks[-1].is_ghost else U_mC[:0]
        return A.apply(U_mC, bias_C, relu, A.out_dtype, add_nF=add_nC, ghosts_gF=U_gC), (own, ghosts)

    def gradient(self, A: AtLayer, G_nC: torch.Tensor) -> torch.Tensor:
        """Return dZ."""
        return _stored(A, G_nC)

    def gradients(
        self, A: AtLayer, U_C, lefts: Lefts, H_mF, W_FC, needs: Needs, through=(None, None), is_spent: bool = False
    ) -> Gradients:
        """Return the gradient of W."""
        dW_FC = torch.zeros(W_FC.shape, dtype=W_FC.dtype, device=U_C.device)
        for block, U_cC in A.adjoint_columns(U_C):
            S = lefts[block.is_ghost]
            dW_FC += _left(A, S, S.transposed_times, U_cC)
        return Gradients(None, share_gradient(A, dW_FC), None)


class Making(NamedTuple):
    """How a Chain is made: which product comes first, its left factor S where that is known (A H for SPMM_FIRST), and its end."""

    order: Order
    S: Left | None = None
    relu: bool = False


OWN, SPMM_FIRST, GEMM_FIRST, GHOSTS_CACHED = Order(), SpMMFirst(), GEMMFirst(), GhostsCached()


def may_be_overwritten(Z_nC: torch.Tensor) -> bool:
    """Return whether Z is what a Chain or an End returned without an activation, unchanged: no backward reads Z again."""
    unread = getattr(Z_nC.grad_fn, "unread", None)
    return unread is not None and unread == Z_nC._version


def mixed_precision(A: SpMM):
    """Return the context in which torch's own products, as in a user's H @ self.W, cast weights to bfloat16 where that is A's dtype.

    Casts are not cached: the cache belongs to the process, where another rank that is a thread may empty it, and a cast
    made under no_grad would cut the weight off from its gradient.
    """
    return (
        torch.autocast(A.device.type, torch.bfloat16, cache_enabled=False)
        if A.dtype == torch.bfloat16 and A.device.type != "meta"
        else nullcontext()
    )


def on_this_thread(A: SpMM):
    """Return the context in which backward runs on the thread that calls it, for graphs on a device too.

    Torch has one thread per device for that. Ranks that are threads of one process and share a device would wait
    in it for each other, and MPI would be called from the side.
    """
    return nullcontext() if A.device.type == "cpu" else torch.autograd.set_multithreading_enabled(False)


class _Once:
    """Holds the output of a chain until its backward has masked by it: a buffer less for what follows."""

    def __init__(self, Z_nC):
        self.Z_nC = None if Z_nC is None else Z_nC.detach()
        self.is_needed = Z_nC is not None
        self.version = None if Z_nC is None or Z_nC.is_inference() else Z_nC._version
        self.is_taken = False

    def take(self):
        if self.is_taken:
            raise UsageError("backward ran twice through one forward pass of a chain A H W; call the model again")
        if self.Z_nC is not None and self.Z_nC._version != self.version:
            raise UsageError(
                "what a chain relu(A H W + b) returned was changed in place, and backward reads it: write H = H + S, not H += S"
            )
        Z_nC, self.Z_nC, self.is_taken = self.Z_nC, None, True
        return Z_nC


def _left(A: AtLayer, S, function, *args) -> torch.Tensor:
    """Return a product with the left factor S; sparse ones are a phase of their own, dense ones are GEMMs."""
    with A.ops.span("sparse X W") if S.is_sparse else nullcontext():
        return function(*args)


def _stored(A: AtLayer, H_nF):
    """Return H in the type that A works in."""
    H_nF = H_nF.detach()
    return H_nF if H_nF.dtype == A.dtype else A.pool.copy(H_nF, A.dtype)


def _summed(A: AtLayer, add_nC):
    """Return what joins a sum in the type of A's sums; None stays None."""
    if add_nC is None:
        return None
    dtype, add_nC = sum_dtype(A.dtype), add_nC.detach()
    return add_nC.contiguous() if add_nC.dtype == dtype else A.pool.copy(add_nC, dtype)
