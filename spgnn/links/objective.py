"""Objective: the loss of training links and its gradient in the rows of nodes.

Shapes: n own rows, F columns of Z, T training links, t of a step on this rank.
"""

from __future__ import annotations

import numpy as np
import torch

from ..config import TrainConfig
from ..distgraph import DistGraph
from ..errors import UsageError, together
from ..graph.links import TRAIN, Links
from ..layers.decoders import Decoder
from ..spmm.operator.timing import WAIT
from .scored_pairs import LOSSES, Loss, Pairs, RowOwners, negatives_of, pair_loss
from .softmax import softmax_loss


class Objective:
    """min over rows and decoder: the mean over training links of l(s, scores of negatives), or of the softmax of s.

    A link is a pair of the rank that owns its source; the rows of the other ends come by one exchange of exactly these.

    Args: loss  (positive_p, negative_pk) -> sum over positives; None: the one that config.loss names.
    train_T  the numbers of the training links, rising; is_own_T: which are of this rank. Collective, as `gradient`.
    """

    def __init__(self, dgraph: DistGraph, decoder: Decoder, config: TrainConfig, loss: Loss | None = None):
        assert dgraph.links is not None
        self.dgraph, self.decoder = dgraph, decoder
        self.name = "custom" if loss is not None else "bce" if config.loss == "auto" else config.loss
        self.loss = loss or LOSSES.get(self.name)
        if self.loss is None and not decoder.is_product:
            raise UsageError(
                f"--loss softmax requires a decoder of products, which {type(decoder).__name__} is not: dot, distmult or complex"
            )
        self.rows = RowOwners(dgraph)
        self.negatives = negatives_of(dgraph.links, config.negatives, config.seed)
        self.train_T = self.links.of(TRAIN)
        self.is_own_T = self.rows.owner_N[self.links.source_T[self.train_T]] == dgraph.comm.rank

    @property
    def links(self) -> Links:
        """The links of the graph."""
        assert self.dgraph.links is not None
        return self.dgraph.links

    def gradient(
        self, Z_nF: torch.Tensor, links_t: np.ndarray, size: int, epoch: int
    ) -> tuple[float, torch.Tensor, int]:
        """Return this rank's part of the mean loss of `size` links, its gradient (n, F), and the bytes that it sent.

        The gradient of the decoder's weights is added to theirs.
        Args: links_t  the numbers of the links of this rank; negatives are drawn by them and by the epoch.
        """
        dgraph, links, threads, span = self.dgraph, self.links, self.dgraph.A.threads, self.dgraph.A.ops.span
        if self.loss is None:
            with span("pairs"):
                return softmax_loss(self.decoder, links, dgraph, self.rows, Z_nF, links_t, size)
        source_t, target_t, relation_t = (of[links_t] for of in (links.source_T, links.target_T, links.relation_T))
        ends = source_t, target_t, links_t
        node_tk, is_source_tk = together(dgraph.comm, self.negatives.draw, *ends, epoch, threads)
        with span(WAIT):
            exchange = self.rows.exchange(source_t, target_t, node_tk.ravel())
            table_mF = exchange.fetch(Z_nF)
        places = lambda nodes: self.rows.places(nodes.ravel(), exchange).reshape(nodes.shape)
        pairs = Pairs(places(source_t), places(target_t), relation_t, places(node_tk), is_source_tk)
        with span("pairs"):
            G_mF = torch.zeros_like(table_mF)
            loss = pair_loss(self.decoder, self.loss, table_mF, G_mF, pairs, 1 / size, threads)
        del table_mF
        sent = exchange.sent_bytes(Z_nF.shape[1], Z_nF.element_size())
        with span(WAIT):
            return loss, exchange.give_back(G_mF, threads), sent
