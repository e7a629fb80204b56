"""Partitions of edge streams in O(N) memory. Imports neither torch nor a communicator."""

from . import spring, vertexcut  # noqa: F401  they register the built-in methods
from .edge_passes import StreamPasses
from .methods import StreamPartition, halo, part_stream
from .registry import STREAMING, streaming_partitioner
from .sources import EdgeStream, edge_stream

__all__ = [
    "STREAMING", "EdgeStream", "StreamPasses", "StreamPartition", "edge_stream", "halo", "part_stream",
    "streaming_partitioner",
]  # fmt: skip
