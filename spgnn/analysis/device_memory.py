"""Predict the memory that a training takes on the device of a rank, part by part, from sizes alone.

The operator lies there as items, indices and weights (spmm/kernels/cuda/work_items.py); the buffers of an epoch are those of
the CPU. Bytes throughout. Shapes: n own rows, g ghost rows, s sent rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .memory import (
    BEFORE_KEPT,
    GHOSTS,
    PRUNED,
    RankMemory,
    RankSizes,
    before_kept,
    ghost_features,
    keeps_both,
    step_features,
)

if TYPE_CHECKING:
    from ..spmm.dry import DryRun

CONTEXT_BYTES = 700e6  # of CUDA, cuBLAS and CuPy before any tensor; an assumption: not measured on a device yet
NCCL_BYTES = 400e6  # of its channels, likewise
MOST_PARTS = 1 << 16


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


FIXED = ("CUDA itself", "weights and optimiser")


def device_memory(
    sizes: RankSizes, run: DryRun, *, n_ranks: int, is_symmetric: bool = True, steps: Sequence[RankSizes] = ()
) -> RankMemory:
    """Return the predicted bytes of one rank on its device; arguments as of rank_memory."""
    from ..spmm.kernels.cuda.work_items import ITEM

    s, itemsize, item = sizes, run.setting.dtype.itemsize, ITEM.itemsize
    nonzero = 4 + max(itemsize, 4)
    if s.x_nnz is None:
        features = s.n * run.setting.features * itemsize * (2 if keeps_both(run) else 1)
    else:
        features = 2 * (s.x_nnz if s.kept_nnz is None else s.kept_nnz) * nonzero + 2 * item * s.n
    parts = {
        "CUDA itself": CONTEXT_BYTES + (NCCL_BYTES if n_ranks > 1 else 0),
        "operator": _operator(s, run, 1 if is_symmetric else 2, nonzero),
        **(
            {PRUNED: sum(_operator(of, run, 2, nonzero) for of in steps) + step_features(s, run, nonzero)}
            if steps
            else {}
        ),
        "features": features,
        **({GHOSTS: ghosts} if (ghosts := ghost_features(s, run, nonzero)) else {}),
        "activations and exchange buffers": run.buffer_bytes,
        BEFORE_KEPT: before_kept(s, run, run.buffer_bytes) if s.x_nnz is None else 0,
        "weights and optimiser": 6 * run.n_weights * max(itemsize, 4),
        "labels and masks": 20 * s.n,
    }
    return RankMemory({name: int(size) for name, size in parts.items()})


def _operator(sizes: RankSizes, run: DryRun, copies: int, nonzero: int) -> int:
    """Return the bytes of the blocks of an operator, with the transposes that backward multiplies with."""
    from ..spmm.kernels.cuda.work_items import ITEM, LONG

    s, item = sizes, ITEM.itemsize
    widest = max((product.width for product in run.products if not product.is_cached), default=0)
    own = copies * (s.own_nnz * nonzero + item * s.n)
    # Ghost block and sent rows, each with its transpose; rows that are sent as they are need an index alone.
    others = 2 * (s.ghost_nnz + s.sender_nnz) * nonzero + item * (2 * s.n + s.g) + (item + 12) * s.s
    long = (s.own_nnz + s.ghost_nnz) // LONG * widest * max(run.setting.dtype.itemsize, 4)  # sums of its items
    return own + others + long


def beside_device(memory: RankMemory) -> RankMemory:
    """Return the memory of the host of a rank whose products are made on a device: no activations, no tiles, one X."""
    return replace(memory, parts=memory.parts | {"activations and exchange buffers": 0, "tiles": 0, BEFORE_KEPT: 0})
