"""A training planned from sizes alone, before there is a graph: in memory and out of core, on some numbers of ranks.

Rows and nonzeros are shared equally among ranks and parts; rows are sent as by `columns`, the most of all schemes.
Shapes: N nodes, d nonzeros of a row, k parts, P ranks, n own nodes of a part, g of its halo.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from ..analysis.epoch import without_values
from ..analysis.plan import PlannedRanks
from ..analysis.training_memory import partition_bytes, rank_memory
from ..analysis.volume_report import LayerCounts
from ..config import PlanConfig, TrainConfig
from ..config.groups import ModelConfig, PrecisionConfig
from ..config.names import ITEMSIZE
from ..cost.machines import Machine
from ..cost.memory import POINTER, nonzero_bytes
from ..cost.pairs import WHOLE, Counts, ProcessGrid
from ..cost.seconds import epoch_seconds
from ..errors import UsageError, nearest
from ..layers.registry import ModelSpec
from ..partition.checks import MAX_PARTS
from ..spmm.dry.dry_operator import Setting
from .beyond_memory import PartNeeds
from .memory_check import GraphSizes

NAME = "sizes"
UNITS = {"k": 1e3, "m": 1e6, "g": 1e9}
COPIES = 8  # passes over memory that a row of a file costs, seen: from and to the pages of the system, and to its place
EPOCHS = 100  # that hours are of
OF_MODEL = tuple(f.name for group in (ModelConfig, PrecisionConfig) for f in fields(group))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a plan needs to know of a graph.

    nodes, edges  as they are stored; features, classes: of each node.
    labelled      share of the nodes that are trained on; less than 1: steps leave out the rows that none of these reads.
    halo          rows of a part with its halo over its own, whatever the number of parts; 0: as of random parts, the most.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    labelled: float = 1.0
    halo: float = 0.0

    @classmethod
    def read(cls, spec: str) -> Sizes:
        """Return the sizes of `sizes:nodes=111M,edges=1.6G,features=128,classes=172`; K, M and G are 10^3, 10^6 and 10^9.

        Raises: UsageError for a name that is not known, one that is missing, and a value that is no size.
        """
        known, values = {f.name: f.type for f in fields(cls)}, {}
        for item in filter(None, spec.partition(":")[2].split(",")):
            key, _, text = (part.strip() for part in item.partition("="))
            if key not in known:
                raise UsageError(f"{spec}: unknown size {key!r}{nearest(key, known)}")
            unit = UNITS.get(text[-1:].lower(), 1)
            try:
                value = float(text[: len(text) - (unit != 1)]) * unit
            except ValueError:
                value = -1.0
            is_share, least = known[key] == "float", {"labelled": 0.0, "halo": 1.0}.get(key, 1.0)
            if not least <= value <= (1.0 if key == "labelled" else 1e15) or not (is_share or value == int(value)):
                what = (
                    "a share, 0 to 1"
                    if key == "labelled"
                    else f"{'a number' if is_share else 'an integer'} of 1 or more"
                )
                raise UsageError(f"{spec}: {key} = {text!r}; expected {what}, such as 1.6G")
            values[key] = value if is_share else int(value)
        if missing := [name for name in ("nodes", "edges", "features", "classes") if name not in values]:
            raise UsageError(
                f"{spec}: {', '.join(missing)} missing; expected {NAME}:nodes=111M,edges=1.6G,features=128,classes=172"
            )
        return cls(**values)

    def halo_of(self, k: int, nnz: int) -> float:
        """Return (n + g) / n of k parts. Of random ones 1 + (k - 1) (1 - (1 - 1/k)^d), the most for rows of d nonzeros."""
        most = 1 + (k - 1) * (1 - (1 - 1 / k) ** (nnz / self.nodes))
        return min(self.halo, most) if self.halo else most


@dataclass(frozen=True, slots=True)
class SizedPlan:
    """One way to train, and what it takes. Bytes: memory for each rank, sent by all ranks together, read from files."""

    mode: str
    ranks: int
    hosts: int
    parts: int
    memory: int
    available: int
    sent: int
    disk: int
    read: int
    epoch_s: float

    @property
    def fits(self) -> bool:
        return self.memory <= self.available

    @property
    def hours(self) -> float:
        """Of EPOCHS epochs."""
        return EPOCHS * self.epoch_s / 3600

    def to_dict(self) -> dict:
        """Return the JSON object of `spgnn plan sizes:...`."""
        return {
            "mode": self.mode, "ranks": self.ranks, "hosts": self.hosts, "parts": self.parts,
            "memory_mb": self.memory / 1e6, "available_mb": self.available / 1e6, "fits": self.fits,
            "bytes_per_epoch": self.sent, "disk_bytes": self.disk, "disk_read_bytes": self.read,
            "epoch_s": self.epoch_s, "hours_100_epochs": self.hours,
        }  # fmt: skip


class PlannedSizes:
    """A training on a graph of some sizes, with the options of a plan.

    Args: machine  whose memory ranks may take; host_bytes: all memory of a host, for files too.
    nnz     of A: both ways unless --edges says otherwise. config: of the training, out of core.
    Raises: UsageError for a model that needs more of a graph than its sizes.
    """

    def __init__(self, spec: str, options: PlanConfig, machine: Machine, host_bytes: float):
        self.sizes, self.machine, self.options, self.host_bytes = Sizes.read(spec), machine, options, host_bytes
        for name in ("partition", "features", "labels"):
            if value := getattr(options, name):
                raise UsageError(f"--{name} {value}: {NAME}: has no files; omit it")
        if options.on != "nodes":
            raise UsageError(f"{NAME}: is of graphs whose nodes have labels; omit --on and --task")
        self.config = TrainConfig(**{name: getattr(options, name) for name in OF_MODEL}, mode="out-of-core")
        sizes = self.sizes
        self.nnz = sizes.edges * (1 if options.edges in ("in", "out") else 2)
        self.model = without_values(ModelSpec.of(self.config, sizes.features, sizes.classes).build)
        self.is_symmetric = self.nnz != sizes.edges

    def plans(self, P: int) -> Iterator[SizedPlan]:
        """Yield the training in memory on P ranks; where it does not fit, one out of core in the fewest parts that do."""
        machine = self.machine.with_ranks(P)
        available = int(machine.memory_bytes / machine.ranks_per_host)
        place = {"ranks": P, "hosts": self.machine.hosts(P), "available": available}
        in_memory = self._in_memory(machine, place)
        yield in_memory
        if not in_memory.fits:
            yield from self._out_of_core(machine, place)

    def _in_memory(self, machine: Machine, place: dict[str, int]) -> SizedPlan:
        P = place["ranks"]
        ranks, pairs = self._even(P)
        memory = rank_memory(
            ranks.on(0), n_ranks=P, n_nodes=self.sizes.nodes, process_bytes=machine.process_bytes,
            is_symmetric=self.is_symmetric,
        )  # fmt: skip
        made = ranks.run.passes("forward", "backward").exchanges
        sent = sum(of.to_dict()["bytes"] for product in made for of in pairs.exchanges(product))
        seconds = epoch_seconds(
            machine, ranks.layers("forward", "backward"), itemsize=pairs.itemsize, overlap=self.options.overlap
        )
        return SizedPlan(
            "full", parts=P, memory=memory.training, sent=sent, disk=0, read=0, epoch_s=seconds.epoch_s, **place
        )

    def _out_of_core(self, machine: Machine, place: dict[str, int]) -> Iterator[SizedPlan]:
        sizes, P = self.sizes, place["ranks"]
        try:
            of = GraphSizes(
                sizes.nodes, self.nnz, sizes.features, sizes.classes, "classes", is_symmetric=self.is_symmetric
            )
            needs = PartNeeds(of, self.config)
        except UsageError:
            return
        memory = lambda k: needs.fixed + needs.of_share(k, sizes.halo_of(k, self.nnz))
        k = P * (
            1 + bisect_left(range(1, MAX_PARTS // P), True, key=lambda steps: memory(steps * P) <= place["available"])
        )
        if memory(k) > place["available"]:
            return
        counts = sizes.nodes, int((sizes.halo_of(k, self.nnz) - 1) * sizes.nodes), self.nnz
        disk, read, written = needs.needs.disk(*counts), needs.needs.reads(*counts), needs.needs.writes(*counts[:2])
        work, _ = self._even(1, k)
        once = [work.layers("forward", "backward"), work.layers("forward")]  # layers are computed again
        computed = sum(epoch_seconds(machine, of, itemsize=ITEMSIZE[self.config.dtype]).epoch_s for of in once)
        seconds, moved = COPIES * (read + written) / (machine.stream * P), (read + written) / place["hosts"]
        if place["hosts"] > 1:  # files that all hosts see
            seconds = max(seconds, moved / min(machine.card_bandwidth, machine.disk))
        elif disk > self.host_bytes - machine.ranks_per_host * memory(k):
            seconds = max(seconds, moved / machine.disk)
        yield SizedPlan(
            "out-of-core", parts=k, memory=memory(k), sent=0, disk=disk, read=read,
            epoch_s=computed * k / P + seconds, **place,
        )  # fmt: skip

    def _even(self, P: int, share: int = 1) -> tuple[PlannedRanks, LayerCounts]:
        """Return P equal ranks, each with an equal part; share: P = 1 of so many parts alone, with all its nonzeros."""
        itemsize, sizes = ITEMSIZE[self.config.dtype], self.sizes
        setting = Setting(
            features=sizes.features, dtype=getattr(torch, self.config.dtype), order=self.options.order,
            is_cached=self.options.keep, has_ghosts=self.options.keep, is_exchanged=P > 1,
            wires=(self.options.wire, self.options.wire_gradients),
        )  # fmt: skip
        hops = self.model.hops(setting)[0] if sizes.labelled < 1 and share == 1 else ()
        run = self.model.run(setting, bool(hops))
        shares = self._reached(hops)
        no_graph: Any = None  # whose counts are all made here
        masks: Any = shares
        pairs = LayerCounts(no_graph, no_graph, "columns", ProcessGrid(P), itemsize, setting.wires, masks, hops)
        n, nnz = sizes.nodes // (P * share), self.nnz // (P * share)
        pairs._made[("columns", 0)] = self._counts(P, n, nnz, 1.0, 1.0)
        for number, (read, made) in enumerate(zip(shares, shares[1:]), start=1):
            pairs._made[("columns", number)] = self._counts(P, n, nnz if hops[number - 1] else 0, read, made)
        counts = {"n": n * P, "g": 0, "edges": nnz * P}
        for number, of in enumerate(shares):
            counts |= {f"T{number}": int(of * n * P), f"g{number}": 0, f"edges{number}": int(of * nnz * P)}
        report: Any = SimpleNamespace(run=run.on(counts), pairs=pairs, replication=1)
        part: Any = SimpleNamespace(sizes_k=np.full(P, n), k=P, owner_N=range(n * P))
        return PlannedRanks(cast(Any, SimpleNamespace(has_sparse_input=False)), part, report), pairs

    def _counts(self, P: int, n: int, nnz: int, read: float, made: float) -> Counts:
        """Return a product of equal ranks whose shares of rows are read and made: g rows and their nonzeros from others."""
        halo, most = self.sizes.halo_of(P, self.nnz), replace(self.sizes, halo=0.0).halo_of(P, self.nnz)
        cut = (1 - 1 / P) * (halo - 1) / max(most - 1, 1e-9)  # of the nonzeros
        others = max(P - 1, 1)
        rows_PP = np.full((P, P), int((halo - 1) * n * read / others) if nnz else 0, np.int64)
        nnz_PP = np.full((P, P), int(nnz * made * cut / others), np.int64)
        np.fill_diagonal(rows_PP, 0)
        np.fill_diagonal(nnz_PP, int(nnz * made * (1 - cut)))
        return Counts(
            rows_PP, nnz_PP, np.zeros_like(nnz_PP), np.full(P, int(n * made)), np.full(P, int(n * read)), ProcessGrid(P)
        )

    def _reached(self, hops: Sequence[int]) -> tuple[float, ...]:
        """Return the shares of rows that the layers of a step read and make, T_0 ... T_L: 1 - (1 - T)^(1 + d) before a hop.

        The most, as of random labels; a layer that takes WHOLE of the rows takes all, and those before it.
        """
        if not hops:
            return ()
        shares = [self.sizes.labelled]
        for of_layer in reversed(hops):
            T = shares[0]
            reached = 1 - (1 - T) ** (1 + self.nnz / self.sizes.nodes) if of_layer else T
            shares.insert(0, 1.0 if reached >= WHOLE else reached)
        return tuple(shares)

    def launch(self, plan: SizedPlan) -> list[str]:
        """Return the commands that cut a graph for a plan, and train on the parts."""
        by_metis = partition_bytes(self.nnz, "metis") + self.nnz * nonzero_bytes(4) + POINTER * self.sizes.nodes
        memory = f"{self.machine.memory_bytes / 1e9:g}GB"
        how = "--method metis" if by_metis <= self.machine.memory_bytes else f"--method spring --memory {memory}"
        words = []
        for name in OF_MODEL:
            value = getattr(self.config, name)
            if value != getattr(TrainConfig, name):
                flag = name.replace("_", "-")
                words.append(f"--{flag if value else f'no-{flag}'}" if isinstance(value, bool) else f"--{flag} {value}")
        words += [f"--mode {plan.mode}"] if plan.mode != "full" else []
        start = f"srun -N {plan.hosts} -n {plan.ranks} " if plan.hosts > 1 else f"mpirun -n {plan.ranks} "
        start = "" if plan.ranks == 1 else start
        return [
            f"spgnn partition EDGES -k {plan.parts} {how} --features X.npy --labels y.npy --out parts",
            f"{start}spgnn train parts {' '.join(words)}".rstrip(),
        ]
