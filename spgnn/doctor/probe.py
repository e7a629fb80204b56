"""Measure the rates of the cost model, on all ranks at once: products, passes over memory and links. Imports torch.

Shapes: n rows, F columns, P ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from ..config import TrainConfig
from ..cost.machines import Machine, load_machine
from ..cost.memory import MPI_BYTES
from ..cost.seconds import CALLS_A_LAYER, CALLS_AN_EPOCH, gemm_flops
from ..dist import Communicator, SelfCommunicator
from ..dist.launch import find_hosts
from ..distgraph import distribute
from ..graph import Graph
from ..layers import GCN, Stack
from ..machine import cache_bytes, memory_bytes, rss_bytes
from ..spmm.kernels.backend import kernels_of
from ..spmm.kernels.buffers import BufferPool
from ..spmm.kernels.csr import LocalCSR
from ..training import Trainer

MB = 1 << 20
LINKS = ("latency_s", "bandwidth", "card_bandwidth", "local_latency_s", "local_bandwidth")


def gemm_rate(
    comm: Communicator, dtype: torch.dtype, stream: float, repeat: int = 5, n: int = 60_000, F: int = 128
) -> float:
    """Return the flop/s of (n, F) (F, F), without the passes over memory that gemm_seconds adds. Collective."""
    A, W = torch.ones(n, F, dtype=dtype), torch.ones(F, F, dtype=dtype)
    out = torch.empty(n, F, dtype=dtype)
    seconds = _seconds(comm, lambda: kernels_of(out).gemm(A, W, out), repeat)
    return n * gemm_flops(F, F) / max(seconds - 2 * n * F * dtype.itemsize / stream, seconds / 2)


def stream_bytes(comm: Communicator, repeat: int = 5, size: int = 48 * MB) -> float:
    """Return the bytes/s of a pass that reads one buffer and writes another. Collective."""
    x, y = torch.ones(size // 4), torch.empty(size // 4)
    y.zero_()
    return 2.0 * size / _seconds(comm, lambda: torch.clamp_min(x, 0, out=y), repeat)


def disk_bytes(comm: Communicator, size: int = 128 * MB) -> float:
    """Return the bytes/s at which a rank reads a file of the folder for temporary files from its disk. Collective."""
    with TemporaryFile() as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, size, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        comm.barrier()
        start = time.perf_counter()
        while file.read(4 * MB):
            pass
        return size / (time.perf_counter() - start)


class SpmmRates(NamedTuple):
    """The rates of spmm_seconds: seconds per nonzero, bytes/s of rows read from cache and from memory."""

    nonzero_s: float
    cached: float
    memory: float


def spmm_rates(comm: Communicator, cache: float, threads: int = 0, repeat: int = 5) -> SpmmRates:
    """Time sparse products of random columns with narrow and wide tables, inside and outside the cache. Collective."""
    fits, exceeds = max(cache / 4, 2 * MB), max(min(max(3 * cache, 96 * MB), 192 * MB), 1.5 * cache)
    narrow, wide = (_spmm_seconds(comm, F, fits, threads, repeat) for F in (16, 128))
    cached = 4 * (128 - 16) / max(wide - narrow, 1e-13)
    nonzero_s = max(narrow - 64 / cached, 0.02 * narrow)
    outside = _spmm_seconds(comm, 128, exceeds, threads, repeat)
    hits = cache / exceeds
    memory = 512 * (1 - hits) / max(outside - nonzero_s - 512 * hits / cached, 1e-13)
    return SpmmRates(nonzero_s, cached, min(memory, cached))


def call_seconds(repeat: int = 20) -> float:
    """Return the seconds of one call, from epochs of two layers on a graph of 64 nodes, on this rank only."""
    n, F = 64, 8
    A = sp.csr_array(sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1], dtype=np.float32))
    graph = Graph(A, X=np.ones((n, F), np.float32), y=np.arange(n) % 2, split=np.zeros(n, np.int8), edges="undirected")
    trainer = Trainer(Stack(GCN(F, F, act="relu"), GCN(F, 2)), distribute(graph, SelfCommunicator()), TrainConfig())
    seconds = []
    for epoch in range(1, repeat + 3):
        start = time.perf_counter()
        trainer.step(epoch)
        seconds.append(time.perf_counter() - start)
    return float(np.quantile(seconds[2:], 0.25)) / (2 * CALLS_A_LAYER + CALLS_AN_EPOCH)


def latency_seconds(comm: Communicator, repeat: int = 30) -> float:
    """Return the seconds of a message: all_to_all of one byte to every other rank, over P - 1. Collective."""
    ones_P = np.ones(comm.size, np.int64)
    send, recv = np.zeros(comm.size, np.uint8), np.zeros(comm.size, np.uint8)
    return _seconds(comm, lambda: comm.all_to_all(send, ones_P, recv, ones_P), repeat) / (comm.size - 1)


def link_bytes(comm: Communicator, latency_s: float, repeat: int = 5, size: int = 4 * MB) -> float:
    """Return the bytes/s per rank while each sends to the next and receives from the previous one. Collective."""
    send_P, recv_P = np.zeros(comm.size, np.int64), np.zeros(comm.size, np.int64)
    send_P[(comm.rank + 1) % comm.size] = recv_P[comm.rank - 1] = size // 8
    send, recv = np.ones(size // 8), np.empty(size // 8)
    seconds = _seconds(comm, lambda: comm.all_to_all(send, send_P, recv, recv_P), repeat)
    return size / max(seconds - latency_s, seconds / 10)


def calibrate(
    comm: Communicator, name: str = "measured", threads: int = 0, repeat: int = 5
) -> tuple[Machine, list[str]]:
    """Measure a Machine with the ranks and hosts of this launch, and return the fields that could not be measured.

    All ranks measure at once, as in an epoch; rates are means over the ranks. Fields that need a second rank or
    host are those of `laptop`. Collective.
    """
    process = float(rss_bytes() - (MPI_BYTES if comm.size > 1 else 0))
    memory, host_P = min(comm.all_gather_json(memory_bytes())), find_hosts(comm)
    here = int(np.bincount(host_P).max())  # ranks on the fullest host
    cache, stream = cache_bytes() / here, stream_bytes(comm, repeat)
    spmm = spmm_rates(comm, cache, threads, repeat)
    rates = {"process_bytes": process, "cache_bytes": cache, "stream": stream, "call_s": call_seconds()}
    rates["disk"] = disk_bytes(comm)
    rates |= {"spmm_cached": spmm.cached, "spmm_memory": spmm.memory, "nonzero_s": spmm.nonzero_s}
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        rates[f"gemm_{str(dtype).removeprefix('torch.')}"] = gemm_rate(comm, dtype, stream, repeat)
    rates |= _links(comm, host_P, repeat)
    means = comm.all_reduce(np.array(list(rates.values()))) / comm.size
    rates = dict(zip(rates, means.tolist()))
    guessed = {link: getattr(load_machine("laptop"), link) for link in sorted(LINKS) if link not in rates}
    about = {"name": name, "ranks_per_host": here, "shares_cores": True, "memory_bytes": memory}
    return Machine(**about, **rates, **guessed), list(guessed)


def _links(comm: Communicator, host_P: np.ndarray, repeat: int) -> dict[str, float]:
    """Measure the links inside hosts and between them; all ranks return the same keys. Collective."""
    place = int(np.count_nonzero(host_P[: comm.rank] == host_P[comm.rank]))  # of this rank on its host
    local, remote = (
        comm.split(int(host_P[comm.rank])),
        comm.split(place),
    )  # remote: the ranks at this place of each host
    found = {}
    if (here := int(np.bincount(host_P).max())) > 1:
        measured = _link(local, repeat) if local.size > 1 else (0.0, 0.0)
        found["local_latency_s"], found["local_bandwidth"] = _mean_of_measured(comm, measured)
    if host_P.max() > 0:
        alone = _link(remote, repeat) if remote.size > 1 and place == 0 else (0.0, 0.0)
        comm.barrier()
        shared = link_bytes(remote, 0.0, repeat) if remote.size > 1 else 0.0
        found["latency_s"], found["bandwidth"] = _mean_of_measured(comm, alone)
        found["card_bandwidth"] = max(found["bandwidth"], here * _mean_of_measured(comm, (shared,))[0])
    return found


def _link(comm: Communicator, repeat: int) -> tuple[float, float]:
    """Return (latency in seconds, bytes/s per rank). Collective."""
    latency_s = latency_seconds(comm, 6 * repeat)
    return latency_s, link_bytes(comm, latency_s, repeat)


def _mean_of_measured(comm: Communicator, values: tuple[float, ...]) -> list[float]:
    """Return the mean of each value over the ranks that measured it, those where it is above 0. Collective."""
    all_PV = np.array(comm.all_gather_json(values))
    return (all_PV.sum(axis=0) / np.maximum((all_PV > 0).sum(axis=0), 1)).tolist()


def _spmm_seconds(comm: Communicator, F: int, table_bytes: float, threads: int, repeat: int, degree: int = 16) -> float:
    """Return the seconds per nonzero of a product that reads random rows of a table."""
    m = int(table_bytes) // (4 * F)
    n = min(m, 4_000_000 // (degree * max(F // 16, 1)))
    strip = m // degree  # the d-th nonzero of a row is in the d-th strip of columns, so that columns ascend
    columns = np.random.default_rng(comm.rank).integers(0, strip, (n, degree), dtype=np.int32)
    columns += np.arange(degree, dtype=np.int32) * strip
    entries = (np.full(n * degree, 0.5, np.float32), columns.ravel(), np.arange(0, n * degree + 1, degree))
    A = LocalCSR(sp.csr_array(entries, shape=(n, m)), threads=threads)
    pool = BufferPool()
    X, Z = pool.empty(m, F).fill_(1.0), pool.empty(n, F)
    return _seconds(comm, lambda: A.apply(X, Z), repeat) / A.nnz


def _seconds(comm: Communicator, function: Callable[[], object], repeat: int) -> float:
    """Return the lower quartile of repeat calls after a warm-up call; all ranks start together."""
    function()
    seconds = []
    for _ in range(repeat):
        comm.barrier()
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return float(np.quantile(seconds, 0.25))  # robust against other load on the machine
