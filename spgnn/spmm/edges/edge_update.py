"""Whole layers of messages on edges, in chunks of rows that stay in the cache; backward computes a chunk again.

What a layer holds for its backward are the rows of nodes and the state of each edge, where autograd would hold each
step of the MLP of each edge.
Shapes: n own rows, t own and ghost columns, E nonzeros, F columns of H and of E, C columns of the first product of an
edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from ..chains.backward import first_order, is_own, own
from ..exchange.ghosts import ColumnBlock
from ..kernels.buffers import sum_dtype
from ..operator.facts import AtLayer
from .edges import to_columns, weighted

CHUNK_BYTES = 1 << 20  # of one array of a chunk: the few that a chunk has stay in the cache of a core
DEVICE_CHUNK_BYTES = 1 << 27  # on a device, which a chunk has to fill
Gradients = dict[nn.Parameter, torch.Tensor]


class MapRows(torch.autograd.Function):
    """Y = f(X) for each row, computed in chunks and again in backward; params are those of f. X is held alone."""

    @staticmethod
    def forward(ctx: Any, A: AtLayer, f, X_rF, f_out, *params):
        ctx.A, ctx.f = A, f
        ctx.save_for_backward(X_rF, *params)
        X_rF, Y_rC = X_rF.detach(), A.pool.empty(len(X_rF), f_out, dtype=X_rF.dtype)
        with one_by_one(A):
            for at in chunks(A, len(X_rF), f_out):
                Y_rC[at] = f(X_rF[at])
        return Y_rC

    @staticmethod
    @first_order
    def backward(ctx: Any, G_rC):
        A, (X_rF, *params) = ctx.A, ctx.saved_tensors
        dX_rF = A.pool.empty(*X_rF.shape, dtype=X_rF.dtype) if ctx.needs_input_grad[2] else None
        made = gradients_of(params)
        with one_by_one(A):
            for at in chunks(A, len(X_rF), G_rC.shape[1]):
                dX = pull_back(ctx.f, X_rF[at], G_rC[at], made)
                if dX_rF is not None:
                    dX_rF[at] = dX
        return None, None, dX_rF, None, *map(made.get, params)


class UpdateEdges(torch.autograd.Function):
    """E'_ij = E_ij + f(H_i W_i + H_j W_j + E_ij W_e + b); H'_i = H_i + g([H_i, sum_j E'_ij]).

    Args: modules  f and g, which make each row of what they return from the same row of what they get, without chance;
                params are those of f, then of g.
    Returns (H', E'). C columns of ghost rows travel, once each way; H, E, E' and the ghost rows are held.
    """

    @staticmethod
    def forward(ctx: Any, A: AtLayer, modules, H_nF, E_EF, W, b_C, *params):
        T, ctx.A, (f, g) = sum_dtype(A.dtype), A, modules
        H_nF, E_EF = H_nF.detach().to(T).contiguous(), E_EF.detach().to(T).contiguous()
        made_EF, V = A.pool.empty(*E_EF.shape, dtype=T), []
        U_nC, V_nC = products_of_nodes(A, H_nF, W, b_C)
        W_e = W[2 * H_nF.shape[1] :]
        for block, V_cC in A.over_columns(V_nC):
            V.append(V_cC.to(T))
            with one_by_one(A):
                for at in edge_chunks(A, block, W.shape[1]):
                    Z = first_product(A, block, at, U_nC, V[-1], E_EF, W_e)
                    torch.add(E_EF[at], f(Z), out=made_EF[at])
        S_nF = weighted(A, made_EF)
        made_nF = A.pool.empty(*H_nF.shape, dtype=T)
        with one_by_one(A):
            for at in chunks(A, A.n, 2 * H_nF.shape[1]):
                torch.add(H_nF[at], g(torch.cat([H_nF[at], S_nF[at]], 1)), out=made_nF[at])
        ctx.save_for_backward(H_nF, E_EF, made_EF, W, b_C, *V[1:])
        ctx.f, ctx.g, ctx.params = f, g, params
        ctx.set_materialize_grads(False)
        return made_nF.to(A.out_dtype), made_EF

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nF, G_EF):
        A, (H_nF, E_EF, made_EF, W, b_C, *ghosts) = ctx.A, ctx.saved_tensors
        is_ours = G_EF is not None and is_own(G_EF)
        made, F, C = gradients_of(ctx.params), H_nF.shape[1], W.shape[1]
        G_nF = torch.zeros_like(H_nF) if G_nF is None else G_nF.to(H_nF.dtype)
        dS_nF, dH_nF = weighted(A, made_EF), A.pool.copy(G_nF)
        with one_by_one(A):
            for at in chunks(A, A.n, 2 * F):
                d = pull_back(ctx.g, torch.cat([H_nF[at], dS_nF[at]], 1), G_nF[at], made)
                dH_nF[at] += d[:, :F]
                dS_nF[at] = d[:, F:]
        del G_nF
        W_i, W_j, W_e = W.split([F, F, E_EF.shape[1]])
        U_nC, V_nC = products_of_nodes(A, H_nF, W, b_C)
        V = [V_nC.to(H_nF.dtype), *ghosts]
        dE_EF = G_EF if is_ours else A.pool.empty(*E_EF.shape, dtype=E_EF.dtype)
        dZ_EC, dW = A.pool.empty(len(E_EF), C, dtype=E_EF.dtype), torch.zeros_like(W)
        with one_by_one(A):
            for block, V_cC in zip(A.column_blocks, V):
                for at in edge_chunks(A, block, C):
                    d = dS_nF.index_select(0, A.edge_index[1, at])
                    d = d if G_EF is None else d.add_(G_EF[at])
                    Z = first_product(A, block, at, U_nC, V_cC, E_EF, W_e)
                    dZ_EC[at] = dZ = pull_back(ctx.f, Z, d, made)
                    dW[2 * F :].addmm_(E_EF[at].t(), dZ)
                    torch.addmm(d, dZ, W_e.t(), out=dE_EF[at])
        del U_nC, V, V_nC, dS_nF
        dU_nC, dV_nC = weighted(A, dZ_EC), to_columns(A, dZ_EC, None, False).to(H_nF.dtype)
        del dZ_EC
        torch.mm(H_nF.t(), dU_nC, out=dW[:F])
        torch.mm(H_nF.t(), dV_nC, out=dW[F : 2 * F])
        dH_nF.addmm_(dU_nC, W_i.t()).addmm_(dV_nC, W_j.t())
        return None, None, own(dH_nF), own(dE_EF), dW, dU_nC.sum(0), *map(made.get, ctx.params)


def products_of_nodes(
    A: AtLayer, H_nF: torch.Tensor, W: torch.Tensor, b_C: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return U = H W_i + b in the type of sums and V = H W_j in the type of A, (n, C): equal in forward and backward."""
    F = H_nF.shape[1]
    with without_autocast(A):
        return torch.addmm(b_C, H_nF, W[:F]), (H_nF @ W[F : 2 * F]).to(A.dtype)


def first_product(A: AtLayer, block: ColumnBlock, at: slice, U_nC, V_cC, E_EF, W_e) -> torch.Tensor:
    """Return U_i + V_j + E_ij W_e of some nonzeros of a block."""
    column, row = A.edge_index[:, at]
    Z = (E_EF[at] @ W_e).add_(U_nC.index_select(0, row))
    return Z.add_(V_cC.index_select(0, column - block.start if block.start else column))


def pull_back(f: nn.Module, X: torch.Tensor, G: torch.Tensor, made: Gradients) -> torch.Tensor:
    """Return the gradient of X of f(X), whose gradient is G, and add the parameters' gradients to `made`."""
    names = {id(parameter) for parameter in f.parameters()}
    of_f = [parameter for parameter in made if id(parameter) in names]
    with torch.enable_grad():
        X = X.detach().requires_grad_()
        Y = f(X)
    dX, *gradients = torch.autograd.grad(Y, [X, *of_f], G, allow_unused=True)
    for parameter, gradient in zip(of_f, gradients):
        if gradient is not None:
            made[parameter] += gradient
    return dX


def gradients_of(params) -> Gradients:
    """Return a sum that starts at 0 for each parameter that is trained."""
    return {parameter: torch.zeros_like(parameter) for parameter in params if parameter.requires_grad}


def chunks(A: AtLayer, rows: int, columns: int) -> Iterator[slice]:
    """Yield the rows of each chunk of an array; of a dry run all of them at once."""
    most = CHUNK_BYTES if A.device.type == "cpu" else DEVICE_CHUNK_BYTES
    size = rows if A.device.type == "meta" else max(most // (columns * sum_dtype(A.dtype).itemsize), 1)
    yield from (slice(start, min(start + size, rows)) for start in range(0, rows, size or 1))


def edge_chunks(A: AtLayer, block: ColumnBlock, columns: int) -> Iterator[slice]:
    """Yield the nonzeros of each chunk of a block of columns, as places among all of the rank's."""
    if A.device.type == "meta":  # which blocks they are in is not known there
        yield from () if block.is_ghost else chunks(A, A.n_edges, columns)
        return
    first = A.column_blocks[0].A.nnz if block.is_ghost else 0
    yield from (slice(first + at.start, first + at.stop) for at in chunks(A, block.A.nnz, columns))


@contextmanager
def one_by_one(A: AtLayer) -> Iterator[None]:
    """Compute chunks: in the type of sums, and in a dry run without counting memory of the size of all rows."""
    uncounted = getattr(A.pool, "uncounted", nullcontext)
    with uncounted(), without_autocast(A):
        yield


def without_autocast(A: AtLayer) -> AbstractContextManager:
    """Return the context in which torch's products have the type of their factors: backward has no autocast."""
    return nullcontext() if A.device.type == "meta" else torch.autocast(A.device.type, enabled=False)
