"""Arrays of any library as NumPy arrays of the host: torch tensors, and what speaks DLPack, such as CuPy and JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import GraphError

HOST = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost


def as_array(values: Any) -> np.ndarray:
    """Return values as a NumPy array; a torch tensor is detached and copied to the CPU, bfloat16 as float32.

    Raises: GraphError for a sparse tensor, an array on a device, masked entries, and rows of different lengths.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if getattr(values, "is_sparse", False) or "sparse" in str(getattr(values, "layout", "")):
            raise GraphError("a sparse torch tensor is not supported here; use .to_dense(), or a scipy CSR")
        values = (values.float() if str(getattr(values, "dtype", "")) == "torch.bfloat16" else values).numpy()
    elif hasattr(values, "__dlpack_device__") and not isinstance(values, (np.ndarray, np.generic)):
        if values.__dlpack_device__()[0] not in HOST:
            raise GraphError(f"a {type(values).__name__} is on a device; copy it to the CPU, as .get() of CuPy does")
        try:
            values = np.from_dlpack(values)
        except (BufferError, RuntimeError, TypeError) as error:
            raise GraphError(f"a {type(values).__name__} cannot be made a NumPy array: {error}") from None
    if np.ma.is_masked(values):
        raise GraphError("an array with masked entries is not supported here; use .filled(value), or select entries")
    try:
        return np.asarray(values)
    except ValueError as error:
        raise GraphError(f"cannot be made an array: {error}") from None
