"""All checks of a doctor and the rates of its machine, on the ranks of one communicator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dist import Communicator, SelfCommunicator
from ..dist.launch import communicator_of, share_of_threads
from ..errors import together
from . import health
from .health import Check

if TYPE_CHECKING:
    from ..cost.machines import Machine

MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


@dataclass(frozen=True)
class Examination:
    """The checks, the rates that were measured, and the fields of machine that were not; print it for the table."""

    checks: list[Check]
    machine: Machine | None
    guessed: list[str]

    @property
    def ok(self) -> bool:
        """Whether no check failed; a warning is no failure."""
        return all(check.state != "fail" for check in self.checks)

    def __str__(self) -> str:
        width, lines = max(len(check.name) for check in self.checks), []
        for check in self.checks:
            lines.append(f"{MARKS[check.state]}  {check.name:<{width}}  {check.found}")
            lines += [f"{'':{width + 8}}fix: {check.fix}"] if check.fix else []
        return "\n".join(lines)


def examine(
    comm: Communicator | Any = None, threads: int = 0, full: bool = False, repeat: int = 5, calibrate: str = ""
) -> Examination:
    """Check launcher, ranks, threads, MPI, memory, links and speed, as `spgnn doctor` does, with all ranks at work.

    Args:
        comm       of spgnn.world(), run_threads, mpi4py or petsc4py; None: this process is the only rank.
        threads    of each rank; 0: its share of the host's cores, see share_of_threads.
        full       also send messages above 2^31 bytes; needs 9 GB.
        repeat     of each measurement.
        calibrate  the file whose name the machine gets; it is not written.
    Collective; all ranks return the same checks.
    """
    comm = SelfCommunicator() if comm is None else communicator_of(comm)
    kernels = together(comm, health.check_kernels)
    checks = [health.check_launcher(comm), health.check_mpi(comm), health.check_memory(comm), kernels]
    if kernels.state == "fail":
        return Examination(checks, None, [])
    import torch

    from .probe import calibrate as measure_machine

    share, before = share_of_threads(comm), torch.get_num_threads()  # collective
    threads = threads or share
    torch.set_num_threads(threads)
    try:
        checks += [health.check_device(comm), health.check_threads(comm, threads)]
        checks.append(health.check_large_counts(comm, full))
        machine, guessed = measure_machine(comm, Path(calibrate).stem or "measured", threads, repeat)
    finally:
        torch.set_num_threads(before)
    return Examination(checks + _speed(machine, guessed, comm.size), machine, guessed)


def _speed(machine: Machine, guessed: list[str], size: int) -> list[Check]:
    """Return the measured rates as checks, with what follows for options."""
    m = machine
    gemm = ", ".join(f"{name} {getattr(m, f'gemm_{name}') / 1e9:.3g}" for name in ("float32", "float64", "bfloat16"))
    slow = "; --dtype bfloat16 saves memory alone" if m.gemm_bfloat16 < m.gemm_float32 else ""
    rows = f"rows at {m.spmm_cached / 1e9:.3g} GB/s from the cache, {m.spmm_memory / 1e9:.3g} GB/s from memory"
    checks = [
        Check("dense products", "ok", f"{gemm} GFLOP/s per rank{slow}"),
        Check("sparse products", "ok", f"{rows}, {1e9 * m.nonzero_s:.2g} ns per nonzero"),
        Check("memory passes", "ok", f"{m.stream / 1e9:.3g} GB/s per rank; {1e6 * m.call_s:.3g} us per call"),
    ]
    if size > 1 and "local_latency_s" not in guessed:
        found = f"{1e6 * m.local_latency_s:.3g} us, {m.local_bandwidth / 1e9:.3g} GB/s"
        fix = "as many ranks as cores, or fewer: they wait for each other's cores" if m.local_latency_s > 1e-3 else ""
        checks.append(Check("links inside a host", "warn" if fix else "ok", found, fix))
    if "latency_s" not in guessed:
        found = f"{1e6 * m.latency_s:.3g} us, {m.bandwidth / 1e9:.3g} GB/s per rank, {m.card_bandwidth / 1e9:.3g} GB/s per host"
        is_slow = m.bandwidth < 20e6
        fix = "the fast network: is MPI on the slow one? (UCX_NET_DEVICES, FI_PROVIDER)" if is_slow else ""
        checks.append(Check("links between hosts", "warn" if fix else "ok", found, fix))
    return checks
