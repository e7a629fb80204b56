"""measure(): the bytes that every rank sends to every other in an epoch, from the partition alone.

Shapes: N nodes, k parts, P = k c ranks; q sends, p receives. Imports neither torch nor a communicator.
Source: sparsity-aware paper (ICPP'24), sections 4.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.sparse as sp

from ..config.names import SCHEMES
from ..cost.pairs import Product, grid_of, on_ranks, only_rows, product, reached_rows, reads, sums_PP, work_of
from ..cost.schedule import LayerPlan, keeps_sparse, plan_layers, row_bytes
from ..errors import UsageError, check_integer, nearest
from ..graph import Graph, check_is_graph, with_self_loops
from ..partition import Partition
from ..partition.checks import check_owner, count_parts
from ..partition.metrics import exchange_metrics, metrics
from ..partition.metrics import rows_PP as columns_kk
from .volume_report import Exchange, LayerVolume, VolumeReport


def measure(
    graph: Graph,
    partition: Partition | np.ndarray,
    scheme: str = "columns",
    widths: Sequence[int] = (),
    replication: int = 1,
    itemsize: int = 4,
    *,
    evaluations: int = 0,
    input_is_fixed: bool = True,
    sparse_input: bool | None = None,
    keep_sparse: bool | None = None,
    train_N: np.ndarray | None = None,
    order: Literal["auto", "spmm_first"] = "auto",
    keep: bool = True,
    input_gradient: bool = False,
    wire: str = "float32",
    wire_gradients: str = "float32",
) -> VolumeReport:
    """Predict the bytes of one training epoch: rows_PP x bytes of a row, summed over its exchanges.

    Args:   graph        with its reverse edges, unless with_edges chose otherwise; the self-loops that
                         normalise("gcn") adds send nothing.
            partition    a Partition, or an owner array (N,) of which the largest entry is k - 1.
            scheme       broadcast, columns or cover.
            widths       F, hidden ..., C.
            replication  c of 1.5D: P = k c ranks, each part on c of them.
            itemsize     bytes of an entry of H: 2 bfloat16, 4 float32, 8 float64.
            evaluations  forward passes an epoch beside the training step's; they compute all rows.
            input_is_fixed, sparse_input, keep_sparse, order  see plan_layers; what is left out is the graph's:
                         whether its X is sparse, and whether A X, self-loops added as by gcn, is worth keeping.
            train_N      (N,) bool: a training step computes only the rows that reach these nodes (row
                         pruning); None: all rows.
            keep         False: A X is computed in every epoch, as the published systems do.
            input_gradient  count layer 1's backward exchange, as if X had a gradient; needs keep=False.
            wire, wire_gradients  type of the rows that travel forward and backward; sums over process rows
                         keep the activations' own.
    Raises: UsageError for a scheme, replication or option that does not fit, or widths that make no layer;
            PartitionError where the partition does not fit the graph.
    """
    if scheme not in SCHEMES:
        raise UsageError(f"scheme {scheme!r} is not known{nearest(scheme, SCHEMES)}")
    check_is_graph(graph)
    check_integer("itemsize", itemsize, 1)
    check_integer("evaluations", evaluations, 0)
    try:
        widths = tuple(int(width) for width in widths)
    except (TypeError, ValueError):
        raise UsageError(f"widths = {widths!r}; expected columns of X and of each layer's output, such as (128, 16, 40); "
                         "a Stack with layers of one's own has widths None and cannot be predicted") from None  # fmt: skip
    for name in (wire, wire_gradients):
        row_bytes(1, itemsize, name)
    if input_gradient and keep:
        raise UsageError("input_gradient counts an exchange that a kept A X does not have; expected keep=False with it")
    graph = graph.in_use()
    if sparse_input is None:
        sparse_input = sp.issparse(graph.X) and len(widths) > 0 and widths[0] == graph.n_features
    if keep_sparse is None:
        keep_sparse = not sparse_input or not sp.issparse(graph.X) or stays_sparse(graph)
    fixed = input_is_fixed and keep
    layers = plan_layers(widths, fixed, sparse_input, keep_sparse, order=order)
    # An evaluation has no dropout, so that it meets the A X that distribute keeps.
    evaluated = plan_layers(widths, keep, sparse_input, keep_sparse, order=order)
    if not isinstance(partition, Partition):
        k = count_parts(partition)
        partition = Partition(check_owner(partition, graph.n_nodes, k, "measure: the owner array"), k)
    partition.check_length(graph)
    A, k, owner_N = graph.A, partition.k, partition.owner_N
    grid = grid_of(k, replication)

    every = product(A, owner_N, k, scheme)
    needed = [None] * len(layers) if train_N is None else reached_rows(A, _mask(train_N, graph), len(layers))
    steps = [every if rows_N is None else product(A, owner_N, k, scheme, rows_N) for rows_N in needed]
    tables = {id(counted): _Tables(counted, grid) for counted in (every, *steps)}
    sent = _epoch(layers, [tables[id(step)] for step in steps], input_gradient, itemsize, wire, wire_gradients)
    evaluation = [
        e
        for e in _epoch(evaluated, [tables[id(every)]] * len(layers), False, itemsize, wire, wire)
        if e.direction == "forward"
    ]
    sent += evaluation * evaluations

    rows_PP, work = tables[id(every)].rows_PP, work_of(every, grid)
    read_kk = every.rows_kk if scheme == "columns" else columns_kk(A, owner_N, k)
    exchanges = [exchange.to_dict() for exchange in sent]
    return VolumeReport(
        k=k,
        n=graph.n_nodes,
        nnz=graph.nnz,
        method=partition.method,
        scheme=scheme,
        replication=replication,
        **metrics(A, owner_N, k, read_kk) | exchange_metrics(rows_PP),
        seconds=partition.seconds,
        exchanges=exchanges,
        bytes_per_epoch=sum(e["bytes"] for e in exchanges),
        work_imbalance=float(work.total_P.max() / work.total_P.mean()) if work.total_P.any() else 1.0,
        layers=tuple(
            _volume(plan, step, exchanges, replication, _left_nnz(graph, plan, sparse_input, rows_N), input_gradient)
            for plan, step, rows_N in zip(layers, steps, needed)
        ),
        rows_PP=rows_PP,
        itemsize=itemsize,
        work=work,
        sent=tuple(sent),
    )


class _Tables:
    """What the ranks send for one product: rows, and sums over process rows forward and backward, (P, P)."""

    def __init__(self, counted: Product, grid):
        self.rows_PP = on_ranks(counted.rows_kk, grid)
        self.sums = {
            "forward": sums_PP(counted.out_k, grid, "forward"),
            "backward": sums_PP(counted.in_k, grid, "backward"),
        }
        self.c = grid.c

    def exchanges(self, plan: LayerPlan, direction: str, rows_bytes: int, sum_bytes: int) -> list[Exchange]:
        rows_PP = self.rows_PP if direction == "forward" else self.rows_PP.T
        rows = Exchange(plan.layer, direction, "rows", plan.width, rows_bytes, rows_PP)
        if self.c == 1:
            return [rows]
        return [rows, Exchange(plan.layer, direction, "sum", plan.width, sum_bytes, self.sums[direction])]


def _epoch(
    layers, tables: list[_Tables], input_gradient: bool, itemsize: int, wire: str, wire_gradients: str
) -> list[Exchange]:
    """Return the exchanges of a training step in order: forward through the layers, then backward."""
    sent = []
    for direction, plans, kind in (("forward", layers, wire), ("backward", layers[::-1], wire_gradients)):
        for plan in plans:
            backward = max(plan.exchanges_backward, plan.layer == 1 and input_gradient)
            for _ in range(plan.exchanges_forward if direction == "forward" else backward):
                # Partial results of bfloat16 are float32 until they are added up.
                sum_bytes = plan.width * (max(itemsize, 4) if direction == "forward" else itemsize)
                sent += tables[plan.layer - 1].exchanges(
                    plan, direction, row_bytes(plan.width, itemsize, kind), sum_bytes
                )
    return sent


def _volume(
    plan: LayerPlan, step: Product, exchanges: list[dict], c: int, left_nnz: int | None, input_gradient: bool
) -> LayerVolume:
    own = [e for e in exchanges if e["layer"] == plan.layer]
    nnz, rows = int(step.nnz_kk.sum()), int(step.out_k.sum())
    has_input_gradient = plan.layer > 1 or input_gradient
    products = 0 if plan.is_kept else 1 + max(plan.exchanges_backward, has_input_gradient)
    dense_rows = rows if plan.order == "spmm_first" else int(step.in_k.sum())
    dense = (dense_rows * plan.f_in if left_nnz is None else left_nnz) * plan.f_out
    return LayerVolume(
        layer=plan.layer,
        f_in=plan.f_in,
        f_out=plan.f_out,
        order=plan.order,
        is_kept=plan.is_kept,
        width=plan.width,
        rows=rows,
        rows_sent=sum(e["rows"] for e in own),
        bytes=sum(e["bytes"] for e in own),
        multiply_adds=products * nnz * plan.width + (2 + has_input_gradient) * dense * c,
        why=plan.why,
    )


def stays_sparse(graph: Graph) -> bool:
    """Return whether A X of sparse X, self-loops added as by gcn, is worth keeping, as distribute decides it."""
    A = with_self_loops(graph.A)
    bound = int(np.bincount(A.indices, minlength=graph.n_nodes) @ np.diff(graph.X.indptr))
    return keeps_sparse(bound, graph.X.nnz, A.nnz)


def _left_nnz(graph: Graph, plan: LayerPlan, sparse_input: bool, rows_N: np.ndarray | None) -> int | None:
    """Return the nonzeros of the sparse left factor, X or (a bound) A X kept; None where it is dense.

    Args: rows_N  (N,) bool, the rows of Z that a step computes; None: all.
    """
    if not sparse_input or plan.layer > 1 or not sp.issparse(graph.X):
        return None
    nnz_N = np.diff(graph.X.indptr).astype(np.int64)
    if plan.is_kept:
        ones = sp.csr_array((np.ones(graph.nnz, np.int64), graph.A.indices, graph.A.indptr), shape=graph.A.shape)
        nnz_N = np.minimum(ones @ nnz_N + nnz_N, plan.f_in)
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
