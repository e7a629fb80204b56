"""The dry run of a model for all ranks of a graph at once. Imports torch; `measure` does so when it is asked for an epoch.

Shapes: n own rows, L layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from ..errors import UsageError
from ..layers import GCN, Stack
from ..layers.hops import pruned_hops
from ..layers.layer import hops_of
from ..spmm.dry import DryRun, dry_run
from ..spmm.dry_operator import RankRows, Setting
from ..spmm.shapes import Shaped

DTYPES = {2: torch.bfloat16, 8: torch.float64}


class FixedModel:
    """A model without values that does not change, with the dry runs that were made of it."""

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self._runs: dict[tuple[Setting, bool], DryRun] = {}

    def run(self, setting: Setting, is_pruned: bool) -> DryRun:
        """Return the dry run of a setting; see epoch_of."""
        if (setting, is_pruned) not in self._runs:
            self._runs[setting, is_pruned] = epoch_of(self.model, setting, is_pruned)
        return self._runs[setting, is_pruned]


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
    features: int,
    *,
    itemsize: int = 4,
    order: str = "auto",
    is_cached: bool = True,
    is_sparse: bool = False,
    is_fixed: bool | None = None,
    has_gradient: bool = False,
    stages: int = 0,
    replication: int = 1,
    wires: tuple[str, str] = ("float32", "float32"),
) -> Setting:
    """Return a setting of nominal numbers of rows: without exchange (stages = 0), what a model does is the same.

    Args: is_cached  A X is cached; is_fixed: ghost rows of X are, None: where A X is.
    """
    some = (1,) * stages
    return Setting(
        rows=RankRows(1, 1, some, some, (1, 1) if stages else ()),
        features=features,
        dtype=DTYPES.get(itemsize, torch.float32),
        wires=wires,
        order=order,
        replication=replication,
        is_cached=is_cached,
        x_nnz=1 if is_sparse else None,
        cached_nnz=1 if is_sparse and is_cached else None,
        ghost_nnz=1 if is_sparse and (is_cached if is_fixed is None else is_fixed) else None,
        has_gradient=has_gradient,
    ).nominal()


def with_steps(setting: Setting, hops: Sequence[int], is_cached: bool) -> Setting:
    """Return a nominal setting with the layers of a pruned training step; is_cached: the first reads A X."""
    rows, alone = setting.rows, RankRows(1, 1)
    some = lambda values: (1,) * len(values)
    exchanged = RankRows(1, 1, some(rows.sent), some(rows.received), some(rows.ghosts))
    steps = [exchanged if of_layer else replace(alone, is_local=True) for of_layer in hops]
    steps = (alone if is_cached else steps[0], *steps[1:])
    nnz = None if setting.x_nnz is None else 1
    return replace(setting, steps=steps, step_is_cached=is_cached, step_nnz=nnz).nominal()


def total_setting(setting: Setting, n: int, steps: list[tuple[int, int]], nnz: dict[str, int]) -> Setting:
    """Return a setting with the rows of all ranks together; steps: rows out and in of the layers of a pruned step."""
    rows = replace(setting.rows, n=n, m=n)
    layers = tuple(replace(of, n=out, m=read) for of, (out, read) in zip(setting.steps, steps))
    return replace(setting, rows=rows, steps=layers, **nnz)


def rank_setting(setting: Setting, rows: RankRows, steps: Sequence[RankRows], x_nnz, cached_nnz, step_nnz) -> Setting:
    """Return a setting with the rows of a rank: of its operator and of each pruned layer.

    Args: x_nnz, cached_nnz, step_nnz  of Setting, where the setting has them.
    """
    ghosts = None if x_nnz is None else x_nnz * sum(rows.ghosts[1:]) // max(rows.m, 1)  # rows as long as own ones
    counts = {"x_nnz": x_nnz, "cached_nnz": cached_nnz, "step_nnz": step_nnz, "ghost_nnz": ghosts}
    nnz = {name: count or 0 for name, count in counts.items() if getattr(setting, name) is not None}
    alone = lambda of: replace(of, sent=(), received=(), ghosts=())  # of a layer that exchanges nothing
    layers = tuple(of if nominal.sent else alone(of) for of, nominal in zip(steps, setting.steps))
    return replace(setting, rows=rows, steps=layers, **nnz)


def hops_in(model: torch.nn.Module | FixedModel) -> tuple[int, ...]:
    """Return the hops of the layers of a model whose rows can be pruned."""
    model = model.model if isinstance(model, FixedModel) else model
    return tuple(hops_of(layer) for layer in model.layers)


def epoch_of(model: torch.nn.Module | FixedModel, setting: Setting, is_pruned: bool = False) -> DryRun:
    """Return the dry run of a model; is_pruned: of training steps that compute the rows that reach a training node.

    Raises: UsageError where rows can not be pruned; see dry_run for others.
    """
    if isinstance(model, FixedModel):
        return model.run(setting, is_pruned)
    run = dry_run(model, setting)
    return _pruned(model, run) if is_pruned else run


def pruned_run(model: FixedModel, setting: Setting) -> DryRun | None:
    """Return the dry run of steps that compute the rows that reach a training node, None where rows cannot be pruned."""
    _, problem = pruned_hops(model.model, model.run(setting, False))
    return None if problem else model.run(setting, True)


def _pruned(model: torch.nn.Module, run: DryRun) -> DryRun:
    hops, problem = pruned_hops(model, run)
    if problem:
        raise UsageError(f"train_N prunes rows, but {problem}; omit train_N")
    return dry_run(model, with_steps(run.setting, hops, run.layer(1).is_cached))
