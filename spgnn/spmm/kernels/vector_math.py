"""A call that has to come before torch's elementwise functions run on several threads.

torch computes sqrt, exp and their like on the CPU by the vector functions of oneMKL, which looks up the code of each
at its first call. Where two threads make that first call at once, one of them may be given code of low accuracy
(3e-4 of relative error instead of 1e-7), for that call: a training then differs from its repetition from the first
step of Adam on. Source: the PyTorch project's issue 188792; here about one training in five on two threads.
"""

from __future__ import annotations

import torch

FUNCTIONS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor",
    "lgamma", "log", "log10", "log1p", "log2", "reciprocal", "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip


def settle() -> None:
    """Call each function once on one thread, in both precisions. Takes a few milliseconds."""
    for dtype in (torch.float32, torch.float64):
        x = torch.full((8,), 0.5, dtype=dtype)
        for name in FUNCTIONS:
            getattr(torch, name)(x)
