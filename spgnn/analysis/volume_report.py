"""VolumeReport: what an epoch sends, exchange by exchange and layer by layer, as a table and as JSON.

Shapes: P = k c ranks; q sends, p receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from ..config.names import SENDS_SUMS
from ..cost.memory import sum_bytes
from ..cost.pairs import Counts, ProcessGrid, count_pairs
from ..cost.schedule import row_bytes
from ..errors import UsageError, nearest
from ..graph import Graph
from ..partition import Partition

if TYPE_CHECKING:
    from ..spmm.dry.dry import DryRun
    from ..spmm.dry.recording import Product

DIRECTIONS = ("forward", "backward")
HIDDEN = ("sent", "run", "pairs")


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """One exchange of an epoch: kind "rows", for a product with A, or "sum", over process rows (1.5D)."""

    layer: int
    direction: str
    kind: str
    width: int
    row_bytes: int
    rows_PP: np.ndarray  # that q sends p

    def to_dict(self) -> dict:
        rows = int(self.rows_PP.sum())
        head = {"layer": self.layer, "direction": self.direction, "width": self.width, "rows": rows}
        return head | {"bytes": rows * self.row_bytes, "kind": self.kind}


@dataclass(eq=False)
class LayerCounts:
    """Counts of products with all rows, and with those that the layers of a step compute; each is made once.

    itemsize  bytes of an entry of H; wires: types of the rows that travel, forward and backward.
    masks     T_0 ... T_L of a pruned step, each (N,) bool, () without; hops: of its layers.
    """

    graph: Graph
    partition: Partition
    scheme: str
    grid: ProcessGrid
    itemsize: int
    wires: tuple[str, str]
    masks: Sequence[np.ndarray] = ()
    hops: Sequence[int] = ()
    _made: dict[tuple[str, int], Counts] = field(default_factory=dict)

    def counts(self, number: int = 0, scheme: str = "") -> Counts:
        """Return the counts of one product of a layer of the step, number 0: of all rows; scheme: default the run's.

        A layer without hops sends nothing.
        """
        key = (scheme or self.scheme, number)
        if key not in self._made:
            k, owner_N = self.partition.k, self.partition.owner_N
            if number and not self.hops[number - 1]:
                none_kk, rows_k = np.zeros((k, k), np.int64), np.bincount(owner_N[self.masks[number]], minlength=k)
                self._made[key] = Counts(none_kk, none_kk, none_kk, rows_k, rows_k, self.grid)
            else:
                rows = (self.masks[number], self.masks[number - 1]) if number else ()
                self._made[key] = count_pairs(self.graph.A, self.partition, self.grid, key[0], *rows)
        return self._made[key]

    @property
    def is_relayed(self) -> bool:
        """Whether rows that cross between hosts are gathered and spread inside them."""
        return self.scheme == "two-tier" and self.grid.is_tiered

    @property
    def steps(self) -> list[Counts]:
        """The counts of the layers of a pruned step."""
        return [self.counts(number) for number in range(1, len(self.masks))]

    def exchanges(self, product: Product) -> Iterable[Exchange]:
        """Yield the exchange of rows and the exchange of partial results of a product, as far as it needs them.

        Where sums are sent, rows that are read and not summed (attention, maximum, A.fetch) travel as under columns.
        """
        if not product.is_sent:
            return
        is_backward, width, layer = product.pass_name == "backward", product.width, product.layer or 0
        number = layer if len(self.masks) and product.pass_name != "evaluate" else 0
        scheme = "columns" if product.kind == "ghosts" and self.scheme in SENDS_SUMS else self.scheme
        head, counts = (layer, "backward" if is_backward else "forward"), self.counts(number, scheme)
        if product.kind != "sum":
            n_bytes, rows_PP = row_bytes(width, self.itemsize, self.wires[is_backward]), counts.rows_PP
            yield Exchange(*head, "rows", width, n_bytes, rows_PP.T if is_backward else rows_PP)
        if product.kind == "sum" or (self.grid.c > 1 and (is_backward or product.kind != "ghosts")):
            # Partial results of bfloat16 are float32 until they are added up; what a process row shares is rounded.
            is_shared = is_backward and product.kind != "sum"
            n_bytes = width * (self.itemsize if is_shared else sum_bytes(self.itemsize))
            yield Exchange(*head, "sum", width, n_bytes, counts.sums_PP(is_shared))


@dataclass(frozen=True, slots=True)
class LayerVolume:
    """One layer of an epoch, all ranks together.

    layer          0: what a model multiplies outside of the layers of a Stack.
    f_in, f_out    of a layer that is one chain A H W, else None.
    order          spmm_first or gemm_first of a chain; rows: neighbours' rows themselves; None: products A H.
    width          of its exchanges; None where they differ in it.
    rows           rows of Z that a training step computes.
    rows_sent      rows of its exchanges, sums over process rows and evaluations too; bytes: of these.
    multiply_adds  of a training step, forward and backward; the nonzeros of A as the graph has them (gcn
                   adds one per row). Dense products are done on each of the c ranks of a process row.
    """

    layer: int
    f_in: int | None
    f_out: int | None
    order: str | None
    is_kept: bool
    width: int | None
    rows: int
    rows_sent: int
    bytes: int
    multiply_adds: int
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class VolumeReport:
    """What one epoch sends, and the partition's metrics; print(report) shows the tables.

    rows_PP[q, p] is what rank q sends rank p in one forward product of all rows, sums over process rows
    not counted. `total_rows` to `messages` are of that product under this scheme; `replication_factor` is
    the partition's, whatever the scheme; `seconds` is what making the partition took. `run` is the dry run of the
    model, None without one. Each entry of
    `exchanges` is {layer, direction, width, rows, bytes, kind}, all ranks together; bytes_per_epoch is
    their sum. `work` has the nonzeros that each rank multiplies in one product, `work_imbalance` their
    largest over the mean: `cover` moves some from the reader to the owner.
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
    bytes_per_epoch: int | None
    work_imbalance: float
    layers: tuple[LayerVolume, ...]
    sent: tuple[Exchange, ...]
    run: DryRun | None
    pairs: LayerCounts

    @property
    def work(self) -> Counts:
        """Counts of one product of all rows: own_P, ghost_P and sender_P are the nonzeros that each rank multiplies."""
        return self.pairs.counts()

    @property
    def rows_PP(self) -> np.ndarray:
        return self.work.rows_PP

    @property
    def itemsize(self) -> int:
        return self.pairs.itemsize

    def bytes_PP(self, layer: int | None = None, direction: str | None = None) -> np.ndarray:
        """Return the bytes that rank q sends rank p in an epoch, (P, P) int64: of a layer, a direction, or all.

        Sums over process rows are in them; evaluations are forward.
        Raises: UsageError for a layer or direction that does not exist. A layer that exchanges
                nothing, such as the first with A X kept, gives zeros.
        """
        numbers = [volume.layer for volume in self.layers]
        if self.run is None:
            raise UsageError("bytes belong to an epoch; measure with widths, or with model=")
        if layer is not None and layer not in numbers:
            raise UsageError(f"layer {layer} does not exist; expected {_span(numbers)}")
        if direction is not None and direction not in DIRECTIONS:
            raise UsageError(f"direction {direction!r} is not known{nearest(direction, DIRECTIONS)}")
        total_PP = np.zeros_like(self.rows_PP)
        for exchange in self.sent:
            if layer in (None, exchange.layer) and direction in (None, exchange.direction):
                total_PP += exchange.rows_PP * exchange.row_bytes
        return total_PP

    @property
    def tiers(self) -> dict[str, int]:
        """Of ranks on several hosts: rows of a product and bytes of an epoch that cross between hosts, by their keys of JSON."""
        crosses_PP = self.pairs.grid.crosses_PP
        if not crosses_PP.any():
            return {}
        rows = {"rows_between_hosts": int(self.rows_PP[crosses_PP].sum())}
        return rows if self.run is None else rows | {"bytes_between_hosts": int(self.bytes_PP()[crosses_PP].sum())}

    def to_dict(self) -> dict:
        """Return the JSON object of `spgnn measure`: its fixed keys, then work_imbalance, layers and tiers."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in HIDDEN}
        return values | {"layers": [asdict(layer) for layer in self.layers]} | self.tiers

    def __repr__(self) -> str:
        return str(self)  # of arrays, k x k, nobody would see more

    def __str__(self) -> str:
        moved = int(self.work.sender_P.sum())
        grid = f", c = {self.replication} ({self.k * self.replication} ranks)" if self.replication > 1 else ""
        lines = [
            f"{self.method}, k = {self.k}, {self.scheme}{grid}: {self.n:,} nodes, {self.nnz:,} nonzeros",
            f"  one product: {self.total_rows:,} rows in {self.messages:,} messages; largest send "
            f"{self.max_send_rows:,} ({self.max_over_mean_send:.2f} x the mean), largest receive {self.max_recv_rows:,}",
            f"  partition: {self.edge_cut:,} cut nonzeros, replication {self.replication_factor:.2f}, "
            f"work {self.nnz_imbalance:.3f} and nodes {self.node_imbalance:.3f} x the mean",
            f"  largest work of a rank {self.work_imbalance:.3f} x the mean"
            + (f"; {moved:,} nonzeros ({moved / max(self.nnz, 1):.1%}) move to the owner" if moved else ""),
        ]
        if self.layers:
            lines += [f"  {line}" for line in layer_table(self.layers)]
        lines += [
            f"  layer {e['layer']} {e['direction']:<8} {e['kind']:<4}  {e['rows']:>12,} rows x {e['width']:<5} {e['bytes']:>16,} bytes"
            for e in self.exchanges
        ]
        for name, count in self.tiers.items():
            unit, all_of = name.split("_")[0], self.total_rows if name.startswith("rows") else self.bytes_per_epoch or 0
            lines.append(f"  between hosts: {count:,} {unit}, inside: {all_of - count:,}")
        if self.run is not None:
            lines.append(f"  an epoch: {self.bytes_per_epoch:,} bytes")
        return "\n".join(lines)


def layer_table(layers: tuple[LayerVolume, ...]) -> list[str]:
    """Return the lines of a table: each layer's order, widths, rows, bytes and multiply-adds, then the reasons."""
    head = ("layer", "order", "widths", "rows", "rows sent", "bytes", "multiply-adds")
    orders = {"spmm_first": "(A H) W", "gemm_first": "A (H W)", "rows": "rows of H", None: "A H"}
    rows = [
        (str(v.layer), "(A X) W, kept" if v.is_kept else orders[v.order], _widths(v), f"{v.rows:,}",
         f"{v.rows_sent:,}", f"{v.bytes:,}", f"{v.multiply_adds / 1e6:,.1f} M")
        for v in layers
    ]  # fmt: skip
    sizes = [max(map(len, column)) for column in zip(head, *rows)]
    left = {"layer", "order", "widths"}
    table = [
        "  ".join(
            cell.ljust(size) if name in left else cell.rjust(size) for name, cell, size in zip(head, row, sizes)
        ).rstrip()
        for row in (head, *rows)
    ]
    return table + [f"layer {v.layer}: {v.why}" for v in layers if v.why]


def _widths(volume: LayerVolume) -> str:
    if volume.f_in is None:
        return "-" if volume.width is None else str(volume.width)
    return f"{volume.f_in} -> {volume.f_out}"


def _span(numbers: list[int]) -> str:
    if numbers == list(range(1, len(numbers) + 1)):
        return f"1 to {len(numbers)}"
    return f"one of {', '.join(map(str, numbers))}"
