"""share_of_threads: how many threads a rank may start so that all ranks of its host use its cores once."""

from __future__ import annotations

import os

from ..machine import core_ids, host_id, share_of_cores
from .communicator import Communicator


def share_of_threads(comm: Communicator) -> int:
    """Return max(1, this rank's share of the host's cores, see share_of_cores). Collective.

    SLURM_CPUS_PER_TASK, where it is set, is the most: not every Slurm binds a task to its cores.
    """
    mask = sum(1 << core for core in core_ids())
    everywhere = comm.all_gather_json([host_id(), f"{mask:x}"])
    here = [_cores_of(text) for host, text in everywhere if host == host_id()]
    share = max(1, int(share_of_cores(core_ids(), here)))
    asked = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(share, max(1, int(asked))) if asked.isdigit() else share


def _cores_of(mask: str) -> list[int]:
    bits = int(mask, 16)
    return [core for core in range(bits.bit_length()) if bits >> core & 1]
