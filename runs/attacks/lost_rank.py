"""A rank that ends or stops, in every phase, under each launcher: all are gone in 10 seconds, rank and phase are named.

A signal to a rank or to the launcher stops all with its exit code, and --resume trains to the same losses.
"""

import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from attack import FAST, GRAPH, HERE, folder
from worlds import Launched, launch

QUICK, FULL = 3, 300  # ranks that end
SECONDS = 10
WATCHDOG_S = 4  # that a stopped rank may be missed later
CODES = {"kill": (), "segv": (), "leave": (), "raise": (1,), "memory": (4,), "exit": (3,), "stop": (70,)}  # (): not 0
NUMBERS = {"SIGTERM": 75, "SIGUSR1": 75, "SIGINT": 130}  # exit codes of a training that a signal stops
OF_LAUNCHER = {  # of what is signalled itself
    "torchrun": {"SIGTERM": 1, "SIGUSR1": -signal.SIGUSR1, "SIGINT": 1},
    "Open MPI": {"SIGTERM": 1, "SIGUSR1": 75, "SIGINT": 1},
}
JOBS = {
    "full": [],
    "sampled": "--sampler walk --budget 40".split(),
    "average": "--mode average --parts 4".split(),
    "1.5D": "--replication 2".split(),
}


def attack(seed: int, amount: int):
    """End a random rank of 3 or 4 in a random phase, amount times; return how often, and what hung or named another."""
    from spgnn.atomic import TemporaryFolder

    dice, failures, longest, phases, losses = random.Random(seed), [], 0.0, {}, {}
    with folder() as home:
        by = launchers(home)
        counts = {f"under {name}": 0 if by[name] else "none (not installed)" for name in by}
        found = [name for name in by if by[name]]
        for number in range(amount):
            job, how, name = dice.choice(list(JOBS)), dice.choice(list(CODES)), found[number % len(found)]
            ranks = 4 if job == "1.5D" else dice.choice((3, 4))
            words = ["train", GRAPH, *FAST, "--epochs", 4, "--checkpoint-every", 0, *JOBS[job], "--out", home / "out"]
            if (kind := (job, ranks, name)) not in phases:
                ended = run(by[name], ranks, words, listen, to=str(home))
                if ended.code:
                    failures.append(f"{job} on {ranks} ranks of {name}, none of which ends: {ended.err[-800:]}")
                    continue
                losses[kind] = losses_of(home / "out")
                shutil.rmtree(home / "out")
                files = [home / f"phases-{rank}" for rank in range(ranks)]
                phases[kind] = [list(dict.fromkeys(file.read_text().splitlines())) for file in files]
                [file.unlink() for file in files]
            rank = dice.randrange(ranks)
            phase = dice.choice([phase for phase in phases[kind][rank] if how != "stop" or is_watched(phase)])
            mark = home / "mark"
            words += ["--watchdog", WATCHDOG_S] if how == "stop" else []
            limit_s = SECONDS + WATCHDOG_S * (how == "stop")
            for _ in range(2):  # again where it is late: something else may have had the cores
                ended = run(by[name], ranks, words, arm, rank=rank, phase=phase, how=how, mark=str(mark))
                gone_s = time.time() - mark.stat().st_mtime if mark.exists() else float("inf")
                shutil.rmtree(home / "out", ignore_errors=True), mark.unlink(missing_ok=True)
                if gone_s <= limit_s:
                    break
            longest, counts[f"under {name}"] = max(longest, gone_s), counts[f"under {name}"] + 1
            about = f"{job} on {ranks} ranks of {name}, rank {rank} ends by {how} in {phase!r}"
            late = [f"all are gone after {gone_s:.1f} s"] if gone_s > limit_s else []
            failures += [f"{about}: {said}" for said in late + wrong(ended, rank, phase, how, name)]
        for number in range(-(-amount // 3)):
            kind = dice.choice(list(losses))
            number, to = list(NUMBERS)[number % len(NUMBERS)], dice.choice(("rank", "launcher"))
            failures += signalled(home, by[kind[2]], kind, number, to, losses[kind], dice)
            counts["signals"] = counts.get("signals", 0) + 1
    TemporaryFolder("spgnn-graph-").remove()  # removes the graphs that killed ranks left, as the next job does
    seen = {phase for kind in phases.values() for own in kind for phase in own}
    return counts | {"phases": len(seen), "s at most": round(longest, 1)}, failures


def signalled(home: Path, by: list[str], kind: tuple, name: str, to: str, losses: list, dice) -> list[str]:
    """Send a signal in an epoch, let the run go on, and return what is wrong."""
    job, ranks, launcher = kind
    words = ["train", GRAPH, *FAST, "--epochs", len(losses), *JOBS[job], "--resume", "auto", "--out", home / "out"]
    at = {"rank": dice.randrange(ranks), "phase": "epoch 2", "how": name, "mark": str(home / "mark")}
    ended = run(by, ranks, words, arm, **at, attacker=os.getpid() if to == "launcher" else 0)
    expected = 1 if launcher == "torchrun" else NUMBERS[name]
    expected = OF_LAUNCHER.get(launcher, NUMBERS)[name] if to == "launcher" else expected
    about = f"{job} on {ranks} ranks of {launcher}, {name} to {to}"
    found = [f"processes left: {ended.left}"] if ended.left else []
    if ended.is_late or ended.code != expected:
        found.append(f"exit code {ended.code}, expected {expected}: {ended.err[-400:]}")
    if "spgnn: error" in ended.err:
        found.append(f"an error: {ended.err[-400:]}")
    again = run(by, ranks, words, listen, to=str(home))
    if again.code or losses_of(home / "out") != losses:
        found.append(f"does not go on to the same losses: exit code {again.code}: {again.err[-400:]}")
    shutil.rmtree(home / "out", ignore_errors=True), (home / "mark").unlink(missing_ok=True)
    return [f"{about}: {said}" for said in found]


def losses_of(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def is_watched(phase: str) -> bool:
    """Whether the watchdog, which names a stopped rank, runs in a phase: before the training and after it does not."""
    return phase != "set-up" and "after" not in phase


def launchers(home: Path) -> dict[str, list[str]]:
    """Return name -> command line of each launcher; the number of ranks comes next. Empty: it is not installed."""
    beside = Path(os.environ.get("VIRTUAL_ENV", sys.prefix)) / "bin" / "mpirun"
    python = os.environ.get("TRUST_COLD", sys.executable)
    found = {"MPICH": [str(beside), "-n"] if beside.exists() else []}
    found["torchrun"] = [python, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    found["torchrun"] += ["--log-dir", str(home / "logs"), "--nproc-per-node"]
    mpirun, library = shutil.which("mpirun.openmpi"), os.environ.get("MPI4PY_LIBMPI")
    if mpirun and not library:
        known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
        library = next((line.split()[-1] for line in known.splitlines() if "libmpi.so.40" in line), None)
    open_mpi = ["env", f"MPI4PY_LIBMPI={library}", mpirun, "-n"]
    return found | {"Open MPI": open_mpi if mpirun and library else []}


def run(launcher: list[str], ranks: int, words: list, before, **keywords) -> Launched:
    """Run a command of spgnn on ranks, before which a function of this file is called."""
    planted = [["lost_rank", "plant", {}]] if "TRUST_PLANT" in os.environ else []
    env = {"TRUST_BEFORE": json.dumps([*planted, ["lost_rank", before.__name__, keywords]])}
    python = os.environ.get("TRUST_COLD", sys.executable)  # what a launcher ends is no fork of a warm one
    command = [*launcher, ranks, python, HERE / "child.py", *words]
    return launch(0, command, env=env, grace_s=SECONDS)


def wrong(ended: Launched, rank: int, phase: str, how: str, launcher: str) -> list[str]:
    """Return what is wrong with the end of a job."""
    if ended.is_late:
        return [f"no end in {ended.seconds:.0f} s: {ended.err[-400:]}"]
    found, codes = [f"processes left: {ended.left}"] if ended.left else [], CODES[how]
    codes = (1,) if launcher == "torchrun" else codes  # whatever fails
    if not ended.code or codes and ended.code not in codes:
        found.append(f"exit code {ended.code}, expected {codes or 'another'}: {ended.err[-400:]}")
    named = rf"rank {rank}; phase: {re.escape(phase)};"
    if how in ("memory", "raise") and (part := re.fullmatch(r"(epoch \d+), (part \d+)", phase)):
        what = {"memory": "out of memory", "raise": "ZeroDivisionError"}[how]
        named = f"rank {rank}, {part[2]}, {part[1]}: {what}|{named}"  # all have heard of it by then, or not yet
    if not re.search(f"rank {rank} gives no sign of life" if how == "stop" else named, ended.err):
        found.append(f"rank {rank} and its phase are not named: {ended.err.strip()[-600:]}")
    return found


def on_phase(act) -> None:
    """Call act(rank, phase) whenever this rank has reported a new phase, once it has joined the job."""
    from spgnn.dist.job.protect import JobMember

    usual = JobMember.set_phase

    def set_phase(self, phase):
        usual(self, phase)
        if self._line is not None:
            act(self.rank, self.phase)

    JobMember.set_phase = set_phase


def listen(to: str) -> None:
    """Write the phases of each rank to a file of its own."""

    def act(rank, phase):
        with open(f"{to}/phases-{rank}", "a") as file:
            file.write(phase + "\n")

    on_phase(act)


def arm(rank: int, phase: str, how: str, mark: str, attacker: int = 0) -> None:
    """End, stop or signal this process when it is the rank and comes to the phase; a file marks the moment.

    Args: attacker  process that has started the launcher, which gets the signal then; 0: the rank does.
    """

    def act(own, at):
        if (own, at) != (rank, phase) or os.path.exists(mark):
            return
        Path(mark).touch()
        if how in NUMBERS:
            os.kill(below(attacker) if attacker else os.getpid(), getattr(signal, how))
        elif how in ("kill", "stop"):
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        elif how == "segv":
            ctypes.string_at(0)
        elif how == "leave":
            os._exit(3)
        else:
            raise {"raise": ZeroDivisionError("boom"), "memory": MemoryError(), "exit": SystemExit(3)}[how]

    on_phase(act)


def below(attacker: int) -> int:
    """Return the ancestor of this process that the attacker has started."""
    parent = lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    pid = os.getpid()
    while (up := parent(pid)) != attacker:
        pid = up
    return pid


def plant() -> None:
    """A rank that ends does not say who it is."""
    from spgnn.dist.job import protect

    protect.report_line = lambda *words: "spgnn: error: a rank has failed\n"
