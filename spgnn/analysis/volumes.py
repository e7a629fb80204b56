"""measure(): the bytes that every rank sends to every other in an epoch, from the partition and the model alone.

Shapes: N nodes, k parts, P = k c ranks; q sends, p receives. Imports no communicator, and torch for an epoch alone.
Source: sparsity-aware paper (ICPP'24), sections 4.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from ..config.names import SCHEMES, Order
from ..cost.grid import ProcessGrid
from ..cost.pairs import (
    PairCounts,
    count_pairs,
    grid_of,
    on_ranks,
    reached_rows,
    sums_PP,
    work_of,
)
from ..cost.schedule import keeps_sparse, row_bytes
from ..errors import UsageError, check_integer, nearest
from ..graph import Graph, check_is_graph, with_self_loops
from ..partition import Partition
from ..partition.checks import check_owner, count_parts
from ..partition.metrics import exchange_metrics, metrics
from ..partition.metrics import rows_PP as columns_kk
from .volume_report import Exchange, LayerVolume, VolumeReport

if TYPE_CHECKING:
    import torch

    from ..spmm.dry import DryRun, LayerRun
    from ..spmm.recording import Product
    from .epoch import FixedModel


def measure(
    graph: Graph,
    partition: Partition | np.ndarray,
    scheme: str = "columns",
    widths: Sequence[int] = (),
    replication: int = 1,
    itemsize: int = 4,
    *,
    model: torch.nn.Module | FixedModel | None = None,
    evaluations: int = 0,
    input_is_fixed: bool = True,
    sparse_input: bool | None = None,
    keep_sparse: bool | None = None,
    train_N: np.ndarray | None = None,
    order: Order = "auto",
    keep: bool = True,
    input_gradient: bool = False,
    wire: str = "float32",
    wire_gradients: str = "float32",
) -> VolumeReport:
    """Predict the rows and messages of one product with A and, of a model, the bytes of one training epoch.

    The bytes are rows_PP x bytes of a row, summed over the exchanges that a dry run of the model finds.

    Args:   graph        with its reverse edges, unless with_edges chose otherwise; the self-loops that
                         normalise("gcn") adds send nothing.
            partition    a Partition, or an owner array (N,) of which the largest entry is k - 1.
            scheme       broadcast, columns or cover.
            widths       F, hidden ..., C of a Stack of GCN; or
            model        any model; it stays as it is. Without both: rows and messages, and no torch.
            replication  c of 1.5D: P = k c ranks, each part on c of them.
            itemsize     bytes of an entry of H: 2 bfloat16, 4 float32, 8 float64.
            evaluations  forward passes an epoch beside the training step's; they compute all rows.
            input_is_fixed  of widths: False where dropout acts on X.
            sparse_input, keep_sparse  X is sparse; A X, self-loops added as by gcn, is worth caching. Default: the graph's.
            train_N      (N,) bool: a training step computes only the rows that reach these nodes (row
                         pruning); None: all rows.
            order        spmm_first: A H first in every chain.
            keep         False: A X is computed in every epoch, as the published systems do.
            input_gradient  X requires a gradient; needs keep=False.
            wire, wire_gradients  type of the rows that travel forward and backward; sums over process rows
                         keep the activations' own.
    Raises: UsageError for a scheme, replication or option that does not fit, widths that make no layer, or a model
            that cannot run without data; PartitionError where the partition does not fit the graph.
    """
    if scheme not in SCHEMES:
        raise UsageError(f"scheme {scheme!r} is not known{nearest(scheme, SCHEMES)}")
    check_is_graph(graph)
    check_integer("itemsize", itemsize, 1)
    check_integer("evaluations", evaluations, 0)
    widths = _checked(widths, model)
    for name in (wire, wire_gradients):
        row_bytes(1, itemsize, name)
    if input_gradient and keep:
        raise UsageError("input_gradient counts an exchange that a kept A X does not have; expected keep=False with it")
    graph = graph.in_use()
    if not isinstance(partition, Partition):
        k = count_parts(partition)
        partition = Partition(check_owner(partition, graph.n_nodes, k, "measure: the owner array"), k)
    partition.check_length(graph)
    grid = grid_of(partition.k, replication)
    run, hops = None, ()
    if widths or model is not None:
        inputs = _inputs(graph, widths, model, keep, sparse_input, keep_sparse)
        is_pruned = train_N is not None
        run, hops = _run(
            widths,
            model,
            inputs,
            input_is_fixed,
            is_pruned,
            itemsize=itemsize,
            replication=grid.c,
            order=order,
            has_gradient=input_gradient,
        )
    rows = [] if run is None or train_N is None else reached_rows(graph.A, _mask(train_N, graph), hops)
    volumes = Volumes(graph, partition, scheme, grid, run, RowBytes(itemsize, wire, wire_gradients), rows, hops)
    return volumes.report(evaluations)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """X of an epoch: its columns, whether it is sparse, whether A X is cached, and whether ghost rows of X may be."""

    features: int
    is_sparse: bool
    is_cached: bool
    is_fixed: bool


@dataclass(frozen=True, slots=True)
class RowBytes:
    """Bytes of the rows that travel: of an entry of H, and the types of the wires."""

    itemsize: int
    wire: str
    wire_gradients: str

    def of(self, product: Product) -> tuple[int, int]:
        """Return the bytes of a row of a product, and of a row of its sum over a process row."""
        is_backward = product.pass_name == "backward"
        # Partial results of bfloat16 are float32 until they are added up.
        is_rounded = is_backward and product.kind != "sum"
        summed = product.width * (self.itemsize if is_rounded else max(self.itemsize, 4))
        return row_bytes(product.width, self.itemsize, self.wire_gradients if is_backward else self.wire), summed


class Volumes:
    """What the ranks send each other for one product with all rows, and with those that the layers of a step compute.

    Args: run   of the model, None: no epoch.
          rows  masks T_0 ... T_L of a pruned step, each (N,) bool, [] without; hops: of its layers.
    """

    def __init__(
        self,
        graph: Graph,
        partition: Partition,
        scheme: str,
        grid: ProcessGrid,
        run: DryRun | None,
        row_bytes: RowBytes,
        rows: Sequence[np.ndarray] = (),
        hops: Sequence[int] = (),
    ):
        self.graph, self.partition, self.scheme, self.grid, self.run = graph, partition, scheme, grid, run
        self.row_bytes, self.rows, self.hops, self.all = row_bytes, rows, hops, self._count(scheme, None)
        self.steps = [self._step(scheme, number) for number in range(1, len(self.rows))]
        self._tables: dict[int, _Tables] = {}
        self._ghosts: dict[int, PairCounts] = {}

    def counted(self, product: Product) -> PairCounts:
        """Return the counts of a product: those of its layer in a pruned step, else of all rows.

        Rows that are read as they are (attention, maximum, A.columns) are those of scheme columns under cover, too.
        """
        number = product.layer if self.steps and product.pass_name != "evaluate" else 0
        if product.kind == "ghosts" and self.scheme == "cover":
            if number not in self._ghosts:
                self._ghosts[number] = self._step("columns", number) if number else self._count("columns", None)
            return self._ghosts[number]
        return self.steps[number - 1] if number else self.all

    def _count(self, scheme: str, rows_N: np.ndarray | None) -> PairCounts:
        return count_pairs(self.graph.A, self.partition.owner_N, self.partition.k, scheme, rows_N)

    def _step(self, scheme: str, number: int) -> PairCounts:
        """Return the counts of a layer of a pruned step; a layer without hops sends nothing."""
        if self.hops[number - 1]:
            return self._count(scheme, self.rows[number])
        k = self.partition.k
        none_kk, rows_k = (
            np.zeros((k, k), np.int64),
            np.bincount(self.partition.owner_N[self.rows[number]], minlength=k),
        )
        return PairCounts(none_kk, none_kk, none_kk, rows_k, rows_k)

    def exchanges(self, products: Iterable[Product]) -> tuple[Exchange, ...]:
        """Return the exchanges of products, in their order."""
        sent: list[Exchange] = []
        for product in products:
            sent += self._table(self.counted(product)).exchanges(product, *self.row_bytes.of(product))
        return tuple(sent)

    def report(self, evaluations: int) -> VolumeReport:
        """Return the report of a training step and of evaluations."""
        step = () if self.run is None else self.run.of_pass("forward", "backward")
        sent = self.exchanges((*step, *(() if self.run is None else self.run.of_pass("evaluate") * evaluations)))
        A, k, owner_N = self.graph.A, self.partition.k, self.partition.owner_N
        rows_PP, work = self._table(self.all).rows_PP, work_of(self.all, self.grid)
        read_kk = self.all.rows_kk if self.scheme == "columns" else columns_kk(A, owner_N, k)
        exchanges = [exchange.to_dict() for exchange in sent]
        total_P = work.total_P
        return VolumeReport(
            k=k,
            n=self.graph.n_nodes,
            nnz=self.graph.nnz,
            method=self.partition.method,
            scheme=self.scheme,
            replication=self.grid.c,
            **metrics(A, owner_N, k, read_kk) | exchange_metrics(rows_PP),
            seconds=self.partition.seconds,
            exchanges=exchanges,
            bytes_per_epoch=None if self.run is None else sum(e["bytes"] for e in exchanges),
            work_imbalance=float(total_P.max() / total_P.mean()) if total_P.any() else 1.0,
            layers=() if self.run is None else tuple(self._layer(layer, exchanges) for layer in self._totals().layers),
            rows_PP=rows_PP,
            itemsize=self.row_bytes.itemsize,
            work=work,
            sent=sent,
            volumes=self,
        )

    def _table(self, counted: PairCounts) -> _Tables:
        if id(counted) not in self._tables:
            self._tables[id(counted)] = _Tables(counted, self.grid)
        return self._tables[id(counted)]

    def _layer(self, layer: LayerRun, exchanges: list[dict]) -> LayerVolume:
        step = self.steps[layer.number - 1] if self.steps else self.all
        own = [e for e in exchanges if e["layer"] == layer.number]
        shape, chain = (None, None), layer.chain
        if chain is not None:
            shape = chain.shape
        products = sum(product.width for product in layer.multiplied) * int(step.nnz_kk.sum())
        return LayerVolume(
            layer=layer.number,
            f_in=shape[0],
            f_out=shape[1],
            order=layer.order,
            is_kept=layer.is_cached,
            width=layer.width,
            rows=int(step.out_k.sum()),
            rows_sent=sum(e["rows"] for e in own),
            bytes=sum(e["bytes"] for e in own),
            multiply_adds=products + layer.multiply_adds * self.grid.c,
            why=layer.why,
        )

    def _totals(self) -> DryRun:
        """Return the run in terms of the rows of all parts together."""
        setting, counts = self.run.setting, {"n": self.graph.n_nodes, "g": 0}
        counts |= {f"T{number}": int(rows_N.sum()) for number, rows_N in enumerate(self.rows)}
        counts |= {f"g{number}": 0 for number in range(1, len(self.rows))}
        if setting.is_sparse:
            F = setting.features
            counts |= {"x_nnz": _nonzeros(self.graph, F, False, None), "x_ghost_nnz": 0}
            counts["cached_nnz"] = _nonzeros(self.graph, F, True, None)
            if self.steps:
                is_cached = setting.step_is_cached
                counts["step_nnz"] = _nonzeros(self.graph, F, is_cached, self.rows[is_cached])
        return self.run.on(counts)


class _Tables:
    """What the ranks send for one product: rows, and sums over process rows forward and backward, (P, P)."""

    def __init__(self, counted: PairCounts, grid: ProcessGrid):
        self.rows_PP = on_ranks(counted.rows_kk, grid)
        self.sums = {
            "forward": sums_PP(counted.out_k, grid, "forward"),
            "backward": sums_PP(counted.in_k, grid, "backward"),
        }
        self.c = grid.c

    def exchanges(self, product: Product, rows_bytes: int, sum_bytes: int) -> list[Exchange]:
        direction = "backward" if product.pass_name == "backward" else "forward"
        rows_PP, layer = self.rows_PP if direction == "forward" else self.rows_PP.T, product.layer or 0
        if product.kind == "sum":  # of partial results, such as those of a softmax
            return [Exchange(layer, direction, "sum", product.width, sum_bytes, self.sums["forward"])]
        rows = Exchange(layer, direction, "rows", product.width, rows_bytes, rows_PP)
        if self.c == 1 or (direction == "forward" and product.kind == "ghosts"):
            return [rows]
        return [rows, Exchange(layer, direction, "sum", product.width, sum_bytes, self.sums[direction])]


def _checked(widths, model) -> tuple[int, ...]:
    try:
        widths = tuple(int(width) for width in widths)
    except (TypeError, ValueError):
        raise UsageError(f"widths = {widths!r}; expected columns of X and of each layer's output, such as (128, 16, 40); "
                         "give a model of other layers as model=") from None  # fmt: skip
    if widths and model is not None:
        raise UsageError("widths describe a Stack of GCN, and model= is given: give one of them")
    if widths:
        check_widths(widths)
    return widths


def check_widths(widths: tuple[int, ...]) -> None:
    """Raise UsageError unless widths make a layer."""
    if len(widths) < 2 or any(width < 1 for width in widths):
        raise UsageError(f"widths = {widths}; expected at least two positive widths, input to output")


def _inputs(graph: Graph, widths, model, keep: bool, sparse_input: bool | None, keep_sparse: bool | None) -> _Inputs:
    features = widths[0] if widths else graph.n_features or _first_width(model)
    if not features:
        raise UsageError(
            f"{graph.name} has no features, and the first layer of a model reads them; give widths instead"
        )
    if sparse_input is None:
        sparse_input = sp.issparse(graph.X) and features == graph.n_features
    if keep and sparse_input and keep_sparse is None:
        keep_sparse = not sp.issparse(graph.X) or stays_sparse(graph)
    return _Inputs(features, sparse_input, keep and (not sparse_input or keep_sparse), keep)


def _first_width(model) -> int:
    """Return the columns that the first layer of a model declares to read, 0 where it declares none."""
    model = getattr(model, "model", model)
    return getattr(next(iter(getattr(model, "layers", ())), None), "f_in", 0)


def _run(
    widths, model, inputs: _Inputs, input_is_fixed: bool, is_pruned: bool, **options
) -> tuple[DryRun, tuple[int, ...]]:
    """Return the dry run of an epoch, and the hops of the layers where rows are pruned."""
    from .epoch import FixedModel, epoch_setting, gcn_of

    setting = epoch_setting(
        inputs.features, is_cached=inputs.is_cached, is_sparse=inputs.is_sparse, has_ghosts=inputs.is_fixed, **options
    )
    model = model or gcn_of(widths, 0.0 if input_is_fixed else 0.5)
    model = model if isinstance(model, FixedModel) else FixedModel(model)
    run = model.run(setting, is_pruned)
    return run, model.hops if is_pruned else ()


def stays_sparse(graph: Graph, A: sp.csr_array | None = None) -> bool:
    """Return whether A X of sparse X is worth caching, as training decides it; A: default: with self-loops, as of gcn."""
    A = with_self_loops(graph.A) if A is None else A
    bound = int(np.bincount(A.indices, minlength=graph.n_nodes) @ np.diff(graph.X.indptr))
    return keeps_sparse(bound, graph.X.nnz, A.nnz)


def _nonzeros(graph: Graph, F: int, is_cached: bool, rows_N: np.ndarray | None) -> int:
    """Return the nonzeros of sparse X, or (a bound) of A X, in all rows, or in those of a mask (N,)."""
    if not sp.issparse(graph.X):  # asked about as if it were
        nnz_N = np.full(graph.n_nodes, F, np.int64)
    else:
        nnz_N = np.diff(graph.X.indptr).astype(np.int64)
    if is_cached:
        ones = sp.csr_array((np.ones(graph.nnz, np.int64), graph.A.indices, graph.A.indptr), shape=graph.A.shape)
        nnz_N = np.minimum(ones @ nnz_N + nnz_N, F)
    return int(nnz_N.sum() if rows_N is None else nnz_N[rows_N].sum())


def _mask(train_N: np.ndarray, graph: Graph) -> np.ndarray:
    train_N = np.asarray(train_N)
    if train_N.shape != (graph.n_nodes,) or train_N.dtype != bool:
        raise UsageError(
            f"train_N is {train_N.dtype} of shape {train_N.shape}; expected one bool a node, ({graph.n_nodes},)"
        )
    return train_N
