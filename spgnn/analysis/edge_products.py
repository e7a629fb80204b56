"""The passes of attention and maximum over the nonzeros of A, as products that take as long.

Shapes: P ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..cost.pairs import Work
from ..cost.seconds import RankProduct, edge_price

if TYPE_CHECKING:
    from ..spmm.recording import Product


def edge_products(
    of_layer: Sequence[Product], edges: Sequence[Product], work: Work, share: float, way: str, product: Callable
) -> tuple[RankProduct, ...]:
    """Return the products of a layer in one direction; the exchanges of rows overlap with the passes over edges.

    Args: of_layer  its products in that direction; edges: its passes over the nonzeros in forward.
          share     of the nonzeros that a pruned step multiplies; way: forward or backward.
          product   (Product) -> RankProduct.
    """
    from ..spmm.recording import Product

    is_read = ("ghosts", "cached ghosts") if way == "forward" else ("ghosts",)  # others are of chains, or summed
    brings_rows = lambda of: of.order is None and of.kind in is_read
    if not edges:
        return tuple(map(product, of_layer))
    made = [product(of) for of in of_layer if not brings_rows(of)]
    rows = [product(of) for of in of_layer if brings_rows(of)]
    rows += [product(Product(None, way, 1, "cached"))] * (len(edges) - len(rows))
    prices = [(edge.width, share * edge_price(edge.kind, edge.width, edge.heads, way)) for edge in edges]
    prices += [(1, 0.0)] * (len(rows) - len(edges))
    for brought, (width, price) in zip(rows, prices):
        nonzeros = {name: getattr(work, name) * price for name in ("own_P", "ghost_P", "sender_P")}
        made.append(replace(brought, width=width, **nonzeros))
    return tuple(made)
