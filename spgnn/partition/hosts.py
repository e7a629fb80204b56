"""Which ranks share a host, where no launcher says so.

Shapes: P ranks, H hosts.
"""

from __future__ import annotations

import numpy as np

from ..errors import UsageError


def host_of(ranks: int, hosts: int) -> np.ndarray:
    """Return the host of each of P ranks, (P,) int64: blocks of ceil(P / H) ranks, the last host with what is left.

    Raises: UsageError for fewer than one host.
    """
    if hosts < 1:
        raise UsageError(f"hosts = {hosts}; expected 1 or more")
    return np.arange(ranks) // max(-(-ranks // hosts), 1)
