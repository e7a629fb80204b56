"""Kill tests: one rank of three fails, and the whole job ends in seconds, named once."""

import re

import pytest
from pairs import full_beyond
from worlds import launch_text

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

BODY = """
import ctypes, os, signal, sys, time
import numpy as np
import spgnn
from spgnn.errors import InputError
from spgnn.dist.launch import find_launcher

how, where = sys.argv[1:3]

def fail():
    if how == "raise": raise ZeroDivisionError("boom")
    if how == "input": raise InputError("graph.txt:7: node -3 is negative")
    if how == "exit": sys.exit(3)
    if how == "quit": exit(3)
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "segv": ctypes.string_at(0)
    if how == "os._exit": os._exit(3)
    if how == "leave": sys.exit(0)
    if how == "catch":
        try: sys.exit(3)
        except SystemExit: sys.exit(0)

def main():
    rank = find_launcher(os.environ).rank
    if where == "before" and rank == 1: fail()
    with spgnn.world() as comm:
        comm.phase = "loading the graph"
        if where == "set-up" and comm.rank == 1: fail()
        x = np.zeros(100)
        for epoch in range(30):
            comm.phase = f"epoch {epoch}"
            if where == "epoch" and epoch == 7 and comm.rank == 1: fail()
            comm.all_reduce(x)
            time.sleep(0.01)
    if where == "after":
        if comm.rank == 1: fail()
        time.sleep(60 if how != "catch" else 0)
    print("end", flush=True)
"""
PROGRAM = {
    "script": BODY + "\nmain()\n",
    "protected": BODY + "\nfrom spgnn.dist import run_protected\nsys.exit(run_protected(main))\n",
}
UNKNOWN = "killed, or it left without a message"  # the launcher was faster than the guard
CAUSE = {
    "raise": (1, "ZeroDivisionError: boom"),
    "input": (3, "graph.txt:7: node -3 is negative"),
    "exit": (3, r"sys\.exit\(3\)"),
    "quit": (3, r"sys\.exit\(3\)"),
    "kill": (None, f"(killed by SIGKILL|{UNKNOWN})"),
    "segv": (None, f"(killed by SIGSEGV|{UNKNOWN})"),
    "os._exit": (None, f"(the process left with exit code 3 in the middle of the job|{UNKNOWN})"),
}
PHASE = {"before": "set-up", "set-up": "loading the graph", "epoch": "epoch 7", "after": r"after spgnn.world\(\)"}


def run(tmp_path, how, where, program="script", run_by=(), **env):
    ended = launch_text(3, PROGRAM[program], tmp_path, how, where, run_by=run_by, limit_s=30, env=env)
    assert not ended.is_late and ended.seconds < 10, f"{ended.seconds:.1f} s\n{ended.err}"
    assert ended.left == []
    return ended


def named(ended) -> list[str]:
    return re.findall(r"^spgnn: .*(?:\n  rank .*)?", ended.err, re.M)


@pytest.mark.parametrize(
    "how, program, where",
    full_beyond(7, [
        ("raise", "script", "set-up"), ("exit", "mpi4py", "set-up"), ("kill", "protected", "epoch"), ("segv", "script", "epoch"),
        ("input", "script", "set-up"), ("exit", "script", "after"), ("input", "protected", "before"),
        ("raise", "mpi4py", "epoch"), ("raise", "protected", "set-up"), ("exit", "script", "epoch"), ("exit", "protected", "epoch"),
        ("kill", "script", "set-up"), ("kill", "mpi4py", "epoch"), ("os._exit", "script", "epoch"), ("quit", "script", "after"),
        ("raise", "script", "after"), ("kill", "script", "after"), ("exit", "protected", "before"),
    ]),
)  # fmt: skip
def test_a_rank_that_fails_ends_the_job_and_is_named_once(tmp_path, how, program, where):
    run_by = ("-m", "mpi4py") if program == "mpi4py" else ()
    ended = run(tmp_path, how, where, "protected" if program == "protected" else "script", run_by)
    code, cause = CAUSE[how]
    assert ended.code == code if code else ended.code != 0
    (line,) = named(ended)
    assert re.search(rf"^spgnn: (error: )?{cause}.*\n  rank 1; phase: {PHASE[where]}; host \S+, pid \d+$", line)
    assert "end" not in ended.out or where == "after"
    if how in ("raise", "exit", "kill"):
        assert ("Traceback" in ended.err) == (how == "raise" and program != "protected")


def test_a_rank_that_leaves_early_is_missed_by_the_others(tmp_path):
    ended = run(tmp_path, "leave", "epoch")
    assert ended.code != 0
    (line,) = named(ended)
    assert "rank 1 calls no more: it has left spgnn.world()" in line


def test_a_traceback_of_an_own_error_needs_debug(tmp_path):
    assert "Traceback" not in run(tmp_path, "input", "epoch").err
    assert "Traceback" in run(tmp_path, "input", "epoch", SPGNN_DEBUG="1").err


def test_a_job_that_ends_well_says_nothing(tmp_path):
    ended = run(tmp_path, "none", "none")
    assert (ended.code, ended.out.count("end"), ended.err) == (0, 3, "")


def test_an_exit_that_is_caught_after_the_world_ends_no_job(tmp_path):
    ended = run(tmp_path, "catch", "after")
    assert (ended.code, ended.out.count("end"), ended.err) == (0, 2, "")
