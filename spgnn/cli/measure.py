"""spgnn measure: GRAPH, partitions, schemes -> bytes of every exchange, before anything runs; seconds on a machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..config import MeasureConfig
from .console import bytes_text, rows_table, say, write, write_json
from .options import GRAPH_HELP, METHOD_HELP, OneProcess, config_options, integers, output_options, widths_of, words
from .source import load

if TYPE_CHECKING:
    from ..analysis import VolumeReport
    from ..analysis.plan import PlanLine
    from ..graph import Graph
    from ..partition import Partition

COLUMNS = {
    "k": "k",
    "method": "method",
    "scheme": "scheme",
    "replication": "c",
    "total_rows": "rows sent",
    "sum_rows": "rows summed",
    "max_send_rows": "max sent",
    "max_over_mean_send": "max/mean",
    "max_recv_rows": "max read",
    "messages": "messages",
    "edge_cut": "edge cut",
    "replication_factor": "copies",
    "label_entropy": "entropy",
    "work_imbalance": "imbalance",
    "epoch_bytes": "bytes/epoch",
    "seconds": "seconds",
}
SIMULATED = {
    "ranks": "ranks",
    "k": "k",
    "method": "method",
    "scheme": "scheme",
    "replication": "c",
    "epoch_bytes": "bytes/epoch",
    "memory": "memory/rank",
    "epoch_s": "epoch ms",
    "spmm": "SpMM",
    "dense": "dense",
    "exchange": "exchange",
    "hidden": "hidden",
    "sums": "sums",
    "all_reduce": "all-reduce",
}


@click.command(cls=OneProcess, epilog=f"{GRAPH_HELP}\n{METHOD_HELP}")
@config_options(MeasureConfig)
@output_options
def measure(graph: str, config: MeasureConfig, as_json: bool) -> None:
    """Predict the rows and bytes that training on GRAPH sends, from the partition alone.

    \b
      spgnn measure wordnet -k 4,16 --method block,metis
      spgnn measure wordnet -k 64 --scheme broadcast,columns,cover
      spgnn measure wordnet -k 64,256 --replication 1,2,4 --simulate

    Values of a list are separated by commas; each combination is one line of the table:

    \b
      rows sent    in one product with the adjacency matrix, by all ranks
      rows summed  in the sums of its partial results, with replication
      max sent     rows sent by the busiest rank; max/mean: over the average
      max read     rows received by the rank that receives most
      messages     pairs of ranks that exchange rows
      copies       own and ghost rows of all parts over nodes
      entropy      of the labels of a part in bits, average of the parts
      imbalance    nonzeros multiplied by the busiest rank over the average
      bytes/epoch  by all ranks in a step; with --widths, --simulate or --json
      seconds      to make the partition

    --simulate adds the milliseconds of an epoch by phase; "hidden" is the part of the exchanges that overlaps
    with products.
    """
    from ..analysis import layer_table
    from ..analysis.study import default_widths
    from ..cost.pairs import grid_of

    widths = widths_of(config.widths) if config.widths else ()
    schemes, replications = words("scheme", config.scheme), integers("replication", config.replication)
    cuts = [(k, method) for k in integers("k", config.k) for method in words("method", config.method)]
    if not config.partition:
        for k, c in [(k, c) for k, _ in cuts for c in replications]:
            grid_of(k, c)  # before anything is read or cut
    loaded = load(graph, config.format, config.features, config.labels)
    if not widths and (as_json or config.simulate):  # which ask for an epoch
        widths = default_widths(loaded)
        if not (loaded.n_features and loaded.n_classes):
            say(
                f"{loaded.name} has no {'features' if not loaded.n_features else 'labels'}; --widths {','.join(map(str, widths))}"
            )
    features = loaded.X  # which a partitioner may look at
    if widths and widths[0] != loaded.n_features:
        loaded = replace(loaded, X=None)  # of other features than the graph's nothing is known
    one, used = _measurer(loaded, widths, config)
    lines, report = [], None
    for part in _partitions(replace(used, X=features), cuts, config):
        for scheme in schemes:
            for replication in replications:
                report, simulated = one(part, scheme, replication)
                lines.append(report.to_dict() | _label_entropy(loaded, part) | simulated)
                if as_json:
                    write_json(lines[-1])
    if as_json:
        return
    of_widths = f"; widths {', '.join(map(str, widths))}" if widths else ""
    write(f"{graph}, {config.edges} edges: {used.n_nodes:,} nodes, {used.nnz:,} nonzeros{of_widths}")
    if config.simulate:
        write(f"simulated on {lines[0]['simulated']['machine']}")
        write(rows_table([_simulated(line) for line in lines], SIMULATED))
        return
    left_out = {"sum_rows"} if max(replications) == 1 else set()
    left_out |= {"label_entropy"} if loaded.y is None else set()
    left_out |= set() if widths else {"epoch_bytes"}
    columns = {name: text for name, text in COLUMNS.items() if name not in left_out}
    write(rows_table([_readable(line) for line in lines], columns))
    if len(lines) == 1 and widths:
        write("\n" + "\n".join(layer_table(report.layers)))


def _measurer(loaded: Graph, widths: tuple[int, ...], config: MeasureConfig):
    """Return the function (part, scheme, c) -> (VolumeReport, what was simulated), and the graph as it is used."""
    from ..analysis import measure as measure_volume
    from ..analysis.plan import Model, PlannedGraph, plan_line
    from ..cost.machines import load_machine

    names = ("order", "keep", "wire", "wire_gradients", "overlap")
    is_pruned = config.prune == "always"
    model = Model(widths=widths, prune=is_pruned, **{name: getattr(config, name) for name in names})
    planned = PlannedGraph(loaded, config.edges)
    machine = load_machine(config.machine) if config.simulate else None
    options = {name: getattr(config, name) for name in names if name != "overlap"}
    options |= {"train_N": planned.train_N} if is_pruned else {}
    options |= {"sparse_input": True, "keep_sparse": planned.keeps_sparse} if planned.has_sparse_input else {}

    def one(part: Partition, scheme: str, c: int) -> tuple[VolumeReport, dict]:
        if machine is None:
            return measure_volume(planned.graph, part, scheme, widths, c, **options), {}
        line: PlanLine = plan_line(planned, part, scheme, c, model, machine, from_parts=True)
        names = ("ranks", "hosts", "epoch_s", "epoch_parts_s", "memory_mb")
        return line.report, {"simulated": {"machine": machine.name} | {name: line.to_dict()[name] for name in names}}

    return one, planned.graph


def _label_entropy(graph: Graph, part: Partition) -> dict:
    from ..partition.entropies import label_entropies

    return {"label_entropy": None if graph.y is None else label_entropies(graph.y, part.owner_N, part.k)[1]}


def _readable(line: dict) -> dict:
    from ..cost.pairs import summed_rows

    return line | {
        "epoch_bytes": "" if line["bytes_per_epoch"] is None else bytes_text(line["bytes_per_epoch"]),
        "sum_rows": summed_rows(line["n"], line["replication"]),
    }


def _simulated(line: dict) -> dict:
    simulated, parts = line["simulated"], line["simulated"]["epoch_parts_s"]
    parts = parts | {"epoch_s": simulated["epoch_s"], "dense": parts["gemm"] + parts["passes"] + parts["calls"]}
    milliseconds = {name: f"{1e3 * seconds:.3f}" for name, seconds in parts.items()}
    return (
        _readable(line)
        | milliseconds
        | {"ranks": simulated["ranks"], "memory": bytes_text(int(1e6 * simulated["memory_mb"]))}
    )


def _partitions(graph: Graph, cuts: list[tuple[int, str]], config: MeasureConfig) -> Iterator[Partition]:
    """Yield the partition of --partition, or one for each (k, method)."""
    from ..partition import load_partition, part_graph

    if config.partition:
        yield load_partition(config.partition, graph)
        return
    for k, method in cuts:
        yield part_graph(graph, k, method, seed=config.seed, balance=config.balance)
