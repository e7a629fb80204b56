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
        self._before: dict[str, torch.Tensor] = {}  # since hold(); the memory is used again
        self._changed: set[str] = set()
        self._is_held = False

    def hold(self) -> None:
        """Have state_dict return the residuals as they are now until release, whatever products write meanwhile."""
        self._is_held = True

    def release(self) -> None:
        """Have state_dict return the newest residuals again."""
        self._is_held = False
        self._changed.clear()

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
        if self._is_held and name not in self._changed:
            self._changed.add(name)
            old = self._before.get(name)
            fits = old is not None and old.shape == known.shape
            self._before[name] = old.copy_(known) if fits else known.clone()
        return known

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return copies of the residuals of this rank, (m, F) float32 each, on the CPU."""
        held = {name: self._before[name] for name in self._changed}
        return {name: residual.detach().to("cpu", copy=True) for name, residual in (self._residuals | held).items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor], device: torch.device | str = "cpu") -> None:
        """Go on from the residuals of a state_dict: those of this rank, from the same graph, partition and model."""
        self._residuals = {name: residual.to(device, copy=True) for name, residual in state.items()}
        self._made.clear()
        self.release()
