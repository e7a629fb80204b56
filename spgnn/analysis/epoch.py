"""The dry run of a model for all ranks of a graph at once. Imports torch; `measure` does so when it is asked for an epoch.

Shapes: n own rows, L layers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch

from ..errors import UsageError
from ..layers import GCN, Stack
from ..spmm.dry import DryRun, dry_run
from ..spmm.dry_operator import RankRows, Setting
from ..spmm.shapes import Shaped

DTYPES = {2: torch.bfloat16, 8: torch.float64}


@dataclass(frozen=True, slots=True)
class Chain:
    """A Stack of GCN with ReLU between them; norm and residual of the hidden layers."""

    widths: tuple[int, ...]
    dropout: float = 0.0
    input_dropout: bool = True
    norm: bool = False
    residual: bool = False

    def model(self) -> Stack:
        """Return it without values."""
        last = len(self.widths) - 2
        hidden = {"act": "relu", "norm": "layer" if self.norm else None, "residual": self.residual}
        with torch.device("meta"), Shaped():
            layers = [
                GCN(f, c, **(hidden if l < last else {})) for l, (f, c) in enumerate(zip(self.widths, self.widths[1:]))
            ]
            return Stack(*layers, dropout=self.dropout, input_dropout=self.input_dropout)


def epoch_setting(
    features: int,
    *,
    itemsize: int = 4,
    order: str = "auto",
    is_cached: bool = True,
    is_sparse: bool = False,
    has_gradient: bool = False,
    stages: int = 0,
    replication: int = 1,
    wires: tuple[str, str] = ("float32", "float32"),
) -> Setting:
    """Return a setting of nominal numbers of rows: without exchange (stages = 0), what a model does is the same."""
    some = (1,) * stages
    return Setting(
        rows=RankRows(1, 1, some, some),
        features=features,
        dtype=DTYPES.get(itemsize, torch.float32),
        wires=wires,
        order=order,
        replication=replication,
        is_cached=is_cached,
        x_nnz=1 if is_sparse else None,
        cached_nnz=1 if is_sparse and is_cached else None,
        has_gradient=has_gradient,
    ).nominal()


def with_steps(setting: Setting, n_layers: int, is_cached: bool) -> Setting:
    """Return a nominal setting with the layers of a pruned training step; is_cached: the first reads A X."""
    some = (1,) * len(setting.rows.sent)
    exchanged, alone = RankRows(1, 1, some, some), RankRows(1, 1)
    steps = (alone if is_cached else exchanged, *[exchanged] * (n_layers - 1))
    nnz = None if setting.x_nnz is None else 1
    return replace(setting, steps=steps, step_is_cached=is_cached, step_nnz=nnz).nominal()


def total_setting(setting: Setting, n: int, steps: list[tuple[int, int]], nnz: dict[str, int]) -> Setting:
    """Return a setting with the rows of all ranks together; steps: rows out and in of the layers of a pruned step."""
    rows = replace(setting.rows, n=n, m=n)
    layers = tuple(replace(of, n=out, m=read) for of, (out, read) in zip(setting.steps, steps))
    return replace(setting, rows=rows, steps=layers, **nnz)


def rank_setting(setting: Setting, rows: tuple, steps: list[tuple], x_nnz, cached_nnz, step_nnz) -> Setting:
    """Return a setting with the rows of a rank: (out, in, sent, received) of its operator and of each pruned layer.

    Args: x_nnz, cached_nnz, step_nnz  of Setting, where the setting has them.
    """
    counts = {"x_nnz": x_nnz, "cached_nnz": cached_nnz, "step_nnz": step_nnz}
    nnz = {name: count or 0 for name, count in counts.items() if getattr(setting, name) is not None}
    layers = [RankRows(*of) for of in steps]
    layers[:1] = [RankRows(of.n, of.m) for of in layers[:1]] if setting.step_is_cached else layers[:1]
    return replace(setting, rows=RankRows(*rows), steps=tuple(layers), **nnz)


def epoch_of(model: torch.nn.Module | Chain, setting: Setting, is_pruned: bool = False) -> DryRun:
    """Return the dry run of a model; is_pruned: of training steps that compute the rows that reach a training node.

    Raises: UsageError where rows can not be pruned; see dry_run for others.
    """
    if isinstance(model, Chain):
        return _of_chain(model, setting, is_pruned)
    if not is_pruned:
        return dry_run(model, setting)
    widths = getattr(model, "widths", None)
    if widths is None:
        raise UsageError("row pruning (train_N) needs layers that are chains A H W, such as GCN; omit train_N")
    return dry_run(model, with_steps(setting, len(widths) - 1, setting.is_cached and model.input_is_fixed))


@functools.lru_cache(maxsize=64)
def _of_chain(chain: Chain, setting: Setting, is_pruned: bool) -> DryRun:
    return epoch_of(chain.model(), setting, is_pruned)
