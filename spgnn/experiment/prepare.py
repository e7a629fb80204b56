"""prepare: the options of a training, checked and resolved once, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ..config import Distribution, TrainConfig, select, shared_values
from ..cost.grid import ProcessGrid
from ..dist import Communicator
from ..dist.consistency import check_same, versions
from ..dist.launch import share_of_threads
from ..errors import UsageError, together
from ..layers.registry import FAMILIES, ModelSpec, operator_of
from ..samplers import check_options
from ..training.parts.average_options import check_average
from .device import check_device
from .folder import check_outputs


@dataclass(frozen=True, slots=True)
class Prepared:
    """A training that is checked: what the rest of the way takes as given.

    source  GRAPH; config: the options as they were given.
    how     the options of `distribute`, with the operator of A and the threads of this rank.
    way     full, sampled or average, see WAYS.
    """

    source: str
    config: TrainConfig
    how: Distribution
    way: str


def prepare(source: str, config: TrainConfig, comm: Communicator) -> Prepared:
    """Check all options, and find the operator of the model and the threads of this rank.

    Raises: UsageError for options that do not fit each other, or differ between ranks. Collective.
    """
    check_run(comm, source, config)
    together(comm, check_outputs, source, config)
    how = distribution(config, comm)
    check_average(config, takes_memory=True)
    check_options(config)
    check_device(config, comm.size)
    ProcessGrid(comm.size, config.replication)
    is_sampled = config.mode == "full" and config.sampler != "none"
    if FAMILIES[config.model].reads_edges and (is_sampled or config.mode != "full"):
        given = f"--sampler {config.sampler}" if is_sampled else f"--mode {config.mode}"
        raise UsageError(f"--model {config.model} reads attributes of edges, which {given} does not keep; omit {given}")
    return Prepared(source, config, how, "sampled" if is_sampled else config.mode)


def distribution(config: TrainConfig, comm: Communicator, spec: ModelSpec | None = None) -> Distribution:
    """Return the options of `distribute`, with the operator of a model and the threads of this rank.

    Args: spec  the model; None: of the options.
    Collective.
    """
    operator, share = operator_of(config, spec), share_of_threads(comm)  # collective, also where it is not needed
    torch.set_num_threads(threads := config.threads or share)
    return replace(select(Distribution, config), operator=operator, threads=threads)


def check_run(comm: Communicator, source: str, config: TrainConfig, **options) -> None:
    """Raise, on all ranks, where GRAPH, options, or versions of packages differ between ranks. Collective."""
    given = {f"option.{name}": value for name, value in options.items()}
    check_same(comm, {"option.graph": source} | shared_values(config) | versions() | given)
