"""A rank that ends by signal, exit, exception, missing memory, in every phase: all are gone in 10 seconds, and it is named."""

import ctypes
import os
import random
import re
import shutil
import signal
from pathlib import Path

from attack import FAST, GRAPH, finish, folder, need, spgnn, start

QUICK, FULL = 5, 300  # ranks that end
SECONDS = 10
ENDS = ("kill", "segv", "raise", "memory", "exit", "leave")
JOBS = {
    "full": [],
    "sampled": "--sampler walk --budget 40".split(),
    "average": "--mode average --parts 4".split(),
    "1.5D": "--replication 2".split(),
}


def attack(seed: int, amount: int):
    """End a random rank of 3 or 4 in a random phase, amount times; return how often, and what hung or named another."""
    dice, failures, longest, phases = random.Random(seed), [], 0.0, {}
    with folder() as home:
        for number in range(amount):
            job = dice.choice(list(JOBS))
            ranks = 4 if job == "1.5D" else dice.choice((3, 4))
            words = ["train", GRAPH, *FAST, "--epochs", 4, "--checkpoint-every", 0, *JOBS[job], "--out", home / "out"]
            if (job, ranks) not in phases:
                need(spgnn(*words, ranks=ranks, before=[(listen, {"to": str(home / "phases")})]))
                phases[job, ranks] = list(dict.fromkeys((home / "phases").read_text().splitlines()))
                shutil.rmtree(home / "out"), (home / "phases").unlink()
            rank, phase, how = dice.randrange(ranks), dice.choice(phases[job, ranks]), dice.choice(ENDS)
            process = start(*words, ranks=ranks, before=[(arm, {"rank": rank, "phase": phase, "how": how})])
            ended = finish(process, 60)
            about = f"{job} on {ranks} ranks, rank {rank} ends by {how} in {phase!r}"
            longest = max(longest, ended.seconds)
            failures += [f"{about}: {said}" for said in wrong(ended, process.pid, rank, how)]
            shutil.rmtree(home / "out", ignore_errors=True)
    return {
        "ranks that end": amount,
        "phases": sum(map(len, phases.values())),
        "s at most, with the start": round(longest, 1),
    }, failures


def wrong(ended, session: int, rank: int, how: str) -> list[str]:
    """Return what is wrong with the end of a job."""
    if ended.code is None:
        return [ended.fault()]
    found = [] if ended.code else ["exit code 0"]
    left = [path.name for path in Path("/proc").glob("[0-9]*") if session_of(path) == session]
    found += [f"processes left: {left}"] if left else []
    said = re.findall(r"rank (\d+)", ended.err)
    return found + ([] if str(rank) in said else [f"rank {rank} is not named: {ended.err.strip()[-400:]}"])


def session_of(path: Path) -> int:
    try:
        fields = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return int(fields[3]) if fields[0] != "Z" else -1


def on_phase(act) -> None:
    """Call act(rank, phase) whenever a rank of MPI sets its phase."""
    from spgnn.dist.job.observed import ObservedCommunicator

    usual = ObservedCommunicator.phase

    def setter(self, text):
        usual.fset(self, text)
        act(self.rank, text)

    ObservedCommunicator.phase = usual.setter(setter)


def listen(to: str) -> None:
    """Write the phases of rank 0 to a file."""

    def act(rank, phase):
        if rank == 0:
            with open(to, "a") as file:
                file.write(phase + "\n")

    on_phase(act)


def arm(rank: int, phase: str, how: str) -> None:
    """End this process when it is the rank and comes to the phase."""

    def act(own, at):
        if (own, at) != (rank, phase):
            return
        if how in ("kill", "segv"):
            os.kill(os.getpid(), signal.SIGKILL) if how == "kill" else ctypes.string_at(0)
        if how == "leave":
            os._exit(3)
        raise {"raise": ZeroDivisionError("boom"), "memory": MemoryError(), "exit": SystemExit(3)}[how]

    on_phase(act)


def plant() -> None:
    """A rank that ends waits first, and does not say who it is."""
    from spgnn.dist import base

    base.BaseCommunicator.abort = lambda self, *words, **options: os._exit(0)
