"""The dry run of a model for all ranks of a graph at once. Imports torch, so `measure` imports it for an epoch alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import torch

from ..errors import UsageError
from ..layers import GCN, Stack
from ..layers.stack import pruned_hops
from ..spmm.dry.dry import DryRun, dry_run
from ..spmm.dry.dry_operator import Setting
from ..spmm.dry.shapes import Shaped

DTYPES = {2: torch.bfloat16, 8: torch.float64}


class FixedModel:
    """A model without values that does not change, with the dry runs that were made of it."""

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self._runs: dict[tuple[Setting, bool], DryRun] = {}

    def run(self, setting: Setting, is_pruned: bool) -> DryRun:
        """Return the dry run; is_pruned: of training steps that compute the rows that reach a training node.

        Raises: UsageError where rows can not be pruned; see dry_run for others.
        """
        if (setting, is_pruned) not in self._runs:
            self._runs[setting, is_pruned] = self._pruned(setting) if is_pruned else dry_run(self.model, setting)
        return self._runs[setting, is_pruned]

    def hops(self, setting: Setting) -> tuple[tuple[int, ...], str]:
        """Return the hops of the layers and ""; or () and why rows cannot be pruned."""
        return pruned_hops(self.model, self.run(setting, False))

    def _pruned(self, setting: Setting) -> DryRun:
        hops, problem = self.hops(setting)
        if problem:
            raise UsageError(f"train_N prunes rows, but {problem}; omit train_N")
        is_cached = self.run(setting, False).layer(1).is_cached
        return dry_run(self.model, replace(setting, steps=hops, step_is_cached=is_cached))


def without_values(make: Callable[[], torch.nn.Module]) -> FixedModel:
    """Return the model that a function makes, without memory for its weights."""
    with torch.device("meta"), Shaped():
        return FixedModel(make())


@functools.lru_cache(maxsize=64)
def gcn_of(widths: tuple[int, ...], dropout: float = 0.0) -> FixedModel:
    """Return a Stack of GCN with ReLU between them."""
    acts = [*["relu"] * (len(widths) - 2), None]
    layers = lambda: [GCN(f, c, act=act) for f, c, act in zip(widths, widths[1:], acts)]
    return without_values(lambda: Stack(*layers(), dropout=dropout))
