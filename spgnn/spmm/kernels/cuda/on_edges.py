"""CudaEdges: the kernels of attention, over edges and of the maximum on a device; what HostAttention and HostEdges are there.

A warp goes through the nonzeros of a row, the 8 warps of a block through those of a long one. Sums are added in an order
that the matrix alone decides. Shapes: n rows, c columns, E nonzeros, K heads of width D, F = K D columns.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch

from ....errors import ShapeError
from ..attention_kernels import AttentionSums, EdgeDrop
from ..torch_dense import TorchDense
from .launcher import NAMES, SCALARS, CupyLauncher, key_and_place, pointer, threshold
from .work_items import THREADS, WARP, chunk_rows, row_block

LONG_ROW = 1024  # nonzeros above which a block goes through a row
WARPS = THREADS // WARP
MOST_HEADS, MOST_COLUMNS = 64, 1024
ACCUMULATE, FINISH, POSITIVE = 1, 2, 2
ELU = 2  # among ENDS


class CudaEdges(TorchDense):
    """A part of CudaKernels; see HostAttention and HostEdges for what each method writes."""

    def __init__(self, device: torch.device, launcher: CupyLauncher):
        self.device, self.launcher = device, launcher
        self._uploaded: dict[int, torch.Tensor] = {}
        self._orders: dict[int, tuple[torch.Tensor, int]] = {}

    def upload(self, array: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Return the device's copy of an array that does not change; made once."""
        if torch.is_tensor(array):
            return array
        key = id(array)
        if key not in self._uploaded:
            self._uploaded[key] = copied(array, self.device)
            weakref.finalize(array, self._uploaded.pop, key, None).atexit = False
        return self._uploaded[key]

    def attend(
        self, A, X_cKD, left_nK, right_cK, sums: AttentionSums, slope: float, drop: EdgeDrop | None = None,
        accumulate=False, finish=False,
    ) -> None:  # fmt: skip
        """Z_i = sum_j exp(e_ij - top_i) mask_ij X_j, e_ij = lrelu(left_i + right_j)."""
        flags = ACCUMULATE * accumulate + FINISH * finish
        _attend(self, A, X_cKD, (None, left_nK, right_cK, None), sums, slope, drop, flags)

    def attend2(
        self, A, right_cKD, left_nKD, a_KD, sums: AttentionSums, slope: float, drop: EdgeDrop | None = None,
        accumulate=False, finish=False,
    ) -> None:  # fmt: skip
        """As attend with e_ij = <a, lrelu(left_i + right_j)> and X = right."""
        flags = ACCUMULATE * accumulate + FINISH * finish
        _attend(self, A, right_cKD, (left_nKD.contiguous(), None, None, a_KD), sums, slope, drop, flags)

    def fixed_dots(self, X_cKD, fixed_2KD, left_cK, right_cK, threads: int = 0) -> None:
        """left_i = <X_i, fixed_0>, right_i = <X_i, fixed_1> of each head."""
        n, F, K = *X_cKD.shape, right_cK.shape[1]
        tensors = (X_cKD.contiguous(), fixed_2KD, left_cK, right_cK)
        _each_row(self, "fixed_dots", X_cKD.dtype, n, K, F, (*tensors, np.int64(n), np.int32(K), np.int32(F)))

    def attend_record(
        self, G_nKD, left_nK, sums: AttentionSums, slope: float, record, dleft_nK=None, dZ_nKD=None, threads: int = 0
    ) -> torch.Tensor:
        """record_i = (left_i, top_i, scale_i, D_i) and dleft; dZ is made of G first. Return its column sums, (K D) float64."""
        dZ, (n, F), K = G_nKD, G_nKD.shape, sums.top_nK.shape[1]
        if dZ_nKD is None:
            totals = G_nKD.new_zeros(F, dtype=torch.float64)
        elif sums.act == ELU:  # act' of Z as it is, not rounded to the type of G
            dZ = dZ_nKD.copy_(torch.where(sums.Z_nKD > 0, G_nKD, G_nKD * (sums.Z_nKD + 1)))
            totals = self.mask_sum(dZ, None, None)
        elif sums.act:
            totals, dZ = self.mask_sum(G_nKD, sums.Z_nKD.to(G_nKD.dtype), dZ_nKD, act=sums.act), dZ_nKD
        else:
            totals = self.mask_sum(G_nKD, None, None)
            dZ = dZ_nKD if dZ_nKD is G_nKD else dZ_nKD.copy_(G_nKD)
        scalar = SCALARS[record.dtype]
        given = (dZ, sums.Z_nKD, sums.bias_KD, left_nK, sums.top_nK, sums.sum_nK)
        more = (sums.plus_nKD, sums.plus_sum_nK, sums.share_nK, sums.D_nK)
        args = (*given, *more, scalar(slope), record, dleft_nK, np.int64(n), np.int32(K), np.int32(F))
        _each_row(self, "attend_record", dZ.dtype, n, K, F, (*args, np.int32(sums.act)))
        return totals.double()

    def attend_adjoint(
        self, A, X_cKD, G_nKD, record_n4K, right_cK, fixed_2KD, dleft_cK, dX_cKD, slope: float,
        drop: EdgeDrop | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """dX_j = sum_i alpha_ij mask_ij G_i + fixed_0 dleft_j + fixed_1 dright_j; return the gradients of fixed."""
        X, G, (c, F), K = X_cKD.contiguous(), G_nKD.contiguous(), X_cKD.shape, right_cK.shape[1]
        dright_cK = torch.empty(c, K, dtype=dX_cKD.dtype, device=self.device)
        tensors = (X, G, record_n4K, right_cK, fixed_2KD, dleft_cK, dX_cKD, dright_cK)
        dropped = _dropped(self, drop, dX_cKD.dtype)
        args = (*tensors, SCALARS[dX_cKD.dtype](slope), *dropped, np.int32(K), np.int32(F))
        _teams(self, "attention", "attend_adjoint", A.transposed(), [NAMES[X.dtype], *lanes(K, F)], args)
        sums = [torch.zeros(F, dtype=torch.float64, device=self.device) for _ in range(2)]
        for total, d_cK in zip(sums, (dleft_cK, dright_cK)):
            if d_cK is not None and c:
                _outer_sums(self, X, d_cK, total)
        return torch.stack(sums)

    def attend2_rows(
        self, A, right_cKD, left_nKD, a_KD, G_nKD, record_n3K, dleft_nKD, da_KD, slope: float,
        drop: EdgeDrop | None = None, accumulate=False,
    ) -> None:  # fmt: skip
        """dleft_i = a sum_j de_ij lrelu'(left_i + right_j), da = sum_ij de_ij lrelu(left_i + right_j)."""
        for_a = torch.empty_like(dleft_nKD)
        tensors = left_nKD.contiguous(), right_cKD, G_nKD.contiguous(), a_KD, record_n3K, dleft_nKD, for_a
        _attend2_adjoint(self, A, False, tensors, slope, drop, accumulate)
        total = self.mask_sum(for_a, None, None)
        da_KD.copy_(da_KD + total if accumulate else total)

    def attend2_columns(
        self, A, right_cKD, left_nKD, a_KD, G_nKD, record_n3K, dright_cKD, slope: float,
        drop: EdgeDrop | None = None, accumulate=False,
    ) -> None:  # fmt: skip
        """dright_j = sum_i alpha_ij mask_ij G_i + a de_ij lrelu'(left_i + right_j)."""
        tensors = right_cKD, left_nKD.contiguous(), G_nKD.contiguous(), a_KD, record_n3K, dright_cKD, None
        _attend2_adjoint(self, A.transposed(), True, tensors, slope, drop, accumulate)

    def sddmm(self, A, U_nKD, V_cKD, out_EK) -> None:
        """out_ij = <U_i, V_j> of each head."""
        U, V = (x.to(out_EK.dtype).contiguous() for x in (U_nKD, V_cKD))
        K, F = out_EK.shape[1], U.shape[1]
        args = (U, V, out_EK, np.int32(K), np.int32(F))
        _teams(self, "edges", "sddmm", A, [NAMES[out_EK.dtype], *lanes(K, F)], args)

    def edge_add(self, A, left_nK, right_cK, out_EK, add_EK=None) -> None:
        """out_ij = left_i + right_j + add_ij, of those that are not None."""
        given = [None if x is None else x.to(out_EK.dtype).contiguous() for x in (left_nK, right_cK, add_EK)]
        args = (*given, out_EK, np.int32(out_EK.shape[1]))
        _teams(self, "edges", "edge_add", A, [NAMES[out_EK.dtype]], args)

    def softmax_sums(self, A, e_EK, top_nK, sum_nK, accumulate=False) -> None:
        """top_i = max_j e_ij, sum_i = sum_j exp(e_ij - top_i)."""
        n, K = top_nK.shape
        name = f"softmax_sums<{NAMES[top_nK.dtype]}, {is_even(K)}>"
        args = (self.upload(A.indptr), e_EK.contiguous(), top_nK, sum_nK, np.int64(n), np.int32(K))
        if n:
            launch(self, "edges", name, (-(-n // WARPS), 1), (*args, np.int32(accumulate)))

    def row_softmax(self, A, e_EK, top_nK, scale_nK, out_EK) -> None:
        """out_ij = exp(e_ij - top_i) scale_i."""
        _row_softmax(self, A, e_EK, None, top_nK, scale_nK, out_EK)

    def row_softmax_adjoint(self, A, alpha_EK, dalpha_EK, D_nK, out_EK) -> None:
        """out_ij = alpha_ij (dalpha_ij - D_i)."""
        _row_softmax(self, A, alpha_EK, dalpha_EK.contiguous(), D_nK, None, out_EK)

    def row_dots(self, A, U_EK, V_EK, out_nK, accumulate=False) -> None:
        """out_i = sum_j U_ij V_ij."""
        args = (U_EK.contiguous(), V_EK.contiguous(), out_nK, np.int32(out_nK.shape[1]), np.int32(accumulate))
        _teams(self, "edges", "row_dots", A, [NAMES[out_nK.dtype]], args, has_columns=False)

    def spmm_heads(self, A, values_EK, X_cKD, out_nKD, accumulate=False, transpose=False) -> None:
        """out_i = sum_j values_ij X_j of each head; transpose: out_j = sum_i values_ij X_i; X None: ones, D = 1."""
        of, places = (A.transposed(), self.upload(A.transposed_places())) if transpose else (A, None)
        X = None if X_cKD is None else X_cKD.to(out_nKD.dtype).contiguous()
        values, K, F = values_EK.to(out_nKD.dtype).contiguous(), values_EK.shape[1], out_nKD.shape[1]
        lanes(K, F)  # a gradient of the values takes no more, either
        NV = packs(min(F, 4 * WARP))
        args = (values, places, X, out_nKD, np.int32(K), np.int32(F), np.int32(accumulate))
        _teams(self, "edges", "spmm_heads", of, [NAMES[out_nKD.dtype], NV], args, tiles=-(-F // (WARP * NV)))

    def maximum(self, A, X_cF, order_t, out_nF, arg_nF, offset: int = 0, accumulate=False, positive=False) -> None:
        """out_i = max_j X_j of each column and arg_i = offset + j, where it is."""
        ranks, F = None if order_t is None else self.upload(order_t), X_cF.shape[1]
        flags = np.int32(ACCUMULATE * accumulate + POSITIVE * positive)
        args = (X_cF.contiguous(), ranks, out_nF, arg_nF, np.int32(F), np.int64(offset), flags)
        _teams(self, "edges", "maximum", A, [NAMES[X_cF.dtype], place_of(arg_nF)], args, tiles=-(-F // WARP))

    def maximum_adjoint(self, A, G_nF, arg_nF, dX_cF, offset: int = 0, accumulate=False) -> None:
        """dX_j = sum of the G_i with arg_i = offset + j, of each column."""
        places = self.upload(A.places_in_rows) if arg_nF.dtype == torch.int16 else None
        F, tensors = dX_cF.shape[1], (G_nF.contiguous(), arg_nF, places, dX_cF)
        args = (*tensors, np.int32(F), np.int64(offset), np.int32(accumulate))
        words = [NAMES[dX_cF.dtype], place_of(arg_nF)]
        _teams(self, "edges", "maximum_adjoint", A.transposed(), words, args, tiles=-(-F // WARP))


def copied(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return a copy of an array on a device."""
    return torch.from_numpy(np.array(array)).to(device)


def of_bool(value: bool) -> str:
    """Return a C++ constant."""
    return "true" if value else "false"


def is_even(K: int) -> str:
    """Return whether each lane of a warp has columns of one head."""
    return of_bool(WARP % K == 0)


def packs(F: int) -> int:
    """Return the columns of a lane, a power of two."""
    return 1 << (max(-(-F // WARP), 1) - 1).bit_length()


def lanes(K: int, F: int) -> tuple[int, str]:
    """Return (columns of a lane, whether each lane has one head). Raises: ShapeError for too many of either."""
    if K > MOST_HEADS or F > MOST_COLUMNS:
        raise ShapeError(
            f"{K} heads of {F} columns together; kernels over edges on a device take up to {MOST_HEADS} heads and "
            f"{MOST_COLUMNS:,} columns: use --device cpu"
        )
    return packs(F), is_even(K)


def place_of(arg_nF: torch.Tensor) -> str:
    """Return the C++ type of the places of a maximum."""
    return "u16" if arg_nF.dtype == torch.int16 else "int"


def _attend(kernels, A, X, of_scores: tuple, sums: AttentionSums, slope, drop, flags: int) -> None:
    """Sums of v1 (left2 and a are None) or v2 (left and right are)."""
    X, K, F = X.contiguous(), sums.top_nK.shape[1], X.shape[1]
    dtype, is_v2 = sums.Z_nKD.dtype, of_scores[0] is not None
    args = (X, *of_scores, *sums.tensors(), sums.bias_KD, SCALARS[dtype](slope))
    args += (*_dropped(kernels, drop, dtype), np.int32(K), np.int32(F), np.int32(flags), np.int32(sums.act))
    NV, even = lanes(K, F)
    _teams(kernels, "attention", "attend", A, [NAMES[X.dtype], NV, of_bool(is_v2), even], args)


def _attend2_adjoint(kernels, A, columns: bool, tensors: tuple, slope, drop, accumulate) -> None:
    own, others, *_ = tensors
    dtype, F, K = tensors[5].dtype, own.shape[1], tensors[4].shape[1] // 3
    NV, even = lanes(K, F)
    args = (own, others.contiguous(), *tensors[2:], SCALARS[dtype](slope), *_dropped(kernels, drop, dtype))
    words = [NAMES[own.dtype], NV, of_bool(columns), even]
    _teams(kernels, "attention", "attend2_adjoint", A, words, (*args, np.int32(K), np.int32(F), np.int32(accumulate)))


def _row_softmax(kernels, A, values_EK, more_EK, of_row_nK, scale_nK, out_EK) -> None:
    args = (values_EK.contiguous(), more_EK, of_row_nK, scale_nK, out_EK, np.int32(out_EK.shape[1]))
    _teams(kernels, "edges", "row_softmax", A, [NAMES[out_EK.dtype]], args, has_columns=False)


def _outer_sums(kernels, X, d_cK, total) -> None:
    c, F = X.shape
    width, rows = row_block(F)
    step = chunk_rows(c, rows)
    partial = torch.empty(-(-c // step), F, dtype=torch.float64, device=kernels.device)
    args = (X, d_cK, partial, np.int64(c), np.int32(F), np.int32(d_cK.shape[1]), np.int32(step))
    grid = (len(partial), -(-F // width))
    launch(kernels, "attention", f"outer_sums<{NAMES[X.dtype]}>", grid, args, (width, rows))
    kernels._add_chunks(partial, total)


def _dropped(kernels, drop: EdgeDrop | None, dtype) -> tuple:
    """Return key, its address, ids, threshold and factor as the kernels take them."""
    if drop is None:
        return np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0), np.uint32(0), SCALARS[dtype](1)
    ids = map(kernels.upload, (drop.ids_n, drop.ids_c))
    return *key_and_place(drop.key), *ids, threshold(drop.rate), SCALARS[dtype](1 / (1 - drop.rate))


def _each_row(kernels, kernel: str, dtype, n: int, K: int, F: int, args: tuple) -> None:
    """Start a kernel with a warp for each row of a matrix."""
    NV, even = lanes(K, F)
    if n:
        name = f"{kernel}<{NAMES[dtype]}, {NV}, {even}>"
        launch(kernels, "attention", name, (-(-n // WARPS), 1), args)


def _teams(kernels, source: str, kernel: str, A, words, args: tuple, tiles: int = 1, has_columns: bool = True) -> None:
    """Start a kernel over the rows of A: a block for each long one, a warp for each of the others."""
    order_n, n_long = _row_order(kernels, A)
    matrix = [kernels.upload(A.indptr)] + ([kernels.upload(A.indices)] if has_columns else [])
    if A.indices.dtype != np.int32:
        raise ShapeError("a block of 2^31 columns or more; kernels over edges on a device take fewer: use more ranks")
    for rows, per_block, is_block in ((order_n[:n_long], 1, "true"), (order_n[n_long:], WARPS, "false")):
        if len(rows) and tiles:
            name = f"{kernel}<{', '.join(map(str, (*words, is_block)))}>"
            head = (rows, np.int64(len(rows)), *matrix)
            launch(kernels, source, name, (-(-len(rows) // per_block), tiles), head + args)


def launch(kernels, source: str, name: str, grid: tuple[int, int], args: tuple, block=(THREADS, 1)) -> None:
    """Start a kernel; tensors among args live until then, so that nothing else takes their memory before."""
    values = tuple(pointer(value) if value is None or torch.is_tensor(value) else value for value in args)
    kernels.launcher.launch(source, name, grid, block, values)


def _row_order(kernels, A) -> tuple[torch.Tensor, int]:
    """Return the rows of A on the device, long ones first, and how many are long; made once a matrix."""
    key = id(A.indptr)
    if key not in kernels._orders:
        lengths = np.diff(A.indptr)
        long = np.flatnonzero(lengths > LONG_ROW)
        long = long[np.argsort(-lengths[long], kind="stable")]
        order = np.concatenate([long, np.flatnonzero(lengths <= LONG_ROW)]).astype(np.int32)
        kernels._orders[key] = torch.from_numpy(order).to(kernels.device), len(long)
        weakref.finalize(A.indptr, kernels._orders.pop, key, None).atexit = False
    return kernels._orders[key]
