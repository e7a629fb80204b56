"""SwapCommunicator: all collectives by one operation, a swap: rank p sends send[q] to each rank q and fills recv[q].

Headers are swapped and compared before any data. Sums are made in rank order, so they are bitwise equal on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from . import headers
from .base import REDUCE, BaseCommunicator, Done, copy_own_rows, members_of
from .communicator import Op, Request
from .traffic import Traffic

SMALL_BYTES = 65536  # of x over all ranks: sent whole, as the messages cost more than the bytes
Swap = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]


class Link(Protocol):
    """What moves bytes between the ranks of one communicator."""

    def open(self) -> Swap:
        """Return the swap of one collective: swap(send, recv), (size,) arrays of bytes, the rank's own ones unused.

        Called in the order of the collectives; the swaps may then be made at any time.
        """

    def start(self, body: Callable[[], None]) -> Request:
        """Run body, which swaps, and return the request that ends with it."""

    def part(self, peers: Sequence[int]) -> Link:
        """Return the link of some of these ranks, this one included."""


class SwapCommunicator(BaseCommunicator):
    """One rank of those that a link connects."""

    def __init__(self, rank: int, size: int, link: Link, traffic: Traffic | None = None):
        self._link = link
        super().__init__(rank, size, traffic)

    def _meet(self, head: np.ndarray) -> np.ndarray:
        return _meet(self._link.open(), head, self.rank)

    def _reduce(self, head: np.ndarray, x: np.ndarray, op: Op) -> None:
        swap = self._link.open()
        _meet(swap, head, self.rank)
        _reduce(swap, x.reshape(-1), REDUCE[op], self.rank, self.size)

    def _exchange(
        self, head: np.ndarray, send: np.ndarray, send_rows: np.ndarray, recv: np.ndarray, recv_rows: np.ndarray, wait:
        bool,
    ) -> Request:  # fmt: skip
        swap = self._link.open()
        copy_own_rows(send, send_rows, recv, recv_rows, self.rank)

        def body() -> None:
            _meet(swap, head, self.rank, recv_rows)
            swap(_pieces(send, send_rows), _pieces(recv, recv_rows))

        if not wait:
            return self._link.start(body)
        body()
        return Done()

    def _gather(self, head: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        swap = self._link.open()
        counts = headers.rows_of(_meet(swap, head, self.rank))
        gathered = np.empty((counts.sum(), *x.shape[1:]), x.dtype)
        pieces = _pieces(gathered, counts)
        pieces[self.rank][:] = _bytes(x)
        swap([pieces[self.rank]] * self.size, pieces)
        return gathered, counts

    def _broadcast(self, head: np.ndarray, x: np.ndarray, root: int) -> None:
        swap = self._link.open()
        _meet(swap, head, self.rank)
        nothing, whole = np.empty(0, np.uint8), _bytes(x)
        is_root = self.rank == root
        recv = [whole if q == root and not is_root else nothing for q in range(self.size)]
        swap([whole if is_root else nothing] * self.size, recv)

    def _split(self, head: np.ndarray, color: int, key: int) -> SwapCommunicator:
        swap = self._link.open()
        _meet(swap, head, self.rank)
        choices = np.empty((self.size, 2), np.int64)
        choices[self.rank] = color, key
        rows = [_bytes(row) for row in choices]
        swap([rows[self.rank]] * self.size, rows)
        peers = members_of(choices.tolist(), color)
        traffic = Traffic(len(peers), self.traffic, peers)
        return self._part(peers.index(self.rank), len(peers), self._link.part(peers), traffic)

    def _part(self, rank: int, size: int, link: Link, traffic: Traffic) -> SwapCommunicator:
        part = type(self)(rank, size, link, traffic)
        part.phase = self.phase
        return part


def _meet(swap: Swap, head: np.ndarray, rank: int, recv_rows: np.ndarray | None = None) -> np.ndarray:
    """Return the headers that all ranks have for this one, (size, 8), compared with its own."""
    heads = head.copy()
    swap([_bytes(row) for row in head], [_bytes(row) for row in heads])
    headers.check_headers(heads, rank, recv_rows)
    return heads


def _reduce(swap: Swap, flat: np.ndarray, op: np.ufunc, rank: int, size: int) -> None:
    """x = op over the ranks of x, in rank order. Of a large x each rank reduces a slice and sends it to all."""
    if flat.nbytes * size <= SMALL_BYTES:
        theirs = np.empty((size, len(flat)), flat.dtype)
        theirs[rank] = flat
        swap([_bytes(flat)] * size, [_bytes(part) for part in theirs])
        _reduce_rows(op, theirs, flat)
        return
    rows = np.diff(np.arange(size + 1) * len(flat) // size)
    slices = np.split(flat, np.cumsum(rows)[:-1])
    theirs = np.empty((size, rows[rank]), flat.dtype)
    theirs[rank] = slices[rank]
    swap([_bytes(part) for part in slices], [_bytes(part) for part in theirs])
    _reduce_rows(op, theirs, slices[rank])
    swap([_bytes(slices[rank])] * size, [_bytes(part) for part in slices])


def _reduce_rows(op: np.ufunc, rows: np.ndarray, out: np.ndarray) -> None:
    """out = op over the rows, one after the other, which op.reduce does not promise."""
    out[:] = rows[0]
    for row in rows[1:]:
        op(out, row, out=out)


def _pieces(x: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Return the bytes of the rows of each rank."""
    return np.split(_bytes(x), np.cumsum(rows)[:-1] * headers.row_bytes(x))


def _bytes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)
