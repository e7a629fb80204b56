"""SampledStep: each update on B subgraphs, drawn ahead by threads; the ranks share them.

Shapes: N nodes, n own rows, m input rows of a subgraph, t targets, F features, C classes. B subgraphs a step, P ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from ...config import TrainConfig
from ...distgraph import DistGraph
from ...errors import GraphError, NumericalError, ShapeError, SpgnnError, UsageError, agree
from ...graph import Graph
from ...layers.stack import set_epoch
from ...samplers import Sampler, Subgraph
from ...spmm.chains.autograd import mixed_precision, on_this_thread
from ...spmm.kernels.buffers import make_pool
from ...spmm.operator.subgraph import SubgraphOperators
from ..custom import COMMAND_LINE, Custom
from ..not_finite import source_of
from ..optimizer import make_optimizer
from ..scorer import FullScorer, make_cached_products, split_of
from .full import check_trained
from .row_loss import RowLoss, check_loss, fit_units
from .step import Step, sum_gradients
from .subgraphs import Subgraphs

UNSEEN = 0.01  # share of nonzeros never counted, above which a note mentions it


class SampledStep(Step):
    """A Step of ceil(samples an epoch / B) updates, each along the mean gradient of B subgraphs.

    Update number s, from 0, is on the subgraphs s B ... s B + B - 1, of which rank r draws those j = r modulo P, so
    that a training depends on B and not on P. Evaluations are exact, on the whole graph. Where the loss of a subgraph
    is the mean over its targets, one without targets has no loss and no gradient: it does not count in the mean, and an
    update without any target leaves the weights as they are.

    Args:   model    its weights are on the CPU and the same on all ranks, see prepare_model.
            graph    the graph of dgraph, as it is used, on every rank.
            sampler  None: the one that the options describe.
            custom   whose loss and class_weights are used.
    Raises: UsageError for options that do not fit. Collective, as every method but the state's.
    Source: Zeng et al., Accurate, efficient and scalable training of GNNs, 2021, Algorithm 1.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        dgraph: DistGraph,
        config: TrainConfig,
        graph: Graph,
        sampler: Sampler | None = None,
        custom: Custom = COMMAND_LINE,
    ):
        self.model, self.dgraph, self.config = model, dgraph, config
        check_loss(dgraph, config)
        split_n = split_of(dgraph, config.split, config.seed)
        self.subgraphs = Subgraphs(model, dgraph, config, split_n, graph, sampler)
        self.n_updates = -(-self.subgraphs.per_epoch // config.subgraphs)  # in an epoch
        if custom.loss is not None and not self.subgraphs.is_mean:
            raise UsageError(
                f"loss sums over rows, and those of sampler {config.sampler!r} have weights of their own; add "
                "normalise='none', choose neighbour, labor or cluster, or omit loss"
            )
        assert dgraph.y_n is not None  # a training needs labels
        deviation_C = fit_units(model, dgraph, dgraph.y_n, split_n) if dgraph.is_regression else None
        self.targets = RowLoss(
            dgraph, dgraph.y_n, torch.from_numpy(split_n == 0), custom, cast(Any, config.loss), deviation_C
        )
        self.pool = make_pool(dgraph.A.device, varies=True)  # subgraphs differ in size
        make_cached_products(dgraph, model)
        self.optimizer = make_optimizer(model, config)
        self.scorer = FullScorer(model, dgraph, split_n)

    def facts(self, records: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """Return the number of updates in an epoch."""
        return {"steps_per_epoch": self.n_updates}

    def notes(self) -> list[str]:
        """Return what a user should know of the subgraphs before the first epoch, a sentence each."""
        B, P, data = self.config.subgraphs, self.dgraph.comm.size, self.subgraphs
        updates, subgraphs = (
            f"{count} {word}{'s' * (count > 1)}" for count, word in ((self.n_updates, "update"), (B, "subgraph"))
        )
        said = [f"{updates} per epoch, {subgraphs} each ({data.sampler.name})"]
        if data.coefficients is not None and data.coefficients.mean_nodes:
            said[0] += f" of {data.coefficients.mean_nodes:,.0f} nodes in the mean"
        if (drawn := self.n_updates * B) > data.per_epoch:
            said.append(f"an epoch has {drawn} subgraphs, {data.per_epoch} cover the training nodes; lower --subgraphs")
        if B < P:
            said.append(f"{P - B} of {P} ranks draw no subgraph in an update; raise --subgraphs to {P}")
        if data.coefficients is not None and data.coefficients.unseen_nodes:
            share = data.coefficients.unseen_nodes
            never = ", as nodes without an edge are by the sampler edge" if data.sampler.name == "edge" else ""
            said.append(f"{share:.1%} of the nodes were never drawn in advance{never}")
        if data.coefficients is not None and data.coefficients.unseen_edges > UNSEEN:
            share = data.coefficients.unseen_edges
            said.append(
                f"{share:.1%} of the nonzeros were never drawn in advance, and sums over neighbours come out too low; use "
                "--normalise loss"
            )
        return said

    def update(self, first: int, last: int) -> float:
        """Train one epoch, first = last, and return its loss: the mean over the targets, or over the updates that estimate it.

        Raises: GraphError where the loss is a mean over targets, and there are none.
        """
        check_trained(self.model, self.optimizer)
        self.model.train()
        updates = range((last - 1) * self.n_updates, last * self.n_updates)
        self.subgraphs.begin(updates.start * self.config.subgraphs, updates.stop * self.config.subgraphs)
        own = sum(map(self.one_update, updates), np.zeros(2))
        sums = np.array([*own, *self.subgraphs.end()])
        self.dgraph.comm.all_reduce(sums)
        total, weight, sample_s, wait_s = map(float, sums)
        if not weight:
            raise GraphError(
                f"epoch {last}: subgraphs of {self.subgraphs.sampler.name} lack training nodes; raise --budget"
            )
        if not np.isfinite(loss := total / weight):
            raise NumericalError(f"the loss is {loss}; expected a finite number")
        self.measured = {
            "steps": self.n_updates,
            "sample_s": sample_s,
            "sample_wait_s": wait_s / self.dgraph.comm.size,
        }
        return loss

    def one_update(self, number: int) -> np.ndarray:
        """Move the weights along the mean gradient of the subgraphs of one update, as far as they count, see Subgraphs.weight.

        Returns: of the subgraphs of this rank, the sums of weight x loss and of weights, (2,).
        """
        B, comm = self.config.subgraphs, self.dgraph.comm
        self.optimizer.zero_grad()
        own, n_counted, problem = np.zeros(2), 0, None
        for index in range(number * B, number * B + B):
            if index % comm.size != comm.rank:
                continue
            try:
                subgraph = self.subgraphs.get(index)
                if weight := self.subgraphs.weight(subgraph):
                    own += (weight * B * self.backward(subgraph, 1 / B), weight)
                    n_counted += 1
            except SpgnnError as error:  # raised on all ranks, after the exchange that they wait in
                problem = error
                break
        trained = [p for p in self.model.parameters() if p.requires_grad]
        failed, n_counted = sum_gradients(trained, comm, problem is None, (problem is not None, n_counted))
        if failed:
            agree(comm, problem)
        if not n_counted:
            return own
        if n_counted < B:
            for parameter in trained:
                assert parameter.grad is not None  # see sum_gradients
                parameter.grad.mul_(B / n_counted)
        with self.dgraph.A.ops.span("optimiser"):
            self.optimizer.step()
        return own

    def backward(self, subgraph: Subgraph, share: float) -> float:
        """Add share times the gradient of the loss of a subgraph to the weights' gradients, and return that loss.

        Raises: NumericalError where it is not finite.
        """
        A, data = self.dgraph.A, self.subgraphs
        operators = SubgraphOperators(subgraph, self.pool, A.dtype, A.threads, data.norm, data.hops, A.ops)
        set_epoch(self.model, self.config.seed, subgraph.index + 1)
        X_mF = data.nodes.features(subgraph.node_m, self.pool)
        with mixed_precision(A):
            Z_nC = self.model(operators, X_mF)
        loss = share * self.loss(Z_nC, subgraph)
        value = float(loss.detach())
        if not np.isfinite(value):
            with mixed_precision(A):  # of this rank alone: agree names it
                source = source_of(self.model, subgraph.node_m, lambda: self.model(operators, X_mF))
            raise NumericalError(f"the loss of subgraph {subgraph.index} is {value}; expected a finite number{source}")
        if loss.requires_grad:
            with on_this_thread(A):
                loss.backward()
        return value

    def loss(self, Z_nC: torch.Tensor, subgraph: Subgraph) -> torch.Tensor:
        """Return the weighted loss of the targets of a subgraph: an estimate of the mean over all training nodes."""
        n = subgraph.shapes[-1][0]
        if Z_nC.shape != (n, self.dgraph.n_classes):
            raise ShapeError(
                f"the model returns {tuple(Z_nC.shape)} for subgraph {subgraph.index}; expected "
                f"({n}, {self.dgraph.n_classes}), a row per output node and a column per class"
            )
        y_n, weight_n = self.subgraphs.nodes.targets(subgraph)
        return self.targets.of_subgraph(Z_nC, y_n, torch.from_numpy(subgraph.target_t), weight_n)

    def close(self) -> None:
        """End the threads that draw ahead."""
        self.subgraphs.close()
