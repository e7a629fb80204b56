"""spgnn doctor on one process and under mpirun, and the machine file that it writes."""

import json

import pytest
from command_line import run
from worlds import launch

from spgnn.cost.machines import load_machine
from spgnn.doctor import health

CHECKS = ["launcher", "MPI", "memory", "kernels", "device", "threads"]
CHECKS += ["large messages", "dense products", "sparse products", "memory passes"]


@pytest.mark.slow
def test_one_process_is_looked_at_and_calibrated(tmp_path, capsys):
    path = tmp_path / "here.toml"
    code, out, err = run(capsys, "doctor", "--threads", "1", "--calibrate", path, "--json", "--force")
    assert code == 0
    checks = [json.loads(line) for line in out.splitlines()]
    assert [check["name"] for check in checks] == CHECKS
    assert all(set(check) == {"name", "state", "found", "fix"} for check in checks)
    assert load_machine(path).name == "here"
    assert "latency_s" in path.read_text().splitlines()[1] and "not measured" in err
    code, out, _ = run(capsys, "plan", "sbm:n=200", "--method", "block", "--ranks", "2", "--machine", path)
    assert code == 0 and out.splitlines()[1].startswith("here: 1 rank(s) per host")


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_of_a_launcher_are_looked_at_together(python):
    done = launch(2, [python, "-m", "spgnn", "doctor", "--threads", "1", "--json"])
    assert done.code == 0, done.err
    checks = {check["name"]: check for check in map(json.loads, done.out.splitlines())}
    assert set(CHECKS) < set(checks) and checks["large messages"]["state"] == "ok"
    assert "links inside a host" in checks and "2 rank(s) on 1 host(s)" in checks["launcher"]["found"]


@pytest.mark.slow
def test_a_check_that_fails_is_the_exit_code_and_names_the_fix(monkeypatch, capsys):
    monkeypatch.setattr(
        health, "check_kernels", lambda: health.Check("kernels", "fail", "no compiler", "apt-get install g++")
    )
    code, out, _ = run(capsys, "doctor")
    assert code == 4
    assert "FAIL  kernels" in out and "fix: apt-get install g++" in out
    assert "sparse products" not in out


def test_a_busy_machine_is_not_calibrated_unless_forced(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(health, "check_kernels", lambda: pytest.fail("was measured"))
    monkeypatch.setattr("spgnn.cli.doctor.host_load", lambda: (4.1, 8))
    code, _, err = run(capsys, "doctor", "--calibrate", tmp_path / "here.toml")
    assert code == 4 and "is busy: load 4.1 of 8 cores" in " ".join(err.split()) and "--force" in err


def test_a_folder_that_is_not_there_is_told_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(health, "check_kernels", lambda: pytest.fail("was measured"))
    code, _, err = run(capsys, "doctor", "--calibrate", tmp_path / "no" / "folder.toml")
    assert code == 4 and "no such folder; choose a file in a folder that can be written" in err
    code, _, err = run(capsys, "doctor", "--calibrate", tmp_path)
    assert code == 2 and "is a folder" in err
