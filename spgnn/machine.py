"""What this process has of its machine: cores and memory."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import socket
import threading
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

# NumPy parses the headers of .npy files by `ast`, which CPython 3.11 may fail to do in two threads at once (SystemError).
NPY_HEADERS = threading.Lock()


def core_ids() -> list[int]:
    """Return the numbers of the cores that this process may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cores() -> int:
    """Return the cores that this process may use."""
    return len(core_ids())


def host_load() -> tuple[float, int]:
    """Return the processes that ran or waited on this host, in the mean over the last minute, and the host's cores."""
    return os.getloadavg()[0], os.cpu_count() or 1


def share_of_cores(mine: Iterable[int], of_each: Iterable[Iterable[int]]) -> Fraction:
    """Return sum of 1 / (processes that may run on c) over the cores c of mine.

    Args: of_each  the cores of each process of this host, this one included.
    Processes that the launcher has bound to cores of their own keep all of them.
    """
    users = Counter(core for ids in of_each for core in ids)
    return sum((Fraction(1, users[core]) for core in mine), Fraction(0))


def unseen_ranks(seen: int) -> int:
    """Return how many processes of this host share its cores with seen ones, such as the ranks of another communicator.

    0 where the launcher binds ranks to cores, or does not say how many it has started on this host.
    """
    counts = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")
    started = max((int(text) for name in counts if (text := os.environ.get(name, "")).isdigit()), default=0)
    return max(0, started - seen) if cores() == os.cpu_count() else 0


def host_id() -> str:
    """Return what tells this host from all others: its name and, as names may repeat, Linux's boot id."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii", errors="replace") as file:
            return f"{socket.gethostname()} {file.read().strip()}"
    except OSError:
        return socket.gethostname()


def peak_rss_mb() -> float:
    """Return the largest resident memory that this process has had, in MB of 10^6 bytes.

    Linux's VmHWM starts anew with each program; getrusage's number would be the parent's if that was larger.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def rss_bytes() -> int:
    """Return the resident memory of this process now."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) * 1024


def give_back_memory() -> None:
    """Give what the allocator keeps of freed memory back to the system, where it is glibc's.

    Arrays under 32 MB, once freed, stay with the process: after a set-up that makes many of them, that is
    tens of megabytes on top of what training takes.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def drop_pages(array: object) -> None:
    """Take the pages of an array that maps a file out of this process's memory; what is used again is read again."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def memory_bytes() -> int:
    """Return the memory of this host, or of the container where that has less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = _read(path)
        if limit.isdigit():
            total = min(total, int(limit))
    return total


def free_address_bytes() -> int | None:
    """Return how much more this process may map where its address space is limited (ulimit -v); None: it is not."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    mapped = _read("/proc/self/statm").split()[:1]
    return max(0, limit - sum(map(int, mapped)) * os.sysconf("SC_PAGE_SIZE"))


def cache_bytes() -> int:
    """Return the size of the largest cache of a core; 8 MiB where the system does not tell."""
    sizes = [_read(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size") for level in range(5)]
    known = [
        int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
        for size in sizes
        if size[:-1].isdigit() and size[-1] in "KMG"
    ]
    return max(known, default=8 << 20)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
