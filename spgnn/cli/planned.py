"""Planned: the graph, model, parts and choices of the training that measure and plan predict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..config import MeasureConfig, PlanConfig, input_files
from ..config.names import ITEMSIZE, SCHEMES
from ..errors import UsageError
from .console import say
from .options import integers, widths_of, words
from .source import EDGES_TEXT, load

if TYPE_CHECKING:
    from ..analysis import VolumeReport
    from ..analysis.epoch import FixedModel
    from ..analysis.plan import Choice, Prediction
    from ..cost.machines import Machine
    from ..graph import Graph
    from ..partition import Partition

    Way = tuple[Partition, str, int]  # parts, scheme and replication of a training


class Planned:
    """The training that the options describe, on a graph that is read once.

    Args: default_widths  of a graph without features or labels; (): rows alone are predicted; None: it is refused.
    graph     with its reverse edges unless --edges says otherwise; X only where the model reads it.
    widths    F, hidden ..., C, or ().
    """

    def __init__(self, graph: str, config: MeasureConfig | PlanConfig, default_widths: tuple[int, ...] | None = None):
        from ..analysis.plan import Choice
        from ..analysis.planned_graph import PlannedGraph
        from ..layers.registry import check_options
        from ..partition.folder.store import is_partition

        if is_partition(graph) and not config.partition:
            config = replace(config, partition=graph)
        self.config = config
        check_options(config)
        loaded = load(graph, config.format, **input_files(config))
        self.widths = widths = _widths(loaded, config, default_widths)
        self._features = loaded.X  # a partitioner may read them
        if widths and widths[0] != loaded.n_features:
            loaded = replace(loaded, X=None)  # with other widths the model reads other features
        operator = _operator(config)
        self.planned = PlannedGraph(loaded, config.edges, sum(widths[:1]), operator, config.split, config.seed)
        self.graph = self.planned.graph
        self._model: Choice | None = None
        if widths:
            options = {name: getattr(config, name) for name in ("wire", "wire_gradients", "order", "keep", "overlap")}
            self._model = Choice(
                layers=_layers(config, widths, loaded.n_edge_features), itemsize=ITEMSIZE[config.dtype], **options
            )
        self._parts: dict[tuple, Partition] = {}
        self._is_pruned: dict[int, bool] = {}

    def title(self, name: str) -> str:
        """Return the line above a table."""
        widths = f"; widths {', '.join(map(str, self.widths))}" if self.widths else ""
        return (
            f"{name}, {EDGES_TEXT[self.graph.edges]}: {self.graph.n_nodes:,} nodes, {self.graph.nnz:,} nonzeros{widths}"
        )

    def part(self, k: int, method: str, scheme: str) -> Partition:
        """Return the partition that a training with a scheme makes; each is made once."""
        from ..partition import PARTITIONERS, part_graph
        from ..partition.hosts import equal_hosts, host_of

        by_scheme = getattr(PARTITIONERS.get(method), "by_scheme", {})
        key = (k, method, str(by_scheme.get(scheme)))
        if key not in self._parts:
            graph, config = replace(self.graph, X=self._features), self.config
            hosts = getattr(config, "hosts", 0)
            self._parts[key] = part_graph(
                graph, k, method, seed=config.seed, scheme=scheme if by_scheme else None,
                hosts=equal_hosts(host_of(k, hosts), k) if hosts else 1,
            )  # fmt: skip
        return self._parts[key]

    def on_ranks(self, machine: Machine | None = None) -> Iterator[Way]:
        """Yield partition into P / c parts, scheme and c, for each P of --ranks, c whose square divides P, method, scheme.

        Args: machine  two-tier is omitted, next to other schemes, where it is cover on this machine.
        """
        config = self.config
        wanted, schemes = integers("replication", config.replication), words("scheme", config.scheme)
        flat = tuple(scheme for scheme in schemes if scheme != "two-tier") or schemes
        is_tiered = lambda size, c: machine is None or (c == 1 < machine.ranks_per_host and machine.hosts(size) > 1)
        # One rank sends nothing: one scheme is enough.
        used = lambda size, c: (schemes if is_tiered(size, c) else flat)[: None if size > 1 else 1]
        if config.partition:
            part = self.load_part()
            for k, c in _fitting(part.k, wanted, config):
                merged = part.dealt(k)
                yield from ((merged, scheme, c) for scheme in used(k * c, c))
            return
        for size in integers("ranks", config.ranks or "4"):
            for c in _valid(size, wanted):
                for method in words("method", config.method):
                    yield from ((self.part(size // c, method, scheme), scheme, c) for scheme in used(size, c))

    def load_part(self) -> Partition:
        """Return the partition of --partition."""
        from ..partition import load_partition

        return load_partition(self.config.partition, self.graph)

    def merged_part(self, part: Partition, k: int, asked: str) -> Partition:
        """Return a partition whose parts are merged into k; asked: what asks for it, in an error."""
        if k > part.k:
            raise UsageError(f"{asked}: {self.config.partition} has k = {part.k} parts; expected {part.k} or fewer")
        return part.dealt(k)

    def scheme(self, name: str, part: Partition, c: int, machine: Machine) -> str:
        """Return the scheme that a training takes for this name: auto is decided on the machine."""
        from ..analysis.choices import predict_scheme

        if name not in ("auto", "flat"):
            return name
        names = ("columns", "cover") if name == "flat" else SCHEMES
        return predict_scheme(self.planned, part, c, machine, ITEMSIZE[self.config.dtype], names)

    def is_taken(self, way: Way, ways: Sequence[Way], machine: Machine) -> bool:
        """Return whether --scheme auto would take the scheme of a way, out of the schemes that are compared on its parts."""
        from ..analysis.choices import predict_scheme

        part, name, c = way
        names = [scheme for of, scheme, copies in ways if of is part and copies == c and scheme != "broadcast"]
        if not names or "auto" in names or "flat" in names:
            return True
        return name == predict_scheme(self.planned, part, c, machine, ITEMSIZE[self.config.dtype], names)

    def report(self, part: Partition, scheme: str, c: int, ranks_per_host: int) -> VolumeReport:
        """Return what an epoch sends, its rows pruned where the training prunes them; without a model, rows alone."""
        from ..analysis import measure
        from ..cost.pairs import grid_of

        if self._model is None:
            train_N = self.planned.train_N if self.config.prune == "always" else None
            size = ITEMSIZE[self.config.dtype]
            return measure(self.graph, part, scheme, (), grid_of(part.k, c, ranks_per_host), size, train_N=train_N)
        return self.model(self.is_pruned(part, scheme, c)).measured(self.planned, part, scheme, c, ranks_per_host)

    def line(self, part: Partition, scheme: str, c: int, machine: Machine, **options) -> Prediction:
        """Return the memory, bytes and seconds of an epoch on a machine."""
        from ..analysis.plan import plan_line
        from ..cost.choose import HostMemory

        is_pruned = self.is_pruned(part, scheme, c)
        line_of = lambda prune: plan_line(self.planned, part, scheme, c, self.model(prune), machine, **options)
        line = line_of(is_pruned)
        if is_pruned and self.config.prune == "auto" and line.device is None:
            whole = line_of(False)
            return line if HostMemory(line.host_bytes, whole.host_bytes, machine.memory_bytes).fits else whole
        return line

    def model(self, prune: bool) -> Choice:
        """Return what is trained."""
        return replace(self._model, prune=prune)

    def is_pruned(self, part: Partition, scheme: str, c: int) -> bool:
        """Return whether a training prunes rows; that depends on the replication alone, and is decided once."""
        from ..analysis.choices import saves_by_pruning

        config, planned = self.config, self.planned
        if config.prune != "auto" or planned.graph.y is None or not self.widths:
            return config.prune == "always"
        if c not in self._is_pruned:
            model = self.model(prune=False)
            report = model.measured(planned, part, scheme, c)
            self._is_pruned[c] = saves_by_pruning(planned, model.layers, report, config.eval_every)
        return self._is_pruned[c]


def _valid(size: int, wanted: tuple[int, ...]) -> list[int]:
    """Return the replications that fit a number of ranks. Raises: UsageError with those that would, where none does."""
    from ..cost.grid import ProcessGrid, valid_replications

    return [c for c in wanted if c in valid_replications(size)] or [ProcessGrid(size, wanted[0]).c]


def _fitting(k: int, wanted: tuple[int, ...], config: MeasureConfig | PlanConfig) -> list[tuple[int, int]]:
    """Return (parts, c) for each P and c that k parts run on, merged where P / c are fewer; without --ranks P = k c."""
    from ..cost.grid import valid_replications

    sizes = integers("ranks", config.ranks) if config.ranks else ()
    fitting = [(size // c, c) for size in sizes for c in wanted if c in valid_replications(size) and size // c <= k]
    fitting = fitting if sizes else [(k, c) for c in wanted if k % c == 0]
    if not fitting:
        asked = f"--ranks {config.ranks}, " if sizes else ""
        raise UsageError(
            f"{config.partition} has k = {k} parts, which do not fit {asked}--replication {config.replication}: "
            f"P / c is at most k, and the square of c divides P"
        )
    return fitting


def _layers(config: MeasureConfig | PlanConfig, widths: tuple[int, ...], f_edge: int) -> FixedModel:
    """Return the model that the options describe, its widths from --widths where they are given."""
    from ..analysis.epoch import gcn_of, without_values
    from ..analysis.volumes import check_widths
    from ..layers.registry import ModelSpec

    check_widths(widths)
    hidden = set(widths[1:-1])
    if config.model == "gcn" and len(hidden) > 1:
        return gcn_of(widths, config.dropout, config.input_dropout, config.norm != "none", config.residual)
    if len(hidden) > 1:
        raise UsageError(
            f"--widths {config.widths}: --model {config.model} has one hidden width; expected F,hidden,...,hidden,C"
        )
    if config.widths:
        config = replace(config, layers=len(widths) - 1, **({"hidden": hidden.pop()} if hidden else {}))
    return without_values(ModelSpec.of(config, widths[0], widths[-1], f_edge).build)


def _operator(config: MeasureConfig | PlanConfig) -> str:
    """Return the normalisation that a model's first layer multiplies with; for gcn without importing torch."""
    from ..layers.registry import operator_of

    if config.model == "gcn":
        named = getattr(config, "operator", "auto")
        return "gcn" if named == "auto" else named
    return operator_of(config)


def _widths(graph: Graph, config, default: tuple[int, ...] | None) -> tuple[int, ...]:
    if config.widths:
        return widths_of(config.widths)
    if graph.n_features and graph.n_classes:
        return graph.n_features, *[config.hidden] * (config.layers - 1), graph.n_classes
    what = "labels" if graph.n_features else "features"
    if default is None:
        raise UsageError(f"{graph.name} has no {what}; give --{what} FILE, or all widths with --widths 128,16,40")
    if default:
        say(f"{graph.name} has no {what}; --widths {','.join(map(str, default))}")
    return default
