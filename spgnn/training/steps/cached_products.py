"""The products A^j X that a training makes before its first epoch."""

from __future__ import annotations

from dataclasses import replace

import torch

from ...distgraph import DistGraph
from ...errors import SpgnnError
from ...layers.stack import norms_of
from ...spmm.dry import dry_run
from ...spmm.dry_operator import setting_of

MANY = 1 << 20  # powers of A: more than any model has


def make_cached_products(dgraph: DistGraph, model: torch.nn.Module) -> None:
    """Compute what an evaluation of the model caches, found by running it without data; A X where it cannot. Collective."""
    A, X = dgraph.A, dgraph.X
    if A.fixed_input is None:
        return
    setting = setting_of(A, X)
    if X.is_sparse:  # whether A^j X stays sparse is decided by `make`
        setting = replace(setting, powers=(MANY,), is_cached=True)
    try:
        found: list = [list(product) for product in dry_run(model, setting, shared=(dgraph,)).cached]
    except SpgnnError:  # training raises it too, unless the model cannot run without data
        found = [[norms_of(model)[0], 1]]  # its operator is made below, by all ranks
    for name, power in dgraph.comm.all_gather_json(found)[0]:  # the same on all ranks
        A.fixed_input.make(A.with_norm(name), power)
