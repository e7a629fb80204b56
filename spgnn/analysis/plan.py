"""What a training will need and take on a machine: memory of every rank, bytes, seconds, before it runs.

Shapes: N nodes, n own rows, k parts, P = k c ranks. Imports no communicator, and torch for `plan_line` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from ..cost.machines import Machine
from ..cost.pairs import Work, grid_of, on_ranks, work_of
from ..cost.seconds import EDGE_PRICES, DenseWork, EpochTime, LayerWork, RankProduct, epoch_seconds
from ..graph import WITH_LOOPS, Graph, with_self_loops
from ..partition import Partition
from .choices import train_nodes
from .device_memory import DeviceNeed, beside_device, device_memory
from .edge_products import edge_products
from .rank_memory import RankMemory, largest_rank, rank_memory
from .volume_report import VolumeReport
from .volumes import measure, stays_sparse

if TYPE_CHECKING:
    from ..spmm.dry import DryRun
    from ..spmm.recording import Product
    from .epoch import FixedModel

MOST_RANKS = 1 << 16
STEP = ("forward", "backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
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


class PlannedGraph:
    """A graph and what the plan asks of it, each found once.

    Args: stored       as it was read; edges how it is used.
          n_features   of the dense float32 X that a training reads where the graph has none.
          operator     of the adjacency matrix, see `normalise`.
          split, seed  which nodes train, see `train_nodes`.
    """

    def __init__(
        self,
        stored: Graph,
        edges: str = "undirected",
        n_features: int = 0,
        operator: str = "gcn",
        split: str = "auto",
        seed: int = 0,
    ):
        self.graph = stored.with_edges(edges)
        self.operator, self.split, self.seed = operator, split, seed
        self.is_symmetric = edges == "undirected"
        A, X = self.graph.A, self.graph.X
        x_bytes = (
            4 * stored.n_nodes * n_features
            if X is None
            else 8 * X.nnz + 8 * len(X.indptr)
            if sp.issparse(X)
            else X.nbytes
        )
        y_bytes = 0 if stored.y is None else stored.y.nbytes
        self.read = {
            "nodes": stored.n_nodes,
            "stored_nnz": stored.nnz,
            "nnz": A.nnz,
            "x_bytes": x_bytes,
            "y_bytes": y_bytes,
        }
        self.read["is_symmetrised"] = self.graph.A is not stored.A  # what rank 0 reads

    @property
    def has_sparse_input(self) -> bool:
        return sp.issparse(self.graph.X)

    @cached_property
    def pattern(self) -> sp.csr_array:
        """The nonzeros that layers multiply with: A, with the self-loops of the operator."""
        return with_self_loops(self.graph.A) if self.operator in WITH_LOOPS else self.graph.A

    @cached_property
    def keeps_sparse(self) -> bool:
        """A X of sparse X is worth keeping, as distribute decides it."""
        return stays_sparse(self.graph, self.pattern)

    @cached_property
    def left_N(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Nonzeros of each row of X, and of A X where it is kept, (N,) int64."""
        X = self.graph.X
        x_N = np.diff(X.indptr).astype(np.int64)
        if not self.keeps_sparse:
            return x_N, None
        ones = lambda M: sp.csr_array((np.ones(M.nnz, np.float32), M.indices, M.indptr), shape=M.shape)
        return x_N, np.diff((ones(self.pattern) @ ones(X)).indptr).astype(np.int64)

    @cached_property
    def train_N(self) -> np.ndarray:
        """The nodes whose labels are trained on, (N,) bool."""
        return train_nodes(self.graph, self.split, self.seed)


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
    model: Model,
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
    work = _with_loops(report.work, part.sizes_k, c)
    layers, evaluation = (layer_works(planned, part, report, work, *names) for names in (STEP, ("evaluate",)))
    ranks = PlannedRanks(planned, part, report, work, model)
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


def layer_works(
    planned: PlannedGraph, part: Partition, report: VolumeReport, work: Work, *passes: str
) -> list[LayerWork]:
    """Return what each layer multiplies and sends in a training step or an evaluation, rank by rank.

    With row pruning the nonzeros of a layer are taken in the share of its rows.
    Args: passes  forward and backward, or evaluate.
    """
    run, volumes, c = report.run, report.volumes, report.replication
    is_its = lambda done: done.pass_name in passes
    products, dense = list(filter(is_its, run.products)), list(filter(is_its, run.work))
    n_P = np.repeat(part.sizes_k, c).astype(np.float64)
    table_P = n_P + report.rows_PP.sum(axis=0)
    works = []
    for number in sorted({done.layer or 0 for done in (*products, *dense)}):
        is_pruned = bool(volumes.steps) and "evaluate" not in passes
        share = int(volumes.steps[number - 1].out_k.sum()) / max(report.n, 1) if is_pruned else 1.0

        def product(of: Product, share=share) -> RankProduct:
            sent = {exchange.kind: exchange for exchange in volumes.exchanges([of] if of.is_sent else [])}
            rows, sums = sent.get("rows"), sent.get("sum")
            multiplies = share if of.multiplies else 0.0
            return RankProduct(
                width=of.width,
                own_P=work.own_P * multiplies,
                ghost_P=work.ghost_P * multiplies,
                sender_P=work.sender_P * multiplies,
                out_P=n_P * share,
                table_P=table_P,
                rows_PP=rows.rows_PP if rows else np.zeros_like(report.rows_PP),
                row_bytes=rows.row_bytes if rows else 0,
                sum_PP=sums.rows_PP if sums else None,
                sum_bytes=sums.row_bytes if sums else 0,
            )

        def weights(of: Product, share=share) -> DenseWork:
            left = of.rows[0] if of.rows else ""
            if not left.endswith("_nnz"):
                return DenseWork(*of.shape)
            is_kept = left == "cached_nnz" or (left == "step_nnz" and run.setting.step_is_cached)
            return DenseWork(*of.shape, share * _left_P(planned, part, c, is_kept))

        own = [done for done in products if (done.layer or 0) == number]
        edges = [done for done in run.made if (done.layer or 0) == number and is_its(done) and done.kind in EDGE_PRICES]
        multiply = lambda made, way: edge_products(made, edges, work, share, way, product)
        dense_own = [done for done in dense if (done.layer or 0) == number and done.shape]
        forward, forward_dense = ([of for of in made if of.pass_name != "backward"] for made in (own, dense_own))
        written = sum(of.shape[1] for of in forward_dense) + sum(of.width for of in forward if of.order is None)
        works.append(
            LayerWork(
                multiply([of for of in forward if not of.is_cached], "forward"),
                multiply([of for of in own if of.pass_name == "backward"], "backward") if "backward" in passes else (),
                tuple(map(weights, forward_dense)),
                tuple(weights(of) for of in dense_own if of.pass_name == "backward"),
                n_P * share,
                forward_dense[-1].shape[1] if forward_dense else written,
                written,
                0,
                len(forward),
            )
        )
    works[-1] = replace(works[-1], n_weights=run.n_weights)
    return works


class PlannedRanks:
    """What every rank of a plan holds: sizes of its blocks, and the dry run of the model in terms of its rows."""

    def __init__(self, planned: PlannedGraph, part: Partition, report: VolumeReport, work: Work, model: Model):
        from .epoch import epoch_setting

        self.planned, self.report, self.work, self.model = planned, report, work, model
        self.grid, c = grid_of(part.k, report.replication), report.replication
        self.rows_PP, self.n_P = report.rows_PP, np.repeat(part.sizes_k, c)
        self.x_P, self.kept_P = [None] * len(self.n_P), [None] * len(self.n_P)
        if planned.has_sparse_input:
            self.x_P = _left_P(planned, part, c, False)
            if report.run.layer(1).is_cached:
                self.kept_P = _left_P(planned, part, c, True)
        setting = epoch_setting(
            report.run.setting.features,
            itemsize=model.itemsize,
            order=model.order,
            is_cached=report.run.setting.is_cached,
            has_ghosts=report.run.setting.has_ghosts,
            is_sparse=planned.has_sparse_input,
            is_exchanged=len(self.n_P) > 1,
            replication=c,
            wires=(model.wire, model.wire_gradients),
        )
        self.run = model.layers.run(setting, is_pruned=model.prune)
        loops = lambda step: _with_loops(work_of(step, self.grid), step.out_k, c)
        self.steps = [(step, on_ranks(step.rows_kk, self.grid), loops(step)) for step in report.volumes.steps]

    def memory(self, rank: int, machine: Machine, is_root: bool) -> RankMemory:
        """Return the predicted memory of a rank; is_root: it reads the whole graph."""
        return rank_memory(
            self.run_of(rank),
            n_ranks=len(self.n_P),
            n_nodes=self.report.n,
            process_bytes=machine.process_bytes,
            is_symmetric=self.planned.is_symmetric,
            root=self.planned.read if is_root else None,
            method=self.report.method,
        )

    def device_memory(self, rank: int) -> RankMemory:
        """Return the predicted memory of a rank on its device."""
        return device_memory(self.run_of(rank), n_ranks=len(self.n_P), is_symmetric=self.planned.is_symmetric)

    def run_of(self, rank: int) -> DryRun:
        """Return the dry run on the counts of a rank."""
        n, x, kept = int(self.n_P[rank]), self.x_P[rank], self.kept_P[rank]
        counts = {"n": n} | _blocks(self.rows_PP, self.work, self.grid, rank)
        row = rank // self.grid.c
        for number, (step, rows_PP, work) in enumerate(self.steps, start=1):
            counts |= {f"T{number - 1}": int(step.in_k[row]), f"T{number}": int(step.out_k[row])}
            counts |= _blocks(rows_PP, work, self.grid, rank, str(number))
        if x is not None:
            left = kept if kept is not None else x  # of which a pruned step takes the share of its rows
            read = counts.get("T0" if kept is None else "T1", n)
            counts |= {"x_nnz": int(x), "cached_nnz": int(kept or 0), "step_nnz": int(read / max(n, 1) * left)}
            counts |= {"x_ghost_nnz": int(x) * counts["g"] // max(n, 1)}  # rows as long as own ones
            counts |= {} if kept is None else {"kept_nnz": int(kept)}
        return self.run.on(counts)


def _blocks(rows_PP: np.ndarray, work: Work, grid, rank: int, suffix: str = "") -> dict[str, int]:
    """Return the counts of an operator on a rank: rows that it sends, reads and has in flight, nonzeros of its blocks."""
    read = rows_PP[:, rank]
    if grid.c > 1:
        read = rows_PP[np.array(grid.stages(grid.column_of_rank(rank))) * grid.c + grid.column_of_rank(rank), rank]
    in_flight = int(read.sum()) if grid.c == 1 else max(int(read[i : i + 2].sum()) for i in range(len(read)))
    counts = {"s": rows_PP[rank].sum(), "g": rows_PP[:, rank].sum(), "f": in_flight}
    counts |= {"own_nnz": work.own_P[rank], "ghost_nnz": work.ghost_P[rank], "sender_nnz": work.sender_P[rank]}
    return {name + suffix: int(count) for name, count in counts.items()}


def ranks_that_fit(line: PlanLine, machine: Machine) -> int | None:
    """Return the least number of ranks, of twice as many each, at which a host has the memory; None: no number does.

    What depends on the rows of a rank is taken to halve with each step; the process and the graph that rank 0
    reads do not.
    """
    parts = line.memory.parts
    whole = parts["process"] + parts["weights and optimiser"] + parts.get("left over from loading", 0)
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


def _with_loops(work: Work, rows_k: np.ndarray, c: int) -> Work:
    """Return the work with the self-loop that gcn adds to every row, where the own block is multiplied."""
    k = len(rows_k)
    own_P, q = work.own_P.copy(), np.arange(k)
    own_P[q * c + q // grid_of(k, c).n_stages] += rows_k
    return Work(own_P, work.ghost_P, work.sender_P)


def _left_P(planned: PlannedGraph, part: Partition, c: int, is_kept: bool) -> np.ndarray:
    """Return the nonzeros of each rank's rows of X, or of A X, (P,)."""
    x_N, kept_N = planned.left_N
    nnz_N = kept_N if is_kept else x_N
    return np.repeat(np.bincount(part.owner_N, weights=nnz_N, minlength=part.k), c)
