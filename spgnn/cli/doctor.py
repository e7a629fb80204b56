"""spgnn doctor: what this machine, launcher and MPI are good for, and what to mend; a machine file for `plan`."""

from __future__ import annotations

import socket
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..atomic import check_writable, write_text
from ..config.groups import HardwareConfig
from ..errors import ResourceError
from ..machine import host_load
from .console import folded, say, write, write_json
from .failure import explaining
from .options import Sections, complete, field_option, output_options

if TYPE_CHECKING:
    from ..cost.machines import Machine
    from ..doctor.health import Check

MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
COLOURS = {"ok": "", "warn": "yellow", "fail": "red"}


@click.command(cls=Sections)
@click.option(
    "--calibrate", shell_complete=complete, metavar="FILE", default="", help="measure longer and write a machine file"
)
@click.option("--force", is_flag=True, help="calibrate on a busy machine too")
@click.option("--full", is_flag=True, help="also send messages above 2^31 bytes; needs 9 GB")
@field_option(HardwareConfig, "threads")
@output_options
def doctor(calibrate: str, force: bool, full: bool, threads: int, as_json: bool) -> int:
    """Check launcher, ranks, threads, MPI, memory, links and speed, and print a fix for each problem.

    \b
      spgnn doctor
      mpirun -n 4 spgnn doctor --calibrate here.toml
      spgnn plan wordnet --ranks 4,16 --machine here.toml

    Start it like a training: rates and links are measured with all ranks at work. The exit code is 4 if a
    check fails.
    """
    from ..dist import world
    from ..doctor import health
    from ..errors import together

    with world() as comm, explaining():
        comm.phase = "doctor"
        if calibrate:
            together(comm, check_writable, Path(calibrate), "--calibrate", root=0)
            together(comm, _check_idle, calibrate, force)
        kernels = together(comm, health.check_kernels)
        checks = [health.check_launcher(comm), health.check_mpi(comm), health.check_memory(comm), kernels]
        machine, guessed = None, []
        if kernels.state != "fail":
            import torch

            from ..dist.launch import share_of_threads
            from ..doctor.probe import calibrate as measure_machine

            share = share_of_threads(comm)  # collective
            torch.set_num_threads(threads := threads or share)
            checks += [health.check_device(comm), health.check_threads(comm, threads)]
            checks.append(health.check_large_counts(comm, full))
            name = Path(calibrate).stem or "measured"
            machine, guessed = measure_machine(comm, name, threads, repeat=15 if calibrate else 5)
            checks += _speed(machine, guessed, comm.size)
        if comm.rank == 0:
            _show(checks, machine, as_json)
        if calibrate:
            together(comm, _write, calibrate, machine, guessed, comm.size, root=0)
        return ResourceError.exit_code if any(check.state == "fail" for check in checks) else 0


def _check_idle(calibrate: str, force: bool) -> None:
    """Raise ResourceError on a host whose load would be part of what is measured."""
    load, cores = host_load()
    if load > cores / 2 and not force:
        raise ResourceError(
            f"--calibrate {calibrate}: {socket.gethostname()} is busy: load {load:.1f} of {cores} cores; expected at most "
            f"half of the cores; wait until the machine is idle, or give --force"
        )


def _speed(machine: Machine, guessed: list[str], size: int) -> list[Check]:
    """Return the measured rates as checks, with what follows for options."""
    from ..doctor.health import Check

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


def _show(checks: list[Check], machine: Machine | None, as_json: bool) -> None:
    if as_json:
        for check in checks:
            write_json(asdict(check))
        return
    width = max(len(check.name) for check in checks)
    for check in checks:
        write(folded(check.found, f"{MARKS[check.state]}  {check.name:<{width}}  "), colour=COLOURS[check.state])
        if check.fix:
            write(folded(check.fix, f"{'':4}  {'':<{width}}  fix: "))


def _write(path: str, machine: Machine | None, guessed: list[str], size: int) -> None:
    if machine is None:
        raise ResourceError(f"--calibrate {path}: nothing was measured, as the kernels do not work")
    comment = f"Measured by `spgnn doctor --calibrate` on {size} rank(s)."
    if guessed:
        comment += f"\nNot measured, taken from `laptop`: {', '.join(guessed)}."
        several = "ranks" if "local_latency_s" in guessed else "hosts"
        say(f"{path}: {', '.join(guessed)} were not measured; start it on several {several} to measure them")
    write_text(Path(path), machine.to_toml(comment), "--calibrate")
    say(f"{path} written; `spgnn plan GRAPH --machine {path}` reads it")
