"""runs/bench/volume prints rows and bytes that follow from one another; scripts refuse tables that they do not have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script(*words) -> str:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    argv = [
        sys.executable,
        ROOT / "runs" / "bench" / "volume",
        "--graphs",
        "sbm:n=300",
        "-k",
        "4",
        "--repeat",
        "1",
        *words,
    ]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.slow
def test_each_idea_sends_what_its_widths_say():
    record = json.loads(script("--json"))
    row, ideas = 4 * record["columns"], list(record["ideas"].values())
    assert record["baselines"] == {
        "plain": row * (300 + 16 + 16),
        "CAGNET": row * (300 + 16 + 16 + 24),
        "adjoint": row * (2 * 300 + 2 * 16),
    }
    assert ideas[:3] == [row * 4 * 16, row * 2 * 16, 4 * record["cover"] * 2 * 16]
    assert ideas[3:] == [ideas[2] // 2, record["cover"] * 2 * 20]
    assert record["cover"] < record["columns"]


@pytest.mark.full
@pytest.mark.slow
def test_the_tables_show_ratios():
    text = script()
    assert "Rows sent in one SpMM" in text and "baseline CAGNET, MB" in text and "10.4x" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stream", "pipeline"])
def test_a_table_that_a_script_does_not_have_is_refused(name):
    argv = [sys.executable, ROOT / "runs" / "bench" / name, "--only", "memory,main"]
    done = subprocess.run(argv, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "") and "argument --only: 'main'; expected some of" in done.stderr
