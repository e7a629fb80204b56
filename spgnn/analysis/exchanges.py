"""Exchanges: what the ranks send each other for the products of an epoch, from counts of the pairs of parts.

Shapes: N nodes, k parts, P = k c ranks; q sends, p receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..config.names import SENDS_SUMS
from ..cost.grid import ProcessGrid
from ..cost.memory import sum_bytes
from ..cost.pairs import Counts, count_pairs
from ..cost.schedule import row_bytes
from ..graph import Graph
from ..partition import Partition

if TYPE_CHECKING:
    from ..spmm.dry.dry_operator import Setting
    from ..spmm.dry.recording import Product


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
