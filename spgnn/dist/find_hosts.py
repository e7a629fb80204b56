"""Which ranks share a host.

Shapes: P ranks.
"""

from __future__ import annotations

import numpy as np

from ..machine import host_id
from ..partition.hosts import host_of
from .communicator import Communicator


def find_hosts(comm: Communicator, hosts: int = 0) -> np.ndarray:
    """Return the host of each rank, (P,) int64, hosts numbered by their first rank. Collective.

    Args: hosts  H, taken as they would be: ranks in blocks, see host_of; 0: the hosts that the ranks run on.
    """
    if hosts:
        return host_of(comm.size, hosts)
    names = comm.all_gather_json(host_id())
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([order[name] for name in names], np.int64)
