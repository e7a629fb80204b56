"""A shell completes commands, options, choices, names and files."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from spgnn import cli
from spgnn.config import PRESETS
from spgnn.config.names import FORMATS, MODELS, PARTITIONERS, SAMPLERS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("line, found", [
    ("tra", ["train"]), ("train --dev", ["--device"]), ("train --device ", ["cpu", "cuda"]),
    ("train --edges i", ["in"]), ("train --model ", list(MODELS)), ("train --sampler ", ["none", *SAMPLERS]),
    ("train --preset ", list(PRESETS)), ("train --method sp", ["spring", "spring+"]),
    ("measure g --method metis,", [f"metis,{name}" for name in PARTITIONERS]),
    ("plan g --scheme cover,b", ["cover,broadcast"]), ("convert a b --format ", list(FORMATS)),
    ("train wor", ["file:wor", "wordnet"]), ("train ", ["file:"]), ("info gr", ["file:gr", "grid"]),
    ("train g --features ", ["file:"]), ("train --config ", ["file:"]), ("plan g --machine ", ["file:"]),
    ("plan g --machine lap", ["file:lap", "laptop"]), ("info g --features de", ["file:de", "degree"]),
    ("convert wor", ["file:wor", "wordnet"]), ("convert a ", ["dir:"]), ("train g --out ", ["dir:"]),
    ("predict ", ["dir:"]), ("report a ", ["dir:"]), ("predict r --graph ", ["file:"]),
    ("doctor --calibrate ", ["file:"]), ("train --help ", ["all"]), ("train g --epochs ", []),
])  # fmt: skip
def test_a_shell_completes(line, found):
    *words, last = line.split(" ")
    completed = BashComplete(cli.spgnn, {}, "spgnn", "_SPGNN_COMPLETE").get_completions(words, last)
    assert [f"{item.type}:" * (item.type != "plain") + item.value for item in completed] == found


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_file_and_folder_is_completed(command):
    for param in cli.spgnn.get_command(None, command).params:
        is_path = bool({"FILE", "DIR", "RUN", "GRAPH", "SRC", "DST"} & set(re.findall(r"\w+", str(param.metavar))))
        completed = {item.type for item in param.shell_complete(None, "")} - {"plain"}
        assert is_path == bool(completed), param.name


@pytest.mark.parametrize(
    "shell, line", [("bash", "complete -o nosort -F"), ("zsh", "#compdef spgnn"), ("fish", "complete --no-files")]
)
def test_the_script_for_a_shell_is_written_and_is_one(shell, line):
    env = os.environ | {"PYTHONPATH": str(ROOT), "_SPGNN_COMPLETE": f"{shell}_source", "LC_ALL": "C"}
    run = subprocess.run([sys.executable, "-m", "spgnn"], capture_output=True, text=True, env=env, timeout=60)
    assert (run.returncode, run.stderr) == (0, "") and line in run.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=run.stdout, text=True, check=True, timeout=60)
