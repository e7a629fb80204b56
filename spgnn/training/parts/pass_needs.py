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

# Seen on arxiv and R-MAT with 8 to 32 parts: what buffers and the allocator hold beside what is in use.
HELD_TOO, LEFT_BYTES = 1.2, 100_000_000


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of a training out of core, of any part.

    Args: written  by each pass, width and type; n_features: of X, in a type; is_sparse: X, whose A X is not kept.
    """

    passes: tuple[Pass, ...]
    written: Sequence[tuple[int, torch.dtype]]
    n_features: int
    dtype: torch.dtype
    is_sparse: bool = False

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

    def memory(self, n: int, g: int, nnz: int, n_nodes: int) -> int:
        """Return the bytes that a part takes beside the process: rows of two layers and their gradients, A and A'.

        The largest of its passes backward, in which A H or H W is kept, or of making A.
        """
        most = 0
        for number, (one, (read, write)) in enumerate(zip(self.passes, self.rows)):
            H = 2 * (n + g if one.hops else n) * read if number else n * read  # of X no gradient
            is_narrow = one.layers[0].is_chain and read <= write
            most = max(most, H + max(n * read, 0 if is_narrow else (n + g) * write) + 3 * n * write)
        made = SETUP_BYTES * nnz + (n + g) * self.rows[0][0]
        return OWNER_BYTES * n_nodes + int(HELD_TOO * (self.operators(n, g, nnz) + max(most, made))) + LEFT_BYTES

    def disk(self, n: int, g: int, nnz: int) -> int:
        """Return the bytes of files of parts: the rows of hidden layers, two gradients of the widest, A and A', A X."""
        hidden = [write for _, write in self.rows[:-1]]
        return n * sum(hidden) + 2 * (n + g) * max(hidden, default=0) + self.operators(n, g, nnz) + n * self.kept

    def reads(self, n: int, g: int, nnz: int) -> int:
        """Return the bytes that an epoch reads from files: each hidden layer twice, its gradient once, A three times.

        The last pass is computed once. The part that is open when a pass ends is not read again by the next.
        """
        read = [(n + g if one.hops else n) * width for one, (width, _) in zip(self.passes, self.rows)]
        hops = sum(one.hops for one in self.passes)
        operators = (3 * hops - 1) * self.operators(n, g, nnz) // 2 if hops else 0
        ids = POINTER * (2 * len(self.passes) - 1) * (n + g)
        return ids + 3 * sum(read[1:]) - (read[-1] if len(read) > 1 else 0) + 2 * n * self.kept + operators

    def writes(self, n: int, g: int) -> int:
        """Return the bytes that an epoch writes: each hidden layer, and the gradients of the rows that are read."""
        return sum(
            (2 * n + g * bool(after.hops)) * write for (_, write), after in zip(self.rows, self.passes[1:])
        )


def sizes_of(parts: Parts, own: Iterable[int]) -> tuple[int, int, int]:
    """Return own nodes, nodes of halos and nonzeros of some parts."""
    sizes = [parts.sizes(p) for p in own]
    n, g, nnz = (sum(of_part[name] for of_part in sizes) for name in ("n", "g", "nnz"))
    return n, g, nnz
