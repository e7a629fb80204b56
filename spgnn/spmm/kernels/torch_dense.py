"""Dense products by torch: of devices, of bfloat16, and of the meta device; what the kernels of a CPU are tested against.

Shapes: n rows, F in, C out.
"""

from __future__ import annotations

import torch

CHUNK = 1 << 15  # rows of X' G that are multiplied at once in bfloat16: a block of both stays in cache
HAS_OUT_DTYPE = torch.__version__ >= "2.8"  # torch.mm on a device can return the float32 sums; versions compare as such


class TorchDense:
    """gemm and gemm_adjoint of all kernels."""

    def mask_sum(self, G_nC, H_nC, out_nC, threads: int = 0, act: int = 1) -> torch.Tensor:
        """out = G act'(Z), H = act(Z); return the column sums, (C,); see HostKernels."""
        raise NotImplementedError

    def gemm(self, X_nF, W_FC, out_nC, bias_C=None, add_nC=None, relu=False, threads: int = 0) -> None:
        """out = relu(X W (+ add) (+ bias)), all of one type; add may be out."""
        first = bias_C if add_nC is None else add_nC
        if first is None:
            torch.mm(X_nF, W_FC, out=out_nC)
        else:
            torch.addmm(first, X_nF, W_FC, out=out_nC)
        if add_nC is not None and bias_C is not None:
            out_nC += bias_C
        if relu:
            out_nC.relu_()

    def gemm_adjoint(
        self, G_nC, X_nF, W_FC, dX_nF, dW_FC, through=(None, None), adds=False, threads: int = 0
    ) -> torch.Tensor:
        """dX (+)= dZ W', dW = X' dZ; return the column sums of dZ = G, through (Z, out): G where Z > 0, kept in out.

        None is not made. dX needs W, dW needs X; W and dW are of the type of sums; out and dX may be G.
        """
        Z_nC, masked_nC = through
        if Z_nC is None:
            dZ = out = None
        else:
            out = dZ = G_nC if G_nC.is_meta and masked_nC is None else masked_nC
            out = dZ = torch.empty_like(G_nC) if dZ is None else dZ
        sums_C = self.mask_sum(G_nC, Z_nC, out, threads)
        dZ = G_nC if dZ is None else dZ
        if dW_FC is not None and dW_FC.dtype == dZ.dtype:
            torch.mm(X_nF.t(), dZ, out=dW_FC)
        elif dW_FC is not None and dZ.is_cuda and HAS_OUT_DTYPE:
            dW_FC.copy_(torch.mm(X_nF.t(), dZ, out_dtype=dW_FC.dtype))
        elif dW_FC is not None:
            dW_FC.zero_()
            for X, G in zip(X_nF.split(CHUNK), dZ.split(CHUNK)):
                dW_FC += torch.mm(X.t(), G)
        if dX_nF is not None:
            W_CF, is_over = W_FC.detach().to(G_nC.dtype).t(), dX_nF is dZ and not dX_nF.is_meta
            if is_over:
                dX_nF.copy_(torch.mm(dZ, W_CF))
            else:
                torch.addmm(dX_nF, dZ, W_CF, out=dX_nF) if adds else torch.mm(dZ, W_CF, out=dX_nF)
        return sums_C
