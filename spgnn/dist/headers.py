"""Buffers and headers: the arguments of collectives are checked here and compared over the ranks.

A header is 8 int64 that describe the call of one rank: kind, dtype, op or root, the row shape, and the
rows for one peer. Headers are compared before any data is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import CollectiveError, ShapeError, UsageError, nearest
from .communicator import Counts

KINDS = ("all_reduce", "all_gather", "all_gather_json", "all_to_all", "broadcast", "barrier", "split", "close")
OPS = ("sum", "max", "min")
DTYPES = tuple(
    np.dtype(name)
    for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64")
)
REDUCIBLE = tuple(np.dtype(name) for name in ("bool", "int8", "uint8", "int32", "int64", "float32", "float64"))
HEADER = 8
_COUNT = 7  # index of the rows for a peer


def as_array(x: Any, what: str, rank: int) -> np.ndarray:
    """Return the numpy array whose memory x is.

    Raises: ShapeError naming what and the rank, if x is no C-contiguous CPU buffer of a known dtype.
    """
    if hasattr(x, "detach"):  # a torch tensor, without importing torch
        if x.device.type != "cpu":
            raise ShapeError(f"rank {rank}: {what} is on {x.device}; this communicator takes CPU buffers; use x.cpu()")
        try:
            x = _bits_of(x).numpy().view(np.uint16) if str(x.dtype) == "torch.bfloat16" else x.detach().numpy()
        except TypeError as error:
            raise ShapeError(f"rank {rank}: {what}: {error}; send a view of a type that numpy has") from None
    if not isinstance(x, np.ndarray):
        raise ShapeError(f"rank {rank}: {what} is {type(x).__name__}; expected a numpy array or a CPU torch tensor")
    if x.dtype not in DTYPES:
        raise ShapeError(f"rank {rank}: {what} is {x.dtype}; expected one of: {', '.join(map(str, DTYPES))}")
    if not x.flags.c_contiguous:
        raise ShapeError(f"rank {rank}: {what} of shape {x.shape} is not C-contiguous; pass np.ascontiguousarray of it")
    return x


def _bits_of(x: Any) -> Any:
    """Return a bfloat16 tensor, a type that numpy lacks, as the int16 tensor of the same memory."""
    return x.detach().view(x.new_empty(0).short().dtype)


def as_target(x: Any, what: str, rank: int) -> np.ndarray:
    """Return as_array(x) for a buffer that is written."""
    array = as_array(x, what, rank)
    if not array.flags.writeable:
        raise ShapeError(f"rank {rank}: {what} is read-only and would be written; pass a copy")
    return array


def as_rows(x: Any, what: str, rank: int) -> np.ndarray:
    """Return as_array(x) for a buffer that has rows."""
    array = as_array(x, what, rank)
    if array.ndim == 0:
        raise ShapeError(f"rank {rank}: {what} is a scalar; expected rows along axis 0")
    return array


def check_op(x: np.ndarray, op: str, rank: int) -> None:
    """Raise unless x can be reduced by op."""
    if op not in OPS:
        raise UsageError(f"rank {rank}: all_reduce op {op!r} is not known{nearest(op, OPS)}")
    if x.dtype not in REDUCIBLE:
        raise ShapeError(f"rank {rank}: all_reduce of {x.dtype}; expected one of: {', '.join(map(str, REDUCIBLE))}")
    if x.dtype == bool and op == "sum":
        raise ShapeError(f"rank {rank}: all_reduce sum of bool; use op='max' (any) or 'min' (all), or count in int64")


def check_exchange(
    send: Any, send_rows: Counts, recv: Any, recv_rows: Counts, rank: int, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (send, send_rows, recv, recv_rows) of an all_to_all as arrays, int64 the counts.

    Raises: ShapeError unless the counts are one per rank, not negative, and add up to the buffers' rows.
    """
    send, recv = as_rows(send, "send", rank), as_target(as_rows(recv, "recv", rank), "recv", rank)
    sent, received = check_rows(send, send_rows, recv, recv_rows, rank, size)
    if np.may_share_memory(send, recv):
        raise ShapeError(f"rank {rank}: send and recv share memory; pass two buffers")
    return send, sent, recv, received


def check_rows(
    send: Any, send_rows: Counts, recv: Any, recv_rows: Counts, rank: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of an all_to_all as int64; send and recv are arrays or tensors, in any memory.

    Raises: ShapeError unless the counts are one per rank, not negative, and add up to the buffers' rows.
    """
    rows = []
    for what, buffer, counts in (("send", send, send_rows), ("recv", recv, recv_rows)):
        counts = np.asarray(counts)
        if counts.shape != (size,) or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise ShapeError(f"rank {rank}: {what}_rows = {counts.tolist()}; expected {size} counts, none negative")
        if counts.sum() != len(buffer):
            raise ShapeError(f"rank {rank}: {what}_rows add up to {counts.sum()}, {what} has {len(buffer)} rows")
        rows.append(counts.astype(np.int64))
    if send.dtype != recv.dtype or send.shape[1:] != recv.shape[1:]:
        raise ShapeError(
            f"rank {rank}: send has {send.dtype} rows of shape {send.shape[1:]}, recv {recv.dtype} of {recv.shape[1:]}"
        )
    if rows[0][rank] != rows[1][rank]:
        raise ShapeError(f"rank {rank}: sends {rows[0][rank]} rows to itself and expects {rows[1][rank]}")
    return rows[0], rows[1]


def row_bytes(x: np.ndarray) -> int:
    """Return the bytes of one row of x."""
    return int(np.prod(x.shape[1:], dtype=np.int64)) * x.itemsize


def of_others(counts: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (counts with 0 for rank, where each peer's units start in the buffer)."""
    starts = np.cumsum(counts) - counts
    others = counts.copy()
    others[rank] = 0
    return others, starts


def header(
    kind: str,
    size: int,
    x: np.ndarray | None = None,
    shape: Sequence[int] = (),
    detail: int = 0,
    rows: int | np.ndarray = 0,
) -> np.ndarray:
    """Return (size, 8) int64, the call of this rank for each peer.

    Args: detail  op of a reduction, root of a broadcast.
          rows    for each peer, or for all.
    """
    fields = [KINDS.index(kind), -1 if x is None else DTYPES.index(x.dtype), detail, len(shape), 0, 0, 0, 0]
    lead = tuple(shape[:2])
    fields[4 : 4 + len(lead)] = lead
    fields[6] = int(np.prod(shape[2:], dtype=np.int64)) if len(shape) > 2 else 0
    head = np.tile(np.array(fields, np.int64), (size, 1))
    head[:, _COUNT] = rows
    return head


def rows_of(heads: np.ndarray) -> np.ndarray:
    """Return the rows that each peer announced, (size,)."""
    return heads[:, _COUNT]


def check_headers(heads: np.ndarray, rank: int, recv_rows: np.ndarray | None = None) -> None:
    """Raise CollectiveError naming the first rank whose call differs from this rank's.

    Args: heads (size, 8), the headers from each rank; recv_rows (size,), the rows that this rank expects from each.
    """
    differs = (heads[:, :_COUNT] != heads[rank, :_COUNT]).any(axis=1)
    if differs.any():
        q = int(np.argmax(differs))
        raise CollectiveError(
            f"the ranks do not call the same collective: rank {rank} calls {describe(heads[rank])}, "
            f"rank {q} calls {describe(heads[q])}; is a collective inside a branch that not all ranks take?"
        )
    if recv_rows is not None and (heads[:, _COUNT] != recv_rows).any():
        q = int(np.argmax(heads[:, _COUNT] != recv_rows))
        raise CollectiveError(
            f"all_to_all: rank {q} sends {heads[q, _COUNT]} rows to rank {rank}, which expects {recv_rows[q]}; "
            f"send_rows on rank {q} and recv_rows on rank {rank} must agree"
        )


def describe(head: np.ndarray) -> str:
    """Return the call of a header, for a message."""
    kind, dtype, detail, ndim = KINDS[head[0]], head[1], head[2], head[3]
    if kind == "close":
        return "no more: it has left spgnn.world()"
    if dtype < 0:
        return kind
    shape = "x".join(str(d) for d in head[4 : 4 + min(ndim, 3)]) if ndim else "scalar"
    if kind == "all_reduce":
        return f"{kind}({DTYPES[dtype]}, shape {shape}, op {OPS[detail]})"
    if kind == "broadcast":
        return f"{kind}({DTYPES[dtype]}, shape {shape}, root {detail})"
    return f"{kind}({DTYPES[dtype]}, rows of shape {shape})"
