"""PassFiles: rows that passes have written, part by part, and gradients of them, with what other parts read of them.

Shapes: n own nodes of a part, g nodes of its halo, m = n + g, F columns, k parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...distgraph import Parts
from ...distgraph.own_rows import OwnRows, OwnRowsReader
from ...layers import Stack
from ...spmm.chains.dropout import drop_rows, is_nothing
from ...spmm.kernels.buffers import array_of, sum_dtype
from ...spmm.operator.features import AnyRows
from ...spmm.operator.subgraph import SubgraphSpMM
from .column_moments import ColumnMoments
from .kept_product import Expected, KeptProduct, ProductTaker
from .passes import Pass
from .scratch import Scratch

PLACES = "places"  # of the rows of a halo among the own rows of their parts
Halo = Sequence[tuple[int, slice, np.ndarray]]  # part, which rows of the halo it owns, their places among its own


class PassFiles:
    """The files of rows of nodes between two passes.

    Args: written    width and type of what each pass writes.
          counts_kk  [q, p]: rows of the halo of part q that part p owns, of a training; None: there are no gradients.
    Passes have numbers from 1; what pass number l writes, pass l + 1 reads.
    """

    def __init__(
        self, reader: OwnRowsReader, passes: tuple[Pass, ...], written: Sequence[tuple[int, torch.dtype]],
        scratch: Scratch, counts_kk: np.ndarray | None = None,
    ):  # fmt: skip
        self.reader, self.passes, self.written = reader, passes, written
        self.scratch, self.counts_kk = scratch, counts_kk
        self.moments: dict[int, ColumnMoments] = {}  # of this epoch, by the pass that reads the rows
        self.products: set[tuple[int, int]] = set()  # passes and parts whose A H is kept
        self.without: set[tuple[int, int]] = set()  # whose rows have no other gradient than from products

    @property
    def parts(self) -> Parts:
        """The parts of the reader."""
        return self.reader.parts

    @property
    def model(self) -> Stack:
        """The model of the passes."""
        return self.passes[0].model

    def write(self, number: int, p: int, H_nF: torch.Tensor) -> None:
        """Write what pass `number` has made of a part."""
        self.scratch.write(_rows(number), p, H_nF)

    def clear(self, number: int) -> None:
        """Remove what pass `number` wrote of own parts."""
        self.scratch.clear(_rows(number), self.parts.own)

    def inputs(self, number: int, rows: OwnRows) -> torch.Tensor:
        """Return the rows that a pass reads of a part: of own nodes, then of the halo, gathered from their owners."""
        width, dtype = self.written[number - 2]
        reads_halo = self.passes[number - 1].hops
        return self._gathered(_rows(number - 1), rows, width, dtype, bool(reads_halo))

    def _gathered(self, name: str, rows: OwnRows, width: int, dtype: torch.dtype, reads_halo: bool) -> torch.Tensor:
        """Return the rows of files of own nodes, then those that their owners have of the halo."""
        H = self.reader.layout.pool.empty(len(rows.node_m) if reads_halo else rows.n, width, dtype=dtype)
        bits, n = array_of(H), rows.n
        self.scratch.read(name, rows.p, bits[:n])
        for q, of_q, places in self._halo(rows) if reads_halo else ():
            self.scratch.rows(name, q, self.parts.sizes(q)["n"], places, bits[n:][of_q])
        return H

    def taking(self, number: int, rows: OwnRows) -> SubgraphSpMM:
        """Return the operator of a part in a pass forward: A H of the hidden rows that it reads is written."""
        if number == 1 or not self.passes[number - 1].layers[0].is_chain:
            return rows.wide

        def take(S_nF: AnyRows) -> None:
            assert isinstance(S_nF, torch.Tensor)  # of hidden rows
            self.scratch.write(_products(number), rows.p, S_nF)
            self.products.add((number, rows.p))

        return ProductTaker(rows.wide.block, Expected(take))

    def product(self, number: int, rows: OwnRows) -> KeptProduct | None:
        """Return the operator of a part in a pass backward whose A H is kept; None where it is not."""
        if (number, rows.p) not in self.products:
            return None
        S_nF = self._file_rows(_products(number), rows.p, rows.n, number - 1)
        give = (lambda G_nF: self.scratch.write(_sums(number), rows.p, G_nF)) if self._is_pulled(number) else None
        return KeptProduct(rows.wide.block, S_nF, give)

    def _is_pulled(self, number: int) -> bool:
        """Whether owners make the gradient of the rows that a pass reads: its A H is kept, and A its own transpose."""
        is_kept, parts = (number, self.parts.own[0]) in self.products, self.parts
        return is_kept and self.passes[number - 1].is_own_transpose(parts.how.operator, parts.source.facts.is_symmetric)

    def read_own(self, number: int, p: int) -> torch.Tensor:
        """Return the rows of own nodes that a pass reads, as they were written."""
        return self._file_rows(_rows(number - 1), p, self.parts.sizes(p)["n"], number - 1)

    def moments_of(self, number: int) -> ColumnMoments | None:
        """Return the moments of what a pass reads, where its BatchNorm needs them, made once in an epoch. Collective."""
        if (norm := self.passes[number - 1].norm) is not None and number not in self.moments:
            rows = lambda: (self.own(number, p) for p in self.parts.own)
            self.moments[number] = ColumnMoments(norm, rows, self.parts.n_nodes, self.parts.comm)
        return self.moments.get(number)

    def own(self, number: int, p: int) -> torch.Tensor:
        """Return the rows of own nodes that a pass reads, under its dropout."""
        if number > 1:
            H = self.read_own(number, p)
        else:
            X = self.reader.input(p, 0)
            assert X is not None
            H = X if torch.is_tensor(X) else X.dense()
        return self._dropped(number, H, self._own_ids(p))

    def _dropped(self, number: int, H_F: torch.Tensor, ids: np.ndarray) -> torch.Tensor:
        """Return rows of nodes of original ids under the dropout of the Stack on what a pass reads."""
        first = self.passes[number - 1].layers[0]
        rate, key = self.model.dropout_of(first.number)
        if rate == 0 or is_nothing(key) or not first.is_first:
            return H_F
        return drop_rows(self.reader.layout, H_F, ids, rate, key)  # pyrefly: ignore[bad-argument-type]  # pool, ops, threads

    def _own_ids(self, p: int) -> np.ndarray:
        return np.flatnonzero(self.reader.owner_N == p)

    def _file_rows(self, name: str, p: int, count: int, number: int, first: int = 0) -> torch.Tensor:
        """Return rows of a file of the width and type that pass `number` writes."""
        width, dtype = self.written[number - 1]
        H = self.reader.layout.pool.empty(count, width, dtype=dtype)
        self.scratch.read(name, p, array_of(H), first)
        return H

    def _halo(self, rows: OwnRows) -> Halo:
        """Return who owns the halo, see OwnRowsReader.owners."""
        return self.reader.owners(rows.node_m[rows.n :])

    def send(self, number: int, rows: OwnRows, G_F: torch.Tensor, product: KeptProduct | None = None) -> None:
        """Write the gradient of what pass `number` wrote: of own rows, and of the halo's by owner.

        Args: G_F  of own rows and halo, or, of a pass whose A H was kept, of own rows.
        """
        n, scratch = rows.n, self.scratch
        self.without.discard((number, rows.p))
        if product is not None and product.give is not None and not G_F.any():  # owners make all of it
            self.without.add((number, rows.p))
            return
        scratch.write(_gradients(number), rows.p, G_F[:n])
        if not self.passes[number].hops or self._is_pulled(number + 1):
            return
        if product is None:
            G_gF = G_F[n:]
        else:
            assert product.halo_gF is not None  # backward has multiplied
            G_gF = self._dropped(number + 1, product.halo_gF, rows.node_m[n:])
        scratch.write(_halos(number), rows.p, G_gF)
        if not scratch.path(PLACES, rows.p).exists():
            places = [places for _, _, places in self._halo(rows)]
            scratch.write(PLACES, rows.p, np.concatenate([np.empty(0, np.int32), *places]))

    def arrived(self, number: int, rows: OwnRows) -> torch.Tensor:
        """Return the gradient of what pass `number` wrote, (n, F): the part's own, then the other parts' in their order."""
        p, n, (width, dtype) = rows.p, rows.n, self.written[number - 1]
        if (number, p) in self.without:
            total_nF = self.reader.layout.pool.empty(n, width, dtype=sum_dtype(dtype)).zero_()
        else:
            total_nF = self._file_rows(_gradients(number), p, n, number).to(sum_dtype(dtype))
        if self._is_pulled(number + 1):
            D_mF = self._gathered(_sums(number + 1), rows, width, dtype, reads_halo=True)
            operator = rows.wide.with_norm(self.passes[number].layers[0].operator)
            product_nF = operator.apply(D_mF)
            assert isinstance(product_nF, torch.Tensor)  # of dense rows
            total_nF += self._dropped(number + 1, product_nF, rows.node_m[:n])
        elif self.passes[number].hops:
            self._add_halos(number, rows, total_nF)
        if (after := self.moments.get(number + 1)) is not None:
            of_norm = after.gradient(self.own(number + 1, p))
            total_nF += self._dropped(number + 1, of_norm, self._own_ids(p))
        return total_nF.to(dtype)

    def _add_halos(self, number: int, rows: OwnRows, total_nF: torch.Tensor) -> None:
        """Add what other parts have written of the gradients of own rows, in the order of parts."""
        counts_kk, p = self.counts_kk, rows.p
        assert counts_kk is not None  # of a training
        for q in range(self.parts.k):
            count, first = int(counts_kk[q, p]), int(counts_kk[q, :p].sum())
            if count:
                self.scratch.read(PLACES, q, places := np.empty(count, np.int32), first)
                G_gF = self._file_rows(_halos(number), q, count, number, first)
                total_nF.index_add_(0, torch.from_numpy(places).long(), G_gF.to(total_nF.dtype))


def _rows(number: int) -> str:
    """Return the folder of what a pass writes."""
    return f"pass-{number}"


def _products(number: int) -> str:
    """Return the folder of A H of the rows that a pass reads."""
    return f"product-{number}"


def _sums(number: int) -> str:
    """Return the folder of the gradients of A H of a pass; every other pass has the same."""
    return f"sum-{number % 2}"


def _gradients(number: int) -> str:
    """Return the folder of the gradients of the own rows of what a pass wrote; every other pass has the same."""
    return f"gradient-{number % 2}"


def _halos(number: int) -> str:
    """Return the folder of the gradients of the halos' rows of what a pass wrote; every other pass has the same."""
    return f"halo-{number % 2}"
