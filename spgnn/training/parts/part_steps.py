"""PartSteps: a Step for each part of a rank, of one model and one optimizer, open all at once or in turn."""

from __future__ import annotations

import time
from copy import copy

import numpy as np
import torch

from ...config import TrainConfig
from ...cost.memory import PARTS_SHARE
from ...dist.launch import find_hosts
from ...distgraph import DistGraph, Parts
from ...distgraph.distribute import rows_of_graph
from ...errors import ResourceError, SpgnnError, is_out_of_memory
from ...machine import give_back_memory, memory_bytes
from ...partition.folder.pipeline.memory_budget import memory_bytes_of
from ..optimizer import Optimizer
from ..steps.full import FullStep
from ..steps.sampled import SampledStep

PartStep = FullStep | SampledStep


class PartSteps:
    """The trainings of the parts of this rank that have a training node; none of them waits for another rank.

    own     their numbers, rising.
    opened  those that stay open, by number.
    load_s  seconds that opening took since it was set to 0.
    """

    def __init__(self, model: torch.nn.Module, parts: Parts, config: TrainConfig, optimizer: Optimizer):
        self.model, self.parts, self.config, self.optimizer = model, parts, config, optimizer
        self.own = [p for p in parts.own if parts.n_train_of(p)]
        self.keeps_open = _fit_together(parts, self.own, memory_of_rank(parts.comm, config.memory))
        self.load_s = 0.0
        self.opened: dict[int, PartStep] = {}

    def alpha(self, p: int) -> float:
        """Return the share of a part in the training nodes of all."""
        return self.parts.n_train_of(p) / self.parts.n_train

    def open(self, p: int) -> PartStep:
        """Return the training of a part, which moves the weights by the optimizer of all; the next one is read ahead."""
        if p in self.opened:
            return self.opened[p]
        began = time.perf_counter()
        place = self.own.index(p) + 1
        if place < len(self.own):
            self.parts.prefetch(self.own[place])
        step = make_part_step(self.model, self.parts, p, self.config)
        step.optimizer = self.optimizer
        step.release_input()
        if self.keeps_open:
            self.opened[p] = step
        self.load_s += time.perf_counter() - began
        return step

    def leave(self, p: int) -> None:
        """Give the memory of a part back, unless parts stay open; its Step is closed and deleted before."""
        if not self.keeps_open:
            give_back_memory()
            self.parts.release(p)

    def close(self) -> None:
        """Give the memory of all parts back, and end the threads that draw subgraphs."""
        for step in self.opened.values():
            step.close()
        self.opened.clear()
        give_back_memory()


def make_part_step(
    model: torch.nn.Module, parts: Parts, p: int, config: TrainConfig, dgraph: DistGraph | None = None
) -> PartStep:
    """Return the training of a part from the weights that the model has: on the whole part, or on subgraphs of it.

    Subgraphs are drawn from the rows that the part knows, and normalised by their sums there, see Parts.graph: a mean
    over neighbours of an own node is the whole graph's. Targets are own training nodes.
    Args: config  with split = "given"; dgraph: parts.open(p), if it is open.
    """
    if config.sampler == "none":
        return FullStep(model, parts.open(p) if dgraph is None else dgraph, config)
    graph = parts.graph(p)
    return SampledStep(model, parts.alone(rows_of_graph(graph, {}), p, keep=False), config, graph)


def naming_part(error: Exception, rank: int, p: int, phase: str) -> Exception:
    """Return an error with the rank, the part and the epoch where it was raised, of the same type if it is a SpgnnError."""
    where = f"rank {rank}, part {p}, {phase.partition(',')[0]}"
    if isinstance(error, SpgnnError):
        named = copy(error)
        named.args = (f"{where}: {error}",)
    elif is_out_of_memory(error):
        named = ResourceError(f"{where}: out of memory; give more --parts, or fewer ranks per host")
    else:
        named = SpgnnError(f"{where}: {type(error).__name__}: {error}")
    named.__cause__ = error
    return named


def memory_of_rank(comm, memory: str = "") -> int:
    """Return M, the bytes of memory of a rank: what --memory says, or the least share of a host's. Collective."""
    host_P = find_hosts(comm)
    least = np.array([memory_bytes() // np.count_nonzero(host_P == host_P[comm.rank])])
    comm.all_reduce(least, "min")
    return memory_bytes_of(memory) if memory else int(least[0])


def _fit_together(parts: Parts, own: list[int], M: int) -> bool:
    """Return whether the files of these parts take no more of the M bytes of a rank than training leaves them."""
    return len(own) < 2 or sum(map(parts.nbytes, own)) <= PARTS_SHARE * M
