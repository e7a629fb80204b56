"""Graph, and normalise() that makes the operator of it."""

from .checks import check_csr, check_graph
from .columns import ColumnMap, ColumnNames, GraphColumns, matched, taken
from .graph import Edges, Graph, both_ways, check_is_graph, fingerprint, graph_from_coo, induced_graph, targets_of
from .links import Links, check_no_cutoff, shared_links, split_as, split_links
from .loaded import count_labels, label_notes, lacks_node_0, loaded_line
from .node_types import NodeTypes
from .normal import (
    DIVIDES,
    NORMS,
    WITH_LOOPS,
    BadWeight,
    Norm,
    axis_sums,
    bad_weight,
    factors,
    inverse_or_zero,
    lacks_loop,
    normalise,
    scaled,
    with_self_loops,
)
from .split import (
    NO_SPLIT,
    TEST,
    TRAIN,
    UNLABELLED,
    VAL,
    count_classes,
    given_split,
    labelled,
    random_edge_split,
    random_split,
    task_of,
)
from .structure import is_symmetric, symmetrised

__all__ = [
    "DIVIDES", "NORMS", "BadWeight", "bad_weight",
    "ColumnMap", "ColumnNames", "GraphColumns", "NodeTypes", "NO_SPLIT", "TEST", "TRAIN", "UNLABELLED", "VAL", "WITH_LOOPS", "Edges", "Graph", "Norm", "axis_sums", "both_ways",
    "check_csr", "check_graph", "check_is_graph", "check_no_cutoff", "count_classes", "count_labels", "factors", "fingerprint", "given_split", "graph_from_coo",
    "induced_graph", "inverse_or_zero", "Links", "is_symmetric", "label_notes", "lacks_node_0", "loaded_line", "labelled", "matched", "taken",
    "lacks_loop", "normalise", "random_edge_split", "random_split", "scaled", "shared_links", "split_as", "split_links", "symmetrised", "targets_of", "task_of", "with_self_loops",
]  # fmt: skip
