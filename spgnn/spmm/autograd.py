"""Gradients through A: of A H and of the chain A H W + bias.

Where A works in bfloat16, so do H, Z and their gradients; weights, bias and their gradients stay float32.
Shapes: n own rows, F in, C out.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch

from ..cost.schedule import Order, block_order, chain_order, check_order
from ..errors import ShapeError, UsageError, check_integer
from .backward import first_order, is_own, own
from .cached_ghosts import cached_ghosts, reads_fixed_input, times_fixed_input
from .features import DenseRows, SparseRows, check_factors, gemm
from .fixed_input import cached_product, check_is_held
from .kernels.backend import kernels_of
from .kernels.buffers import sum_dtype


class Matmul(torch.autograd.Function):
    """Z = A H; dH = A' dZ."""

    @staticmethod
    def forward(ctx, A, H_nF):
        ctx.A = A
        return A.apply(_stored(A, H_nF), dtype=A.out_dtype)

    @staticmethod
    @first_order
    def backward(ctx, G_nF):
        return None, ctx.A.adjoint(_stored(ctx.A, G_nF))


class Columns(torch.autograd.Function):
    """T = own rows of H, then ghost rows; dH = own rows of dT, and ghost rows of the ranks that read them."""

    gives_whole_gradients = True

    @staticmethod
    def forward(ctx, A, H_mF):
        ctx.A = A
        return A.pull(H_mF)

    @staticmethod
    @first_order
    def backward(ctx, G_tF):
        return None, ctx.A.push_add(G_tF.contiguous())


def apply_chain(A, H, W_FC, bias_C=None, relu: bool = False, add_nC=None, power: int = 1) -> torch.Tensor:
    """Return relu(A^power H W + add + bias), in the order that the schedule gives for these sizes."""
    check_integer("power", power, 1)
    check_factors(H, W_FC)
    if bias_C is not None and bias_C.shape != W_FC.shape[1:]:
        raise ShapeError(
            f"the bias of a chain has shape {tuple(bias_C.shape)}; expected one number for each column of W, ({W_FC.shape[1]},)"
        )
    if add_nC is not None and add_nC.shape != (A.n, W_FC.shape[1]):
        raise ShapeError(
            f"add of a chain has shape {tuple(add_nC.shape)}; expected that of A H W, ({A.n}, {W_FC.shape[1]})"
        )
    cached = cached_product(A, H, power)
    if cached is None:
        check_is_held(H)
    order, sparse = order_of(A, H, *W_FC.shape, is_cached=cached is not None), isinstance(H, SparseRows)
    if order == "spmm_first":
        if cached is None and reads_fixed_input(A, H):
            H, power = times_fixed_input(A, H), power - 1
            cached = DenseRows(H, A) if power == 0 else None
        for _ in range(power - 1 if cached is None else 0):
            H = A @ H
        return SpMMFirst.apply(A, cached, None if cached is not None else H, W_FC, bias_C, relu, add_nC)
    if reads_fixed_input(A, H):
        first = lambda *end: GEMMFirstCached.apply(A, H, W_FC, *end)
    else:
        first = lambda *end: GEMMFirst.apply(A, H if sparse else None, None if sparse else H, W_FC, *end)
    if power == 1:
        return first(bias_C, relu, add_nC)
    Z_nC = first(None, False, None)
    for _ in range(power - 1):
        Z_nC = Matmul.apply(A, Z_nC)
    Z_nC = Z_nC if add_nC is None else Z_nC + add_nC
    Z_nC = Z_nC if bias_C is None else Z_nC + bias_C
    return torch.relu(Z_nC) if relu else Z_nC


def order_of(A, H, f_in: int, f_out: int, is_cached: bool) -> Order:
    """Return which product of A H W (f_in, f_out) comes first; see chain_order, block_order.

    Raises: UsageError, see check_order.
    """
    is_sparse = isinstance(H, SparseRows)
    if A.order == "spmm_first":
        order = A.order
    else:
        is_hidden = H.requires_grad if A.layer is None and torch.is_tensor(H) else A.layer != 1
        if A.work is None or is_cached or is_sparse:
            order = chain_order(f_in, f_out, is_kept=is_cached, is_sparse=is_sparse, is_hidden=is_hidden)
        else:
            order = block_order(*A.work, f_in, f_out, is_hidden)
    check_order(order, is_cached, is_sparse)
    return order


class SpMMFirst(torch.autograd.Function):
    """Z = relu((A H) W + add + b); dadd = dZ; dW = (A H)' dZ; dH = A' (dZ W'). `cached` is A H where it is known."""

    @staticmethod
    def forward(ctx, A, cached, H_nF, W_FC, bias_C, relu, add_nC):
        S = cached if cached is not None else DenseRows(A.apply(_stored(A, H_nF)), A)
        Z_nC = _left(A, S, S.times, W_FC, bias_C, relu, A.out_dtype, _summed(A, add_nC))
        ctx.A, ctx.S, ctx.relu_of = A, S, _Once(Z_nC if relu else None)
        ctx.add_dtype = None if add_nC is None else add_nC.dtype
        ctx.save_for_backward(W_FC)
        return Z_nC

    @staticmethod
    @first_order
    def backward(ctx, G_nC):
        A, S, (W_FC,) = ctx.A, ctx.S, ctx.saved_tensors
        is_ours = is_own(G_nC)
        G_nC, dbias_C = _through_relu(A, G_nC, ctx.relu_of.take(), is_ours)
        dadd_nC = G_nC.to(ctx.add_dtype) if ctx.needs_input_grad[6] else None
        G_nC = _stored(A, G_nC)
        dW_FC = _left(A, S, S.transposed_times, G_nC) if ctx.needs_input_grad[3] else None
        dH_nF = own(A.adjoint(_times_transposed(A, G_nC, W_FC))) if ctx.needs_input_grad[2] else None
        return None, None, dH_nF, dW_FC, dbias_C if ctx.needs_input_grad[4] else None, None, dadd_nC


class GEMMFirst(torch.autograd.Function):
    """Z = relu(A (H W) + add + b); dadd = dZ; U = A' dZ; dW = H' U; dH = U W'."""

    @staticmethod
    def forward(ctx, A, sparse, H_nF, W_FC, bias_C, relu, add_nC):
        S = sparse if sparse is not None else DenseRows(_stored(A, H_nF), A)
        joined = {} if add_nC is None else {"add_nF": _summed(A, add_nC)}
        Z_nC = A.apply(_left(A, S, S.times, W_FC), bias_C, relu, A.out_dtype, **joined)
        ctx.A, ctx.sparse = A, sparse
        ctx.relu_of = _Once(Z_nC if relu else None)
        ctx.add_dtype = None if add_nC is None else add_nC.dtype
        ctx.save_for_backward(H_nF, W_FC)
        return Z_nC

    @staticmethod
    @first_order
    def backward(ctx, G_nC):
        A, (H_nF, W_FC) = ctx.A, ctx.saved_tensors
        is_ours = is_own(G_nC)
        G_nC, dbias_C = _through_relu(A, G_nC, ctx.relu_of.take(), is_ours)
        dadd_nC = G_nC.to(ctx.add_dtype) if ctx.needs_input_grad[6] else None
        dH_nF = dW_FC = None
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3]:
            U_nC = A.adjoint(G_nC)
            del G_nC
            S = ctx.sparse if ctx.sparse is not None else DenseRows(_stored(A, H_nF), A)
            dW_FC = _left(A, S, S.transposed_times, U_nC) if ctx.needs_input_grad[3] else None
            dH_nF = own(_times_transposed(A, U_nC, W_FC)) if ctx.needs_input_grad[2] else None
        return None, None, dH_nF, dW_FC, dbias_C if ctx.needs_input_grad[4] else None, None, dadd_nC


class GEMMFirstCached(torch.autograd.Function):
    """Z = relu(A_t (H_t W) + add + b) from the own and ghost rows H_t of a fixed input, which have no gradient.

    dadd = dZ; dW = sum over own and ghost columns c of H_c' (A_c' dZ). Nothing is exchanged but, in 1.5D, the sums over
    a process row of Z and dW.
    """

    @staticmethod
    def forward(ctx, A, H, W_FC, bias_C, relu, add_nC):
        left = lambda H_cF: H_cF if isinstance(H_cF, SparseRows) else DenseRows(_stored(A, H_cF), A)
        own = left(H)
        U_mC = _left(A, own, own.times, W_FC)
        ghosts, U_gC = left(cached_ghosts(A, H)), None
        if A.column_blocks[-1].is_ghost:
            U_gC = _left(A, ghosts, ghosts.times, W_FC)
        Z_nC = A.apply_cached(U_mC, U_gC, bias_C, relu, A.out_dtype, add_nF=_summed(A, add_nC))
        ctx.A, ctx.own, ctx.ghosts, ctx.relu_of = A, own, ghosts, _Once(Z_nC if relu else None)
        ctx.W_dtype, ctx.W_shape = W_FC.dtype, W_FC.shape
        ctx.add_dtype = None if add_nC is None else add_nC.dtype
        return Z_nC

    @staticmethod
    @first_order
    def backward(ctx, G_nC):
        A = ctx.A
        is_ours = is_own(G_nC)
        G_nC, dbias_C = _through_relu(A, G_nC, ctx.relu_of.take(), is_ours)
        dadd_nC = G_nC.to(ctx.add_dtype) if ctx.needs_input_grad[5] else None
        dW_FC = None
        if ctx.needs_input_grad[2]:
            dW_FC = torch.zeros(ctx.W_shape, dtype=ctx.W_dtype, device=G_nC.device)
            for block, U_cC in A.adjoint_cached(_stored(A, G_nC)):
                S = ctx.ghosts if block.is_ghost else ctx.own
                dW_FC += _left(A, S, S.transposed_times, U_cC)
            A.share_gradient(dW_FC)
        return None, None, dW_FC, dbias_C if ctx.needs_input_grad[3] else None, None, dadd_nC


def may_be_overwritten(Z_nC: torch.Tensor) -> bool:
    """Return whether Z is the output of a chain without ReLU and unchanged: no backward reads Z again."""
    made_by = Z_nC.grad_fn  # the ctx of the chain
    chains = (SpMMFirst._backward_cls, GEMMFirst._backward_cls, GEMMFirstCached._backward_cls)
    return isinstance(made_by, chains) and not made_by.relu_of.is_needed


def mixed_precision(A):
    """Return the context in which torch's own products, as in a user's H @ self.W, cast weights to bfloat16 where that is A's dtype.

    Casts are not cached: the cache belongs to the process, where another rank that is a thread may empty it, and a cast
    made under no_grad would cut the weight off from its gradient.
    """
    return (
        torch.autocast(A.device.type, torch.bfloat16, cache_enabled=False)
        if A.dtype == torch.bfloat16 and A.device.type != "meta"
        else nullcontext()
    )


def on_this_thread(A):
    """Return the context in which backward runs on the thread that calls it, for graphs on a device too.

    Torch has one thread a device for that. Ranks that are threads of one process and share a device would wait
    in it for each other, and MPI would be called from the side.
    """
    return nullcontext() if A.device.type == "cpu" else torch.autograd.set_multithreading_enabled(False)


def _through_relu(A, G_nC, Z_nC, is_ours: bool):
    """Return G where Z > 0 (or G, without Z) and its column sums, in one pass; written over G if this backward owns it."""
    G_nC = G_nC.contiguous()
    masked = None if Z_nC is None else G_nC if is_ours else A.pool.empty(*G_nC.shape, dtype=G_nC.dtype)
    with A.ops.span("activation"):
        sums_C = kernels_of(G_nC).mask_sum(G_nC, Z_nC, masked, A.threads)
    return (G_nC if masked is None else masked), sums_C


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


def _times_transposed(A, G_nC, W_FC):
    out = A.pool.empty(G_nC.shape[0], W_FC.shape[0], dtype=G_nC.dtype)
    return gemm(A, G_nC, W_FC.to(G_nC.dtype).t(), out)


def _left(A, S, function, *args) -> torch.Tensor:
    """Return a product with the left factor S; sparse ones are a phase of their own, dense ones are GEMMs."""
    with A.ops.span("sparse X W") if S.is_sparse else nullcontext():
        return function(*args)


def _stored(A, H_nF):
    """Return H in the type that A works in."""
    H_nF = H_nF.detach()
    return H_nF if H_nF.dtype == A.dtype else A.pool.copy(H_nF, A.dtype)


def _summed(A, add_nC):
    """Return what joins a sum in the type of A's sums; None stays None."""
    if add_nC is None:
        return None
    dtype, add_nC = sum_dtype(A.dtype), add_nC.detach()
    return add_nC.contiguous() if add_nC.dtype == dtype else A.pool.copy(add_nC, dtype)
