"""Whether the graph that a run is predicted on is the one that it was trained on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..config import Distribution, TrainConfig
from ..distgraph import DistGraph, Parts
from ..graph import Graph
from .checkpoint import list_checkpoints, read_manifest
from .fingerprint import check_graph, facts_of_any_parts, graph_facts, graph_facts_of_parts, parts_facts, without_owners
from .opening import Source

FIX = "predict this one by --graph GRAPH --out FILE, or train again"


@dataclass(frozen=True, slots=True)
class MadeOn:
    """The graph that a run was trained on.

    path   of the checkpoint whose manifest has the facts.
    facts  graph_facts, or parts_facts of a training in mode average; {}: nothing is compared.
    Methods raise CheckpointError where a graph is another one.
    """

    path: Path = Path()
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, checkpoints: Path) -> MadeOn:
        """Return what the newest checkpoint says; that of the best epoch may have weights alone, as those of save_run."""
        found = ((path, read_manifest(path).get("graph")) for path in reversed(list_checkpoints(checkpoints)))
        return next((cls(path, facts) for path, facts in found if facts), cls())

    @property
    def is_averaged(self) -> bool:
        """Whether models of parts were averaged: nobody has counted the nonzeros."""
        return bool(self.facts) and "nonzeros" not in self.facts

    def check_read(self, config: TrainConfig, graph: Graph) -> None:
        """Compare a graph that this rank has read with the graph of a training on parts."""
        if self.is_averaged:
            self._compare(facts_of_any_parts(graph, config.split, config.seed, config.dtype))

    def check_rows(self, dgraph: DistGraph, source: Source, how: Distribution) -> None:
        """Compare a graph whose rows the ranks hold, and which check_read has not seen; source: of dgraph. Collective."""
        if self.is_averaged and source.folder is not None:
            self.check_parts(Parts(source.folder, dgraph.comm, hops=0, split=source.config.split, **asdict(how)))
        elif self.facts and not self.is_averaged:
            self._compare(graph_facts(dgraph))

    def check_parts(self, parts: Parts) -> None:
        """Compare a graph of which each rank reads its parts. Collective."""
        if self.facts:
            self._compare(without_owners(parts_facts(parts)) if self.is_averaged else graph_facts_of_parts(parts))

    def _compare(self, here: dict[str, Any]) -> None:
        check_graph(self.path, without_owners(self.facts), here, FIX)
