"""What a training will need and take on a machine: memory of every rank, bytes, seconds, before it runs.

Shapes: P = k c ranks, n own rows. Imports no communicator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from ..config import EMBEDDING
from ..cost.machines import Machine
from ..cost.seconds import EDGE_PRICES, Dense, EpochTime, HostMemory, LayerWork, RankProduct, edge_price, epoch_seconds
from ..partition import Partition
from .planned import PlannedGraph, PlannedTraining
from .training_memory import OF_ANY_RANK, RankMemory, rank_memory
from .volume_report import VolumeReport

if TYPE_CHECKING:
    from ..spmm.dry.dry import DryRun
    from ..spmm.dry.recording import Product

MOST_RANKS = 1 << 16


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

    @property
    def fits(self) -> bool:
        return self.host_bytes <= self.available_bytes

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
        } | r.tiers  # fmt: skip


def predict(
    training: PlannedTraining,
    part: Partition,
    scheme: str,
    c: int,
    machine: Machine,
    from_parts: bool = False,
) -> Prediction:
    """Predict a training on the parts of a partition, each held by c ranks, with the rows that it prunes.

    Args:   from_parts  each rank reads its own folder (--partition), no rank the whole graph.
    Raises: UsageError for a scheme, c or order that does not fit.
    """
    of = lambda is_pruned: _predict(
        training, part, training.report(part, scheme, c, machine.ranks_per_host, is_pruned), machine, from_parts
    )  # fmt: skip
    is_pruned = training.is_pruned(part, c)
    line = of(is_pruned)
    if is_pruned and training.config.prune == "auto":
        whole = of(False)
        return line if HostMemory(line.host_bytes, whole.host_bytes, machine.memory_bytes).fits else whole
    return line


def _predict(
    training: PlannedTraining,
    part: Partition,
    report: VolumeReport,
    machine: Machine,
    from_parts: bool,
) -> Prediction:
    """Return memory, bytes and seconds of what a report has."""
    planned, size = training.planned, part.k * report.replication
    ranks = PlannedRanks(planned, part, report)
    runs = [ranks.on(rank) for rank in range(size)]
    memories = [
        rank_memory(
            run, n_ranks=size, n_nodes=report.n, process_bytes=machine.process_bytes, is_symmetric=planned.is_symmetric,
            root=None if from_parts or rank else planned.read, method=report.method,
        )
        for rank, run in enumerate(runs)
    ]  # fmt: skip
    links = training.links
    if links is not None:
        of_links = links.memory(part.owner_N, size, training.config.features == EMBEDDING)
        memories = [replace(memory, parts=memory.parts | more) for memory, more in zip(memories, of_links)]
    peaks = [memory.peak for memory in memories]
    rank, hosts = int(np.argmax(peaks)), machine.host_of(np.arange(size))
    overlap = getattr(training.config, "overlap", True)
    seconds = partial(epoch_seconds, machine, itemsize=training.itemsize, overlap=overlap)
    return Prediction(
        ranks=size, hosts=machine.hosts(size), report=report,
        epoch=seconds(ranks.layers("forward", "backward") * (1 if links is None else links.n_updates)),
        evaluation_s=seconds(ranks.layers("evaluate"), training=False).epoch_s, memory=memories[rank], rank=rank,
        host_bytes=int(np.bincount(hosts, weights=peaks).max()), available_bytes=int(machine.memory_bytes),
    )  # fmt: skip


def ranks_that_fit(line: Prediction, machine: Machine) -> int | None:
    """Return the least number of ranks, of twice as many each, at which a host has the memory; None: no number does.

    What depends on the rows of a rank is taken to halve with each step; the process, weights and the graph that rank 0
    reads do not.
    """
    memory, ranks = line.memory, line.ranks
    whole = sum(memory.parts.get(name, 0) for name in OF_ANY_RANK)
    while ranks <= MOST_RANKS:
        a_rank = whole + (memory.training - whole) * line.ranks / ranks
        others = min(ranks, machine.ranks_per_host) - 1
        if max(a_rank, memory.loading) + others * a_rank <= line.available_bytes:
            return ranks
        ranks *= 2
    return None


def fastest(lines: Sequence[Prediction]) -> Prediction | None:
    """Return the line of those that fit with the least epoch time, of equal ones the first."""
    return min((line for line in lines if line.fits), key=lambda line: line.epoch.epoch_s, default=None)


class PlannedRanks:
    """The ranks of a training on the parts of a partition, from the report of what an epoch sends.

    nonzeros, steps  counts of one product with all rows and of those of a pruned step, with the self-loops of gcn.
    """

    def __init__(self, planned: PlannedGraph, part: Partition, report: VolumeReport):
        assert report.run is not None  # there is a model
        self.planned, self.part, self.run, self.pairs = planned, part, report.run, report.pairs
        self.n_P = np.repeat(part.sizes_k, report.replication)
        self.nonzeros = self.pairs.counts().with_loops(part.sizes_k)
        self.steps = [step.with_loops(step.out_k) for step in self.pairs.steps]

    def layers(self, *passes: str) -> list[LayerWork]:
        """Return what each layer multiplies and sends: passes forward and backward, or evaluate."""
        made = self.run.passes(*passes).made
        numbers = sorted({of.layer or 0 for of in made if of.is_of_A or of.kind == "weights"})
        works = [self._layer(number, [of for of in made if (of.layer or 0) == number]) for number in numbers]
        works[-1] = replace(works[-1], n_weights=self.run.n_weights)
        return works

    def _layer(self, number: int, made: Sequence[Product]) -> LayerWork:
        """Return a layer's work; with row pruning its nonzeros are taken in the share of its rows."""
        is_pruned = bool(self.steps) and all(done.pass_name != "evaluate" for done in made)
        share = int(self.pairs.counts(number).out_k.sum()) / max(len(self.part.owner_N), 1) if is_pruned else 1.0
        edges = [done for done in made if done.kind in EDGE_PRICES]
        of_A = [done for done in made if done.is_of_A]
        forward, backward = ([of for of in of_A if (of.pass_name == "backward") == way] for way in (False, True))
        dense = [done for done in made if done.shape and _is_timed(done)]
        written = [of.width for of in dense if of.pass_name != "backward"]
        f_out = written[-1:]
        written += [of.width for of in forward if of.order is None]
        products = self._multiply([of for of in forward if not of.is_cached], edges, share, "forward")
        if any(done.pass_name == "backward" for done in made):
            products += self._multiply(backward, edges, share, "backward")
        return LayerWork(
            tuple(products), tuple(self._weights(of, share) for of in dense), self.n_P * share,
            f_out[0] if f_out else sum(written), sum(written), n_products=len(forward),
        )  # fmt: skip

    def _multiply(
        self, products: Sequence[Product], edges: Sequence[Product], share: float, way: str
    ) -> list[RankProduct]:
        """Return products with A, and passes over the nonzeros as products that take as long.

        Exchanges of rows that attention and maximum read overlap with the passes over edges.
        """
        read = ("ghosts", "cached ghosts") if way == "forward" else ("ghosts",)  # others are of chains, or summed
        rows = [of for of in products if edges and of.order is None and of.kind in read]
        others = [of for of in products if of not in rows]
        made = [self._product(of, of.width, share if of.multiplies else 0.0, share) for of in others]
        for of, edge in zip_longest(rows, edges):
            width = edge.width if edge else 1
            price = share * edge_price(edge.kind, width, edge.heads, way) if edge else 0.0
            made.append(self._product(of, width, price, share))
        return made

    def _product(self, of: Product | None, width: int, price: float, share: float) -> RankProduct:
        """Return what all ranks multiply, each nonzero `price` times, and what a product sends; None: nothing."""
        sent = {} if of is None else {exchange.kind: exchange for exchange in self.pairs.exchanges(of)}
        rows, sums, nonzeros = sent.get("rows"), sent.get("sum"), self.nonzeros
        return RankProduct(
            width=width, own_P=nonzeros.own_P * price, ghost_P=nonzeros.ghost_P * price,
            sender_P=nonzeros.sender_P * price, out_P=self.n_P * share,
            table_P=self.n_P + nonzeros.rows_PP.sum(axis=0),
            rows_PP=rows.rows_PP if rows else np.zeros_like(nonzeros.rows_PP), row_bytes=rows.row_bytes if rows else 0,
            is_relayed=of is not None and of.kind != "ghosts" and self.pairs.is_relayed, sum_PP=sums.rows_PP if sums else None, sum_bytes=sums.row_bytes if sums else 0,
        )  # fmt: skip

    def _weights(self, of: Product, share: float) -> Dense:
        assert of.shape is not None  # see _layer
        left = of.rows[0] if of.rows else ""
        if left.startswith("edges"):  # a product with rows on edges
            return *of.shape, None, of.pass_name == "backward", share * self.nonzeros.edges_P
        if not left.endswith("_nnz"):
            return *of.shape, None, of.pass_name == "backward"
        is_kept = left == "cached_nnz" or (left == "step_nnz" and self.run.setting.step_is_cached)
        return *of.shape, share * self._left_P(is_kept), of.pass_name == "backward"

    def _left_P(self, is_kept: bool) -> np.ndarray:
        """Return the nonzeros of each rank's rows of X, or of A X, (P,)."""
        nnz_N = self.planned.left_N[is_kept]
        nnz_k = np.bincount(self.part.owner_N, weights=nnz_N, minlength=self.part.k)
        return np.repeat(nnz_k, self.pairs.grid.c)

    def on(self, rank: int) -> DryRun:
        """Return the dry run with the counts of a rank: see Setting, rank_memory."""
        n, row = int(self.n_P[rank]), self.pairs.grid.row_of(rank)
        counts = {"n": n} | self.nonzeros.on_rank(rank)
        for number, step in enumerate(self.steps, start=1):
            counts |= {f"T{number - 1}": int(step.in_k[row]), f"T{number}": int(step.out_k[row])}
            counts |= step.on_rank(rank, str(number))
        if self.planned.has_sparse_input:
            is_kept = self.run.layer(1).is_cached
            x, left = (int(self._left_P(of)[rank]) for of in (False, is_kept))
            read = counts.get("T1" if is_kept else "T0", n)  # of which a pruned step takes the share of its rows
            counts |= {"x_nnz": x, "cached_nnz": left if is_kept else 0, "step_nnz": int(read / max(n, 1) * left)}
            counts["x_ghost_nnz"] = x * counts["g"] // max(n, 1)  # rows as long as own ones
            counts |= {"kept_nnz": left} if is_kept else {}
        return self.run.on(counts)


def _is_timed(of: Product) -> bool:
    """Return whether a product is with weights and of own rows; the time of products of ghost rows is not predicted."""
    of_ghosts = [name == "x_ghost_nnz" or name.rstrip("0123456789") == "g" for name in of.rows]
    return of.kind == "weights" and not (of_ghosts and all(of_ghosts))
