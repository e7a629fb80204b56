"""Planned: the graph, model, parts and choices of the training that measure and plan predict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..config import EMBEDDING, MeasureConfig, PlanConfig, input_files
from ..config.names import SCHEMES
from ..errors import UsageError
from .console import say
from .options import integers, words
from .source import EDGES_TEXT, load

if TYPE_CHECKING:
    from ..analysis import VolumeReport
    from ..analysis.epoch import FixedModel
    from ..analysis.plan import Prediction
    from ..cost.machines import Machine
    from ..graph import Graph
    from ..partition import Partition

    Way = tuple[Partition, str, int]  # parts, scheme and replication of a training

LARGE = 5_000_000  # nonzeros from which on a cut takes many seconds
Config = TypeVar("Config", MeasureConfig, PlanConfig)


class Planned(Generic[Config]):
    """The training that the options describe, on a graph that is read once.

    Args: default_ends  F and C of a graph without features or labels; (): rows alone are predicted; None: it is refused.
    graph     with its reverse edges unless --edges says otherwise; X only where the model reads it.
    widths    F, hidden ..., C, or ().
    training  what is predicted of it.
    """

    def __init__(self, graph: str, config: Config, default_ends: tuple[int, ...] | None = None):
        from ..analysis.planned import PlannedGraph, PlannedTraining
        from ..layers.registry import check_options, reads_relations, with_relations
        from ..partition.folder.store import is_partition

        if is_partition(graph) and not config.partition:
            config = replace(config, partition=graph)
        if config.on == "links":
            if 1 not in integers("replication", config.replication):
                raise UsageError(f"--task links requires --replication 1; got {config.replication}")
            config = replace(config, replication="1")
        elif config.features == EMBEDDING or (config.loss, config.negatives, config.batch) != ("auto", 1, 0):
            raise UsageError(
                "--features embedding, --loss, --negatives and --batch are options of --task links; omit them"
            )
        self.config = config
        check_options(config)
        loaded = load(graph, config.format, **input_files(config))
        if config.features == EMBEDDING:
            loaded = replace(loaded, X=None, feature_names=None)
        self.widths = widths = _widths(loaded, config, default_ends)
        on: Any = "relations" if config.on == "links" and reads_relations(config.model) else config.on
        how = _operator(config), config.split, config.seed, on
        planned = PlannedGraph(with_relations(loaded, config.model), config.edges, sum(widths[:1]), *how)
        layers = _layers(config, widths, planned.graph) if widths else None
        self.graph, self.training = planned.graph, PlannedTraining(planned, layers, config)
        self._parts: dict[tuple, Partition] = {}

    def title(self, name: str) -> str:
        """Return the line above a table."""
        widths = f"; widths {', '.join(map(str, self.widths))}" if self.widths else ""
        return (
            f"{name}, {EDGES_TEXT[self.graph.edges]}: {self.graph.n_nodes:,} nodes, {self.graph.nnz:,} nonzeros{widths}"
        )

    @cached_property
    def folder_part(self) -> Partition:
        """The partition of --partition."""
        from ..partition import load_partition

        return load_partition(self.config.partition, self.graph)

    def part(self, k: int, method: str, scheme: str) -> Partition:
        """Return the partition that a training with a scheme makes, or the one of --partition merged into k; each once."""
        from ..partition import PARTITIONERS, part_graph
        from ..partition.hosts import equal_hosts, host_of

        config, by_scheme = self.config, getattr(PARTITIONERS.get(method), "by_scheme", {})
        key = (k, method, str(by_scheme.get(scheme)))
        if key not in self._parts and config.partition:
            self._parts[key] = self.folder_part.dealt(k)
        elif key not in self._parts:
            hosts = getattr(config, "hosts", 0)
            if self.graph.nnz > LARGE and k > 1:
                say(f"cutting {self.graph.n_nodes:,} nodes into {k} parts: {method}")
            self._parts[key] = part_graph(
                self.graph, k, method, seed=config.seed,
                scheme=scheme if by_scheme else None, hosts=equal_hosts(host_of(k, hosts), k) if hosts else 1,
            )  # fmt: skip
        return self._parts[key]

    def ways(self, machine: Machine | None = None) -> Iterator[Way]:
        """Yield parts, scheme and c for each number of ranks or parts, method, scheme and c that fits it.

        Args: machine  two-tier is omitted, next to other schemes, where it is cover on this machine.
        """
        config = self.config
        cs, schemes = integers("replication", config.replication), words("scheme", config.scheme)
        methods = ("",) if config.partition else words("method", config.method)
        if isinstance(config, MeasureConfig) and not config.ranks:
            for k in self._numbers_of_parts(config.k):
                for method in methods:
                    for scheme in schemes:
                        yield from ((self.part(k, method, scheme), scheme, c) for c in cs)
            return
        flat = tuple(scheme for scheme in schemes if scheme != "two-tier") or schemes
        is_tiered = lambda size, c: machine is None or (c == 1 < machine.ranks_per_host and machine.hosts(size) > 1)
        # One rank sends nothing: one scheme is enough.
        used = lambda size, c: (schemes if is_tiered(size, c) else flat)[: None if size > 1 else 1]
        for k, c in self._grids(cs):
            for method in methods:
                yield from ((self.part(k, method, scheme), scheme, c) for scheme in used(k * c, c))

    def scheme(self, way: Way, machine: Machine) -> str:
        """Return the scheme that a training takes for a name: auto and flat are decided on the machine."""
        part, name, c = way
        if name not in ("auto", "flat"):
            return name
        return self.training.scheme(part, c, machine, ("columns", "cover") if name == "flat" else SCHEMES)

    def is_taken(self, way: Way, ways: Sequence[Way], machine: Machine) -> bool:
        """Return whether --scheme auto would take the scheme of a way, out of the schemes that are compared on its parts."""
        part, name, c = way
        names = [scheme for of, scheme, copies in ways if of is part and copies == c and scheme != "broadcast"]
        return not names or name == self.training.scheme(part, c, machine, names)

    def report(self, way: Way, machine: Machine) -> VolumeReport:
        """Return what an epoch sends, its rows pruned where the training prunes them; without a model, rows alone."""
        (part, _, c), training = way, self.training
        is_pruned = training.is_pruned(part, c)
        return training.report(part, self.scheme(way, machine), c, machine.ranks_per_host, is_pruned)

    def line(self, way: Way, machine: Machine, **options) -> Prediction:
        """Return the report with memory and seconds of an epoch on a machine; options of `predict`."""
        from ..analysis.plan import predict

        part, _, c = way
        return predict(self.training, part, self.scheme(way, machine), c, machine, **options)

    def _numbers_of_parts(self, asked: str) -> tuple[int, ...]:
        """Return the k of -k, by default those of --partition, or 4."""
        if not self.config.partition:
            return integers("k", asked or "4")
        most = self.folder_part.k
        ks = integers("k", asked) if asked else (most,)
        for k in ks:
            if k > most:
                raise UsageError(f"-k {k}: {self.config.partition} has k = {most} parts; expected {most} or fewer")
        return ks

    def most_ranks(self) -> int:
        """Return the largest number of ranks that is predicted."""
        return max(k * c for k, c in self._grids(integers("replication", self.config.replication)))

    def _grids(self, cs: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return (k, c) for each P of --ranks and each c whose square divides P, with --partition those that its parts fit.

        Without --ranks P = k c. Raises: UsageError with those that would fit, where none does.
        """
        from ..cost.pairs import ProcessGrid, valid_replications

        config = self.config
        sizes = integers("ranks", config.ranks) if config.ranks else () if config.partition else (4,)
        fits = lambda size: [c for c in cs if c in valid_replications(size)]
        if not config.partition:
            return [(size // c, c) for size in sizes for c in fits(size) or [ProcessGrid(size, cs[0]).c]]
        most = self.folder_part.k
        fitting = [(size // c, c) for size in sizes for c in fits(size) if size // c <= most]
        fitting = fitting if sizes else [(most, c) for c in cs if most % c == 0]
        if not fitting:
            asked = f"--ranks {config.ranks}, " if sizes else ""
            raise UsageError(
                f"{config.partition} has k = {most} parts, which do not fit {asked}--replication {config.replication}: "
                f"P / c is at most k, and the square of c divides P"
            )
        return fitting


def _layers(config: MeasureConfig | PlanConfig, widths: tuple[int, ...], graph: Graph) -> FixedModel:
    """Return the model that the options describe."""
    from ..analysis.epoch import without_values
    from ..layers.registry import ModelSpec

    return without_values(ModelSpec.of(config, widths[0], widths[-1], graph).build)


def _operator(config: MeasureConfig | PlanConfig) -> str:
    """Return the normalisation that a model's first layer multiplies with; for gcn without importing torch."""
    from ..layers.registry import operator_of

    if config.model == "gcn":
        named = getattr(config, "operator", "auto")
        return "gcn" if named == "auto" else named
    return operator_of(config)


def _widths(graph: Graph, config: MeasureConfig | PlanConfig, default_ends: tuple[int, ...] | None) -> tuple[int, ...]:
    from ..graph import count_classes, targets_of

    ends = graph.n_features, count_classes(targets_of(graph, config.on))
    if config.on == "links":
        ends = config.hidden if config.features == EMBEDDING else graph.n_features, config.hidden
    if not all(ends):
        what = "labels" if graph.n_features else "features"
        if graph.n_features and config.on == "edges":
            raise UsageError(
                f"{graph.name} has no labels of edges; `spgnn convert` reads them with --edge-labels COLUMN"
            )
        if default_ends is None or config.on == "links":
            learned = " or embedding" if config.on == "links" else ""
            raise UsageError(f"{graph.name} has no {what}; give --{what} FILE{learned}")
        if not default_ends:
            return ()
        ends = ends[0] or default_ends[0], ends[1] or default_ends[1]
        say(f"{graph.name} has no {what}; predicted with {ends[0]} features and {ends[1]} classes")
    return ends[0], *[config.hidden] * (config.layers - 1), ends[1]
