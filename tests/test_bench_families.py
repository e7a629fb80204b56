"""runs/bench/families trains every family on every graph that it names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spgnn.config.names import MODELS

SCRIPT = Path(__file__).resolve().parents[1] / "runs" / "bench" / "families"


def script(*words) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_it_has_settings_of_every_family_and_refuses_unknown_names():
    families = {"__name__": "families", "__file__": str(SCRIPT)}
    exec(SCRIPT.read_text(), families)  # a script without .py
    assert set(families["SETTINGS"]) == set(MODELS)
    refused = script("--graphs", "coar")
    assert refused.returncode == 2 and "'coar' is not known; expected some of cora," in refused.stderr


@pytest.mark.full
@pytest.mark.data
@pytest.mark.slow
def test_it_prints_the_scores_of_each_seed(data_dir):
    done = script(
        "--data", str(data_dir), "--graphs", "cora", "--models", "gcn,mlp", "--seeds", "2", "--epochs", "2", "--json"
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["model"], len(line["scores"])) for line in lines] == [("gcn", 2), ("mlp", 2)]
