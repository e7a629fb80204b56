"""Needs: the memory, disk and reads of a training out of core, predicted from sizes alone.

Shapes: N nodes of the graph; n own nodes of a part, g of its halo, m = n + g; F columns that a pass reads, C that it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from ...cost.memory import OWNER_BYTES, POINTER, SETUP_BYTES, csr_bytes
from ...distgraph import Parts
from .passes import Pass

# Seen on arxiv and R-MAT with 8 and 16 parts: what libraries and the allocator hold beside what is in use.
LEFT_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of a training out of core, of any part.

    Args: written  by each pass, width and type; n_features: of X, in a type; is_sparse: X, whose A X is not kept;
          of_owners  whether the gradients of the rows that each pass reads are made by owners, where A H is kept.
    """

    passes: tuple[Pass, ...]
    written: Sequence[tuple[int, torch.dtype]]
    n_features: int
    dtype: torch.dtype
    is_sparse: bool
    of_owners: tuple[bool, ...]

    @property
    def kept(self) -> int:
        """The bytes of a row of A X, which is kept where X is dense."""
        return 0 if self.is_sparse else self.rows[0][0]

    @property
    def rows(self) -> list[tuple[int, int]]:
        """The bytes of a row that each pass reads, and of one that it writes."""
        widths = [self.n_features * self.dtype.itemsize, *(width * dtype.itemsize for width, dtype in self.written)]
        return list(zip(widths, widths[1:]))

    @property
    def norms(self) -> int:
        """Operators of the layers."""
        return max(len({layer.operator for one in self.passes for layer in one.layers if layer.hops}), 1)

    def operators(self, n: int, g: int, nnz: int) -> int:
        """Return the bytes of A and A' of a part, in all normalisations."""
        itemsize = self.dtype.itemsize
        return self.norms * (csr_bytes(nnz + n, n, itemsize) + csr_bytes(nnz + n, n + g, itemsize))

    @property
    def keeps(self) -> list[bool]:
        """Whether A H of the rows that each pass reads is kept for its gradients: of hidden rows, where A H comes first."""
        return [one.layers[0].is_chain and 0 < number < len(self.passes) - 1 for number, one in enumerate(self.passes)]

    def memory(self, n: int, g: int, nnz: int, n_nodes: int) -> int:
        """Return the bytes that a part takes beside the process: rows of two layers and their gradients, A and A'.

        The largest of its passes backward, in which A H or H W is there too, or of making A.
        """
        most = 0
        for number, (one, (read, write), is_kept) in enumerate(zip(self.passes, self.rows, self.keeps)):
            m = n + g if one.hops else n
            H = n * read if number == 0 else m * read + 2 * n * read if is_kept else 2 * m * read  # of X no gradient
            wide = max(read, write)  # of layers inside of the pass
            most = max(most, H + max(n * read, 0 if one.layers[0].is_chain else (n + g) * write) + 3 * n * wide)
        made = SETUP_BYTES * nnz + (n + g) * self.rows[0][0]
        return OWNER_BYTES * n_nodes + self.operators(n, g, nnz) + max(most, made)

    def disk(self, n: int, g: int, nnz: int) -> int:
        """Return the bytes of files of parts: rows of hidden layers, A H, two gradients of the widest, A and A', A X."""
        hidden = [read * (1 + is_kept) for (read, _), is_kept in zip(self.rows, self.keeps)][1:]
        owned = [is_kept and of_owners for is_kept, of_owners in zip(self.keeps, self.of_owners)][1:]
        sent = [(2 * n if is_owned else n + g) * read for is_owned, (read, _) in zip(owned, self.rows[1:])]
        return n * sum(hidden) + 2 * max(sent, default=0) + self.operators(n, g, nnz) + n * self.kept

    def reads(self, n: int, g: int, nnz: int) -> int:
        """Return the bytes that an epoch reads from files: hidden rows forward and back, their gradients, A of each visit.

        The last pass is computed once; of a pass whose A H is kept, own rows and A H are read back.
        """
        total = POINTER * (2 * len(self.passes) - 1) * (n + g) + 2 * n * self.kept
        for number, (one, (read, _), is_kept) in enumerate(zip(self.passes, self.rows, self.keeps)):
            m, is_last = n + g if one.hops else n, number == len(self.passes) - 1
            if number:
                total += read * (2 * m + (0 if is_last else 2 * n if is_kept else m))
        hops = sum(one.hops for one in self.passes)
        return total + ((3 * hops - 1) * self.operators(n, g, nnz) // 2 if hops else 0)

    def writes(self, n: int, g: int) -> int:
        """Return the bytes that an epoch writes: hidden rows, A H, and gradients, of owners or of the rows that are read."""
        total = 0
        for one, (read, _), is_kept, of_owners in list(zip(self.passes, self.rows, self.keeps, self.of_owners))[1:]:
            sent = n if not one.hops or (is_kept and of_owners) else n + g
            total += read * (n * (1 + is_kept) + sent)
        return total


def sizes_of(parts: Parts, own: Iterable[int]) -> tuple[int, int, int]:
    """Return own nodes, nodes of halos and nonzeros of some parts."""
    sizes = [parts.sizes(p) for p in own]
    n, g, nnz = (sum(of_part[name] for of_part in sizes) for name in ("n", "g", "nnz"))
    return n, g, nnz
