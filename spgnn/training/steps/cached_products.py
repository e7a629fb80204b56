"""The products A^j X that a training makes before its first epoch."""

from __future__ import annotations

from dataclasses import replace

import torch

from ...distgraph import DistGraph
from ...errors import SpgnnError
from ...layers.stack import norms_of
from ...spmm.dry.dry import DryRun, dry_run
from ...spmm.dry.dry_operator import Setting, setting_of

MANY = 1 << 20  # powers of A: more than any model has


def make_cached_products(dgraph: DistGraph, model: torch.nn.Module) -> dict[Setting, DryRun]:
    """Compute what an evaluation of the model caches, found by running it without data; A X where it cannot.

    Returns: the dry run that was made, by its setting. Collective.
    """
    A, X, runs = dgraph.A, dgraph.X, {}
    if A.fixed_input is None:
        return runs
    setting = setting_of(A, X, n_train=0 if dgraph.task != "classes" else None)
    if X.is_sparse:  # whether A^j X stays sparse is decided by `make`
        setting = replace(setting, powers=(MANY,), is_cached=True)
    try:
        runs[setting] = dry_run(model, setting, shared=(dgraph,))
        found: list = [list(product) for product in runs[setting].cached]
    except SpgnnError:  # training raises it too, unless the model cannot run without data
        found = [[norms_of(model)[0], 1]]  # its operator is made below, by all ranks
    for name, power in dgraph.comm.all_gather_json(found)[0]:  # the same on all ranks
        A.fixed_input.make(A.with_norm(name), power)
    return runs
