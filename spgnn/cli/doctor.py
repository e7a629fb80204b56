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
    from ..doctor.examine import examine
    from ..errors import together

    with world() as comm, explaining():
        comm.phase = "doctor"
        if calibrate:
            together(comm, check_writable, Path(calibrate), "--calibrate", root=0)
            together(comm, _check_idle, calibrate, force)
        found = examine(comm, threads, full, 15 if calibrate else 5, calibrate)
        if comm.rank == 0:
            _show(found.checks, as_json)
        if calibrate:
            together(comm, _write, calibrate, found.machine, found.guessed, comm.size, root=0)
        return 0 if found.ok else ResourceError.exit_code


def _check_idle(calibrate: str, force: bool) -> None:
    """Raise ResourceError on a host whose load would be part of what is measured."""
    load, cores = host_load()
    if load > cores / 2 and not force:
        raise ResourceError(
            f"--calibrate {calibrate}: {socket.gethostname()} is busy: load {load:.1f} of {cores} cores; expected at most "
            f"half of the cores; wait until the machine is idle, or give --force"
        )


def _show(checks: list[Check], as_json: bool) -> None:
    if as_json:
        for check in checks:
            write_json(asdict(check))
        return
    from ..doctor.examine import MARKS

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
