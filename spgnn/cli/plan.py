"""spgnn plan: GRAPH, ranks, partitioners, schemes -> memory, bytes and seconds of a training, before it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..config import PlanConfig
from ..errors import ResourceError
from .console import bytes_text, folded, in_one_unit, say, write, write_json, write_table
from .options import (
    EDGES_HELP,
    GRAPH_HELP,
    METHOD_HELP,
    MODEL_HELP,
    OneProcess,
    config_options,
    flag,
    integers,
    output_options,
)
from .planned import Planned

if TYPE_CHECKING:
    from ..analysis.plan import Prediction
    from ..cost.machines import Machine

COLUMNS = {
    "mark": "", "ranks": "ranks", "hosts": "hosts", "method": "method", "scheme": "scheme", "replication": "c",
    "bytes": "MB/epoch", "between": "MB/crossing", "epoch": "epoch s", "products": "products", "waiting": "waiting", "memory": "MB/rank",
    "host": "MB/host", "verdict": "",
}  # fmt: skip
SIZED = {
    "mark": "", "ranks": "ranks", "hosts": "hosts", "mode": "mode", "parts": "parts", "memory": "", "sent": "", "disk": "", "read": "",
    "epoch": "epoch s", "hours": "100 epochs h", "verdict": "",
}  # fmt: skip
OF_SIZES = {"memory": "rank", "sent": "epoch", "disk": "disk", "read": "read"}
# Omitted, in this order, until the table fits the terminal.
OMIT = ("hosts", "between", "products", "waiting", "memory", "host")


FIRST = """
    config ranks method scheme replication partition features labels edges model hidden layers dtype wire machine
    ranks_per_host memory
"""


@click.command(cls=OneProcess, first=FIRST, epilog=METHOD_HELP, tables=f"{GRAPH_HELP}\n{EDGES_HELP}\n{MODEL_HELP}")
@config_options(PlanConfig)
@output_options
def plan(graph: str, config: PlanConfig, as_json: bool) -> None:
    """Predict the memory, bytes and seconds of training on GRAPH for each number of ranks, partitioner and scheme.

    \b
      spgnn plan wordnet --ranks 2,4,16 --method block,metis
      spgnn plan wordnet --ranks 64 --machine ethernet-1g
      spgnn doctor --calibrate here.toml
      spgnn plan wordnet --ranks 4 --machine here.toml

    Values of a list are separated by commas; each combination is one line of the table, and * marks the fastest
    that fits, with the scheme that `train --scheme auto` takes:

    \b
      c         replication
      MB/epoch  sent by all ranks (10^6 bytes)
      MB/crossing  of these, between hosts
      products  seconds of sparse and dense products
      waiting   seconds of exchanges and sums that no product overlaps
      MB/rank   memory of the rank that needs most; MB/host: of its host

    If no line fits, the exit code is 4 and the arithmetic is printed. Before there is a graph, its sizes plan it, in
    memory and out of core, with the commands to run:

    \b
      spgnn plan sizes:nodes=1M,edges=16M,features=64,classes=9 --ranks 1,8
    """
    from ..analysis.plan import fastest

    if graph.partition(":")[0] == "sizes":
        _plan_sizes(graph, config, as_json)
        return
    machine, planned = _machine(config), Planned(graph, config)
    if not (config.machine or config.ranks_per_host):  # as train places them on this host
        machine = machine.placed(max(machine.ranks_per_host, planned.most_ranks()))
    ways = list(planned.ways(machine))
    lines = [planned.line(way, machine, from_parts=bool(planned.config.partition)) for way in ways]
    taken = [line for line, way in zip(lines, ways) if planned.is_taken(way, ways, machine)]
    best = fastest(taken) or fastest(lines)
    if as_json:
        for line in lines:
            write_json(line.to_dict() | {"fastest": line is best})
    else:
        write(folded(planned.title(graph)))
        rates = "" if config.machine else "; seconds not calibrated"
        memory = bytes_text(machine.memory_bytes)
        write(folded(f"{machine.name}: {machine.ranks_per_host} rank(s) per host, {memory} of memory{rates}"))
        rows = [_row(line, line is best) for line in lines]
        units = {"bytes": "epoch", "between": "crossing", "memory": "rank", "host": "host"}
        units = {key: in_one_unit(rows, key, per) for key, per in units.items()}
        left_out = set() if any(line.hosts > 1 for line in lines) else {"between"}
        columns = {key: units.get(key, heading) for key, heading in COLUMNS.items() if key not in left_out}
        colours = {"*": "green", " ": ""}
        write_table(rows, columns, OMIT, lambda row: colours[row["mark"]] if row["verdict"] == " " else "red")
    if best is None:
        raise ResourceError(_refusal(min(lines, key=lambda line: line.host_bytes), machine))


def _plan_sizes(spec: str, config: PlanConfig, as_json: bool) -> None:
    """Write the ways to train on a graph of some sizes, and the commands of the fastest that fits."""
    from ..cost.machines import load_machine, this_host
    from ..experiment.from_sizes import PlannedSizes

    machine = _machine(config)
    ranks = integers("ranks", config.ranks or "1,4")
    if not (config.machine or config.ranks_per_host):  # as train places them on this host
        machine = machine.placed(max(machine.ranks_per_host, *ranks))
    host_bytes = load_machine(config.machine).memory_bytes if config.machine else this_host().memory_bytes
    planned = PlannedSizes(spec, config, machine, host_bytes)
    lines = [line for P in ranks for line in planned.plans(P)]
    best = min((line for line in lines if line.fits), key=lambda line: line.epoch_s, default=None)
    if as_json:
        for line in lines:
            write_json(line.to_dict() | {"fastest": line is best})
    else:
        sizes = planned.sizes
        write(folded(f"{sizes.nodes:,} nodes, {planned.nnz:,} nonzeros; {config.model}, {config.layers} layers"))
        write(
            folded(
                f"{machine.name}: {machine.ranks_per_host} rank(s) per host, {bytes_text(machine.memory_bytes)} of memory"
            )
        )
        rows = [
            {
                "mark": "*" if line is best else " ", "ranks": line.ranks, "hosts": line.hosts, "mode": line.mode, "parts": line.parts,
                "memory": line.memory, "sent": line.sent, "disk": line.disk, "read": line.read, "epoch": f"{line.epoch_s:.3g}",
                "hours": f"{line.hours:.3g}", "verdict": " " if line.fits else "does not fit",
            }
            for line in lines
        ]  # fmt: skip
        units = {key: in_one_unit(rows, key, per) for key, per in OF_SIZES.items()}
        columns = {key: units.get(key, heading) for key, heading in SIZED.items()}
        colours = {"*": "green", " ": ""}
        write_table(
            rows, columns, ("hosts", "sent"), lambda row: colours[row["mark"]] if row["verdict"] == " " else "red"
        )
    if best is None:
        need = min(line.memory for line in lines)
        raise ResourceError(
            f"no run fits: a rank needs {bytes_text(need)}, and has {bytes_text(lines[0].available)}; take more hosts or a narrower model"
        )
    if not as_json:
        write("".join(f"\n  {command}" for command in planned.launch(best)))


def _machine(config: PlanConfig) -> Machine:
    """Return the machine of --machine, or this host with laptop's rates per core, as changed by the options."""
    from ..cost.machines import load_machine, this_host

    if not config.machine:
        say(
            "rates of `laptop`, with this host's cores and memory; `spgnn doctor --calibrate FILE` measures this host's, --machine FILE reads them"
        )
    machine = load_machine(config.machine) if config.machine else this_host()
    if config.ranks_per_host:
        machine = machine.placed(config.ranks_per_host)
    return replace(machine, memory_bytes=_bytes_of("memory", config.memory)) if config.memory else machine


def _bytes_of(name: str, size: str) -> int:
    """Return the bytes of an option: 64GB, 500MB; a number alone is of GB."""
    from ..partition.folder.pipeline.memory_budget import memory_bytes_of

    is_number = size.replace(".", "", 1).isdecimal()
    return memory_bytes_of(f"{size}GB" if is_number else size, flag(name))


def _row(line: Prediction, is_best: bool) -> dict:
    epoch = line.epoch
    return {
        "mark": "*" if is_best else " ",
        "ranks": line.ranks,
        "hosts": line.hosts,
        "method": line.report.method,
        "scheme": line.report.scheme,
        "replication": line.report.replication,
        "bytes": line.report.bytes_per_epoch,
        "between": line.report.tiers.get("bytes_between_hosts", 0),
        "epoch": f"{epoch.epoch_s:.4f}",
        "products": f"{epoch.spmm + epoch.gemm + epoch.passes + epoch.calls:.4f}",
        "waiting": f"{epoch.exchange - epoch.hidden + epoch.sums + epoch.all_reduce:.4f}",
        "memory": line.memory.peak,
        "host": line.host_bytes,
        "verdict": " " if line.fits else "does not fit",
    }


def _refusal(line: Prediction, machine: Machine) -> str:
    """Return why not even the smallest of the lines fits: needed, available, the largest part, and what would fit."""
    from ..analysis.plan import ranks_that_fit

    memory, here = line.memory, min(line.ranks, machine.ranks_per_host)
    enough = ranks_that_fit(line, machine)
    is_enough = enough is not None and enough != line.ranks
    remedy = (
        f"{enough} ranks on {machine.hosts(enough)} host(s) would fit"
        if is_enough
        else f"more ranks do not help: {_other_ways(line, here)}"
    )
    loading = f", and {bytes_text(memory.loading)} while it reads and partitions the graph"
    return (
        f"no run fits: the smallest ({line.report.method}, {line.report.scheme}, c = {line.report.replication}) needs "
        f"{bytes_text(line.host_bytes)} on a host with {here} of {line.ranks} rank(s), "
        f"available {bytes_text(line.available_bytes)}; {remedy}\n"
        f"  rank {line.rank}: {memory.arithmetic()}"
        f"{loading if memory.loading > memory.training else ''}; most goes to {memory.largest}"
    )


def _other_ways(line: Prediction, here: int) -> str:
    if line.memory.loading > line.memory.training:
        return "`spgnn partition GRAPH --out DIR` where there is memory, then --partition DIR: no rank then reads the whole graph"
    fewer = "fewer ranks per host (--ranks-per-host), " if here > 1 else ""
    return f"take {fewer}hosts with more memory, or --dtype bfloat16"
