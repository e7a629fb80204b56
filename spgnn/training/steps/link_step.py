"""LinkStep: links as targets; positives and drawn negatives are scored by a decoder, all at once or in batches.

Shapes: n own rows, F columns of Z, T training links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...config import TrainConfig
from ...dist import Communicator
from ...distgraph import DistGraph
from ...errors import ShapeError
from ...layers.decoders import decoder_of
from ...layers.layer import width_of
from ...layers.stack import layers_of, set_epoch
from ...links.objective import Objective
from ...machine import give_back_memory
from ...spmm.chains.autograd import mixed_precision, on_this_thread
from ...spmm.kernels.buffers import sum_dtype
from ..consistency import is_of_nodes
from ..custom import COMMAND_LINE, Custom
from ..link_scorer import LinkScorer
from ..not_finite import naming_source
from ..optimizer import make_optimizer
from ..scorer import unchanged
from .full import check_gradient, check_trained
from .step import Step, sum_gradients, sum_loss, sum_ranks
from .step_rows import StepRows


class _GradientLater(torch.autograd.Function):
    """0, with a gradient in Z that comes later: backward takes it out of a list, so Z and it are freed before and on the way."""

    @staticmethod
    def forward(ctx: Any, Z_nF: torch.Tensor, later: list[torch.Tensor]) -> torch.Tensor:
        ctx.later = later
        return Z_nF.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.later.pop(), None


class LinkStep(Step):
    """A Step whose targets are the training links of a DistGraph, see Objective.

    One update for all links, or for each batch of config.batch of them, in an order that is drawn for each epoch.

    Args: model  returns rows Z (n, F); its `decoder` scores pairs of them, Dot where it has none.
    measured  bytes_predicted of the last epoch, all ranks.
    Collective, as every method.
    """

    def __init__(self, model: torch.nn.Module, dgraph: DistGraph, config: TrainConfig, custom: Custom = COMMAND_LINE):
        assert dgraph.links is not None
        self.model, self.dgraph, self.config = model, dgraph, config
        if isinstance(dgraph.X, torch.nn.Parameter):  # the optimizer moves it, and checkpoints hold it
            model.register_parameter("embedding", dgraph.X)
        self.rows = StepRows(dgraph, model, config, np.zeros(len(dgraph.node_n), np.int8))
        self.rows.prepare_adjoint()
        decoder = decoder_of(model, self._width(), dgraph.links.n_relations)
        self.objective = Objective(dgraph, decoder, config, custom.loss)
        self.optimizer = make_optimizer(model, config)
        self.scorer: Any = LinkScorer(model, dgraph, decoder, config.seed)
        give_back_memory()

    @property
    def comm(self) -> Communicator:
        """The communicator of the graph."""
        return self.dgraph.comm

    @property
    def batch(self) -> int:
        """Links of an update."""
        return self.config.batch or len(self.objective.train_T)

    @property
    def n_updates(self) -> int:
        """Updates of an epoch."""
        return -(-len(self.objective.train_T) // self.batch)

    def _width(self) -> int:
        """Return F, the columns of Z."""
        layers = layers_of(self.model)
        width = width_of(layers[-1], "f_out") if layers else None
        if width is None:
            with torch.no_grad(), mixed_precision(self.dgraph.A):
                width = self.model(self.dgraph.A, self.dgraph.X).shape[1]
        return int(width)

    def update(self, first: int, last: int) -> float:
        """Train the epoch first = last; return the mean loss of its links."""
        check_trained(self.model, self.optimizer)
        of, T = self.objective, len(self.objective.train_T)
        order = np.arange(T) if self.n_updates == 1 else np.random.default_rng([self.config.seed, last]).permutation(T)
        total, sent, pass_bytes = 0.0, 0, self.rows.sent_bytes()
        run = lambda: self.model(self.dgraph.A, self.dgraph.X)
        for number in range(self.n_updates):
            batch = order[number * self.batch : (number + 1) * self.batch]
            own = of.train_T[batch[of.is_own_T[batch]]]
            self.optimizer.zero_grad()
            with naming_source(self.model, self.dgraph, run):
                loss, bytes_sent = self.gradient(own, len(batch), last, (last - 1) * self.n_updates + number + 1)
            check_gradient(self.optimizer)
            with self.dgraph.A.ops.span("optimiser"):
                self.optimizer.step()
            total, sent = total + loss * len(batch), sent + bytes_sent
        self.measured = {}
        if pass_bytes is not None:
            self.measured = {"bytes_predicted": sum_ranks(pass_bytes * self.n_updates + sent, self.comm)}
        return total / T

    def gradient(self, links_t: np.ndarray, size: int, epoch: int, number: int) -> tuple[float, int]:
        """Compute the gradient of the mean loss of `size` links of all ranks; return it and the bytes of the exchange.

        Args: links_t  the numbers of those of this rank; number: of the update, from 1, by which dropout is drawn.
        """
        dgraph, n = self.dgraph, len(self.dgraph.node_n)
        self.model.train()
        set_epoch(self.model, self.config.seed, number)
        with mixed_precision(dgraph.A), unchanged(dgraph.X):
            Z_nF = self.model(dgraph.A, dgraph.X)
        if Z_nF.ndim != 2 or len(Z_nF) != n:
            raise ShapeError(f"the model returns {tuple(Z_nF.shape)}; expected ({n}, F), a row per own node")
        rows_nF, later = Z_nF.detach().to(sum_dtype(Z_nF.dtype)).contiguous(), []
        root = _GradientLater.apply(Z_nF, later) if Z_nF.requires_grad else None
        dtype = Z_nF.dtype
        del Z_nF
        loss, G_nF, sent = self.objective.gradient(rows_nF, links_t, size, epoch)
        del rows_nF
        value = sum_loss(loss, self.comm)
        later.append(G_nF.to(dtype))
        del G_nF
        with on_this_thread(dgraph.A):
            if root is not None:
                root.backward()
        shared = [p for p in self.model.parameters() if p.requires_grad and not is_of_nodes(p)]
        if shared:
            sum_gradients(shared, self.comm)
        return value, sent

    def facts(self, records: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """Return what a summary reports of the targets."""
        links = self.objective.links
        named = {"decoder": type(self.objective.decoder).__name__.lower(), "link_loss": self.objective.name}
        drawn = {} if self.objective.loss is None else {"negatives": self.config.negatives}
        return links.counts() | named | drawn | {"notes": list(links.notes)}

    def sent_bytes(self) -> int | None:
        """Return None: what an epoch sends depends on its draws, see measured."""
        return None
