"""make_part_step: how a part trains alone: on all its training nodes at once, or on subgraphs of the rows that it knows."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import torch

from ..config import Distribution, TrainConfig
from ..dist import SelfCommunicator
from ..distgraph import DistGraph, Parts
from ..distgraph.distribute import make_dgraph
from ..errors import ResourceError, SpgnnError
from .splits import split_of
from .steps import Step
from .steps.full import FullStep
from .steps.sampled import SampledStep
from .subgraphs import Subgraphs


def make_part_step(model: torch.nn.Module, parts: Parts, p: int, dgraph: DistGraph, config: TrainConfig) -> Step:
    """Return the Step of a part with the weights that the model has.

    Subgraphs are drawn from the rows that the part knows, and normalised by their sums there, see Parts.graph: means
    over neighbours are those of the whole graph for own nodes. Targets are own training nodes.
    Args: dgraph  parts.open(p), on which whole parts train.
          config  with split = "given".
    """
    if config.sampler == "none":
        return FullStep(model, dgraph, config)
    graph = parts.graph(p)
    how: Distribution = replace(parts.how, threads=dgraph.A.threads, replication=1, keep=False)
    local = make_dgraph(graph, SelfCommunicator(), None, how)
    split_m = split_of(local, "given", config.seed)
    return SampledStep(model, local, config, Subgraphs(model, local, config, split_m, graph))


def naming_part(error: Exception, rank: int, p: int, phase: str) -> Exception:
    """Return an error with the rank, the part and the phase where it was raised, of the same type if it is a SpgnnError."""
    where = f"rank {rank}, part {p}, {phase.partition(',')[0]}"
    if isinstance(error, SpgnnError):
        named = copy(error)
        named.args = (f"{where}: {error}",)
    elif isinstance(error, MemoryError):
        named = ResourceError(f"{where}: out of memory; give more --parts, or fewer ranks per host")
    else:
        named = SpgnnError(f"{where}: {type(error).__name__}: {error}")
    named.__cause__ = error
    return named
