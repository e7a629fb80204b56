"""CudaKernels: the kernels of spmm on tensors of a device, arguments and launches; what HostKernels is for the CPU.

Shapes: n, m rows, F, C columns.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch

from ....errors import ShapeError
from ..buffers import sum_dtype
from .launcher import NAMES, SCALARS, CupyLauncher, key_and_place, threshold
from .on_edges import CudaEdges, copied, launch
from .work_items import JOIN, WARP, RowPlan, chunk_rows, common_pack, launches, row_block, row_plan, tiling

INDICES = {torch.int32: "int", torch.int64: "long long"}
WORDS = ((16, "uint4"), (8, "uint2"), (4, "u32"), (2, "u16"), (1, "u8"))
FORMATS = {"bfloat16": 0, "float16": 1}
ACCUMULATE, RELU = 1, 2


class CudaKernels(CudaEdges):
    """Kernels of one device; out is written in place. Launches are asynchronous, on the launcher's stream.

    Arrays of a matrix are copied to the device when first used, and kept while the matrix is.
    """

    def __init__(self, device: torch.device, launcher: CupyLauncher):
        super().__init__(device, launcher)
        self._plans: dict[int, tuple[RowPlan, torch.Tensor, torch.Tensor]] = {}

    def prepare(self, A) -> None:
        """Copy a LocalCSR and its plan to the device."""
        self._plan(A)
        self.upload(A.indices)
        if A.weights is not None:
            self.upload(A.weights)

    def spmm(self, A, X_mF, out_nF, accumulate=False, bias_F=None, relu=False, add_nF=None) -> None:
        """out = A X (+ out) (+ add) (+ bias), then ReLU; A a LocalCSR, sums in float32 or float64."""
        plan, items_M, joins_J = self._plan(A)
        indices, weights = self.upload(A.indices), None if A.weights is None else self.upload(A.weights)
        X, F = X_mF.contiguous(), out_nF.shape[1]
        check(
            (X.dtype == torch.float64) == (out_nF.dtype == torch.float64),
            f"X is {X.dtype}, out {out_nF.dtype}; float64 stands alone",
        )
        check(out_nF.is_contiguous() and (add_nF is None or add_nF.is_contiguous()), "out and add must be row-major")
        sums = sum_dtype(X.dtype) if X.dtype != torch.float16 else torch.float32
        partial = torch.empty(plan.n_slots, F, dtype=sums, device=self.device)
        matrices = [(M.data_ptr(), M.element_size()) for M in (X, out_nF, partial, add_nF) if M is not None]
        tile = tiling(F, X.element_size(), common_pack(F, *matrices))
        ends = accumulate and bias_F is None and add_nF is None and not relu  # then an empty row stays as it is
        bias = None if bias_F is None else bias_F.detach().to(sums)
        x_name, y_name, index = NAMES[X.dtype], NAMES[out_nF.dtype], INDICES[indices.dtype]
        tail = (bias, add_nF, np.int32(F), np.int32(ACCUMULATE * accumulate + RELU * relu))
        for first, count, E, blocks in launches(plan, tile, plan.n_filled if ends else len(plan.items_M)) if F else ():
            name = f"spmm_items<{x_name}, {y_name}, {index}, {tile.V}, {tile.G}, {E}, {tile.NV}, {'false' if weights is None else 'true'}>"
            head = (items_M[first:], np.int64(count), indices, weights, X, out_nF, partial)
            launch(self, "spmm", name, (blocks, tile.tiles), head + tail)
        if len(plan.joins_J) and F:
            name = f"spmm_join<{y_name}, {NAMES[sums]}>"
            launch(self, "spmm", name, (len(plan.joins_J), -(-F // WARP)), (joins_J, partial, out_nF, *tail))

    def take_rows(self, X_nF, rows_m: np.ndarray, out_mF, threads: int = 0) -> None:
        """out[i] = X[rows[i]]."""
        row_bytes = X_nF.shape[1] * X_nF.element_size()
        check(
            X_nF.is_contiguous() and out_mF.is_contiguous() and out_mF.dtype == X_nF.dtype,
            "take_rows copies row-major rows of one type",
        )
        size, name = next(
            (s, n) for s, n in WORDS if not (row_bytes % s or X_nF.data_ptr() % s or out_mF.data_ptr() % s)
        )
        m, words = len(rows_m), row_bytes // size
        args = (X_nF, self.upload(rows_m), out_mF, np.int64(m), np.int64(words))
        self._over_rows("spmm", f"take_rows<{name}>", m, words, args)

    def mask_sum(self, G_nC, H_nC, out_nC, threads: int = 0, act: int = 1) -> torch.Tensor:
        """out = G act'(Z), H = act(Z) (H None: nothing is written); return the column sums, (C,)."""
        n, C = G_nC.shape
        sums = torch.zeros(C, dtype=sum_dtype(G_nC.dtype), device=self.device)
        if not (n and C):
            return sums
        lanes, rows = row_block(C)
        step = chunk_rows(n, rows)
        chunks, tiles = -(-n // step), -(-C // lanes)
        partial = torch.empty(chunks, C, dtype=torch.float64, device=self.device)
        args = (G_nC, H_nC, out_nC, partial, np.int64(n), np.int32(C), np.int32(step), np.int32(act))
        launch(self, "dense", f"mask_sum<{NAMES[G_nC.dtype]}>", (chunks, tiles), args, (lanes, rows))
        self._add_chunks(partial, sums)
        return sums

    def finish(self, Z_nC, out_nC, bias_C=None, act: int = 0, threads: int = 0) -> None:
        """out = act(Z (+ bias)), see HostKernels, rounded to the type of out."""
        n, C = Z_nC.shape
        bias = None if bias_C is None else bias_C.detach()
        args = (Z_nC, out_nC, bias, np.int32(act), np.int64(n), np.int32(C))
        self._over_rows("dense", f"finish<{NAMES[Z_nC.dtype]}, {NAMES[out_nC.dtype]}>", n, C, args)

    def drop(self, X_nF, out_nF, node_n: np.ndarray, key: int | torch.Tensor, rate: float, threads: int = 0) -> None:
        """out = X mask / (1 - rate), the mask of (key, node, feature) that the CPU has; key may lie on the device."""
        n, F = X_nF.shape
        scale = SCALARS[X_nF.dtype](1 / (1 - rate))
        mask = (self.upload(node_n), *key_and_place(key), threshold(rate), scale)
        args = (X_nF, out_nF, *mask, np.int64(n), np.int32(F))
        self._over_rows("dense", f"drop<{NAMES[X_nF.dtype]}>", n, F, args)

    def drop_csr(self, A, node_n: np.ndarray, key: int | torch.Tensor, rate: float):
        """Return the LocalCSR with stored entries zeroed by the dense mask of (key, node, feature)."""
        dtype = sum_dtype(A.dtype)
        indices, weights = self.upload(A.indices), None if A.weights is None else self.upload(A.weights)
        dropped = torch.empty(A.nnz, dtype=dtype, device=self.device)
        n, scale = A.shape[0], SCALARS[dtype](1 / (1 - rate))
        mask = (self.upload(node_n), *key_and_place(key), threshold(rate), scale)
        args = (self.upload(A.indptr), indices, weights, dropped, *mask, np.int64(n))
        self._over_rows("dense", f"drop_csr<{NAMES[dtype]}, {INDICES[indices.dtype]}>", n, WARP, args)
        return A.with_weights(dropped, self.upload)

    def softmax_xent(self, Z_nC, y_n, scale: float, G_nC, threads: int = 0) -> torch.Tensor:
        """Return the sum of -log softmax(Z)[y] over rows with y >= 0, () float64; G = scale times its gradient."""
        n, C = Z_nC.shape
        total = torch.zeros(1, dtype=torch.float64, device=self.device)
        if not n:
            return total[0]
        blocks = -(-n // 8)
        losses = torch.empty(blocks, 1, dtype=torch.float64, device=self.device)
        args = (Z_nC, y_n, SCALARS[Z_nC.dtype](scale), G_nC, losses, np.int64(n), np.int32(C))
        launch(self, "dense", f"softmax_xent<{NAMES[Z_nC.dtype]}>", (blocks, 1), args, (WARP, 8))
        self._add_chunks(losses, total)
        return total[0]

    def encode(self, name: str, X_nF, out_nB, threads: int = 0) -> None:
        """Write rows as they travel; see Wire.encode."""
        n, F = X_nF.shape
        args = (X_nF, out_nB, np.int32(FORMATS[name]), np.int64(n), np.int32(F))
        self._over_rows("wire", f"encode<{NAMES[X_nF.dtype]}>", n, WARP, args)

    def decode(self, name: str, bytes_nB, out_nF, threads: int = 0) -> None:
        """Read rows that came in; see Wire.decode."""
        n, F = out_nF.shape
        args = (bytes_nB, out_nF, np.int32(FORMATS[name]), np.int64(n), np.int32(F))
        self._over_rows("wire", f"decode<{NAMES[out_nF.dtype]}>", n, WARP, args)

    def _over_rows(self, source: str, name: str, n: int, C: int, args: tuple) -> None:
        if n and C:
            lanes, rows = row_block(C)
            launch(self, source, name, (-(-n // rows), 1), args, (lanes, rows))

    def _add_chunks(self, partial, sums) -> None:
        chunks, C = partial.shape
        lanes, rows = row_block(C)
        args = (partial, sums, np.int64(chunks), np.int32(C))
        launch(self, "dense", f"add_chunks<{NAMES[sums.dtype]}>", (1, -(-C // lanes)), args, (lanes, rows))

    def _plan(self, A) -> tuple[RowPlan, torch.Tensor, torch.Tensor]:
        key = id(A.indptr)
        if key not in self._plans:
            plan = row_plan(A.indptr)
            items, joins = (
                copied(table.view(np.int64).reshape(-1, 2), self.device)
                for table in (plan.items_M, plan.joins_J.view(JOIN))
            )
            self._plans[key] = plan, items, joins
            weakref.finalize(A.indptr, self._plans.pop, key, None).atexit = False
        return self._plans[key]


def check(holds: bool, message: str) -> None:
    """Raise ShapeError with a message unless a condition holds."""
    if not holds:
        raise ShapeError(message)
