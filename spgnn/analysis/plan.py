"""What a training will need and take on a machine: memory of every rank, bytes, seconds, before it runs.

Shapes: P = k c ranks. Imports no communicator, and torch for `plan_line` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..cost.machines import Machine
from ..cost.pairs import grid_of
from ..cost.seconds import EpochTime, epoch_seconds
from ..partition import Partition
from .planned_graph import PlannedGraph
from .ranks import PlannedRanks
from .training_memory import RankMemory, device_memory, rank_memory
from .volume_report import VolumeReport
from .volumes import measure

if TYPE_CHECKING:
    from .epoch import FixedModel


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

    def measured(
        self, planned: PlannedGraph, part: Partition, scheme: str, c: int, ranks_per_host: int = 0
    ) -> VolumeReport:
        """Return what an epoch sends."""
        options = {name: getattr(self, name) for name in ("order", "keep", "wire", "wire_gradients")}
        options |= {"sparse_input": True, "keep_sparse": planned.keeps_sparse} if planned.has_sparse_input else {}
        options |= {"train_N": planned.train_N} if self.prune else {}
        grid = grid_of(part.k, c, ranks_per_host)
        return measure(planned.graph, part, scheme, (), grid, self.itemsize, model=self.layers, **options)


@dataclass(frozen=True, slots=True)
class Prediction:
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
    device: RankMemory | None = None  # of the rank that needs most of its device, with --device cuda
    device_rank: int = 0
    device_bytes: int = 0  # of a device

    @property
    def fits(self) -> bool:
        return self.host_bytes <= self.available_bytes and self.fits_device

    @property
    def fits_device(self) -> bool:
        return self.device is None or self.device.training <= self.device_bytes

    def to_dict(self) -> dict:
        """Return the JSON object of `spgnn plan`."""
        r = self.report
        return {
            "ranks": self.ranks, "hosts": self.hosts, "method": r.method, "scheme": r.scheme, "replication": r.replication,
            "bytes_per_epoch": r.bytes_per_epoch, "total_rows": r.total_rows, "work_imbalance": r.work_imbalance,
            "epoch_s": self.epoch.epoch_s, "evaluation_s": self.evaluation_s,
            "epoch_parts_s": {name: s for name, s in asdict(self.epoch).items() if name != "epoch_s"},
            "memory_mb": self.memory.peak / 1e6, "memory_rank": self.rank, "memory_largest": self.memory.largest,
            "memory_parts_mb": {name: b / 1e6 for name, b in self.memory.parts.items()} | {"loading": self.memory.loading / 1e6},
            "host_mb": self.host_bytes / 1e6, "available_mb": self.available_bytes / 1e6, "fits": self.fits,
        } | r.tiers | ({} if self.device is None else {
            "device_mb": self.device.training / 1e6, "device_available_mb": self.device_bytes / 1e6,
            "device_parts_mb": {name: b / 1e6 for name, b in self.device.parts.items()},
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
) -> Prediction:
    """Predict a training on the parts of a partition, each held by c ranks.

    Args:   from_parts    each rank reads its own folder (--partition), no rank the whole graph.
            device_bytes  memory of the device that each rank has; 0: there are none.
    Raises: UsageError for a scheme, c or order that does not fit.
    """
    report, size = model.measured(planned, part, scheme, c, machine.ranks_per_host), part.k * c
    ranks = PlannedRanks(planned, part, report)
    runs = [ranks.on(rank) for rank in range(size)]
    of = {"n_ranks": size, "is_symmetric": planned.is_symmetric}
    host = of | {"n_nodes": report.n, "process_bytes": machine.process_bytes, "method": report.method}
    roots = [None if from_parts or rank else planned.read for rank in range(size)]
    memories = [rank_memory(run, root=root, **host) for run, root in zip(runs, roots)]
    device, device_rank = None, 0
    if device_bytes:
        memories = [memory.beside_device() for memory in memories]
        needs = [device_memory(run, **of) for run in runs]
        device_rank = int(np.argmax([need.training for need in needs]))
        device = needs[device_rank]
    peaks = [memory.peak for memory in memories]
    rank, hosts = int(np.argmax(peaks)), machine.host_of(np.arange(size))
    seconds = partial(epoch_seconds, machine, itemsize=model.itemsize, overlap=model.overlap)
    return Prediction(
        ranks=size, hosts=machine.hosts(size), report=report, epoch=seconds(ranks.layers("forward", "backward")),
        evaluation_s=seconds(ranks.layers("evaluate"), training=False).epoch_s, memory=memories[rank], rank=rank,
        host_bytes=int(np.bincount(hosts, weights=peaks).max()), available_bytes=int(machine.memory_bytes),
        device=device, device_rank=device_rank, device_bytes=int(device_bytes),
    )  # fmt: skip


def ranks_that_fit(line: Prediction, machine: Machine) -> int | None:
    """Return the least number of ranks, of twice as many each, at which a host has the memory; None: no number does."""

    def fits(ranks: int, a_rank: float) -> bool:
        others = min(ranks, machine.ranks_per_host) - 1
        return max(a_rank, line.memory.loading) + others * a_rank <= line.available_bytes

    return line.memory.ranks_that_fit(line.ranks, fits)


def fastest(lines: Sequence[Prediction]) -> Prediction | None:
    """Return the line of those that fit with the least epoch time, of equal ones the first."""
    return min((line for line in lines if line.fits), key=lambda line: line.epoch.epoch_s, default=None)
