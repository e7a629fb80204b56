"""Shapes of what torch's commonest operations return, without running them on the meta device.

torch runs these there by functions in Python, the first of which imports its compiler and sympy: 75 MB and half a second
in each process. All other operations are left to it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = {aten.mm, aten.addmm}
# Results have the shape and type to which the arguments are broadcast.
ELEMENTWISE = {
    aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.neg, aten.exp, aten.pow, aten.sqrt, aten.rsqrt,
    aten.relu, aten.tanh, aten.sigmoid, aten.elu, aten.gelu, aten.leaky_relu, aten.silu, aten.clamp_min,
    aten.threshold_backward, aten.tanh_backward, aten.sigmoid_backward, aten.elu_backward, aten.gelu_backward,
    aten.leaky_relu_backward, aten.silu_backward,
}  # fmt: skip


IN_PLACE = {aten.add_, aten.sub_, aten.mul_, aten.div_, aten.relu_, aten.uniform_, aten.normal_, aten.fill_, aten.zero_}
LIKE = {aten.ones_like, aten.zeros_like, aten.empty_like, aten.full_like}
SUMMED = 2  # torch's number for reduction="sum"


class Shaped(TorchDispatchMode):
    """Operations on meta tensors by these rules where there is one."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch not to wrap this mode against its compiler, which would import it."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.run(func, args, kwargs or {})

    def run(self, func, args: tuple, kwargs: dict):
        """Return what an operation returns."""
        out = result_of(func, args, kwargs)
        return func(*args, **kwargs) if out is NotImplemented else out


def result_of(func, args: tuple, kwargs: dict):
    """Return what an operation on meta tensors returns, NotImplemented where torch is to say."""
    packet = func._overloadpacket
    if not all(x.is_meta for x in args if isinstance(x, torch.Tensor)):
        return NotImplemented
    if packet in PRODUCTS:
        return _product(*args, **kwargs)
    if packet in ELEMENTWISE:
        return _elementwise(args, kwargs)
    if packet is aten.native_layer_norm:
        return _layer_norm(*args)
    if packet is aten.native_layer_norm_backward:
        return tuple(_like(x) if is_asked else None for x, is_asked in zip((args[1], *args[5:7]), args[7]))
    if packet in IN_PLACE:
        return args[0] if _broadcast(args) == tuple(args[0].shape) else NotImplemented
    if packet in (aten.index_add, aten.index_put):
        return _like(args[0])
    if packet is aten.sum:
        return _sum(*args, **kwargs)
    if packet in LIKE:
        return _empty(args[0].shape, kwargs.get("dtype") or args[0].dtype)
    if packet is aten.binary_cross_entropy_with_logits and args[4:5] == (SUMMED,):
        return _empty((), args[0].dtype)
    if packet is aten.index:
        return _taken(*args)
    return NotImplemented


def _product(*args, out: torch.Tensor | None = None, **scales):
    a, b = args[-2:]
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or a.dtype != b.dtype:
        return NotImplemented  # torch says what is wrong
    return _empty((a.shape[0], b.shape[1]), a.dtype) if out is None else out


def _elementwise(args: tuple, kwargs: dict):
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    if "out" in kwargs or "grad_input" in kwargs or not all(t.is_floating_point() for t in tensors):
        return NotImplemented
    shape, dtype = _broadcast(tensors), tensors[0].dtype
    if shape is None:
        return NotImplemented
    for tensor in tensors[1:]:
        dtype = torch.result_type(_empty(tensors[0].shape, dtype), tensor)
    return _empty(shape, dtype)


def _sum(X, dims=None, keepdim: bool = False, dtype: torch.dtype | None = None, **others):
    if others or not X.is_floating_point():
        return NotImplemented
    summed = {dim % X.ndim for dim in dims} if dims else set(range(X.ndim))
    shape = [1 if dim in summed else n for dim, n in enumerate(X.shape) if keepdim or dim not in summed]
    return _empty(shape, dtype or X.dtype)


def _layer_norm(X, normalized_shape, *rest):
    if tuple(X.shape[X.ndim - len(normalized_shape) :]) != tuple(normalized_shape):
        return NotImplemented
    of_rows = (*X.shape[: X.ndim - len(normalized_shape)], *[1] * len(normalized_shape))
    return _like(X), _empty(of_rows, X.dtype), _empty(of_rows, X.dtype)


def _taken(X, indices):
    first = indices[0] if len(indices) == 1 else None
    if first is None or first.ndim != 1 or first.dtype != torch.int64:
        return NotImplemented
    return _empty((len(first), *X.shape[1:]), X.dtype)


def _broadcast(args) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*(x.shape for x in args if isinstance(x, torch.Tensor)))
    except ValueError:
        return None


def _like(X: torch.Tensor) -> torch.Tensor:
    return _empty(X.shape, X.dtype)


def _empty(shape, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device="meta")
