"""Who owns which node. Imports neither torch nor a communicator."""

from .checks import check_owner, count_parts, fill_empty_parts
from .cover import Covers, cover_PP, cover_tables, minimum_covers
from .entropies import label_entropies
from .folder.blocks import Halo, RowBlock, row_block, row_blocks
from .folder.pipeline import part_to_folder
from .folder.store import (
    PartitionFolder,
    check_values,
    is_partition,
    load_block,
    load_halo,
    load_partition,
    save_partition,
)
from .locality import in_order, local_order
from .methods import entropy, metis, simple, volume  # noqa: F401  they register the built-in partitioners
from .metrics import exchange_metrics, metrics, rows_PP
from .partition import Partition, partition_of, select_rows
from .registry import PARTITIONERS, part_graph, partitioner
from .stream import StreamPartition, edge_stream, part_stream, streaming_partitioner

__all__ = [
    "Covers",
    "Halo",
    "PARTITIONERS",
    "Partition",
    "PartitionFolder",
    "StreamPartition",
    "RowBlock",
    "check_owner",
    "count_parts",
    "cover_PP",
    "cover_tables",
    "edge_stream",
    "exchange_metrics",
    "fill_empty_parts",
    "in_order",
    "is_partition",
    "label_entropies",
    "check_values",
    "load_block",
    "load_halo",
    "load_partition",
    "local_order",
    "metrics",
    "minimum_covers",
    "part_graph",
    "part_stream",
    "part_to_folder",
    "partition_of",
    "partitioner",
    "row_block",
    "row_blocks",
    "rows_PP",
    "save_partition",
    "select_rows",
    "streaming_partitioner",
]
