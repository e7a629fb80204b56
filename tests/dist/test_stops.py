"""A signal under a launcher: all ranks stop together, the exit code is the signal's, and the run goes on bitwise."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from worlds import launch

# Rank 1 signals itself, or the launcher, the ancestor that this test has started.
PROGRAM = """
import os, signal, sys
from spgnn.cli import main
from spgnn.dist.job.protect import JobMember

def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def set_phase(self, phase, usual=JobMember.set_phase):
    usual(self, phase)
    if self.rank == 1 and phase == os.environ["AT"]:
        pid = os.getpid()
        while os.environ["TO"] == "launcher" and parent(pid) != int(os.environ["TEST"]):
            pid = parent(pid)
        os.kill(pid, int(os.environ["SIGNAL"]))

JobMember.set_phase = set_phase
sys.exit(main())
"""
WORDS = "train sbm:n=60,classes=3,features=6,seed=1 --hidden 4 --dropout 0.3 --threads 1 --seed 1".split()


def train(tmp_path, *words, by="mpi", at="none", number=signal.SIGTERM, to="rank"):
    (tmp_path / "program.py").write_text(PROGRAM)
    program = [sys.executable, tmp_path / "program.py", *words]
    if by == "srun":
        if not shutil.which("srun") or subprocess.run(["sinfo"], capture_output=True).returncode:
            pytest.skip("no Slurm here")
        program = ["srun", "-K", "--mpi=pmi2", "-n", "2", *program]
    env = {"AT": at, "SIGNAL": str(int(number)), "TO": to, "TEST": str(os.getpid())}
    return launch(0 if by == "srun" else 2, program, env=env, by=by, cwd=tmp_path)


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    "by, number, to, code",
    [
        ("mpi", signal.SIGTERM, "rank", 75),
        ("mpi", signal.SIGUSR1, "launcher", 75),
        ("mpi", signal.SIGINT, "rank", 130),
        ("srun", signal.SIGUSR1, "rank", 75),
        ("torch", signal.SIGTERM, "rank", 1),  # torchrun's own, whatever fails
    ],
)
def test_a_signal_ends_all_ranks_with_its_exit_code_and_the_run_goes_on_bitwise(tmp_path, by, number, to, code):
    ended = train(tmp_path, *WORDS, "--epochs", "100000", "--out", "run", by=by, at="epoch 3", number=number, to=to)
    assert (ended.code, ended.left, ended.is_late) == (code, [], False), ended.err
    assert "stopped by" in ended.err and "spgnn: error" not in ended.err, ended.err
    stopped = max(int(folder.name[6:]) for folder in (tmp_path / "run/checkpoints").glob("epoch-*"))
    epochs = ["--epochs", str(stopped + 3)]
    assert train(tmp_path, "train", "--resume", "run", *epochs, by=by).code == 0
    assert train(tmp_path, *WORDS, *epochs, "--out", "whole", by=by).code == 0
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("by", ["mpi", "srun"])
def test_a_signal_before_the_first_epoch_ends_all_ranks_together(tmp_path, by):
    ended = train(tmp_path, *WORDS, "--epochs", "100000", "--out", "run", by=by, at="set-up")
    assert (ended.code, ended.left, ended.is_late) == (75, [], False), ended.err
    assert "stopped by SIGTERM before the first epoch; start it again" in ended.err
    assert "phase:" not in ended.err  # no rank has failed
