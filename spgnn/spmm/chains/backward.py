"""Rules of the backward functions of A: first order only; a gradient that nothing else holds may be overwritten.

This saves one buffer of the widest hidden layer. Hooks and autograd.grad may hold references to a gradient; each shows
up in a reference count: of the Python object, of the tensor or of its memory.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import torch

from ...errors import UsageError


def first_order(backward: Callable) -> Callable:
    """Make a backward refuse create_graph: torch would differentiate it without the products with A."""

    @functools.wraps(backward)
    def refusing(ctx, *gradients):
        if torch.is_grad_enabled():
            raise UsageError("double backward through A is not supported; remove create_graph=True")
        return backward(ctx, *gradients)

    return refusing


def own(G: torch.Tensor) -> torch.Tensor:
    """Mark a gradient that has a buffer to itself, and return it."""
    G.is_own = True  # pyrefly: ignore[missing-attribute]  # a mark of ours
    return G


def is_own(G: torch.Tensor) -> bool:
    """Return whether G is so marked and held by the calling backward alone; False if torch has no such counts.

    The call must be a statement by itself, or the expression around it holds G too.
    """
    return getattr(G, "is_own", False) and G.is_contiguous() and _counts(G) == USUAL


def keeps_graph() -> bool:
    """Return whether the backward that runs may run again, with retain_graph; True where torch does not say."""
    return getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)()


def _counts(G: torch.Tensor) -> tuple[int, ...] | None:
    try:
        count = G._use_count()  # pyrefly: ignore[missing-attribute]  # of torch, where it has it
        return sys.getrefcount(G), count, torch._C._storage_Use_Count(G.untyped_storage()._cdata)
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
        def backward(ctx, *gradients):
            return torch.empty_like(gradients[0])

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
