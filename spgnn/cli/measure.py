"""spgnn measure: GRAPH, partitions, schemes -> bytes of every exchange, before anything runs; seconds on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..config import MeasureConfig
from ..errors import UsageError
from .console import folded, in_one_unit, write, write_json, write_table
from .options import (
    EDGES_HELP,
    GRAPH_HELP,
    METHOD_HELP,
    MODEL_HELP,
    OneProcess,
    config_options,
    integers,
    output_options,
)
from .planned import Planned

if TYPE_CHECKING:
    from ..analysis import VolumeReport
    from ..cost.machines import Machine
    from ..graph import Graph
    from ..partition import Partition
    from .planned import Way

COLUMNS = {
    "ranks": "ranks", "k": "k", "method": "method", "scheme": "scheme", "replication": "c", "total_rows": "rows sent",
    "rows_between_hosts": "between hosts",
    "sum_rows": "rows summed", "max_send_rows": "max sent", "max_over_mean_send": "max/mean",
    "max_recv_rows": "max read", "messages": "messages", "edge_cut": "edge cut", "replication_factor": "copies",
    "label_entropy": "entropy", "work_imbalance": "imbalance", "bytes_per_epoch": "MB/epoch", "seconds": "cut s",
}  # fmt: skip
SIMULATED = {
    "ranks": "ranks", "k": "k", "method": "method", "scheme": "scheme", "replication": "c",
    "bytes_per_epoch": "MB/epoch", "memory": "MB/rank", "epoch_s": "epoch", "spmm": "SpMM", "dense": "dense",
    "exchange": "exchange", "hidden": "hidden", "sums": "sums", "all_reduce": "all-reduce",
}  # fmt: skip
# Left out of a table, in this order, until it fits the terminal.
OMIT = (
    *("seconds", "max_recv_rows", "edge_cut", "label_entropy", "messages", "max_send_rows", "replication_factor"),
    *("max_over_mean_send", "sum_rows", "work_imbalance"),
)
PAPER_ENDS = (300, 24)  # features and classes of the ICPP'24 paper's runs, for a graph without them
OMIT_SIMULATED = ("k", "memory", "bytes_per_epoch", "hidden", "sums")


FIRST = """
    config ranks k method scheme replication partition features labels edges model hidden layers dtype wire machine
    simulate
"""


@click.command(cls=OneProcess, first=FIRST, epilog=METHOD_HELP, tables=f"{GRAPH_HELP}\n{EDGES_HELP}\n{MODEL_HELP}")
@config_options(MeasureConfig)
@output_options
def measure(graph: str, config: MeasureConfig, as_json: bool) -> None:
    """Predict the rows and bytes that `spgnn train` with the same options sends, without running it.

    \b
      spgnn measure wordnet --ranks 4,16 --method block,metis
      spgnn measure wordnet -k 64 --scheme broadcast,columns,cover
      spgnn measure wordnet -k 64,256 --replication 1,2,4 --simulate
      spgnn measure wordnet --partition parts -k 2
      spgnn measure wordnet -k 16 --hosts 4 --scheme cover,two-tier

    Values of a list are separated by commas; each combination is one line of the table:

    \b
      rows sent    in one product with the adjacency matrix, by all ranks
      between hosts  of these rows, with --hosts
      rows summed  sent to add up its partial results, with replication
      max sent     rows sent by the busiest rank; max/mean: divided by the mean
      max read     rows received by the rank that receives most
      messages     pairs of ranks of which one sends the other rows
      copies       own and ghost rows of all parts, divided by the nodes
      entropy      of the labels of a part, in bits; mean of the parts
      imbalance    nonzeros that the busiest rank multiplies / mean of ranks
      MB/epoch     sent by all ranks in a training step (10^6 bytes)
      cut s        seconds to make the partition

    MB/epoch needs features and labels. --simulate adds the milliseconds of an epoch by phase; "hidden" is
    the part of the exchanges that overlaps with products. A wide terminal shows more columns.
    """
    from ..analysis import layer_table
    from ..cost.machines import load_machine, this_host

    replications = integers("replication", config.replication)
    _check_grids(config, replications)  # before anything is read
    planned = Planned(graph, config, PAPER_ENDS if as_json or config.simulate else ())
    config = planned.config
    is_here = config.machine == MeasureConfig.machine and not config.simulate  # as a training chooses its scheme
    machine, lines, report = this_host() if is_here else load_machine(config.machine), [], None
    for way in planned.ways():
        report, simulated = _predicted(planned, way, machine)
        lines.append(report.to_dict() | _label_entropy(planned.graph, way[0]) | simulated)
        if as_json:
            write_json(lines[-1])
    if as_json:
        return
    write(folded(planned.title(graph)))
    if config.simulate:
        write(f"simulated on {machine.name}, in milliseconds")
        _write(lines, SIMULATED, OMIT_SIMULATED)
        return
    left_out = {"k"} if config.ranks else {"ranks"}
    left_out |= {"sum_rows"} if max(replications) == 1 else set()
    left_out |= {"label_entropy"} if planned.graph.y is None else set()
    left_out |= set() if config.hosts else {"rows_between_hosts"}
    left_out |= set() if planned.widths else {"bytes_per_epoch"}
    _write(lines, {name: text for name, text in COLUMNS.items() if name not in left_out}, OMIT)
    if len(lines) == 1 and planned.widths and report is not None:
        write("\n" + "\n".join(layer_table(report.layers)))


def _write(lines: list[dict], columns: dict[str, str], omit: tuple[str, ...]) -> None:
    """Write a line of the table for each prediction."""
    rows = [_readable(line) for line in lines]
    for key, per in (("bytes_per_epoch", "epoch"), ("memory", "rank")):
        if key in columns:
            columns = columns | {key: in_one_unit(rows, key, per)}
    write_table(rows, columns, omit)


def _check_grids(config: MeasureConfig, replications: tuple[int, ...]) -> None:
    """Raise UsageError for a replication that does not fit a k, and for -k with --ranks."""
    from ..cost.pairs import grid_of

    if config.k and config.ranks:
        raise UsageError(f"-k {config.k} are numbers of parts, --ranks {config.ranks} of ranks; omit one of them")
    for k in () if config.ranks or (config.partition and not config.k) else integers("k", config.k or "4"):
        for c in replications:
            grid_of(k, c)
            _check_hosts(config.hosts, k * c)
    for ranks in integers("ranks", config.ranks) if config.ranks else ():
        _check_hosts(config.hosts, ranks)


def _check_hosts(hosts: int, ranks: int) -> None:
    if hosts and ranks % hosts:
        raise UsageError(f"--hosts {hosts}; expected a divisor of the {ranks} ranks: each host has as many")


def _predicted(planned: Planned[MeasureConfig], way: Way, machine: Machine) -> tuple[VolumeReport, dict]:
    """Return what an epoch sends, and with --simulate what it takes on a machine."""
    config, (part, _, c) = planned.config, way
    _check_hosts(config.hosts, part.k * c)
    if config.hosts or not config.simulate:
        machine = machine.placed(-(-part.k * c // max(config.hosts, 1)))
    if not config.simulate:
        return planned.report(way, machine), {}
    line = planned.line(way, machine, from_parts=True)
    names = ("ranks", "hosts", "epoch_s", "epoch_parts_s", "memory_mb")
    return line.report, {"simulated": {"machine": machine.name} | {name: line.to_dict()[name] for name in names}}


def _label_entropy(graph: Graph, part: Partition) -> dict:
    from ..partition.metrics import label_entropies

    labels = None if graph.is_regression else graph.y
    return {"label_entropy": None if labels is None else label_entropies(labels, part.owner_N, part.k)[1]}


def _readable(line: dict) -> dict:
    """Return what a line of the table shows; phases of an epoch in milliseconds."""
    from ..cost.pairs import summed_rows

    line = line | {"sum_rows": summed_rows(line["n"], line["replication"]), "ranks": line["k"] * line["replication"]}
    if "simulated" not in line:
        return line
    simulated, parts = line["simulated"], line["simulated"]["epoch_parts_s"]
    parts = parts | {"epoch_s": simulated["epoch_s"], "dense": parts["gemm"] + parts["passes"] + parts["calls"]}
    milliseconds = {name: 1e3 * seconds for name, seconds in parts.items()}
    return line | milliseconds | {"ranks": simulated["ranks"], "memory": int(1e6 * simulated["memory_mb"])}
