"""What this process has of its machine: cores and memory."""

from __future__ import annotations

import os
import resource


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_rss_mb() -> float:
    """Return the largest resident memory that this process has had, in MB of 10^6 bytes.

    Linux's VmHWM starts anew with each program; getrusage's number would be the parent's if that was larger.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
