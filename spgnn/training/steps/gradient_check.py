"""GradientCheck: how close the gradients of subgraphs are to the exact gradient of the whole graph."""

from __future__ import annotations

import numpy as np
import torch

from ...config import TrainConfig
from ...distgraph import DistGraph
from ...spmm.autograd import mixed_precision, on_this_thread
from .full import FullStep
from .step import sum_gradients


class GradientCheck:
    """Compares gradients g of a step with the gradient G of the mean loss of all training nodes at the same weights.

    cosine  <g, G> / (|g| |G|);  norm  |g| / |G|.
    G is exact and without dropout; g has the dropout and the subgraphs of its step. A comparison exchanges rows as an
    epoch of full-graph training does.
    Collective, as `compare`.
    """

    def __init__(self, model: torch.nn.Module, dgraph: DistGraph, config: TrainConfig):
        self.model, self.dgraph, self.full = model, dgraph, FullStep(model, dgraph, config)
        self._cosines: list[float] = []
        self._norms: list[float] = []

    def compare(self, trained: list[torch.nn.Parameter]) -> tuple[float, float]:
        """Return cosine and norm of the gradients that weights have now, which stay; see `means`."""
        own = [parameter.grad for parameter in trained]
        g, G = _flat(own), _flat(self.exact(trained))
        for parameter, gradient in zip(trained, own):
            parameter.grad = gradient
        size, exact_size = float(g.norm()), float(G.norm())
        cosine = float(g @ G) / (size * exact_size) if size and exact_size else float("nan")
        norm = size / exact_size if exact_size else float("nan")
        if size and exact_size:  # subgraphs without training nodes have no direction
            self._cosines.append(cosine)
            self._norms.append(norm)
        return cosine, norm

    def exact(self, trained: list[torch.nn.Parameter]) -> list[torch.Tensor]:
        """Return the exact gradients of the weights, without dropout."""
        is_training = self.model.training
        self.model.eval()
        for parameter in trained:
            parameter.grad = None
        with mixed_precision(self.dgraph.A):
            Z_nC = self.model(self.full.rows.A, self.full.rows.X)
        with on_this_thread(self.dgraph.A):
            self.full.loss(Z_nC).backward()
        sum_gradients(trained, self.dgraph.comm, self.dgraph.is_counted)
        self.model.train(is_training)
        return [parameter.grad for parameter in trained]

    def means(self) -> dict[str, float | None]:
        """Return the means of the comparisons since the last call, None without any."""
        found = {
            name: float(np.mean(values)) if values else None
            for name, values in (("gradient_cosine", self._cosines), ("gradient_norm", self._norms))
        }
        self._cosines, self._norms = [], []
        return found


def _flat(gradients: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.ravel() for gradient in gradients]).double()
