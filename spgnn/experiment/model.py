"""From options to a Stack."""

from __future__ import annotations

from ..config import TrainConfig
from ..layers import GCN, Stack


def build_model(config: TrainConfig, f_in: int, n_classes: int) -> Stack:
    """Return the Stack that the options describe, F -> hidden ... -> C."""
    widths = [f_in] + [config.hidden] * (config.layers - 1) + [n_classes]
    norm = None if config.norm == "none" else config.norm
    layers = [
        GCN(f, c, act="relu", bias=config.bias, norm=norm, residual=config.residual)
        for f, c in zip(widths[:-2], widths[1:-1])
    ]
    last = GCN(widths[-2], widths[-1], bias=config.bias)
    return Stack(*layers, last, dropout=config.dropout, input_dropout=config.input_dropout)
