"""measure(): the bytes that every rank sends to every other in an epoch, from the partition and the model alone.

Shapes: N nodes, k parts, P = k c ranks; q sends, p receives. Imports no communicator, and torch for an epoch alone.
Source: sparsity-aware paper (ICPP'24), sections 4.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    only_rows,
    reached_rows,
    reads,
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
    from ..spmm.ledger import Product


def measure(
    graph: Graph,
    partition: Partition | np.ndarray,
    scheme: str = "columns",
    widths: Sequence[int] = (),
    replication: int = 1,
    itemsize: int = 4,
    *,
    model: torch.nn.Module | None = None,
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
    run = None
    if widths or model is not None:
        inputs = _inputs(graph, widths, keep, sparse_input, keep_sparse)
        is_pruned = train_N is not None
        run = _run(
            widths,
            model,
            inputs,
            input_is_fixed,
            is_pruned,
            itemsize=itemsize,
            order=order,
            has_gradient=input_gradient,
        )
    train_N = None if train_N is None else _mask(train_N, graph)
    volumes = Volumes(graph, partition, scheme, grid, run, train_N)
    exchanges = () if run is None else volumes.exchanges(evaluations, itemsize, wire, wire_gradients)
    return volumes.report(exchanges, itemsize)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """X of an epoch: its columns, whether it is sparse, and whether A X is cached."""

    features: int
    is_sparse: bool
    is_cached: bool


class Volumes:
    """What the ranks send each other for one product with all rows, and with those that the layers of a step compute.

    Args: run  of the model, None: no epoch; train_N: (N,) bool, the rows that a pruned step gives.
    """

    def __init__(self, graph: Graph, partition: Partition, scheme: str, grid: ProcessGrid, run, train_N):
        self.graph, self.partition, self.scheme, self.grid, self.run = graph, partition, scheme, grid, run
        count = lambda rows_N: count_pairs(graph.A, partition.owner_N, partition.k, scheme, rows_N)
        self.all = count(None)
        self.rows: list[np.ndarray] = []  # T_1 ... T_L of a pruned step
        if run is not None and train_N is not None:
            self.rows = reached_rows(graph.A, train_N, len(run.setting.steps))
        self.steps = [count(rows_N) for rows_N in self.rows]
        self._tables: dict[int, _Tables] = {}
        self._ghosts: PairCounts | None = None

    def counted(self, product: Product) -> PairCounts:
        """Return the counts of a product: those of its layer in a pruned step, else of all rows.

        Rows that are read as they are (A.columns) are those of scheme columns under cover, too.
        """
        if product.rows == "ghosts" and self.scheme == "cover":
            if self._ghosts is None:
                self._ghosts = count_pairs(self.graph.A, self.partition.owner_N, self.partition.k, "columns", None)
            return self._ghosts
        if self.steps and product.pass_name != "evaluate":
            return self.steps[product.layer - 1]
        return self.all

    def exchanges(self, evaluations: int, itemsize: int, wire: str, wire_gradients: str) -> tuple[Exchange, ...]:
        """Return the exchanges of a training step, then those of evaluations, in their order."""
        sent: list[Exchange] = []
        for product in (*self.run.of_pass("forward", "backward"), *self.run.of_pass("evaluate") * evaluations):
            is_backward = product.pass_name == "backward"
            row = row_bytes(product.width, itemsize, wire_gradients if is_backward else wire)
            # Partial results of bfloat16 are float32 until they are added up.
            summed = product.width * (itemsize if is_backward else max(itemsize, 4))
            sent += self._table(self.counted(product)).exchanges(product, row, summed)
        return tuple(sent)

    def report(self, sent: tuple[Exchange, ...], itemsize: int) -> VolumeReport:
        """Return the report of these exchanges."""
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
            itemsize=itemsize,
            work=work,
            sent=sent,
            run=self.run,
            steps=tuple(self.steps),
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
        widths = [product.width for product in layer.exchanges if product.rows == "scheme"]
        products = sum(widths) * int(step.nnz_kk.sum())
        return LayerVolume(
            layer=layer.number,
            f_in=shape[0],
            f_out=shape[1],
            order=None if chain is None else chain.order,
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
        from .epoch import total_setting

        setting, rows = self.run.setting, [(int(step.out_k.sum()), int(step.in_k.sum())) for step in self.steps]
        nnz = {}
        if setting.x_nnz is not None:
            F = setting.features
            nnz = {"x_nnz": _nonzeros(self.graph, F, False, None)}
            if setting.cached_nnz is not None:
                nnz["cached_nnz"] = _nonzeros(self.graph, F, True, None)
            if self.steps:
                nnz["step_nnz"] = _nonzeros(self.graph, F, setting.step_is_cached, self.rows[0])
        return self.run.on(total_setting(setting, self.graph.n_nodes, rows, nnz))


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
        rows = Exchange(layer, direction, "rows", product.width, rows_bytes, rows_PP)
        if self.c == 1 or (direction == "forward" and product.rows == "ghosts"):
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
    if widths and (len(widths) < 2 or any(width < 1 for width in widths)):
        raise UsageError(f"widths = {widths}; expected at least two positive widths, input to output")
    return widths


def _inputs(graph: Graph, widths, keep: bool, sparse_input: bool | None, keep_sparse: bool | None) -> _Inputs:
    features = widths[0] if widths else graph.n_features
    if not features:
        raise UsageError(
            f"{graph.name} has no features, and the first layer of a model reads them; give widths instead"
        )
    if sparse_input is None:
        sparse_input = sp.issparse(graph.X) and features == graph.n_features
    if keep and sparse_input and keep_sparse is None:
        keep_sparse = not sp.issparse(graph.X) or stays_sparse(graph)
    return _Inputs(features, sparse_input, keep and (not sparse_input or keep_sparse))


def _run(widths, model, inputs: _Inputs, input_is_fixed: bool, is_pruned: bool, **options) -> DryRun:
    from .epoch import Chain, epoch_of, epoch_setting

    setting = epoch_setting(inputs.features, is_cached=inputs.is_cached, is_sparse=inputs.is_sparse, **options)
    return epoch_of(model or Chain(widths, 0.0 if input_is_fixed else 0.5), setting, is_pruned)


def stays_sparse(graph: Graph, A: sp.csr_array | None = None) -> bool:
    """Return whether A X of sparse X is worth caching, as training decides it; A: default: with self-loops, as of gcn."""
    A = with_self_loops(graph.A) if A is None else A
    bound = int(np.bincount(A.indices, minlength=graph.n_nodes) @ np.diff(graph.X.indptr))
    return keeps_sparse(bound, graph.X.nnz, A.nnz)


def _nonzeros(graph: Graph, F: int, is_cached: bool, rows_N: np.ndarray | None) -> int:
    """Return the nonzeros of sparse X, or (a bound) of A X, in all rows, or in those that layer 1 of a step reads.

    Args: rows_N  (N,) bool, the rows of A X that the step computes.
    """
    if not sp.issparse(graph.X):  # asked about as if it were
        nnz_N = np.full(graph.n_nodes, F, np.int64)
    else:
        nnz_N = np.diff(graph.X.indptr).astype(np.int64)
    if is_cached:
        ones = sp.csr_array((np.ones(graph.nnz, np.int64), graph.A.indices, graph.A.indptr), shape=graph.A.shape)
        nnz_N = np.minimum(ones @ nnz_N + nnz_N, F)
    elif rows_N is not None:
        rows_N = rows_N | reads(only_rows(graph.A, rows_N))
    return int(nnz_N.sum() if rows_N is None else nnz_N[rows_N].sum())


def _mask(train_N: np.ndarray, graph: Graph) -> np.ndarray:
    train_N = np.asarray(train_N)
    if train_N.shape != (graph.n_nodes,) or train_N.dtype != bool:
        raise UsageError(
            f"train_N is {train_N.dtype} of shape {train_N.shape}; expected one bool a node, ({graph.n_nodes},)"
        )
    return train_N
