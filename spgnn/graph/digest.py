"""Digest: whether two graphs are the same, whatever the files, types and blocks of rows in which their arrays come.

A block of 65,536 words x_i of 64 bits counts as sum_i w_i x_i modulo 2^64, w_i fixed odd random numbers. That takes 1 to
2 ns per number, and finds what changed by accident; it is no defence against who changes a graph on purpose.
Shapes: E nonzeros, F columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp

BLOCK = 1 << 16
WORDS = np.random.default_rng(0).integers(0, 2**64, BLOCK, dtype=np.uint64) | np.uint64(1)


class Digest:
    """Digest of arrays, or of the rows of a matrix, given piece by piece: it does not depend on the pieces."""

    def __init__(self):
        self._sha, self._sum, self._count = hashlib.sha256(), np.zeros(1, np.uint64), 0

    def add(self, values: np.ndarray) -> Digest:
        """Add numbers, in order; those of one kind count by their value, whatever their type. Return self."""
        if not values.flags.c_contiguous:
            step = max(BLOCK // max(values[:1].size, 1), 1)
            for start in range(0, len(values), step):  # a copy of all rows would take as much memory again
                self.add(np.ascontiguousarray(values[start : start + step]))
            return self
        flat, start = values.reshape(-1), 0
        while start < len(flat):
            at = self._count % BLOCK
            words = _words(flat[start : start + BLOCK - at])
            self._sum += np.dot(words, WORDS[at : at + len(words)])
            self._count += len(words)
            start += len(words)
            if self._count % BLOCK == 0:
                self._sha.update(self._sum.tobytes())
                self._sum[:] = 0
        return self

    def hexdigest(self) -> str:
        """Return 64 hex digits."""
        whole = self._sha.copy()
        whole.update(self._sum.tobytes())
        whole.update(str(self._count).encode())
        return whole.hexdigest()


class RowsDigest:
    """Digest of the rows of a table, dense or CSR, given in blocks: it does not depend on the blocks."""

    def __init__(self):
        self._digests = Digest(), Digest(), Digest()

    def add(self, rows: np.ndarray | sp.csr_array) -> RowsDigest:
        """Add rows, in order. Return self."""
        if isinstance(rows, np.ndarray):
            return self.add_parts(rows)
        return self.add_parts(np.diff(rows.indptr), rows.indices, rows.data)

    def add_parts(self, *arrays: np.ndarray) -> RowsDigest:
        """Add dense rows, or lengths, column indices and values of sparse ones. Return self."""
        for digest, array in zip(self._digests, arrays):
            digest.add(array)
        return self

    def hexdigest(self) -> str:
        """Return 64 hex digits."""
        return sha256_of(digest.hexdigest() for digest in self._digests)


def table_digest(rows: np.ndarray | sp.csr_array | None) -> str:
    """Return the RowsDigest of a whole table, "" for None."""
    return "" if rows is None else RowsDigest().add(rows).hexdigest()


def edges_digest(ids_E: np.ndarray, attr_EF: np.ndarray) -> int:
    """Return the sum over nonzeros of mix(id) times its attributes, modulo 2^64: that of parts adds up to the graph's."""
    total = np.zeros(1, np.uint64)
    for start in range(0, len(ids_E), BLOCK):
        part = slice(start, start + BLOCK)
        mixed = ids_E[part].astype(np.uint64) * WORDS[0]
        mixed = (mixed ^ (mixed >> np.uint64(31))) * WORDS[1] | np.uint64(1)
        total += np.dot(_words(attr_EF[part]) @ WORDS[: attr_EF.shape[1]], mixed)
    return int(total[0])


def fingerprint_of(nnz: int, structure: str, of_edges: int | None, tables: list[str]) -> str:
    """Return NONZEROS-EDGES-NODES, the last two of 16 hex digits, see graph.fingerprint.

    Args: structure  Graph.digest(); of_edges: edges_digest, None without attributes; tables: table_digest of features,
                     labels and split.
    """
    return f"{nnz}-{sha256_of([structure, str(of_edges)])[:16]}-{sha256_of(tables)[:16]}"


def sha256_of(texts: Iterable[str]) -> str:
    """Return the SHA-256 of some texts, 64 hex digits."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _words(values: np.ndarray) -> np.ndarray:
    """Return numbers as words: floats with their exponents, in which they differ, in the low bits, which reach all of a sum."""
    return values.astype(">f8" if values.dtype.kind == "f" else "<i8").view("<u8")
