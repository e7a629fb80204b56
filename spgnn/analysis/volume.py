"""measure(): the bytes that every rank sends to every other in an epoch, from the partition alone.

Shapes: N nodes, k parts, P = k ranks; q sends, p receives. Imports neither torch nor a communicator.
Source: sparsity-aware paper (ICPP'24), Algorithm 1 (columns) and its baseline (broadcast).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import scipy.sparse as sp

from ..errors import UsageError, nearest
from ..graph import Graph
from ..partition import Partition, check_owner, count_parts, exchange_metrics, metrics
from ..partition import rows_PP as columns_PP
from ..spmm.schedule import LayerPlan, plan_layers

DIRECTIONS = ("forward", "backward")


def broadcast_PP(A: sp.csr_array, owner_N: np.ndarray, k: int) -> np.ndarray:
    """Count every own row once for each other part: rows_PP[q, p] = n_q for p != q; (k, k) int64."""
    rows_PP = np.repeat(np.bincount(owner_N, minlength=k).astype(np.int64)[:, None], k, axis=1)
    np.fill_diagonal(rows_PP, 0)
    return rows_PP


# What q sends p in one forward exchange, by scheme; backward sends the transpose.
SCHEMES: dict[str, Callable[[sp.csr_array, np.ndarray, int], np.ndarray]] = {
    "columns": columns_PP,
    "broadcast": broadcast_PP,
}


@dataclass(frozen=True, slots=True, eq=False)
class VolumeReport:
    """What one epoch sends, and the partition's metrics; print(report) shows the table.

    rows_PP[q, p] is what q sends p in one forward exchange. `total_rows` to `messages` are of that
    exchange under this scheme; `replication_factor` is the partition's, whatever the scheme;
    `seconds` is what making the partition took. Each entry of `exchanges` is {layer, direction,
    width, rows, bytes}, all ranks together; bytes_per_epoch is their sum.
    """

    k: int
    n: int
    nnz: int
    method: str
    scheme: str
    replication: int
    total_rows: int
    max_send_rows: int
    mean_send_rows: float
    max_over_mean_send: float
    max_recv_rows: int
    messages: int
    edge_cut: int
    replication_factor: float
    nnz_imbalance: float
    node_imbalance: float
    seconds: float
    exchanges: list[dict]
    bytes_per_epoch: int
    rows_PP: np.ndarray = field(repr=False)
    itemsize: int
    layers: tuple[LayerPlan, ...] = field(repr=False)

    def bytes_PP(self, layer: int | None = None, direction: str | None = None) -> np.ndarray:
        """Return the bytes that q sends p in an epoch, (k, k) int64: of a layer, a direction, or all.

        Raises: UsageError for a layer or direction that does not exist. A layer that exchanges
                nothing, such as the first with A X kept, gives zeros.
        """
        if layer is not None and not 1 <= layer <= len(self.layers):
            raise UsageError(f"layer {layer} does not exist; expected 1 to {len(self.layers)}")
        if direction is not None and direction not in DIRECTIONS:
            raise UsageError(f"direction {direction!r} is not known{nearest(direction, DIRECTIONS)}")
        total_PP = np.zeros_like(self.rows_PP)
        for exchange in self.exchanges:
            if layer in (None, exchange["layer"]) and direction in (None, exchange["direction"]):
                sent_PP = self.rows_PP if exchange["direction"] == "forward" else self.rows_PP.T
                total_PP += sent_PP * (exchange["width"] * self.itemsize)
        return total_PP

    def to_dict(self) -> dict:
        """Return the JSON object of `spgnn measure`: the keys of DESIGN and no others."""
        hidden = ("rows_PP", "itemsize", "layers")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}

    def __str__(self) -> str:
        lines = [
            f"{self.method}, k = {self.k}, {self.scheme}: {self.n:,} nodes, {self.nnz:,} nonzeros",
            f"  one exchange: {self.total_rows:,} rows in {self.messages:,} messages; largest send "
            f"{self.max_send_rows:,} ({self.max_over_mean_send:.2f} x the mean), largest receive {self.max_recv_rows:,}",
            f"  partition: {self.edge_cut:,} cut nonzeros, replication {self.replication_factor:.2f}, "
            f"work {self.nnz_imbalance:.3f} and nodes {self.node_imbalance:.3f} x the mean",
        ]
        lines += [
            f"  layer {e['layer']} {e['direction']:<8}  {e['rows']:>12,} rows x {e['width']:<5} {e['bytes']:>16,} bytes"
            for e in self.exchanges
        ]
        return "\n".join([*lines, f"  an epoch: {self.bytes_per_epoch:,} bytes"])


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
    sparse_input: bool = False,
    keep_sparse: bool = True,
) -> VolumeReport:
    """Predict the bytes of one training epoch: rows_PP x width x itemsize, summed over its exchanges.

    Args:   graph      with its reverse edges, unless with_edges chose otherwise; the self-loops that
                       normalise("gcn") adds send nothing.
            partition  a Partition, or an owner array (N,) of which the largest entry is k - 1.
            widths     F, hidden ..., C.
            itemsize   bytes of an entry of H: 4 float32, 8 float64.
            evaluations  forward passes an epoch beside the training step's.
            input_is_fixed, sparse_input, keep_sparse  see plan_layers.
    Raises: UsageError for a scheme or replication that is not there, or widths that make no layer;
            PartitionError where the partition does not fit the graph.
    """
    if scheme not in SCHEMES:
        raise UsageError(f"scheme {scheme!r} is not known{nearest(scheme, SCHEMES)}")
    if replication != 1:
        raise UsageError(f"replication = {replication!r} is not available; expected 1, with schemes {', '.join(SCHEMES)}")
    if itemsize < 1 or evaluations < 0:
        raise UsageError(f"itemsize = {itemsize}, evaluations = {evaluations}; expected at least 1 and 0")
    layers = plan_layers(widths, input_is_fixed, sparse_input, keep_sparse)
    graph = graph.in_use()
    if not isinstance(partition, Partition):
        k = count_parts(partition)
        partition = Partition(check_owner(partition, graph.n_nodes, k, "measure: the owner array"), k)
    partition.check_length(graph)
    k, owner_N = partition.k, partition.owner_N
    read_PP = columns_PP(graph.A, owner_N, k)
    rows_PP = read_PP if scheme == "columns" else SCHEMES[scheme](graph.A, owner_N, k)
    # An evaluation has no dropout, so that it meets the A X that distribute keeps.
    evaluation = plan_layers(widths, True, sparse_input, keep_sparse)
    exchanges = _exchanges(layers, evaluation * evaluations, int(rows_PP.sum()), itemsize)
    head = {"k": k, "n": graph.n_nodes, "nnz": graph.nnz, "method": partition.method}
    return VolumeReport(
        **head,
        scheme=scheme,
        replication=replication,
        **metrics(graph.A, owner_N, k, read_PP) | exchange_metrics(rows_PP),
        seconds=partition.seconds,
        exchanges=exchanges,
        bytes_per_epoch=sum(e["bytes"] for e in exchanges),
        rows_PP=rows_PP,
        itemsize=itemsize,
        layers=layers,
    )


def _exchanges(layers: tuple[LayerPlan, ...], evaluated: tuple[LayerPlan, ...], rows: int, itemsize: int) -> list[dict]:
    # In the order of an epoch: forward through the layers, backward, then the evaluations.
    forward = [(plan, "forward") for plan in layers for _ in range(plan.exchanges_forward)]
    backward = [(plan, "backward") for plan in reversed(layers) for _ in range(plan.exchanges_backward)]
    evaluate = [(plan, "forward") for plan in evaluated for _ in range(plan.exchanges_forward)]
    return [
        {"layer": p.layer, "direction": d, "width": p.width, "rows": rows, "bytes": rows * p.width * itemsize}
        for p, d in forward + backward + evaluate
    ]
