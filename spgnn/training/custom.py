"""Custom: what a training is given in Python and no option of the command line has.

Shapes: C classes, t rows of the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from ..errors import ShapeError, UsageError, nearest

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (Z_tC, y_t), or of links (positive_p, negative_pk) -> sum
MONITORS = ("val", "val_loss")


@dataclass(frozen=True, slots=True)
class Custom:
    """Optimizer, loss and the score that decides, see `spgnn.train`; with the defaults of the command line.

    optimizer      (weights) -> torch.optim.Optimizer; None: the one that the options name.
    schedule       (optimizer) -> scheduler of torch; None: a constant rate.
    class_weights  "balanced", (C,) numbers, or None.
    loss           (Z_tC, y_t) -> sum over the rows; None: cross-entropy.
    monitor        val, val_loss, or (record) -> number, the higher the better.
    Raises: UsageError for values of other kinds.
    """

    optimizer: Callable[[list], Any] | None = None
    schedule: Callable[[Any], Any] | None = None
    class_weights: Any = None
    loss: Loss | None = None
    monitor: str | Callable[[dict], float] = "val"

    def __post_init__(self):
        for name in ("optimizer", "schedule", "loss"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                takes = {"optimizer": "the weights", "schedule": "the optimizer", "loss": "(Z, y)"}[name]
                raise UsageError(f"{name} = {value!r}; expected a function of {takes}, see help(spgnn.train)")
        if not callable(self.monitor) and self.monitor not in MONITORS:
            raise UsageError(
                f"monitor = {self.monitor!r} is not known{nearest(str(self.monitor), MONITORS)}; or a function"
            )
        if self.loss is not None and self.class_weights is not None:
            raise UsageError("class_weights weigh the cross-entropy; weigh the rows in loss, or omit one of them")

    def given(self) -> list[str]:
        """Return the names of the fields that differ from the defaults of the command line."""
        is_default = lambda value, default: value is default or isinstance(value, str) and value == default
        return [field.name for field in fields(self) if not is_default(getattr(self, field.name), field.default)]

    def check_parts(self, mode: str) -> None:
        """Raise UsageError where something is given that a training on Parts does not have, in a mode.

        Of averages all but a function as monitor; out of core the validation loss.
        """
        for name in self.given():
            if name == "monitor" and callable(self.monitor) or name != "monitor" and mode == "out-of-core":
                continue
            raise UsageError(f"{name} is not used with Parts; omit it, or train on all nodes at once")

    def check_links(self) -> None:
        """Raise UsageError where something is given that a training on links does not have."""
        given = ["class_weights"] if self.class_weights is not None else []
        given += ["monitor = 'val_loss'"] if self.monitor == "val_loss" else []
        if given:
            raise UsageError(f"{given[0]} is not used with task = 'links', but metric and monitor as a function are")

    def check_fields(self, sampler: Any) -> None:
        """Raise UsageError where something is given that a training on Fields does not have."""
        given = [name for name in self.given() if name in ("class_weights", "loss")]
        given += ["monitor = 'val_loss'"] if self.monitor == "val_loss" else []
        given += ["sampler"] if sampler != "none" else []
        if given:
            raise UsageError(f"{given[0]} is not used with Fields, but loss='mse', 'mae' or 'huber' and metric are")

    def weight_C(self, count_C: np.ndarray) -> np.ndarray:
        """Return the weight of each class, (C,) float64; count_C: training nodes of each class, all ranks.

        balanced: n / (classes with a node * nodes of the class), 0 without any.
        """
        if isinstance(self.class_weights, (str, dict)):
            if self.class_weights != "balanced":
                raise UsageError(f"class_weights = {self.class_weights!r}; expected 'balanced', an array, or None")
            total, present = count_C.sum(), np.count_nonzero(count_C)
            return np.divide(total, present * count_C, out=np.zeros(len(count_C)), where=count_C > 0)
        weight_C = np.array(self.class_weights, np.float64)
        if weight_C.shape != count_C.shape:
            raise ShapeError(f"class_weights have shape {weight_C.shape}; expected one for each class, {count_C.shape}")
        if not np.isfinite(weight_C).all() or (weight_C < 0).any() or not weight_C @ count_C > 0:
            raise UsageError("class_weights must be finite, 0 or more, and above 0 for a class with training nodes")
        return weight_C


COMMAND_LINE = Custom()
