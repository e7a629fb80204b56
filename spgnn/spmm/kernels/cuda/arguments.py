"""Arguments of kernels: names of types in C++, addresses, scalars."""

from __future__ import annotations

import numpy as np
import torch

NAMES = {torch.float32: "float", torch.float64: "double", torch.bfloat16: "bfloat16", torch.float16: "float16"}
SCALARS = {torch.float32: np.float32, torch.float64: np.float64, torch.bfloat16: np.float32, torch.float16: np.float32}


def pointer(tensor: torch.Tensor | None) -> np.uint64:
    """Return the address of a tensor's first entry as a kernel takes it; 0 for None."""
    return np.uint64(0 if tensor is None else tensor.data_ptr())


def key_and_place(key: int | torch.Tensor) -> tuple[np.uint64, np.uint64]:
    """Return a dropout key and the address of one that lies on the device, as a kernel takes them: one of them is 0."""
    return (np.uint64(0), pointer(key)) if torch.is_tensor(key) else (np.uint64(key), np.uint64(0))


def threshold(rate: float) -> np.uint32:
    """Return the bits below which an entry is dropped, as the CPU has them."""
    return np.uint32(min(rate * 4294967296.0, 4294967295.0))
