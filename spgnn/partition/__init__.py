"""Who owns which node. Imports neither torch nor a communicator."""

from .checks import fill_empty_parts
from .folder.blocks import RowBlock
from .folder.pipeline import part_to_folder
from .folder.store import PartitionFolder, load_partition, save_partition
from .methods import entropy, metis, simple, volume  # noqa: F401  they register the built-in partitioners
from .partition import Partition, partition_of
from .registry import PARTITIONERS, part_graph, partitioner
from .stream import StreamPartition, edge_stream, part_stream, streaming_partitioner

__all__ = [
    "PARTITIONERS", "Partition", "PartitionFolder", "RowBlock", "StreamPartition", "edge_stream", "fill_empty_parts",
    "load_partition", "part_graph", "part_stream", "part_to_folder", "partition_of", "partitioner", "save_partition",
    "streaming_partitioner",
]  # fmt: skip
