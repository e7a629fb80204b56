"""Functions of torch that a wrapped module calls and that see all ranks: dropout by original ids, batch norm; and random ones.

Shapes: m own rows, F columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from ...spmm.exchange.owners import RankSum, has_other_ranks

RANDOM = frozenset(
    "rand randn randint rand_like randn_like randint_like randperm bernoulli bernoulli_ multinomial normal normal_ "
    "uniform_ exponential_ random_ geometric_ cauchy_ log_normal_ gumbel_softmax alpha_dropout feature_alpha_dropout "
    "dropout1d dropout2d dropout3d feature_dropout dropout_ poisson instance_norm rrelu rrelu_".split()
)


def bound(names: str, args, kwargs) -> list:
    """Return the arguments of these names, then all others that are given by place."""
    listed = names.split()
    found = dict(zip(listed, args)) | kwargs
    return [found.get(name) for name in listed] + list(args[len(listed) :])


def is_drawn(func: Callable, args, kwargs) -> bool:
    """Return whether a random function draws: in evaluation alpha dropout and RReLU do not."""
    try:
        return inspect.signature(func).bind(*args, **kwargs).arguments.get("training", True)
    except (TypeError, ValueError):  # written in C
        return True


def _dropout(on: Any, input, p: float = 0.5, training: bool = True, inplace: bool = False):
    if not training or p == 0:
        return input
    out = torch.zeros_like(input) if p == 1 else on.drop(input, p)
    return input.copy_(out) if inplace else out


def _batch_norm(on: Any, *args, **kwargs):
    """Return (x - mean) / sqrt(var + eps) w + b, mean and variance over the rows of all ranks."""
    names = "input running_mean running_var weight bias training momentum eps"
    input, running_mean, running_var, weight, bias, training, momentum, eps = bound(names, args, kwargs)
    if not training or not has_other_ranks(on.A):
        return functional.batch_norm(*args, **kwargs)
    momentum, eps = 0.1 if momentum is None else momentum, 1e-5 if eps is None else eps
    dims, shape, dtype = [d for d in range(input.ndim) if d != 1], [1, -1, *[1] * (input.ndim - 2)], input.dtype
    input = input.float() if dtype == torch.bfloat16 else input
    rows = input.numel() // input.shape[1]
    sums = RankSum.apply(on.A, torch.cat([input.sum(dims), input.new_full((1,), rows)]))
    count = sums[-1].detach()
    mean = sums[:-1] / count
    apart = input - mean.view(shape)
    var = RankSum.apply(on.A, apart.square().sum(dims)) / count
    if running_mean is not None:
        with torch.no_grad():
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(var * (count / (count - 1)), momentum)
    out = apart * (var.view(shape) + eps).rsqrt()
    out = out if weight is None else out * weight.view(shape)
    return (out if bias is None else out + bias.view(shape)).to(dtype)


MENDED: dict[Callable, Callable] = {functional.dropout: _dropout, functional.batch_norm: _batch_norm}
