"""Traffic: the bytes that this rank sent, by kind, label and peer, exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np


class Traffic:
    """Count what one rank sends; parent and peers: a split's traffic is its parent's too.

    Args: size    ranks; parent: Traffic of the communicator that was split, or None.
          peers   (size,) the ranks of the parent that these ranks are.
    """

    def __init__(self, size: int, parent: Traffic | None = None, peers: Sequence[int] | np.ndarray | None = None):
        self.size = size
        self._parent = parent
        self._peers = None if peers is None else np.asarray(peers)
        self._labels: list[str] = []
        self.reset()

    def reset(self) -> None:
        """Forget all counts; labels that are open stay open."""
        self._sent: dict[tuple[str, str], np.ndarray] = {}  # (kind, label) -> bytes, (size,)
        self._collective: dict[tuple[str, str], int] = {}

    @contextmanager
    def label(self, name: str) -> Iterator[None]:
        """Count the collectives that start in this block under name."""
        self._labels.append(name)
        try:
            yield
        finally:
            self._labels.pop()

    def sent_bytes(self, kind: str | None = None, label: str | None = None) -> np.ndarray:
        """Return the bytes sent to each rank, (size,) int64; kind or label None: all of them."""
        sent = (bytes_P for key, bytes_P in self._sent.items() if _matches(key, kind, label))
        return sum(sent, np.zeros(self.size, np.int64))

    def collective_bytes(self, kind: str | None = None, label: str | None = None) -> int:
        """Return the buffer bytes of this rank in collectives that have no peer (all_reduce, ...)."""
        return sum(n for key, n in self._collective.items() if _matches(key, kind, label))

    def labels(self) -> list[str]:
        """Return the labels that were counted, sorted; "" for calls without an open label."""
        return sorted({label for _, label in (*self._sent, *self._collective)})

    def count_sent(self, kind: str, bytes_P: np.ndarray, label: str | None = None) -> None:
        """Add bytes_P[q] to the bytes sent to rank q."""
        label = self.open_label() if label is None else label
        self._sent[kind, label] = self._sent.get((kind, label), 0) + np.asarray(bytes_P, np.int64)
        if self._parent is not None:
            of_parent = np.zeros(self._parent.size, np.int64)
            of_parent[self._peers] = bytes_P
            self._parent.count_sent(kind, of_parent, label)

    def count_collective(self, kind: str, n_bytes: int, label: str | None = None) -> None:
        """Add n_bytes to a collective that has no peer."""
        label = self.open_label() if label is None else label
        self._collective[kind, label] = self._collective.get((kind, label), 0) + n_bytes
        if self._parent is not None:
            self._parent.count_collective(kind, n_bytes, label)

    def open_label(self) -> str:
        """Return the label that is counted under now, "" for none."""
        if self._labels:
            return self._labels[-1]
        return "" if self._parent is None else self._parent.open_label()


def _matches(key: tuple[str, str], kind: str | None, label: str | None) -> bool:
    return (kind is None or key[0] == kind) and (label is None or key[1] == label)
