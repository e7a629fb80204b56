"""Who owns which node. Imports neither torch nor a communicator."""

from . import entropy, methods, metis, volume  # noqa: F401  they register the built-in partitioners
from .blocks import Halo, RowBlock, row_block, row_blocks
from .cover import Covers, cover_PP, cover_tables, minimum_covers
from .entropies import label_entropies
from .gate import check_owner, count_parts, fill_empty_parts
from .locality import in_order, local_order
from .metis_files import export_metis_parts, import_metis_parts
from .metrics import exchange_metrics, metrics, rows_PP
from .partition import Partition, partition_of, select_rows
from .pipeline import part_to_folder
from .registry import PARTITIONERS, part_graph, partitioner
from .store import check_values, is_partition, load_block, load_halo, load_partition, save_partition
from .stream import StreamPartition, edge_stream, part_stream, streaming_partitioner

__all__ = [
    "Covers",
    "Halo",
    "PARTITIONERS",
    "Partition",
    "StreamPartition",
    "RowBlock",
    "check_owner",
    "count_parts",
    "cover_PP",
    "cover_tables",
    "edge_stream",
    "exchange_metrics",
    "export_metis_parts",
    "fill_empty_parts",
    "import_metis_parts",
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
