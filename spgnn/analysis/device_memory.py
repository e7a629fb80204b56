"""Predict the memory that a training takes on the device of a rank, part by part, from sizes alone.

The operator is stored as items, indices and weights (spmm/kernels/cuda/work_items.py); buffers are as large as on the
CPU. Bytes throughout. Shapes: n own rows, g ghost rows, s sent rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..cost.memory import CUDA_BYTES, NCCL_BYTES, nonzero_bytes, sum_bytes
from .rank_memory import (
    BEFORE_KEPT,
    BUFFERS,
    GHOSTS,
    PRUNED,
    TILES,
    WEIGHTS,
    RankMemory,
    before_kept,
    dense_features,
    ghost_features,
    own_steps,
    rows_out,
    step_features,
)

if TYPE_CHECKING:
    from ..spmm.dry import DryRun

MOST_PARTS = 1 << 16
CUDA = "CUDA itself"
FIXED = (CUDA, WEIGHTS)


@dataclass(frozen=True, slots=True)
class DeviceNeed:
    """What the rank that needs most takes of its device, and what a rank may have of one."""

    memory: RankMemory
    rank: int
    available_bytes: int

    @property
    def fits(self) -> bool:
        return self.memory.training <= self.available_bytes

    def parts_that_fit(self, parts: int) -> int | None:
        """Return the least number of parts, of twice as many each, whose rank fits; None: no number does.

        What depends on the rows of a rank is taken to halve with each step.
        """
        whole = sum(self.memory.parts[name] for name in FIXED)
        rows, k = self.memory.training - whole, parts
        while k <= MOST_PARTS:
            if whole + rows * parts / k <= self.available_bytes:
                return k
            k *= 2
        return None

    def arithmetic(self) -> str:
        """Return 1.2 GB operator + ... = 3 GB, the largest first."""
        largest_first = sorted(self.memory.parts.items(), key=lambda part: -part[1])
        sums = " + ".join(
            f"{size / 1e9:.3g} GB {name}" for name, size in largest_first if size >= 0.005 * self.memory.training
        )
        return f"{sums} = {self.memory.training / 1e9:.3g} GB"


def device_memory(run: DryRun, *, n_ranks: int, is_symmetric: bool = True) -> RankMemory:
    """Return the predicted bytes of one rank on its device; arguments as of rank_memory."""
    from ..spmm.kernels.cuda.work_items import ITEM

    counts, itemsize = run.setting.counts, run.setting.dtype.itemsize
    n, left = counts["n"], counts.get("kept_nnz", counts.get("x_nnz", 0))
    sparse = 2 * left * nonzero_bytes(itemsize) + 2 * ITEM.itemsize * n
    parts = {CUDA: CUDA_BYTES + (NCCL_BYTES if n_ranks > 1 else 0)}
    parts["operator"] = _operator(run, 1 if is_symmetric else 2)
    if own_steps(run):
        parts[PRUNED] = sum(_operator(run, 2, number) for number in own_steps(run)) + step_features(run)
    parts["features"] = sparse if run.setting.is_sparse else dense_features(run)
    if ghosts := ghost_features(run):
        parts[GHOSTS] = ghosts
    parts[BUFFERS] = run.buffer_bytes
    parts[BEFORE_KEPT] = 0 if run.setting.is_sparse else before_kept(run, parts[BUFFERS])
    parts[WEIGHTS] = 6 * run.n_weights * sum_bytes(itemsize)
    parts["labels and masks"] = 20 * n
    return RankMemory({name: int(size) for name, size in parts.items()})


def _operator(run: DryRun, copies: int, step: str = "") -> int:
    """Return the bytes of the blocks of an operator, with the transposes that backward multiplies with."""
    from ..spmm.kernels.cuda.work_items import ITEM, LONG

    counts, item, itemsize = run.setting.counts, ITEM.itemsize, run.setting.dtype.itemsize
    n, nonzero = rows_out(counts, step), nonzero_bytes(itemsize)
    own_nnz, ghost_nnz, sender_nnz, g, s = (counts[x + step] for x in ("own_nnz", "ghost_nnz", "sender_nnz", "g", "s"))
    widest = max((product.width for product in run.products if not product.is_cached), default=0)
    own = copies * (own_nnz * nonzero + item * n)
    # Ghost block and sent rows, each with its transpose; unchanged rows need an index alone.
    others = 2 * (ghost_nnz + sender_nnz) * nonzero + item * (2 * n + g) + (item + 12) * s
    long = (own_nnz + ghost_nnz) // LONG * widest * sum_bytes(itemsize)  # sums of its items
    return own + others + long


def beside_device(memory: RankMemory) -> RankMemory:
    """Return the memory of the host of a rank whose products are made on a device: no activations, no tiles, one X."""
    return replace(memory, parts=memory.parts | {BUFFERS: 0, TILES: 0, BEFORE_KEPT: 0})
