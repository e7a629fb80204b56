"""A whole training with `device="cuda"`, on tensors that cannot be mixed with those of the CPU (tests/separate_device.py)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def test_a_training_on_a_device_of_its_own_is_that_of_the_cpu():
    pytest.importorskip("torch.utils.backend_registration")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    run = subprocess.run(
        [sys.executable, TESTS / "separate_device.py"], env=env, capture_output=True, text=True, timeout=400
    )
    assert run.returncode == 0, run.stderr[-2000:]
    cases = [json.loads(line) for line in run.stdout.splitlines()]
    assert cases
    for name, wrong in cases:
        assert not wrong, f"{name}\n{wrong}"
