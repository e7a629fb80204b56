"""Consistency of the ranks, before the first epoch: options, versions, graph, partition and counts are compared."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import GraphError, LaunchError, PartitionError, UsageError, agree
from .communicator import Communicator, Counts

MISSING = "missing"
# The kind of a value is the word before its dot: the error if it differs, and the fix.
_KINDS = {
    "option": (UsageError, "start all ranks with the same options"),
    "version": (LaunchError, "start all ranks in the same environment"),
    "graph": (GraphError, "give all ranks the same files, or the graph to rank 0 alone"),
    "partition": (PartitionError, "give all ranks the same partition"),
}


def check_same(comm: Communicator, values: Mapping[str, Any]) -> None:
    """Raise on all ranks, naming each value that differs and the ranks, unless all ranks have the same values.

    Args:   values  "option.lr": 0.01, "graph.nodes": 169343, ...: JSON values, or digests of arrays; the
                    word before the dot is one of option, version, graph, partition. None: unknown on
                    this rank.
    Raises: UsageError, LaunchError, GraphError or PartitionError, of the first kind that differs.
    Collective. Gathers 32 bytes per rank, and the values only if those differ.
    """
    texts = {
        name: json.dumps(value, sort_keys=True, default=str) for name, value in values.items() if value is not None
    }
    unknown = [name for name, value in values.items() if value is None]
    mine = hashlib.sha256(json.dumps([texts, unknown], sort_keys=True).encode()).digest()
    digests = comm.all_gather(np.frombuffer(mine, np.uint8)[None])
    if (digests == digests[0]).all():
        return
    gathered = comm.all_gather_json(texts | dict.fromkeys(unknown))
    names = list(dict.fromkeys(name for theirs in gathered for name in theirs))
    faults = [
        (name, text) for name in names if (text := _difference([theirs.get(name, MISSING) for theirs in gathered]))
    ]
    if not faults:
        return
    kinds = [name.partition(".")[0] for name, _ in faults]
    error, fix = next(_KINDS[kind] for kind in _KINDS if kind in kinds)
    raise error(f"the ranks differ: {'; '.join(f'{name} is {text}' for name, text in faults)}. {fix.capitalize()}")


def check_counts(comm: Communicator, send_rows_P: Counts, recv_rows_P: Counts, what: str) -> None:
    """Raise on all ranks unless each expects from every other rank as many rows as that one sends.

    Args:   send_rows_P, recv_rows_P  (P,) rows that this rank sends to and expects from each; what: name of the exchange.
    Raises: PartitionError on the ranks that expect another number, RankError on the others. Collective.
    """
    ones_P, announced_P = np.ones(comm.size, np.int64), np.empty(comm.size, np.int64)
    comm.all_to_all(np.array(send_rows_P, np.int64), ones_P, announced_P, ones_P)
    wrong = np.flatnonzero(announced_P != np.asarray(recv_rows_P))
    error = None
    if len(wrong):
        q = int(wrong[0])
        error = PartitionError(
            f"{what}: rank {q} sends {announced_P[q]} rows to rank {comm.rank}, which expects {recv_rows_P[q]}; do all ranks use one partition?"
        )
    agree(comm, error)


def versions() -> dict[str, str]:
    """Return the versions of Python, spgnn, and of torch, NumPy, SciPy and MPI if they are loaded."""
    from .. import __version__

    found = {"version.python": platform.python_version(), "version.spgnn": __version__}
    for name in ("torch", "numpy", "scipy"):
        if name in sys.modules:
            found[f"version.{name}"] = str(sys.modules[name].__version__)
    if "mpi4py.MPI" in sys.modules:
        from .mpi import library

        found["version.mpi"] = library.name()
    return found


def digest(*arrays: np.ndarray | None) -> str:
    """Return 16 hexadecimal digits of the dtypes, shapes and bytes of arrays; None counts as one."""
    total = hashlib.sha256()
    for array in arrays:
        if array is None:
            total.update(b"none")
        else:
            total.update(f"{array.dtype.str}{array.shape}".encode())
            total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()[:16]


def _difference(texts: list[str | None]) -> str:
    """Return "0.01 on ranks 0, 2, 3 and 0.1 on rank 1", "" if all known values are equal."""
    counts = Counter(text for text in texts if text is not None)
    if len(counts) <= 1:
        return ""
    found = []
    for text, _ in counts.most_common():
        ranks = [rank for rank, theirs in enumerate(texts) if theirs == text]
        found.append(f"{text} on rank{'s' if len(ranks) > 1 else ''} {_listed(ranks)}")
    return " and ".join(found[:4]) + (f" and {len(found) - 4} other values" if len(found) > 4 else "")


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
