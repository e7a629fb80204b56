"""Weights with a row for each node, of which a rank has its own: kept by original id, and resumed on any ranks.

Shapes: N nodes, n own rows, F columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..distgraph import DistGraph
from ..errors import CheckpointError
from .consistency import is_of_nodes


def node_weights(model: torch.nn.Module, optimizer) -> tuple[set[str], set[str]]:
    """Return the names of weights that have a row for each node: of the model, and of the state of the optimizer."""
    names = {name for name, weight in model.named_parameters() if is_of_nodes(weight)}
    weights = [weight for group, _ in optimizer.groups for weight in group]
    of = {number: weight.shape for number, weight in enumerate(weights) if is_of_nodes(weight)}
    shape = lambda name: of.get(int(name.partition(".")[0]))
    return names, {name for name, value in optimizer.named_state().items() if value.shape == shape(name)}


def gathered(state: dict[str, Any], names: tuple[set[str], set[str]], dgraph: DistGraph) -> dict[str, Any]:
    """Return the state_dict of a Trainer whose rows of nodes are those of all ranks, (N, F), on rank 0. Collective."""
    return _changed(state, names, lambda name, value: torch.from_numpy(_on_root(dgraph, value.numpy())))


def own(state: dict[str, Any], names: tuple[set[str], set[str]], dgraph: DistGraph) -> dict[str, Any]:
    """Return a gathered state with the rows of this rank, (n, F). Raises: CheckpointError where there are not N rows."""

    def rows(name: str, value: torch.Tensor) -> torch.Tensor:
        if len(value) != dgraph.n_nodes:
            raise CheckpointError(f"{name} has {len(value)} rows; {dgraph.name} has {dgraph.n_nodes} nodes")
        return value[torch.from_numpy(dgraph.node_n)]

    return _changed(state, names, rows)


def _changed(state: dict[str, Any], names: tuple[set[str], set[str]], change: Callable) -> dict[str, Any]:
    of_model, of_optimizer = names
    parts = {"model": of_model, "best": of_model, "optimizer": of_optimizer}
    made = {
        part: state[part] | {name: change(name, state[part][name]) for name in sorted(of) if name in state[part]}
        for part, of in parts.items()
    }
    return state | made


def _on_root(dgraph: DistGraph, rows_nF: np.ndarray) -> np.ndarray:
    """Return the rows of all nodes in original order, (N, F), on rank 0; none on the others. Collective."""
    comm = dgraph.comm
    ids = comm.all_gather(dgraph.node_n)
    n_P = comm.all_gather(np.array([len(dgraph.node_n)]))
    send_P, recv_P = np.zeros(comm.size, np.int64), np.zeros(comm.size, np.int64)
    send_P[0] = len(rows_nF)
    recv_P = n_P if comm.rank == 0 else recv_P
    found = np.empty((int(recv_P.sum()), rows_nF.shape[1]), rows_nF.dtype)
    comm.all_to_all(np.ascontiguousarray(rows_nF), send_P, found, recv_P)
    whole = np.empty_like(found)
    if comm.rank == 0:
        whole[ids] = found
    return whole
