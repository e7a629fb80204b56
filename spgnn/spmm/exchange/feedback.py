"""Feedback: what lossy wires left out of the rows of a product, sent with its rows in the next training step.

Shapes: m rows of a message, F columns.
Source: Seide et al. 2014 (error feedback).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch


class Feedback:
    """The residuals of one training, by exchange: "gcn.0.pull.2" is the third pull of stage 0 of operator gcn in a step.

    A step makes its products in the same order as the step before. All residuals are zero at first.
    """

    def __init__(self):
        self._residuals: dict[str, torch.Tensor] = {}
        self._made: Counter[str] = Counter()

    def begin_step(self) -> None:
        """Number the products of a new training step from 0."""
        self._made.clear()

    def residual(self, exchange: str, rows_mF: torch.Tensor) -> torch.Tensor:
        """Return the residual (m, F) float32 of the next product by an exchange, which encoding reads and writes."""
        name = f"{exchange}.{self._made[exchange]}"
        self._made[exchange] += 1
        known = self._residuals.get(name)
        if known is None or known.shape != rows_mF.shape:
            known = self._residuals[name] = torch.zeros(rows_mF.shape, device=rows_mF.device)
        return known

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the residuals of this rank, (m, F) float32 each, on the CPU."""
        return {name: residual.detach().to("cpu", copy=True) for name, residual in self._residuals.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor], device: torch.device | str = "cpu") -> None:
        """Go on from the residuals of a state_dict: those of this rank, from the same graph, partition and model."""
        self._residuals = {name: residual.to(device, copy=True) for name, residual in state.items()}
        self._made.clear()
