"""AverageStep: each rank trains its parts alone for some epochs, then all weights become their mean.

Letters: k parts, P ranks; W the weights before an interval, W_p those after it on part p alone, F the loss of the whole graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ...config import TrainConfig
from ...cost.memory import PARTS_SHARE
from ...dist.launch import find_hosts
from ...distgraph import DistGraph, Parts
from ...distgraph.assemble import GraphRows
from ...errors import GraphError, NumericalError, ResourceError, SpgnnError, agree, is_out_of_memory
from ...machine import give_back_memory, memory_bytes
from ...partition.folder.pipeline.memory_budget import memory_bytes_of
from ..optimizer import Optimizer, make_optimizer
from ..scorer import FullScorer, make_cached_products, split_of
from ..steps.full import FullStep
from ..steps.sampled import SampledStep
from ..steps.step import Scorer, Step
from .inference import LayerwiseScorer

PartStep = FullStep | SampledStep


class TensorVector:
    """Some tensors, read and written as one vector of float64 on the CPU; size: its length."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self.tensors = list(tensors)
        self.size = sum(tensor.numel() for tensor in self.tensors)

    def read(self) -> torch.Tensor:
        """Return a copy of all values, (size,) float64."""
        pieces = [tensor.detach().to("cpu", torch.float64).ravel() for tensor in self.tensors]
        return torch.cat([*pieces, torch.empty(0, dtype=torch.float64)])

    @torch.no_grad()
    def write(self, values: torch.Tensor) -> None:
        """Give the tensors the values of a vector, rounded to their types."""
        for tensor, piece in zip(self.tensors, values.split([tensor.numel() for tensor in self.tensors])):
            is_float = tensor.dtype.is_floating_point
            tensor.copy_((piece if is_float else piece.round()).view_as(tensor))


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
    rows = GraphRows(np.arange(graph.n_nodes), graph.A, graph.X, graph.y, graph.split, graph.n_nodes, {})
    return SampledStep(model, parts.alone(rows, p, keep=False), config, graph)


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


LABEL = "average"  # under which the bytes of the averages are counted
Train = Callable[[int, PartStep], tuple[float, torch.Tensor]]  # a part and its step -> loss, what is averaged


class AverageStep(Step):
    """A Step of `interval` epochs on each part alone, and one average: W = sum_p alpha_p W_p.

    alpha_p is the share of part p in the training nodes; a part without any is skipped. A part is a graph of one rank,
    so that its epochs exchange nothing; if one fails, all ranks raise at the average. The result depends on the parts,
    not on the ranks. It equals full-graph training with SGD, an interval of 1 and halos of as many hops as the model
    has layers. Buffers of a model and Adam's moments are averaged like its weights. The options of `config`:

    sync     gradients: sum_p alpha_p g_p moves the weights in every epoch.
    correct  drift: the gradient of part p is g_p(w) - g_p(W) +
             grad F(W), so that a stationary point of F is one of the average too; with an interval of 1 it is full-graph
             training, with any halos and optimizer.
    sampler  a part trains on subgraphs of the rows that it knows, its own training nodes once in each epoch.
    memory   of a rank, such as 2GB: parts stay open if their files take a third of it at most, else one at a time.

    Args: model   its weights are the same on all ranks, see prepare_model.
          dgraph  of training.parts.evaluation.evaluated on which the model is scored and grad F is computed.
    Collective, as every method but the state's.
    Source: SDT-GNN and CATGNN (parts, average by training nodes); here moments are averaged too, and all ranks start from
            the same weights. Karimireddy et al. 2020, SCAFFOLD (drift, there with gradients of earlier runs).
    """

    def __init__(self, model: torch.nn.Module, dgraph: DistGraph, config: TrainConfig, parts: Parts):
        self.model, self.dgraph, self.parts, self.comm = model, dgraph, parts, dgraph.comm
        self.config = config = replace(config, split="given")  # which the parts have chosen
        self.interval = config.interval
        if not parts.n_train:
            raise GraphError(f"{dgraph.name}: no training node has a label; choose a --split that puts some into train")
        self.optimizer = make_optimizer(model, config)
        self.full = None if config.correct == "none" else FullStep(model, dgraph, config)
        if config.evaluation == "layerwise":
            self.scorer: Scorer = LayerwiseScorer(model, parts)
        else:
            make_cached_products(dgraph, model)
            self.scorer = FullScorer(model, dgraph, split_of(dgraph, "given", config.seed))
        self.part_steps = PartSteps(model, parts, config, self.optimizer)
        self._weights = [weight for group, _ in self.optimizer.groups for weight in group]
        self._buffers = list(model.buffers())
        self._state = TensorVector([*self._weights, *self._buffers, *self.optimizer.named_state().values()])

    def update(self, first: int, last: int) -> float:
        """Train the epochs first to last and return sum_p alpha_p loss_p of the last one."""
        counted = self.comm.traffic.collective_bytes(label=LABEL)
        self.part_steps.load_s = self._local_s = self._sync_s = 0.0
        if self.config.sync == "gradients":
            loss = [self._shared_step(epoch) for epoch in range(first, last + 1)][-1]
        else:
            loss = self._average(first, last)
        self.comm.phase = f"epoch {last}"
        seconds = np.array([self.part_steps.load_s, self._local_s, self._sync_s])
        self.comm.all_reduce(seconds, "max")
        sync_bytes = self.comm.traffic.collective_bytes(label=LABEL) - counted
        self.measured = {"sync_bytes": sync_bytes} | dict(zip(("load_s", "local_s", "sync_s"), seconds.tolist()))
        return loss

    def _average(self, first: int, last: int) -> float:
        """Train each part from the same weights and average the results; return the mean loss."""
        exact = None
        if self.full is not None:
            self.comm.phase = f"epoch {first}, gradient of the whole graph"
            exact = [of_weight.clone() for of_weight in self.full.gradient(first)]
            self.full.global_loss()  # raises where it is not finite
        train = partial(self._train_part, self._state.read(), range(first, last + 1), exact)
        values, loss = self._sum_parts(self._state.size, last, train)
        self._state.write(values)
        for name, value in self.optimizer.named_state().items():
            if name.endswith("steps"):  # as many on all parts: their mean is one but for rounding
                value.round_()
        return loss

    def _train_part(
        self, start: torch.Tensor, epochs: range, exact: list[torch.Tensor] | None, p: int, step: PartStep
    ) -> tuple[float, torch.Tensor]:
        """Train some epochs on a part from a state; return the loss of the last one and the new state.

        Args: exact  grad F(W) of drift correction.
        """
        self._state.write(start)
        loss = float("nan")
        shifts: list[torch.Tensor] = []  # grad F(W) - g_p(W)
        for epoch in epochs:
            self.comm.phase = f"epoch {epoch}, part {p}"
            if isinstance(step, SampledStep):
                loss = step.update(epoch, epoch)
                continue
            gradients = step.gradient(epoch)
            loss = step.global_loss()
            if exact is not None and epoch == epochs.start:
                shifts = [whole - own for whole, own in zip(exact, gradients)]
                for whole, own in zip(exact, gradients):
                    own.copy_(whole)
            else:
                for shift, own in zip(shifts, gradients):
                    own.add_(shift)
            self.optimizer.step()
        return loss, self._state.read()

    def _shared_step(self, epoch: int) -> float:
        """Move the weights along sum_p alpha_p g_p; return the mean loss."""
        buffers = TensorVector(self._buffers)
        before = buffers.read()
        vector = lambda: TensorVector(
            [*(weight.grad for weight in self._weights if weight.grad is not None), *self._buffers]
        )

        def train(p: int, step: PartStep) -> tuple[float, torch.Tensor]:
            assert isinstance(step, FullStep)  # gradients are not averaged with a sampler
            self.comm.phase = f"epoch {epoch}, part {p}"
            buffers.write(before)
            step.gradient(epoch)
            return step.global_loss(), vector().read()

        values, loss = self._sum_parts(TensorVector([*self._weights, *self._buffers]).size, epoch, train)
        for weight in self._weights:
            weight.grad = torch.empty_like(weight)
        vector().write(values)
        self.optimizer.step()
        return loss

    def _sum_parts(self, size: int, epoch: int, train: Train) -> tuple[torch.Tensor, float]:
        """Return sum_p alpha_p of what `train` returns for each part, (size,) float64, and of the losses.

        Raises: on all ranks, where a part of any has failed, an error that names them. Collective.
        """
        total, error = torch.zeros(size + 1, dtype=torch.float64), None
        for p in self.part_steps.own:
            try:
                step, began = self.part_steps.open(p), time.perf_counter()
                try:
                    loss, values = train(p, step)
                finally:
                    if not self.part_steps.keeps_open:
                        step.close()  # ends threads that draw subgraphs
                total[:-1] += self.part_steps.alpha(p) * values
                total[-1] += self.part_steps.alpha(p) * loss
                self._local_s += time.perf_counter() - began
                del step
                self.part_steps.leave(p)
            except Exception as caught:  # handed to all ranks, which raise together
                error = naming_part(caught, self.comm.rank, p, self.comm.phase)
                break
        began, self.comm.phase = time.perf_counter(), f"epoch {epoch}, average"
        agree(self.comm, error)
        with self.comm.traffic.label(LABEL):
            self.comm.all_reduce(total)
        self._sync_s += time.perf_counter() - began
        if not np.isfinite(loss := float(total[-1])):
            raise NumericalError(f"the loss is {loss}; expected a finite number")
        return total[:-1], loss

    def facts(self, records: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """Return the number of parts, the options of averaging, and bytes that this rank gave to all-reduces.

        sync_bytes_predicted  of each 8 for the loss and each weight, buffer and moment; the same on all ranks.
        """
        if self.config.sync == "gradients":
            n_sums, size = (records[-1]["epoch"] if records else 0), TensorVector([*self._weights, *self._buffers]).size
        else:
            n_sums, size = len(records), self._state.size
        names = ("interval", "sync", "hops", "correct", "evaluation")
        return {"parts": self.part_steps.parts.k} | {name: getattr(self.config, name) for name in names} | {
            "sync_bytes": sum(record["sync_bytes"] for record in records),
            "sync_bytes_predicted": 8 * (size + 1) * n_sums,
        }  # fmt: skip

    def sent_bytes(self) -> int | None:
        """Return the predicted bytes of the gradient of the whole graph; 0 without one, None where not known."""
        return 0 if self.full is None else self.full.sent_bytes()

    def close(self) -> None:
        """Give the memory of all parts back; a later epoch opens them again."""
        self.part_steps.close()
