"""Passes over one stream: consumers see every chunk, and a stream that changes between passes is refused."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ...data.readers.make_graph import FREE_NODES, NODES_PER_EDGE, check_node_count
from ...errors import InputError, PartitionError, UsageError
from ...machine import memory_bytes
from . import _stream
from .sources import EdgeStream

BYTES_PER_NODE = 32  # a lower bound of what any method needs

Progress = Callable[[str, int, int], None] | None  # called with (pass, edges done, edges in all or 0)


def check_relabel(n_nodes: int | None) -> None:
    """Raise UsageError if N is given for ids that are relabelled."""
    if n_nodes is not None:
        raise UsageError("--relabel numbers the nodes of the stream; omit --nodes")


class StreamPasses:
    """The passes of one partitioning; n_nodes and n_edges are known after the first that goes over all edges.

    Args: first    fingerprint of an earlier pass over the same stream, if any.
          relabel  the ids are any integers: the distinct ones are numbered 0 to N - 1 by id, which takes one more pass
                   and 17 to 34 bytes per node; ids_N then holds them.
    """

    def __init__(
        self, stream: EdgeStream, relabel: bool = False, progress: Progress = None, first: tuple[int, int] | None = None
    ):
        self.stream = stream
        self.progress = progress
        self.n_nodes = stream.n_nodes
        self.n_edges = stream.n_edges if first is None else first[0]
        self.ids_N: np.ndarray | None = None
        self.seconds: dict[str, float] = {}
        self._first = first
        self._numbering: _stream.Numbering | None = None
        if relabel:
            check_relabel(stream.n_nodes)
            numbering = _stream.Numbering()
            self.run("ids", numbering.add)
            self.ids_N = numbering.finish()
            self.n_nodes = len(self.ids_N)
            self._numbering = numbering

    @property
    def fingerprint(self) -> tuple[int, int] | None:
        """Count and order-dependent hash of the edges, once a pass has seen them."""
        return self._first

    @property
    def most_nodes(self) -> int:
        """The number of nodes above which ids are refused: absurd for so many edges, or too large for this host's memory."""
        edges = self.stream.most_edges if self.n_edges is None else self.n_edges
        return min(max(FREE_NODES, NODES_PER_EDGE * (edges + 1)), max(memory_bytes() // BYTES_PER_NODE, FREE_NODES))

    def run(self, what: str, *adds: Callable[[np.ndarray], object]) -> None:
        """Give every chunk to each of adds.

        Raises: PartitionError where the edges differ from the first pass; InputError for an invalid id.
        """
        start = time.perf_counter()
        seen = _stream.Fingerprint()
        for chunk in self.stream.chunks():
            try:
                seen.add(chunk)
                if self._numbering is not None:
                    chunk = self._numbering.numbers(chunk, seen.count - len(chunk))
                for add in adds:
                    add(chunk)
            except ValueError as error:
                self._explain(what, error)
            if self.progress is not None:
                self.progress(what, seen.count, self.n_edges or 0)
        self._check_same(what, seen)
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start

    def degrees(self) -> np.ndarray:
        """Return the degree of each node, (N,) uint32, counted in one pass; N is known from here on."""
        counts = _stream.Degrees(-1 if self.n_nodes is None else self.n_nodes, self.most_nodes)
        self.run("degrees", counts.add)
        degrees_N = counts.take()
        n_nodes = self.with_declared(len(degrees_N))
        self.learn_nodes(n_nodes)
        return np.pad(degrees_N, (0, n_nodes - len(degrees_N))) if n_nodes > len(degrees_N) else degrees_N

    def nodes(self) -> int:
        """Return N, found by a pass if it is not known."""
        return len(self.degrees()) if self.n_nodes is None else self.n_nodes

    def edges(self) -> int:
        """Return E, found by a pass if it is not known."""
        if self.n_edges is None:
            self.run("count")
        assert self.n_edges is not None
        return self.n_edges

    def with_declared(self, n_nodes: int) -> int:
        """Return n_nodes, found from the ids, or the number that the file's header declares if that is larger."""
        head = self.stream.head
        if self.stream.n_nodes is not None or self.ids_N is not None or head is None or head.n_nodes <= n_nodes:
            return n_nodes
        check_node_count(self.stream.name, head.n_nodes, self.edges(), "the header")
        return head.n_nodes

    def learn_nodes(self, n_nodes: int) -> None:
        """Set N, found by a pass; InputError if it is absurd for so few edges."""
        if self.stream.n_nodes is None and self.ids_N is None and n_nodes > self.most_nodes:
            raise InputError(
                f"{self.stream.name}: node id {n_nodes - 1} makes {n_nodes} nodes for {self.n_edges} edges, most of them "
                f"isolated; use --relabel, or give --nodes"
            )
        self.n_nodes = n_nodes

    def _check_same(self, what: str, seen: _stream.Fingerprint) -> None:
        now = (seen.count, seen.value)
        if self._first is None:
            self._first = now
            if self.stream.n_edges is not None and seen.count != self.stream.n_edges:
                raise InputError(
                    f"{self.stream.name}: {seen.count} edges read, expected {self.stream.n_edges}; was the file truncated while it was read?"
                )
            if self.stream.head is not None:
                self.stream.head.check_edges(self.stream.name, seen.count)
            self.n_edges = seen.count
        elif now != self._first:
            is_other = seen.count != self._first[0]
            how = f"{seen.count} edges, {self._first[0]} before" if is_other else "other edges, or another order"
            raise PartitionError(
                f"{self.stream.name}: the stream changed between passes (pass {what!r}: {how}); "
                f"each pass must give the same edges in the same order"
            )

    def _explain(self, what: str, error: ValueError) -> None:
        if self._first is not None:
            raise PartitionError(f"{self.stream.name}: the stream changed between passes ({what!r}): {error}") from None
        hint = "; use --relabel for ids with large gaps"
        if " -> -" in str(error) or " is -" in str(error):
            hint = ""
        elif self.stream.n_nodes is not None:
            hint = f", from {self.stream.nodes_from or f'--nodes = {self.stream.n_nodes}'}"
        raise InputError(f"{self.stream.name}: {error}{hint}") from None
