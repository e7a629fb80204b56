"""Checks of the arguments of partitioners, and of every owner array before it is used."""

from __future__ import annotations

import operator

import numpy as np

from ..config import MOST_BALANCE, MOST_HOPS, MOST_SEED
from ..config.names import SCHEMES
from ..errors import PartitionError, UsageError, is_integer, is_number, nearest

# The rows that parts send each other are a (k, k) table of int64: 512 MB at this k.
MAX_PARTS = 2**13


def check_k(k) -> int:
    """Return k as an int; UsageError unless it is an integer from 1 to MAX_PARTS."""
    try:
        number = operator.index(k)
    except TypeError:
        number = 0
    if not 1 <= number <= MAX_PARTS or isinstance(k, (bool, np.bool_)):
        raise UsageError(f"k = {k!r}; the number of parts must be an integer from 1 to {MAX_PARTS}")
    return number


def check_seed(seed) -> int:
    """Return seed as an int; UsageError unless it is an integer from 0 to MOST_SEED."""
    return _integer("seed", seed, MOST_SEED)


def check_balance(balance) -> float:
    """Return balance as a float; UsageError unless it is a number from 1 to MOST_BALANCE."""
    if not is_number(balance) or not 1 <= balance <= MOST_BALANCE:
        raise UsageError(f"balance = {balance!r}; expected a number from 1 to {MOST_BALANCE:g}")
    return float(balance)


def check_hops(hops) -> int:
    """Return hops as an int; UsageError unless it is an integer from 0 to MOST_HOPS."""
    return _integer("hops", hops, MOST_HOPS)


def _integer(name: str, value, most: int) -> int:
    if not is_integer(value) or not 0 <= value <= most:
        raise UsageError(f"{name} = {value!r}; expected an integer from 0 to {most}")
    return int(value)


def check_scheme(scheme) -> str:
    """Return scheme; UsageError unless it is auto, flat or one of SCHEMES."""
    known = ("auto", "flat", *SCHEMES)
    if scheme not in known:
        raise UsageError(f"scheme {scheme!r} is not known{nearest(str(scheme), known)}")
    return scheme


def count_parts(owner_N) -> int:
    """Return 1 + the largest owner, at least 1: the k of an owner array given without one; 1 for what is no array."""
    try:
        owner_N = np.asarray(owner_N)
    except ValueError:  # check_length says what is wrong
        return 1
    return 1 + max(int(owner_N.max(initial=0)), 0) if owner_N.dtype.kind in "iu" else 1


def check_length(owner_N, n_nodes: int | None, who: str = "partition") -> np.ndarray:
    """Return owner_N as an array; PartitionError unless it is a vector with n_nodes entries, or any number if None."""
    expected = f"expected one part number per node, ({'N' if n_nodes is None else n_nodes},)"
    try:
        owner_N = np.asarray(owner_N)
    except ValueError:  # a tuple of arrays
        raise PartitionError(f"{who}: owner is a ragged {type(owner_N).__name__}; {expected}") from None
    if owner_N.ndim != 1:
        raise PartitionError(f"{who}: owner has shape {owner_N.shape}; {expected}")
    if n_nodes is not None and len(owner_N) != n_nodes:
        raise PartitionError(
            f"{who}: owner has {len(owner_N)} entries, the graph has {n_nodes} nodes; "
            f"was this partition made for another graph?"
        )
    return owner_N


def check_owner(
    owner_N, n_nodes: int | None, k: int, who: str = "partition", fill_by: np.ndarray | None = None
) -> np.ndarray:
    """Return owner_N as contiguous int32 (N,), or raise PartitionError naming the first node that is wrong.

    Args:   owner_N  (N,) integers 0 to k-1; every part owns a node unless k > N.
            n_nodes  N; None: as many as owner_N has.
            who      the plug-in, file or argument it came from, named in messages.
            fill_by  (N,) work of the nodes: fill_empty_parts instead of raising if parts are empty.
    Raises: PartitionError; UsageError if k < 1.
    """
    k = check_k(k)
    owner_N = check_length(owner_N, n_nodes, who)
    n_nodes = len(owner_N)
    if n_nodes and owner_N.dtype.kind not in "iu":
        raise PartitionError(f"{who}: owner is {owner_N.dtype}; expected integers, 0 to {k - 1}")
    bad = (owner_N < 0) | (owner_N >= k)
    if bad.any():
        node = int(np.argmax(bad))
        raise PartitionError(f"{who}: node {node} has owner {owner_N[node]}; expected 0 to {k - 1}")
    owner_N = np.ascontiguousarray(owner_N, dtype=np.int32)
    if k > n_nodes:
        return owner_N
    if fill_by is not None:
        return fill_empty_parts(owner_N, fill_by, k)
    sizes_k = np.bincount(owner_N, minlength=k)
    if not sizes_k.all():
        raise PartitionError(
            f"{who}: part {int(np.argmin(sizes_k))} owns no node ({int((sizes_k == 0).sum())} of {k} parts are empty); "
            f"expected a node in each, as k <= {n_nodes} nodes; use a smaller k, or fill_empty_parts()"
        )
    return owner_N


def fill_empty_parts(owner_N: np.ndarray, work_N: np.ndarray, k: int) -> np.ndarray:
    """Return owner_N with a node in every part: each empty part takes the lightest node of the heaviest part.

    Args:    owner_N (N,) integers 0 to k-1; work_N (N,) cost of a node; k <= N.
    Returns: owner_N itself if no part is empty, else a copy. Ties go to the lowest id.
    Raises:  PartitionError if k > N.
    """
    sizes_k = np.bincount(owner_N, minlength=k)
    empty = np.flatnonzero(sizes_k == 0)
    if len(empty) == 0:
        return owner_N
    if k > len(owner_N):
        raise PartitionError(f"{k} parts of {len(owner_N)} nodes cannot have a node each; choose a smaller k")
    owner_N = owner_N.copy()
    work_k = np.bincount(owner_N, weights=work_N, minlength=k)
    # Nodes of a part, lightest first: a part gives from the front, so that one sort is enough.
    order = np.lexsort((np.arange(len(owner_N)), work_N, owner_N))
    front = np.concatenate([[0], np.cumsum(sizes_k)[:-1]])
    for part in empty:
        donor = int(np.argmax(np.where(sizes_k > 1, work_k, -np.inf)))
        node = order[front[donor]]
        front[donor] += 1
        owner_N[node] = part
        sizes_k[donor] -= 1
        work_k[donor] -= work_N[node]
    return owner_N
