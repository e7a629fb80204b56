"""A model that is the same on all ranks, and fits its graph."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from ..config import TrainConfig, shared_values
from ..dist.consistency import check_same
from ..distgraph import DistGraph
from ..errors import GraphError, ShapeError, UsageError
from ..layers import Stack
from ..layers.foreign.wrap import check_called
from ..layers.layer import width_of
from ..machine import host_id
from ..spmm.kernels.buffers import sum_dtype

if TYPE_CHECKING:
    from ..dist import Communicator


def prepare_model(model: torch.nn.Module, dgraph: DistGraph, config: TrainConfig) -> None:
    """Draw the weights of a new Stack from the seed, move a model to the graph's device, give all ranks those of rank 0.

    Raises: GraphError without features or labels; ShapeError where layer 1 reads other features; UsageError on all
            ranks where the models or options differ, or ranks share a model.
    Collective.
    """
    if not isinstance(dgraph, DistGraph):
        raise UsageError(
            f"got a {type(dgraph).__name__}; expected a DistGraph: train(model, spgnn.distribute(graph, comm)); one rank has no comm"
        )
    check_called(model)
    check_links(dgraph) if config.on == "links" else check_trainable(dgraph)
    check_width(model, dgraph)
    comm = dgraph.comm
    weights = {
        f"option.weights of {name}": f"{p.dtype} {tuple(p.shape)}{'' if p.requires_grad else ' frozen'}"
        for name, p in model.named_parameters()
        if not is_of_nodes(p)
    }
    check_same(comm, shared_values(config) | weights | {"option.model": " ".join(repr(model).split())})
    check_own(comm, model)
    if isinstance(model, Stack) and not model.is_trained:
        model.initialise(config.seed)  # torch's modules draw other numbers in float64
    model.to(device=dgraph.A.device, dtype=sum_dtype(dgraph.A.dtype))
    for tensor in (*model.parameters(), *model.buffers()):
        if is_of_nodes(tensor):
            continue
        tensor.data = tensor.data.contiguous()
        comm.broadcast(tensor.detach())


def is_of_nodes(weight: torch.Tensor) -> bool:
    """Whether a weight has a row for each own node, see DistGraph.with_embedding: ranks have different ones."""
    return getattr(weight, "is_of_nodes", False)


def check_links(dgraph: DistGraph) -> None:
    """Raise where a graph has no links to train on, or none of the rows that a model reads."""
    if dgraph.replication > 1:
        raise UsageError(f"links require replication = 1; got {dgraph.replication}")
    if dgraph.links is None:
        raise GraphError(
            f"{dgraph.name} has no links that are split; distribute spgnn.split_links(graph), which takes those of val and "
            "test out of its edges"
        )
    if dgraph.n_features == 0:
        raise GraphError(
            f"{dgraph.name} has no features; learn a row for each node by --features embedding, of a DistGraph by "
            "dgraph.with_embedding(F), or give features"
        )


def check_trainable(dgraph: DistGraph) -> None:
    """Raise GraphError unless a graph has features and labels."""
    if dgraph.n_features == 0:
        raise GraphError(f"{dgraph.name} has no features; give them with --features FILE")
    if dgraph.y_n is None and dgraph.on == "edges":
        raise GraphError(
            f"{dgraph.name} has no labels of edges; give them with --edge-labels COLUMN of `spgnn convert`"
        )
    if dgraph.y_n is None:
        edges = "; its edges have labels: --on edges trains on them" if dgraph.has_edge_labels else ""
        edges = ", of tables by target in tables.toml" if dgraph.names.node_types else edges
        raise GraphError(f"{dgraph.name} has no labels; give them with --labels FILE{edges}")


def check_width(model: torch.nn.Module, dgraph: DistGraph) -> None:
    """Raise ShapeError where layer 1 reads other features than a graph has."""
    f_in = width_of(model.layers[0], "f_in") if isinstance(model, Stack) else None
    if f_in not in (None, dgraph.n_features):
        raise ShapeError(f"{dgraph.name} has {dgraph.n_features} features; layer 1 reads {f_in}")


def check_own(comm: Communicator, model: torch.nn.Module) -> None:
    """Raise UsageError on all ranks where some, as threads of one process, were given the same weights. Collective."""
    if len(set(comm.all_gather_json(f"{host_id()} {os.getpid()}"))) == comm.size:
        return
    weights = [set(ids) for ids in comm.all_gather_json([id(p) for p in model.parameters()])]
    shared = [
        str(rank)
        for rank, mine in enumerate(weights)
        if any(mine & theirs for theirs in weights[:rank] + weights[rank + 1 :])
    ]
    if shared:
        raise UsageError(
            f"ranks {', '.join(shared)} share weights and would overwrite each other's; create the model inside the "
            "function that run_threads calls"
        )
