"""HostKernels: the C++ kernels on CPU tensors; what cuda.CudaKernels is for a device.

Shapes: n, m rows, F, C columns.
"""

from __future__ import annotations

import numpy as np
import torch

from . import _kernels  # after torch: both then share one OpenMP library
from .attention_kernels import HostAttention, HostEdges
from .buffers import array_of, arrays, sum_dtype
from .tile_rule import is_wide
from .tiles import Passes, cut, multiply_slices, slice_width
from .torch_dense import TorchDense

BUILD_ALL = "SPGNN_ISA_BUILD=all pip install . compiles all"
FUNCTIONS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor",
    "lgamma", "log", "log10", "log1p", "log2", "reciprocal", "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip


def settle_vector_math() -> None:
    """Call torch's elementwise functions once on one thread, in both precisions. Takes a few milliseconds.

    They are the vector functions of oneMKL, which looks up the code of each at its first call. If two threads make that
    first call at once, one of them may be given code of low accuracy for it (a relative error of 3e-4 instead of
    1e-7): a training then differs from its repetition from the first step of Adam on.
    Source: the PyTorch project's issue 188792; here about one training in five on two threads.
    """
    for dtype in (torch.float32, torch.float64):
        x = torch.full((8,), 0.5, dtype=dtype)
        for name in FUNCTIONS:
            getattr(torch, name)(x)


settle_vector_math()


def slow_loops() -> str:
    """Return what to say where this processor runs the baseline loops for want of its own in this build, else ""."""
    built, wanted = _kernels.instruction_sets(), _kernels.wanted_isa()
    if wanted in built:
        return ""
    return f"spgnn is compiled without loops for {wanted}, so this processor runs the slower ones for {built[-1]}"


def equals_transpose(A) -> bool:
    """Return whether a LocalCSR is its own transpose, without making that."""
    return A.shape[0] == A.shape[1] and _kernels.equals_transpose(A.indptr, A.indices, A.weights)


def _tiled(A, X: np.ndarray, dtype: torch.dtype) -> Passes | None:
    """Return A in tiles and panels where the sizes of A X call for them, else None."""
    if not (A.may_tile and dtype == sum_dtype(dtype) and is_wide(len(X), X.shape[1] * X.itemsize)):
        return None  # sums of several passes must not be rounded between them
    if A.tiled is None:
        A.tiled = cut(A.indptr, A.indices, A.weights, A.shape[1], A.threads)
    return A.tiled


class HostKernels(HostAttention, HostEdges, TorchDense):
    """Kernels on the memory of this process; out is written in place."""

    def prepare(self, A) -> None:
        """Nothing has to be copied."""

    def spmm(self, A, X_mF, out_nF, accumulate=False, bias_F=None, relu=False, add_nF=None) -> None:
        """out = A X (+ out) (+ add) (+ bias), then ReLU; A a LocalCSR."""
        bias, add = (None if x is None else x.detach().numpy() for x in (bias_F, add_nF))
        X, out = array_of(X_mF.contiguous()), array_of(out_nF)
        last = {"bias": bias, "relu": relu, "add": add}
        tiled = _tiled(A, X, out_nF.dtype)
        width = 0 if tiled else slice_width(len(A.indptr) - 1, len(X), A.nnz, X.shape[1], X.itemsize)
        if tiled:
            tiled.multiply(X, out, accumulate, A.threads, **last)
        elif width:
            multiply_slices(A, width, X, out, accumulate, A.threads, **last)
        else:
            last |= {"threads": A.threads, "is_checked": True}
            _kernels.spmm(A.indptr, A.indices, A.weights, X, out, accumulate, **last)

    def take_rows(self, X_nF, rows_m: np.ndarray, out_mF, threads: int = 0) -> None:
        """out[i] = X[rows[i]]."""
        _kernels.take_rows(array_of(X_nF), rows_m, array_of(out_mF), threads)

    def mask_sum(self, G_nC, H_nC, out_nC, threads: int = 0, act: int = 1) -> torch.Tensor:
        """out = G act'(Z), H = act(Z), see `finish` (H None: nothing is written); return the column sums, (C,)."""
        H, out = (None, None) if H_nC is None else (array_of(H_nC), array_of(out_nC))
        return torch.from_numpy(_kernels.mask_sum(array_of(G_nC), H, out, act, threads)).to(sum_dtype(G_nC.dtype))

    def gemm(self, X_nF, W_FC, out_nC, bias_C=None, add_nC=None, relu=False, threads: int = 0) -> None:
        """out = relu(X W (+ add) (+ bias)); add may be out."""
        if X_nF.dtype == torch.bfloat16:
            super().gemm(X_nF, W_FC, out_nC, bias_C, add_nC, relu, threads)
            return
        is_turned = not W_FC.is_contiguous() and W_FC.t().is_contiguous()
        W_FC = W_FC.detach().t() if is_turned else W_FC.detach().contiguous()
        _kernels.gemm(*arrays(X_nF.contiguous(), W_FC, out_nC), is_turned, *arrays(bias_C, add_nC), relu, threads)

    def gemm_adjoint(
        self, G_nC, X_nF, W_FC, dX_nF, dW_FC, through=(None, None), adds=False, threads: int = 0
    ) -> torch.Tensor:
        """dX (+)= dZ W', dW = X' dZ; return the column sums of dZ, see TorchDense. One pass over G."""
        if G_nC.dtype == torch.bfloat16:
            return super().gemm_adjoint(G_nC, X_nF, W_FC, dX_nF, dW_FC, through, adds, threads)
        X_nF = None if dW_FC is None else X_nF.contiguous()
        W_FC = None if dX_nF is None else W_FC.contiguous()
        factors = arrays(G_nC, *through, X_nF, W_FC, dX_nF)
        return torch.from_numpy(_kernels.gemm_adjoint(*factors, adds, *arrays(dW_FC), True, threads)).to(G_nC.dtype)

    def finish(self, Z_nC, out_nC, bias_C=None, act: int = 0, threads: int = 0) -> None:
        """out = act(Z (+ bias)), act the place in ENDS: 1 is ReLU; rounded to the type of out, which may be Z."""
        bias = None if bias_C is None else bias_C.detach().numpy()
        _kernels.finish(array_of(Z_nC), array_of(out_nC), bias, act, threads)

    def drop(self, X_nF, out_nF, node_n: np.ndarray, key: int | torch.Tensor, rate: float, threads: int = 0) -> None:
        """out = X mask / (1 - rate), the mask of (key, node, feature)."""
        _kernels.drop(array_of(X_nF), array_of(out_nF), node_n, key, rate, threads)

    def drop_csr(self, A, node_n: np.ndarray, key: int | torch.Tensor, rate: float):
        """Return the LocalCSR with stored entries zeroed by the dense mask of (key, node, feature)."""
        values = A.to_scipy().data
        dropped = np.empty_like(values)
        _kernels.drop_sparse(A.indptr, A.indices, values, dropped, node_n, key, rate, A.threads)
        return A.with_weights(dropped)

    def softmax_xent(self, Z_nC, y_n, scale: float, G_nC, threads: int = 0) -> torch.Tensor:
        """Return the sum of -log softmax(Z)[y] over rows with y >= 0, () float64; G = scale times its gradient."""
        return torch.tensor(
            _kernels.softmax_xent(Z_nC.numpy(), y_n.numpy(), scale, G_nC.numpy(), threads), dtype=torch.float64
        )

    def encode(self, name: str, X_nF, out_nB, threads: int = 0) -> None:
        """Encode rows; see Wire.encode."""
        _kernels.encode(name, array_of(X_nF), out_nB.numpy(), threads)

    def decode(self, name: str, bytes_nB, out_nF, threads: int = 0) -> None:
        """Decode received rows; see Wire.decode."""
        _kernels.decode(name, bytes_nB.numpy(), array_of(out_nF), threads)
