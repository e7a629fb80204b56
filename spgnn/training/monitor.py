"""Monitor: the score that decides which epoch is the best, and when a training stops.

Shapes: n own rows, C classes.
"""

from __future__ import annotations

import torch

from ..distgraph import DistGraph
from ..errors import UsageError, is_number
from .custom import Custom
from .steps import Step
from .steps.row_loss import RowLoss


class Monitor:
    """The validation score, the validation loss, or a function of the record; the higher the better, but for a loss.

    Args: steps  its scorer has the split; its logits are used where a loss is monitored, by the loss of its targets.
    """

    def __init__(self, custom: Custom, dgraph: DistGraph, steps: Step):
        self.kind, self.targets = custom.monitor, None
        if self.kind == "val_loss":
            is_val_n, of = torch.from_numpy(steps.scorer.split_n == 1), steps.targets
            self.targets = RowLoss(dgraph, dgraph.y_n, is_val_n, custom, of.how, of.deviation_C)
            if not self.targets.count:
                raise UsageError(f"monitor = 'val_loss': {dgraph.name} has no labelled validation node; use another")

    def add(self, record: dict, scores: dict, Z_nC: torch.Tensor | None) -> None:
        """Write what is monitored into a record that has the scores, unless it is one of them.

        Args: scores  split -> {accuracy, ...}; Z_nC: logits, for val_loss.
        Collective.
        """
        if self.targets is not None:
            record["val_loss"] = self.targets.mean(Z_nC)
        elif callable(self.kind):
            value = self.kind(record | {"scores": scores})
            if not is_number(value):
                raise UsageError(f"monitor returned {value!r}; expected a number, the higher the better")
            record["monitor"] = float(value)
