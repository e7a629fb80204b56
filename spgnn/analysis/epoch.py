"""The dry run of a model for all ranks of a graph at once. Imports torch, so `measure` imports it for an epoch alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import torch

from ..errors import UsageError
from ..layers import GCN, Stack
from ..layers.hops import pruned_hops
from ..layers.layer import hops_of
from ..spmm.dry.dry import DryRun, dry_run
from ..spmm.dry.dry_operator import Setting
from ..spmm.dry.shapes import Shaped

DTYPES = {2: torch.bfloat16, 8: torch.float64}


class FixedModel:
    """A model without values that does not change, with the dry runs that were made of it."""

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self._runs: dict[tuple[Setting, bool], DryRun] = {}

    @property
    def hops(self) -> tuple[int, ...]:
        """The hops of the layers of a model whose rows can be pruned."""
        return tuple(hops_of(layer) for layer in self.model.layers)

    def run(self, setting: Setting, is_pruned: bool) -> DryRun:
        """Return the dry run; is_pruned: of training steps that compute the rows that reach a training node.

        Raises: UsageError where rows can not be pruned; see dry_run for others.
        """
        if (setting, is_pruned) not in self._runs:
            self._runs[setting, is_pruned] = self._pruned(setting) if is_pruned else dry_run(self.model, setting)
        return self._runs[setting, is_pruned]

    def why_whole(self, setting: Setting) -> str:
        """Return why rows cannot be pruned, "" where they can."""
        return pruned_hops(self.model, self.run(setting, False))[1]

    def _pruned(self, setting: Setting) -> DryRun:
        if problem := self.why_whole(setting):
            raise UsageError(f"train_N prunes rows, but {problem}; omit train_N")
        is_cached = self.run(setting, False).layer(1).is_cached
        return dry_run(self.model, replace(setting, steps=self.hops, step_is_cached=is_cached))


def without_values(make: Callable[[], torch.nn.Module]) -> FixedModel:
    """Return the model that a function makes, without memory for its weights."""
    with torch.device("meta"), Shaped():
        return FixedModel(make())


@functools.lru_cache(maxsize=64)
def gcn_of(
    widths: tuple[int, ...],
    dropout: float = 0.0,
    input_dropout: bool = True,
    norm: bool = False,
    residual: bool = False,
) -> FixedModel:
    """Return a Stack of GCN with ReLU between them; norm and residual of the hidden layers."""
    last = len(widths) - 2
    hidden = {"act": "relu", "norm": "layer" if norm else None, "residual": residual}
    make = lambda l, f, c: GCN(f, c, **(hidden if l < last else {}))
    layers = lambda: [make(l, f, c) for l, (f, c) in enumerate(zip(widths, widths[1:]))]
    return without_values(lambda: Stack(*layers(), dropout=dropout, input_dropout=input_dropout))


def epoch_setting(
    features: int, itemsize: int = 4, is_cached: bool = True, is_sparse: bool = False, **options
) -> Setting:
    """Return the setting of an epoch; options: of Setting. Ghost rows of X are cached where A X is, unless has_ghosts says."""
    how = {"dtype": DTYPES.get(itemsize, torch.float32), "has_ghosts": is_sparse and is_cached} | options
    return Setting(features=features, is_cached=is_cached, is_sparse=is_sparse, **how)
