"""Dropout whose mask is a hash of key, original node id and feature: the same on any ranks, and never stored.

Shapes: n own rows, F features, S Stacks of a model, L layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...errors import UsageError, is_number
from ..kernels.backend import kernels_of
from ..operator.facts import AtLayer, Key, SpMM, check_is_held
from ..operator.features import AnyRows, SparseRows
from .backward import first_order

NOTHING = 0  # the key with which nothing is dropped


class Dropout(torch.autograd.Function):
    """out = H mask / (1 - rate); backward computes the mask again, so nothing is stored for it."""

    @staticmethod
    def forward(ctx: Any, H_nF, A: AtLayer, rate, key):
        ctx.A, ctx.rate, ctx.key = A, rate, key
        return drop_rows(A, H_nF.detach(), A.node_n, rate, key)

    @staticmethod
    @first_order
    def backward(ctx: Any, G_nF):
        return drop_rows(ctx.A, G_nF, ctx.A.node_n, ctx.rate, ctx.key), None, None, None


def dropout(A: SpMM, H: AnyRows, rate: float, key: Key) -> Any:
    """Return H with entries zeroed where hash(key, original node id, feature) / 2^32 < rate, the rest / (1 - rate).

    The mask depends on neither the owner of a node nor the number of ranks.
    Args: H (n, F) tensor or SparseRows on the own rows of A; key from `dropout_key` or `nth_key`; NOTHING: H as it is.
    """
    if rate == 0 or is_nothing(key):
        return H
    check_is_held(H)
    out = H.dropout(rate, key, A.node_n) if isinstance(H, SparseRows) else Dropout.apply(H, A, rate, key)
    if A.fixed_input is not None and H is A.fixed_input.X:
        A.fixed_input.note_dropped(out, rate, key)
    return out


def check_rate(rate: float, name: str = "dropout") -> float:
    """Return a rate of dropout. Raises: UsageError unless it is a number of 0 or more, below 1."""
    if not is_number(rate) or not 0 <= rate < 1:
        raise UsageError(f"{name} = {rate!r}; expected a number of 0 or more, below 1")
    return rate


class EpochKeys:
    """The dropout keys of an epoch on a device, so that a captured step has the masks of the epoch that was set last."""

    def __init__(self, seed: int, n_layers: int, device: torch.device, n_stacks: int = 1):
        self.seed, self.key_SL = seed, torch.zeros((n_stacks, n_layers), dtype=torch.int64, device=device)

    def set(self, epoch: int) -> None:
        """Write the keys of an epoch."""
        n_stacks, n_layers = self.key_SL.shape
        keys = np.array(
            [
                [dropout_key(self.seed, epoch, layer, stack) for layer in range(1, n_layers + 1)]
                for stack in range(n_stacks)
            ],
            np.uint64,
        )
        self.key_SL.copy_(torch.from_numpy(keys.view(np.int64)))


def dropout_key(seed: int, epoch: int | EpochKeys, layer: int, stack: int = 0) -> Key:
    """Return 64 bits that differ for every (seed, epoch, layer, number of the Stack in its model), or where EpochKeys hold them."""
    if isinstance(epoch, EpochKeys):
        return epoch.key_SL[stack, layer - 1]
    place = (layer, stack) if stack else (layer,)
    return int(np.random.SeedSequence((seed, epoch, *place)).generate_state(1, np.uint64)[0]) or 1


def is_nothing(key: Key) -> bool:
    """Return whether nothing is dropped; of a key on a device, False without a look at it."""
    return not isinstance(key, torch.Tensor) and key == NOTHING


def nth_key(key: Key, draw: int) -> Key:
    """Return the key of mask number `draw` of a layer; number 0 has the key itself."""
    if draw == 0 or is_nothing(key):
        return key
    apart = draw * 0x9E3779B97F4A7C15 % 2**64  # an odd factor: no two draws get the same number
    if isinstance(key, torch.Tensor):
        return key ^ int(np.uint64(apart).view(np.int64))
    return key ^ apart or 1


def drop_rows(A: SpMM, H_cF: torch.Tensor, ids_c: np.ndarray, rate: float, key: Key) -> torch.Tensor:
    """Return rows of nodes of original ids under the mask of a key, as an operation of A."""
    H_cF = H_cF.contiguous()
    out = A.pool.empty(*H_cF.shape, dtype=H_cF.dtype)
    with A.ops.span("dropout"):
        kernels_of(out).drop(H_cF, out, ids_c, key, rate, A.threads)
    return out
