"""What the backwards of A's functions share: they are of first order, and may write into a gradient that is theirs alone.

Tensor hooks, autograd.grad with respect to what a gradient is of, and other readers may all keep it. Each of them is one
reference more: to the Python object, to the tensor, or to its memory.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import torch

from ..errors import UsageError


def first_order(backward: Callable) -> Callable:
    """Make a backward refuse create_graph: torch would differentiate what it computes as if A were not there."""

    @functools.wraps(backward)
    def refusing(ctx, *gradients):
        if torch.is_grad_enabled():
            raise UsageError("gradients of gradients through A are not there; leave create_graph=True away")
        return backward(ctx, *gradients)

    return refusing


def own(G: torch.Tensor) -> torch.Tensor:
    """Return a gradient in a buffer of its own, marked as such."""
    G.is_own = True
    return G


def is_own(G: torch.Tensor) -> bool:
    """Return whether G is so marked and only the backward that calls this, in a statement of its own, holds it; False where torch does not tell."""
    return getattr(G, "is_own", False) and G.is_contiguous() and _counts(G) == USUAL


def _counts(G: torch.Tensor) -> tuple[int, ...] | None:
    try:
        return sys.getrefcount(G), G._use_count(), torch._C._storage_Use_Count(G.untyped_storage()._cdata)
    except AttributeError:
        return None


def _usual() -> tuple[int, ...]:
    """Return the counts of a gradient that was made by one backward and is held by the next alone."""
    seen: list = []

    def look(G):
        seen.append(_counts(G))

    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx, X):
            return X.clone()

        @staticmethod
        def backward(ctx, G):
            return torch.empty_like(G)

    class Given(torch.autograd.Function):
        @staticmethod
        def forward(ctx, X):
            return X.clone()

        @staticmethod
        @first_order
        def backward(ctx, G):
            look(G)
            return G

    with torch.inference_mode(False), torch.enable_grad():
        Made.apply(Given.apply(torch.zeros(1, requires_grad=True))).backward()
    return seen[0] or ()


USUAL = _usual()
