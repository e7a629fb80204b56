"""METIS, k-way, behind checks: it crashes on a graph that is not symmetric or out of range.

Source: Karypis & Kumar 1998; pymetis 2025.2.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import scipy.sparse as sp

from ...errors import ResourceError, check_choice
from ...graph import Graph
from ..checks import fill_empty_parts
from ..metrics import row_work
from ..registry import partitioner

OBJECTIVES = ("cut", "vol")
MALLOPT, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = "mallopt", -1, -3  # of malloc.h
_ONE_AT_A_TIME = threading.Lock()  # METIS's random numbers and the file behind stdout belong to the whole process


@partitioner("metis")
def metis(graph: Graph, k: int, *, seed: int, balance: float, objective: Literal["cut", "vol"] = "cut") -> np.ndarray:
    """Minimise cut edges, or total volume, with work sum of (nnz + 1) at most balance times the mean.

    The bound is METIS's: a node heavier than a part's share, or balance near 1, exceeds it.
    A directed graph is cut with its reverse edges. Parts that METIS leaves empty are filled.

    Args: objective  "cut": cut edges; "vol": total communication volume (slower).
    """
    check_choice("metis: objective", objective, OBJECTIVES)
    if k == 1 or k >= graph.n_nodes:
        return np.arange(graph.n_nodes) % k
    pattern = neighbours(graph.A, graph.is_both_ways)
    return kway(graph.name, pattern, k, row_work(graph.A), seed=seed, balance=balance, objective=objective)


def kway(
    name: str, pattern: sp.csr_array, k: int, load_N: np.ndarray, weights_E: np.ndarray | None = None, *, seed: int, balance: float,
    objective: str = "cut",
) -> np.ndarray:  # fmt: skip
    """Return METIS's k parts of a pattern of `neighbours`, a node in each: load of a part at most balance times the mean.

    Args:   name       of the graph, for messages.
            load_N     (N,) int64 above 0; weights_E  (E,) int64 above 0, equal for (i, j) and (j, i).
    Raises: ResourceError if METIS fails, or its integers are too short.
    """
    import pymetis

    weight = int(weights_E.sum()) if weights_E is not None else 0
    _check_fits(pattern, max(int(load_N.sum()), weight), pymetis._internal._idx_type_width())
    options = pymetis.Options(
        objtype=OBJECTIVES.index(objective),
        seed=1 + seed % (2**31 - 1),  # to METIS 0 and 1 are one seed
        ufactor=max(1, round((balance - 1) * 1000)),  # METIS: load <= (1 + ufactor/1000) mean
    )
    adjacency = pymetis.CSRAdjacency(pattern.indptr, pattern.indices)
    with _ONE_AT_A_TIME, _memory_is_kept(), _stdout_of_c() as said:
        try:
            _, owner_N = pymetis.part_graph(
                k, adjacency, vweights=load_N, eweights=weights_E, recursive=False, options=options
            )
        except (RuntimeError, MemoryError) as error:
            raise ResourceError(
                f"METIS failed on {name} ({pattern.shape[0]} nodes, {pattern.nnz} neighbours, k = {k}): {error}{said()}; "
                f"it needs about {(pattern.nnz * 8 * 10) >> 20} MB: use a smaller k or --method block"
            ) from None
    return fill_empty_parts(np.asarray(owner_N), load_N, k)


def neighbours(A: sp.csr_array, is_symmetric: bool = False) -> sp.csr_array:
    """Return the pattern of A + A' without its diagonal, int64 indices, sorted: what METIS may see."""
    both = A
    if not is_symmetric:
        ones = sp.csr_array((np.ones(A.nnz, bool), A.indices, A.indptr), shape=A.shape)
        both = (ones + ones.T.tocsr()).tocsr()
    n_nodes = A.shape[0]
    row = np.repeat(np.arange(n_nodes), np.diff(both.indptr))
    off = both.indices != row
    indptr = np.zeros(n_nodes + 1, np.int64)
    np.cumsum(np.bincount(row[off], minlength=n_nodes), out=indptr[1:])
    indices = both.indices[off].astype(np.int64)
    pattern = sp.csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=A.shape)
    pattern.sort_indices()
    return pattern


@contextlib.contextmanager
def _memory_is_kept() -> Iterator[None]:
    """Let glibc keep what METIS frees, which it allocates again at once; a page would be mapped and cleared each time."""
    c_library = ctypes.CDLL(None)
    mallopt, trim = (getattr(c_library, name, None) for name in (MALLOPT, "malloc_trim"))
    if mallopt is None or trim is None:  # another C library
        yield
        return
    mallopt(M_MMAP_THRESHOLD, 1 << 30)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest that glibc chooses by itself, and twice that
        mallopt(M_TRIM_THRESHOLD, 64 << 20)
        trim(0)


@contextlib.contextmanager
def _stdout_of_c() -> Iterator[Callable[[], str]]:
    """Collect what C code writes to stdout: METIS's messages, whose faults are mended; the last line is for an error."""
    c_library = ctypes.CDLL(None)
    if hasattr(sys.stdout, "flush"):  # None if there is no stdout
        sys.stdout.flush()
    c_library.fflush(None)
    try:
        stdout = os.dup(1)
    except OSError:  # there is no stdout
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as file:

        def last_line() -> str:
            c_library.fflush(None)
            file.seek(0)
            lines = file.read().decode(errors="replace").split("\n")
            return next((f" ({line.strip()})" for line in reversed(lines) if line.strip()), "")

        try:
            os.dup2(file.fileno(), 1)
            yield last_line
        finally:
            c_library.fflush(None)
            os.dup2(stdout, 1)
            os.close(stdout)


def _check_fits(pattern: sp.csr_array, weight: int, index_bits: int) -> None:
    if index_bits < 64 and max(pattern.nnz, weight) >= 2 ** (index_bits - 1):
        raise ResourceError(
            f"this pymetis counts in {index_bits} bits; the graph has {pattern.nnz} neighbours and weight {weight}; "
            f"install a pymetis with 64-bit indices, or use --method block"
        )
