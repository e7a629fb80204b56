"""rollout: a model that predicts the next state of all nodes, applied to its own predictions, and how far it departs.

Shapes: T steps, N nodes, n own nodes, F columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..distgraph import DistGraph
from ..errors import ShapeError, check_integer
from ..spmm.chains.autograd import mixed_precision
from ..spmm.operator.batched import Batched


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """What a model predicts step by step, in original order, on all ranks.

    states   (T, N, F), after each step.
    error_T  relative L2 error after each step, |x_t - truth_t| / |truth_t| over all nodes and columns; None without truth.
    """

    states: np.ndarray
    error_T: np.ndarray | None = None

    def __repr__(self) -> str:
        T, N, F = self.states.shape
        shown = "" if self.error_T is None else f", relative L2 error {self.error_T[0]:.3g} to {self.error_T[-1]:.3g}"
        return f"Rollout({T} steps of {N:,} nodes, {F} columns{shown})"


@torch.no_grad()
def rollout(model: torch.nn.Module, dgraph: DistGraph, x0, steps: int, truth=None) -> Rollout:
    """x_(t+1) = model(A, x_t): return the states after each step, and their relative L2 errors.

        spgnn.rollout(model, dgraph, velocity[0], 5, truth=velocity[1:]).error_T

    Args:   x0     (N, F) state of all nodes in original order, on every rank.
            truth  (T, N, F) or more, the true states after each step, arrays or mapped ones; None: no errors.
    Raises: ShapeError where x0, the truth or what the model returns do not fit. Collective.
    """
    check_integer("steps", steps, 1)
    A, node_n, was_training = Batched(dgraph.A, 1), dgraph.node_n, model.training
    if np.ndim(x0) != 2 or len(x0) != dgraph.n_nodes:
        raise ShapeError(f"x0 has shape {np.shape(x0)}; expected ({dgraph.n_nodes}, F), a row per node")
    if truth is not None and (len(truth) < steps or np.shape(truth[0]) != np.shape(x0)):
        raise ShapeError(f"truth has {len(truth)} states of {np.shape(truth[0])}; expected {steps} of {np.shape(x0)}")
    H_nF = torch.as_tensor(np.asarray(x0)[node_n]).to(A.device, A.dtype)
    states, errors = [], np.zeros((steps, 2))
    model.eval()
    try:
        for t in range(steps):
            with mixed_precision(A):
                Z_nF = model(A, H_nF)
            if Z_nF.shape != H_nF.shape:
                raise ShapeError(
                    f"the model returns {tuple(Z_nF.shape)}; a rollout needs its input's {tuple(H_nF.shape)}"
                )
            H_nF = Z_nF.to(A.dtype)
            own_nF = Z_nF.double().cpu().numpy()
            states.append(dgraph.collect(own_nF))
            if truth is not None:
                true_nF = np.asarray(truth[t])[node_n].astype(np.float64)
                errors[t] = ((own_nF - true_nF) ** 2).sum(), (true_nF**2).sum()
    finally:
        model.train(was_training)
    if truth is None:
        return Rollout(np.stack(states))
    if not dgraph.is_counted:
        errors[:] = 0
    dgraph.comm.all_reduce(errors)
    return Rollout(np.stack(states), np.sqrt(errors[:, 0] / errors[:, 1]))
