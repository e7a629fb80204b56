"""runs/trust: every line of it sees a fault that is planted for it. tests/test_scripts.py runs the quick table."""

import json
import subprocess
import sys

import pytest
from scripts import RUNS, script

# Lines whose fault is not planted: they run suites and commands of others.
ELSEWHERE = ("sanitized", "documented", "wheels")
AMOUNTS = {"mutated_files": 70, "canaries": 400, "bit_flips": 30, "hostile_names": 1, "killed": 1, "exact_gradients": 6}


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("number, name", script("trust").LINES.items())
def test_a_line_sees_the_fault_that_is_planted_for_it(number, name, tmp_path):
    if name in ELSEWHERE:
        pytest.skip("runs what has tests of its own")
    argv = [
        sys.executable,
        RUNS / "trust",
        "--plant",
        "--only",
        number,
        "--amount",
        AMOUNTS.get(name, 4),
        "--json",
        tmp_path / "t",
    ]
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=300)
    (line,) = json.loads((tmp_path / "t").read_text())["lines"]
    assert done.returncode == 1 and line["failures"], done.stdout + done.stderr
    assert not any("the attack itself" in failure for failure in line["failures"]), line["failures"]


def test_a_line_that_cannot_run_does_not_count_as_one_that_held():
    trust = script("trust")
    record = {"failures": [], "not run": "no compiler"}
    assert trust.state(record) == "not run: no compiler"
    assert trust.state(record | {"not run": ""}) == "held"
    assert trust.state(record | {"failures": ["left over: x"]}) == "FAILED"


@pytest.mark.slow
@pytest.mark.parametrize(
    "case, outcome", [("None", "ended"), ("os.abort()", "ended with -6"), ("time.sleep(60)", "no answer in 1 s")]
)
def test_a_case_that_dies_or_hangs_is_named_and_the_next_one_runs(case, outcome):
    """In a process of its own: it forks."""
    code = f"""import os, sys, time; sys.path.insert(0, {str(RUNS / "attacks")!r})
from attack import isolated
print(list(isolated(lambda key: ({case} if key == 1 else None) or dict(key=key), range(3), 1)))"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout
    assert "(0, {'key': 0})" in printed and "(2, {'key': 2})" in printed
    assert outcome in printed or case == "None" and "(1, {'key': 1})" in printed
