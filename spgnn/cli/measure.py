"""spgnn measure: GRAPH, partitions, schemes -> bytes of every exchange, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ..config import MeasureConfig
from ..errors import UsageError
from .console import bytes_text, rows_table, say, write, write_json
from .options import GRAPH_HELP, OneProcess, config_options, output_options
from .source import load

if TYPE_CHECKING:
    from ..graph import Graph
    from ..partition import Partition

SECTIONS = {
    "What to measure": ("k", "method", "partition", "scheme", "replication", "widths", "seed", "balance"),
    "Graph": ("edges", "format", "features", "labels"),
}
COLUMNS = {
    "k": "k",
    "method": "method",
    "scheme": "scheme",
    "replication": "c",
    "total_rows": "rows sent",
    "max_send_rows": "max sent",
    "max_over_mean_send": "max/mean",
    "max_recv_rows": "max read",
    "messages": "messages",
    "edge_cut": "edge cut",
    "nnz_imbalance": "imbalance",
    "epoch_bytes": "bytes/epoch",
    "seconds": "seconds",
}
# The widths of the ICPP'24 paper's runs, for a graph without features or labels.
PAPER_WIDTHS = (300, 16, 24)


@click.command(cls=OneProcess, sections=SECTIONS, short_help="Predict what a partition sends.", epilog=GRAPH_HELP)
@config_options(MeasureConfig)
@output_options
def measure(graph: str, config: MeasureConfig, as_json: bool) -> None:
    """Predict the rows and bytes that every exchange of GRAPH sends, from the partition alone.

    \b
    Lists are separated by commas; there is one line for each combination:
      spgnn measure wordnet -k 4,16 --method block,metis --scheme broadcast,columns

    Rows are counted for one product with the adjacency matrix. "max sent" and "max read" are
    of the rank with most; "c" is the replication, "imbalance" the largest work of a part over the
    mean, "seconds" what making the partition took.
    """
    from ..analysis import measure as measure_volume

    widths = _integers("widths", config.widths) if config.widths else ()
    schemes, replications = _words("scheme", config.scheme), _integers("replication", config.replication)
    cuts = [(k, method) for k in _integers("k", config.k) for method in _words("method", config.method)]
    loaded = load(graph, config.format, config.features, config.labels).with_edges(config.edges)
    widths = widths or _default_widths(loaded)
    features = _sparse_features(loaded) if widths[0] == loaded.n_features else {}
    lines = []
    for part in _partitions(loaded, cuts, config):
        for scheme in schemes:
            for replication in replications:
                report = measure_volume(loaded, part, scheme, widths, replication, **features)
                lines.append(report.to_dict())
                if as_json:
                    write_json(lines[-1])
    if not as_json:
        sizes = f"{loaded.n_nodes:,} nodes, {loaded.nnz:,} nonzeros"
        write(f"{graph}, {config.edges} edges: {sizes}; widths {', '.join(map(str, widths))}")
        write(rows_table([line | {"epoch_bytes": bytes_text(line["bytes_per_epoch"])} for line in lines], COLUMNS))


def _partitions(graph: Graph, cuts: list[tuple[int, str]], config: MeasureConfig) -> Iterator[Partition]:
    """Yield the partition of --partition, or one for each (k, method)."""
    from ..partition import load_partition, part_graph

    if config.partition:
        yield load_partition(config.partition, graph)
        return
    for k, method in cuts:
        yield part_graph(graph, k, method, seed=config.seed, balance=config.balance)


def _default_widths(graph: Graph) -> tuple[int, ...]:
    if graph.n_features and graph.n_classes:
        return graph.n_features, 128, graph.n_classes
    say(f"{graph.name} has no {'features' if not graph.n_features else 'labels'}; --widths {','.join(map(str, PAPER_WIDTHS))}")
    return PAPER_WIDTHS


def _sparse_features(graph: Graph) -> dict[str, bool]:
    """Return what the schedule asks of sparse features: is A X, self-loops added as by gcn, worth keeping?"""
    import numpy as np
    import scipy.sparse as sp

    from ..graph import with_self_loops
    from ..spmm.schedule import keeps_sparse

    if not sp.issparse(graph.X):
        return {}
    A = with_self_loops(graph.A)
    # nnz(A X) <= sum over A_ij of nnz(X_j).
    bound = int(np.bincount(A.indices, minlength=graph.n_nodes) @ np.diff(graph.X.indptr))
    return {"sparse_input": True, "keep_sparse": keeps_sparse(bound, graph.X.nnz, A.nnz)}


def _words(name: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(f"--{name} is empty; expected names separated by commas")
    return words


def _integers(name: str, text: str) -> tuple[int, ...]:
    words = _words(name, text)
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--{name} {text!r}; expected positive integers separated by commas, such as 4,16")
    return tuple(int(word) for word in words)
