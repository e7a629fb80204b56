"""What a training will need and take on a machine: memory of every rank, bytes, seconds, before it runs.

Shapes: P = k c ranks. Imports no communicator, and torch for `plan_line` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..cost.machines import Machine
from ..cost.seconds import EpochTime, epoch_seconds
from ..partition import Partition
from .device_memory import DeviceNeed, beside_device
from .planned_graph import PlannedGraph
from .rank_memory import LEFT, PROCESS, WEIGHTS, RankMemory, largest_rank
from .ranks import PlannedRanks
from .volume_report import VolumeReport
from .volumes import measure

if TYPE_CHECKING:
    from .epoch import FixedModel

MOST_RANKS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is trained, and the options that bytes, memory or seconds depend on."""

    layers: FixedModel
    itemsize: int = 4
    wire: str = "float32"
    wire_gradients: str = "float32"
    order: str = "auto"
    keep: bool = True
    prune: bool = False
    overlap: bool = True

    def measured(self, planned: PlannedGraph, part: Partition, scheme: str, c: int) -> VolumeReport:
        """Return what an epoch sends."""
        options = {name: getattr(self, name) for name in ("order", "keep", "wire", "wire_gradients")}
        options |= {"sparse_input": True, "keep_sparse": planned.keeps_sparse} if planned.has_sparse_input else {}
        options |= {"train_N": planned.train_N} if self.prune else {}
        return measure(planned.graph, part, scheme, replication=c, itemsize=self.itemsize, model=self.layers, **options)


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One way to run: what it sends, needs and takes."""

    ranks: int
    hosts: int
    report: VolumeReport
    epoch: EpochTime
    evaluation_s: float
    memory: RankMemory  # of the rank that needs most
    rank: int  # which one
    host_bytes: int  # of the ranks of the host that needs most, together
    available_bytes: int  # of a host
    device: DeviceNeed | None = None  # of --device cuda

    @property
    def fits(self) -> bool:
        return self.host_bytes <= self.available_bytes and (self.device is None or self.device.fits)

    def to_dict(self) -> dict:
        """Return the JSON object of `spgnn plan`."""
        r = self.report
        return {
            "ranks": self.ranks, "hosts": self.hosts, "method": r.method, "scheme": r.scheme, "replication": r.replication,
            "bytes_per_epoch": r.bytes_per_epoch, "total_rows": r.total_rows, "work_imbalance": r.work_imbalance,
            "epoch_s": self.epoch.epoch_s, "evaluation_s": self.evaluation_s,
            "epoch_parts_s": {name: s for name, s in self.epoch.to_dict().items() if name != "epoch_s"},
            "memory_mb": self.memory.peak / 1e6, "memory_rank": self.rank, "memory_largest": self.memory.largest,
            "memory_parts_mb": {name: b / 1e6 for name, b in self.memory.parts.items()} | {"loading": self.memory.loading / 1e6},
            "host_mb": self.host_bytes / 1e6, "available_mb": self.available_bytes / 1e6, "fits": self.fits,
        } | ({} if self.device is None else {
            "device_mb": self.device.memory.training / 1e6, "device_available_mb": self.device.available_bytes / 1e6,
            "device_parts_mb": {name: b / 1e6 for name, b in self.device.memory.parts.items()},
        })  # fmt: skip


def plan_line(
    planned: PlannedGraph,
    part: Partition,
    scheme: str,
    c: int,
    model: Choice,
    machine: Machine,
    from_parts: bool = False,
    device_bytes: float = 0,
) -> PlanLine:
    """Predict a training on the parts of a partition, each held by c ranks.

    Args:   from_parts    each rank reads its own folder (--partition), no rank the whole graph.
            device_bytes  memory of the device that each rank has; 0: there are none.
    Raises: UsageError for a scheme, c or order that does not fit.
    """
    report, size = model.measured(planned, part, scheme, c), part.k * c
    ranks = PlannedRanks(planned, part, report)
    layers, evaluation = ranks.layers("forward", "backward"), ranks.layers("evaluate")
    memories = [ranks.memory(r, machine, is_root=r == 0 and not from_parts) for r in range(size)]
    device = None
    if device_bytes:
        memories = [beside_device(memory) for memory in memories]
        needs = [ranks.device_memory(r) for r in range(size)]
        most = int(np.argmax([need.training for need in needs]))
        device = DeviceNeed(needs[most], most, int(device_bytes))
    rank, largest = largest_rank(memories)
    peaks_H = np.bincount(machine.host_of(np.arange(size)), weights=[m.peak for m in memories])
    time = lambda layers, training: epoch_seconds(
        machine, layers, itemsize=model.itemsize, overlap=model.overlap, training=training
    )
    return PlanLine(
        size,
        machine.hosts(size),
        report,
        time(layers, True),
        time(evaluation, False).epoch_s,
        largest,
        rank,
        int(peaks_H.max()),
        int(machine.memory_bytes),
        device,
    )


def ranks_that_fit(line: PlanLine, machine: Machine) -> int | None:
    """Return the least number of ranks, of twice as many each, at which a host has the memory; None: no number does.

    What depends on the rows of a rank is taken to halve with each step; the process and the graph that rank 0
    reads do not.
    """
    parts = line.memory.parts
    whole = parts[PROCESS] + parts[WEIGHTS] + parts.get(LEFT, 0)
    ranks, rows = line.ranks, line.memory.training - whole
    while ranks <= MOST_RANKS:
        a_rank = whole + rows * line.ranks / ranks
        root = max(a_rank, line.memory.loading)
        if root + (min(ranks, machine.ranks_per_host) - 1) * a_rank <= line.available_bytes:
            return ranks
        ranks *= 2
    return None


def fastest(lines: Sequence[PlanLine]) -> PlanLine | None:
    """Return the line of those that fit with the least epoch time, of equal ones the first."""
    return min((line for line in lines if line.fits), key=lambda line: line.epoch.epoch_s, default=None)
