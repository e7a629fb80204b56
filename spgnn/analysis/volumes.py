"""measure(): the bytes that every rank sends to every other in an epoch, from the partition and the model alone.

Shapes: N nodes, k parts, P = k c ranks; q sends, p receives. Imports no communicator, and torch for an epoch alone.
Source: sparsity-aware paper (ICPP'24), sections 4.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from ..config.names import SCHEMES, Order
from ..cost.pairs import ProcessGrid, grid_of, reached_rows
from ..cost.schedule import keeps_sparse, row_bytes
from ..errors import UsageError, check_integer, nearest
from ..graph import Graph, check_is_graph, with_self_loops
from ..partition import Partition
from ..partition.checks import check_owner, count_parts
from ..partition.metrics import exchange_metrics
from .volume_report import LayerCounts, LayerVolume, VolumeReport

if TYPE_CHECKING:
    import torch

    from ..spmm.dry.dry import DryRun
    from ..spmm.dry.dry_operator import Setting
    from .epoch import FixedModel


def measure(
    graph: Graph,
    partition: Partition | np.ndarray,
    scheme: str = "columns",
    widths: Sequence[int] = (),
    replication: int | ProcessGrid = 1,
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
            scheme       broadcast, columns, cover or two-tier.
            widths       F, hidden ..., C of a Stack of GCN; or
            model        any model; it is not changed. Without both: rows and messages, and no torch.
            replication  c of 1.5D: P = k c ranks, each part on c of them; or the grid of the ranks, which has their
                         hosts: grid_of(k, 1, ranks_per_host). On one host two-tier is cover.
            itemsize     bytes of an entry of H: 2 bfloat16, 4 float32, 8 float64.
            evaluations  forward passes per epoch in addition to the training step; they compute all rows.
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
    check_is_graph(graph)
    wires, graph = (wire, wire_gradients), graph.in_use()
    _check(scheme, itemsize, evaluations, wires, input_gradient and keep)
    part, widths, run = _partition_of(graph, partition), _checked(widths, model), None
    grid = replication if isinstance(replication, ProcessGrid) else grid_of(part.k, replication)
    pairs = LayerCounts(graph, part, scheme, grid, itemsize, wires)
    if widths or model is not None:
        from .epoch import gcn_of

        of_X = _input_of(graph, widths, model, keep, sparse_input, keep_sparse)
        layers = model or gcn_of(widths, 0.0 if input_is_fixed else 0.5)
        run = _run(pairs, layers, of_X, train_N, order, keep, input_gradient)
    return _report(pairs, run, evaluations)


def _check(scheme: str, itemsize: int, evaluations: int, wires: tuple[str, str], is_kept_gradient: bool) -> None:
    """Raise UsageError for an option that does not fit."""
    if scheme not in SCHEMES:
        raise UsageError(f"scheme {scheme!r} is not known{nearest(scheme, SCHEMES)}")
    check_integer("itemsize", itemsize, 1)
    check_integer("evaluations", evaluations, 0)
    for name in wires:
        row_bytes(1, itemsize, name)
    if is_kept_gradient:
        raise UsageError("input_gradient counts an exchange that a kept A X does not have; expected keep=False with it")


def _partition_of(graph: Graph, partition: Partition | np.ndarray) -> Partition:
    if not isinstance(partition, Partition):
        k = count_parts(partition)
        partition = Partition(check_owner(partition, graph.n_nodes, k, "measure: the owner array"), k)
    partition.check_length(graph)
    return partition


def _run(
    pairs: LayerCounts, model: torch.nn.Module | FixedModel, of_X: tuple[int, bool, bool], train_N: np.ndarray | None,
    order: Order, keep: bool, has_gradient: bool,
) -> DryRun:  # fmt: skip
    """Return the dry run of an epoch; where rows are pruned, pairs are counted for the rows of its steps."""
    import torch

    from ..spmm.dry.dry_operator import Setting
    from .epoch import DTYPES, FixedModel

    grid, graph, (features, is_sparse, is_cached) = pairs.grid, pairs.graph, of_X
    model = model if isinstance(model, FixedModel) else FixedModel(model)
    setting = Setting(
        features=features, is_sparse=is_sparse, is_cached=is_cached, has_ghosts=keep, dtype=DTYPES.get(pairs.itemsize, torch.float32),
        is_exchanged=grid.size > 1, replication=grid.c, wires=pairs.wires, order=order, has_gradient=has_gradient,
        edge_features=None if graph.edge_attr is None else graph.edge_attr.shape[1],
    )  # fmt: skip
    run = model.run(setting, train_N is not None)
    if train_N is not None:
        train_N, n = np.asarray(train_N), graph.n_nodes
        if train_N.shape != (n,) or train_N.dtype != bool:
            raise UsageError(f"train_N is {train_N.dtype} of shape {train_N.shape}; expected one bool per node, ({n},)")
        pairs.hops = run.setting.steps
        pairs.masks = reached_rows(graph.A, train_N, pairs.hops)
    left_N = _left_N(graph, features) if is_sparse else ()
    return run.on({"n": graph.n_nodes} | counts_of_all(run.setting, pairs.masks, left_N, graph.A.indptr))


def _report(pairs: LayerCounts, run: DryRun | None, evaluations: int) -> VolumeReport:
    """Return the report of a training step and of evaluations."""
    made = (
        ()
        if run is None
        else (*run.passes("forward", "backward").exchanges, *run.passes("evaluate").exchanges * evaluations)
    )
    sent = tuple(exchange for product in made for exchange in pairs.exchanges(product))
    part, graph, work = pairs.partition, pairs.graph, pairs.counts()
    exchanges, total_P = [exchange.to_dict() for exchange in sent], work.total_P
    return VolumeReport(
        k=part.k, n=graph.n_nodes, nnz=graph.nnz, method=part.method, scheme=pairs.scheme, replication=pairs.grid.c,
        **part.measured(graph.A) | exchange_metrics(work.rows_PP), seconds=part.seconds, exchanges=exchanges,
        bytes_per_epoch=None if run is None else sum(e["bytes"] for e in exchanges),
        work_imbalance=float(total_P.max() / total_P.mean()) if total_P.any() else 1.0,
        layers=() if run is None else tuple(_layer(pairs, layer, exchanges) for layer in run.layers), sent=sent,
        run=run, pairs=pairs,
    )  # fmt: skip


def _layer(pairs: LayerCounts, layer: DryRun, exchanges: list[dict]) -> LayerVolume:
    counted = pairs.counts(layer.number if pairs.steps else 0)
    own = [e for e in exchanges if e["layer"] == layer.number]
    f_in, f_out = layer.shape
    products = sum(product.width for product in layer.multiplied) * int(counted.nnz_kk.sum())
    return LayerVolume(
        layer=layer.number, f_in=f_in, f_out=f_out, order=layer.order, is_kept=layer.is_cached, width=layer.width,
        rows=int(counted.out_k.sum()), rows_sent=sum(e["rows"] for e in own), bytes=sum(e["bytes"] for e in own),
        multiply_adds=products + layer.multiply_adds * pairs.grid.c, why=layer.why,
    )  # fmt: skip


def _checked(widths, model) -> tuple[int, ...]:
    try:
        widths = tuple(int(width) for width in widths)
    except (TypeError, ValueError):
        raise UsageError(f"widths = {widths!r}; expected columns of X and of each layer's output, such as (128, 16, 40); "
                         "give a model of other layers as model=") from None  # fmt: skip
    if widths and model is not None:
        raise UsageError("widths describe a Stack of GCN, and model= is given: give one of them")
    if widths and (len(widths) < 2 or min(widths) < 1):
        raise UsageError(f"widths = {widths}; expected at least two positive widths, input to output")
    return widths


def _input_of(
    graph: Graph, widths: tuple[int, ...], model: torch.nn.Module | FixedModel | None, keep: bool,
    sparse_input: bool | None, keep_sparse: bool | None,
) -> tuple[int, bool, bool]:  # fmt: skip
    """Return the columns of X, whether it is sparse, and whether A X is cached."""
    features = widths[0] if widths else graph.n_features or _first_width(model)
    if not features:
        raise UsageError(f"{graph.name} has no features, which the first layer of a model reads; give widths instead")
    if sparse_input is None:
        sparse_input = sp.issparse(graph.X) and features == graph.n_features
    if keep and sparse_input and keep_sparse is None:
        keep_sparse = not sp.issparse(graph.X) or stays_sparse(graph)
    return features, sparse_input, bool(keep and (not sparse_input or keep_sparse))


def _first_width(model: torch.nn.Module | FixedModel | None) -> int:
    """Return the columns that the first layer of a model declares to read, 0 where it declares none."""
    model = getattr(model, "model", model)
    return getattr(next(iter(getattr(model, "layers", ())), None), "f_in", 0)


def _left_N(graph: Graph, F: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nonzeros of each row of sparse X, and a bound of those of A X, (N,) int64; of a dense X all F."""
    x_N = np.diff(graph.X.indptr) if isinstance(graph.X, sp.csr_array) else np.full(graph.n_nodes, F)
    ones = sp.csr_array((np.ones(graph.nnz, np.int64), graph.A.indices, graph.A.indptr), shape=graph.A.shape)
    return x_N.astype(np.int64), np.minimum(ones @ x_N.astype(np.int64) + x_N, F)


def stays_sparse(graph: Graph, A: sp.csr_array | None = None) -> bool:
    """Return whether A X of sparse X is worth caching, as training decides it; A: default: with self-loops, as of gcn."""
    A = with_self_loops(graph.A) if A is None else A
    X: sp.csr_array = graph.X
    bound = int(np.bincount(A.indices, minlength=graph.n_nodes) @ np.diff(X.indptr))
    return keeps_sparse(bound, X.nnz, A.nnz)


def counts_of_all(
    setting: Setting, masks: Sequence[np.ndarray], left_N: Sequence[np.ndarray], indptr: np.ndarray
) -> dict[str, int]:
    """Return the counts of all ranks together, without ghost rows: see Setting.

    Args: masks   T_0 ... T_L, the rows of H that the layers of a pruned step read and give.
          left_N  nonzeros of each row of sparse X, and of A X where it is cached, (N,); () of dense X.
          indptr  of A, (N + 1,).
    """
    counts = {"g": 0, "x_ghost_nnz": 0, "edges": int(indptr[-1])}
    for number, rows_N in enumerate(masks):
        counts |= {f"T{number}": int(rows_N.sum()), f"g{number}": 0}
        counts[f"edges{number}"] = int(np.diff(indptr)[rows_N].sum())
    if setting.is_sparse:
        counts |= {name: int(nnz_N.sum()) for name, nnz_N in zip(("x_nnz", "cached_nnz"), left_N)}
        if setting.steps:
            counts["step_nnz"] = int(left_N[setting.step_is_cached][masks[setting.step_is_cached]].sum())
    return counts
