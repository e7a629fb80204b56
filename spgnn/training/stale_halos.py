"""Stale halos: a part trains on its own rows, and reads hidden rows of its halo as they were at the last average.

Shapes: n own nodes of a part, g nodes of its halo, m = n + g, F and C columns.
Source: Fey et al. 2021, GNNAutoScale; Chai et al. 2022, DIGEST. There rows are as old as their last visit or exchange; here
all of them are exact after each refresh.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..dist import SelfCommunicator
from ..distgraph import Parts
from ..distgraph.own_rows import OwnRows
from ..errors import UsageError
from ..layers.stack import set_epoch
from ..spmm.fixed_input import FixedInput
from ..spmm.loss import binary_cross_entropy, cross_entropy
from ..spmm.subgraph import SubgraphSpMM
from .inference import Layerwise
from .optimizer import Optimizer
from .part_passes import passes_of
from .scorer import unchanged
from .scratch import Scratch
from .steps.full import check_trained
from .steps.step import sum_gradients, sum_loss

REMEDY = "use --halo truncated"


class StaleHalos:
    """H_l of all nodes by the weights of the last refresh, on disk: what parts read of each other until the next one.

        with halos.refreshed():
            [H_gF] = halos.read(rows)  # of two layers

    Args:   layerwise  None: made here; see Layerwise for the models and parts that it takes.
            scratch    a folder that all ranks see; "": that of temporary files.
    Raises: UsageError for models and parts that do not fit. Collective.
    """

    def __init__(self, model: torch.nn.Module, parts: Parts, scratch: str = "", layerwise: Layerwise | None = None):
        passes_of(model, REMEDY)
        self.layerwise = Layerwise(model, parts, scratch) if layerwise is None else layerwise
        if self.layerwise.written[-1][0] != parts.n_classes:
            raise UsageError(
                f"the model returns {self.layerwise.written[-1][0]} columns, {parts.name} has {parts.n_classes} classes; "
                f"the last layer must have f_out = {parts.n_classes}"
            )
        self._scratch: Scratch | None = None

    @contextmanager
    def refreshed(self) -> Iterator[None]:
        """Compute the hidden rows of all nodes by the weights as they are, exactly and without dropout, and hold them.

        layerwise.bytes_read counts rows that this rank has read, by this computation and by parts. Collective.
        """
        with Scratch(self.layerwise.scratch, self.layerwise.comm) as self._scratch:
            try:
                self.layerwise.hidden(self._scratch)
                yield
            finally:
                self.layerwise.bytes_read = self._scratch.read_bytes

    def read(self, rows: OwnRows) -> list[torch.Tensor]:
        """Return the rows of the halo of a part that each pass after the first reads, (g, F) each."""
        numbers = range(1, len(self.layerwise.passes))
        return [self.layerwise.read_halo(number, rows, self._scratch) for number in numbers]


class StalePartStep:
    """The training of a part on its own rows: pass l computes n rows of [H_own; H_halo], (m, F), with H_halo stale.

    The own rows of A are complete, so that after a refresh the outputs of own nodes are those of the whole graph,
    whatever the number of layers. X of the halo is exact always. No gradient passes to the halo; weights that
    multiply its rows get theirs. Dropout on the input of a layer acts on rows of the halo as on own ones.

    Args: optimizer  moves the weights; seed: of dropout.
    """

    def __init__(self, model: torch.nn.Module, halos: StaleHalos, p: int, optimizer: Optimizer, seed: int):
        self.model, self.halos, self.optimizer, self.seed = model, halos, optimizer, seed
        self.comm = SelfCommunicator()
        self.passes, reader = halos.layerwise.passes, halos.layerwise.reader
        self.rows, self.X = reader.open(p, self.passes[0].hops)
        self.wide = SubgraphSpMM(self.rows.wide.block)  # refreshes multiply in one order, with A X cached or not
        if reader.parts.how.keep and self.passes[0].hops:
            self.wide.fixed_input = FixedInput(self.X)
        y_n, is_train_n = self.rows.y_n, torch.from_numpy(self.rows.split_n == 0)
        self.is_multilabel = y_n.ndim == 2
        self._y_n = y_n if self.is_multilabel else torch.where(is_train_n, y_n, -1)
        self._train_rows = (is_train_n if self.is_multilabel else self._y_n >= 0).nonzero().squeeze(1)
        self._halo_rows: list[torch.Tensor] = []
        self._own_loss = torch.zeros(())

    def read_halo(self) -> None:
        """Read the hidden rows of the halo, which training reads until the next call."""
        self._halo_rows = self.halos.read(self.rows)

    def gradient(self, epoch: int) -> list[torch.Tensor]:
        """Return the gradient of the loss of the part at the weights as they are."""
        check_trained(self.model, self.optimizer)
        self.model.train()
        self.optimizer.zero_grad()
        set_epoch(self.model, self.seed, epoch)
        with unchanged(self.X):
            loss = self._loss(self._logits())
        self._own_loss = loss.detach()
        loss.backward()
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        sum_gradients(trained, self.comm)
        return [weight.grad for weight in trained]

    def global_loss(self) -> float:
        """Return the loss of the last gradient. Raises: NumericalError where it is not finite."""
        return sum_loss(self._own_loss, self.comm)

    def close(self) -> None:
        """Nothing runs beside training."""

    def _logits(self) -> torch.Tensor:
        """Return the logits of own nodes, (n, C)."""
        H, last = self.X, len(self.passes)
        for number, one in enumerate(self.passes, start=1):
            if number > 1:
                H = torch.cat([H, self._halo_rows[number - 2]])
            H = one.run(self.wide, self.rows.local, H, number == last)
        return H

    def _loss(self, Z_nC: torch.Tensor) -> torch.Tensor:
        if self.is_multilabel:
            return binary_cross_entropy(Z_nC, self._y_n, self._train_rows, len(self._train_rows))
        return cross_entropy(Z_nC, self._y_n, len(self._train_rows), self.wide.pool, self.wide.threads)
