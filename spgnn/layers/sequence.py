"""make_stack: the Stack that options describe, of hidden layers and a last one."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from .mlp import MLP
from .stack import JOINED_WIDTH, Stack


def make_stack(
    f_in: int, n_classes: int, options, hidden: Callable[[int, int], nn.Module], last: Callable[[int, int], nn.Module]
) -> Stack:
    """Return F -> hidden ... -> C, options.layers layers, of which hidden(f, c) makes all but the last.

    With options.classifier all of them are hidden ones, and an MLP of one product follows.
    Args: options  hidden, layers, jump, classifier, dropout and input_dropout of a TrainConfig.
    """
    count = options.layers if options.classifier else options.layers - 1
    widths = [f_in] + [options.hidden] * count
    layers = [hidden(f, c) for f, c in zip(widths, widths[1:])]
    jump = None if options.jump == "none" or not layers else options.jump
    read = widths[-1] if jump is None else JOINED_WIDTH[jump](widths[1:])
    end = MLP(read, n_classes, bias=options.bias) if options.classifier else last(read, n_classes)
    return Stack(*layers, end, dropout=options.dropout, input_dropout=options.input_dropout, jump=jump)
