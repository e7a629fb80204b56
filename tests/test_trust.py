"""runs/trust: every line of it sees a fault that is planted for it. tests/test_scripts.py runs the quick table."""

import builtins
import errno
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from command_line import in_python
from scripts import RUNS, script

import spgnn
from spgnn.cli import main
from spgnn.errors import CheckpointError, ResourceError
from spgnn.experiment.checkpoint import read_manifest, write_manifest

# Line -> (amount that finds its planted fault, what its failures say of it).
PLANTS = {
    "mutated_files": (70, "KeyError"), "bombs": (256, "does not fit into memory"), "outside": (1, "wrote through a link"),
    "canaries": (400, "the pickle was run"), "bit_flips": (30, "check gave 0"), "killed": (3, "is not whole"),
    "full_disk": (1, "exit code 1, expected 0 or 4"), "short_memory": (1, "exit code 1, expected 0 or 4"),
    "lost_rank": (4, "named"), "differing_ranks": (4, "was not seen|trained|is not named"), "not_finite": (6, "expected"),
    "degenerate": (4, "ZeroDivisionError"), "hostile_names": (1, r"prints '\\x1b'"), "exact_gradients": (6, "AssertionError"),
    "predicted_bytes": (4, "Arrays are not equal"), "soak": (4, "files: "), "documented": (1, "test_the_commands_on_pages"),
    "sanitized": (1, "heap-buffer-overflow.*data race"), "wheels": (1, "convert wordnet graph ended with 3"),
}  # fmt: skip
QUICKLY = ("mutated_files", "bit_flips", "hostile_names", "predicted_bytes", "exact_gradients")  # by default too


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICKLY else pytest.mark.full) for name in PLANTS]
)
def test_a_line_sees_the_fault_that_is_planted_for_it(name, python, tmp_path):
    (number,) = (number for number, line in script("trust").LINES.items() if line == name)
    amount, said = PLANTS[name]
    words = f"--plant --only {number} --amount {amount} --json".split()
    argv = [sys.executable, RUNS / "trust", *words, tmp_path / "t"]
    limit_s = 2000 if name == "wheels" else 300  # it compiles
    env = os.environ | {"TRUST_PYTHON": python}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=limit_s)
    (line,) = json.loads((tmp_path / "t").read_text())["lines"]
    failures = line["failures"]
    assert done.returncode == 1 and re.search(said, "\n".join(failures), re.DOTALL), done.stdout + done.stderr
    assert not any("the attack itself" in failure or "left over" in failure for failure in failures), failures


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
    printed = in_python(code).stdout
    assert "(0, {'key': 0})" in printed and "(2, {'key': 2})" in printed
    assert outcome in printed or case == "None" and "(1, {'key': 1})" in printed


def test_a_warm_python_has_the_files_that_it_is_given(python):
    reading, writing = os.pipe()
    subprocess.run([python, "-c", f"import os; os.write({writing}, b'x')"], pass_fds=[writing], timeout=60)
    os.close(writing)
    with open(reading, "rb") as file:
        assert file.read() == b"x"


def test_an_array_whose_last_byte_does_not_fit_onto_the_disk_is_a_resource_error():
    """In a process of its own, whose files have at most 287 bytes: the array takes 288."""
    code = """import resource, signal, tempfile, numpy as np
from pathlib import Path
from spgnn.experiment.checkpoint import write_array
resource.setrlimit(resource.RLIMIT_FSIZE, (287, 287)), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with tempfile.TemporaryDirectory() as folder:
    write_array(Path(folder) / "x.npy", np.arange(20))"""
    done = in_python(code)
    assert "ResourceError" in done.stderr and "File too large" in done.stderr


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname"])
def test_a_sealed_manifest_that_names_a_file_elsewhere_is_refused(tmp_path, name):
    (folder := tmp_path / "epoch-000001").mkdir()
    write_manifest(folder, 1, {name: {"bytes": 1, "sha256": "0" * 64}}, {})
    with pytest.raises(CheckpointError, match="expected files of its own folder"):
        read_manifest(folder)


def test_a_name_with_a_line_break_and_long_options_are_refused(tmp_path, capsys):
    assert main(["info", "a\nspgnn: error: fake"]) == 2
    assert "spgnn: error: fake" not in capsys.readouterr().err.splitlines()
    (tmp_path / "c.toml").write_text("a." * 100_000 + "b = 1")
    assert main(["train", "sbm", "--config", str(tmp_path / "c.toml")]) == 3
    assert "options at most 32,768" in capsys.readouterr().err


def test_a_graph_that_cannot_be_mapped_for_lack_of_memory_is_a_resource_error(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    spgnn.save_graph(spgnn.load_graph("sbm:n=20,seed=0"), tmp_path / "g")
    monkeypatch.setattr(np, "memmap", refused)
    with pytest.raises(ResourceError, match="g: does not fit into memory: .*Cannot allocate memory"):
        spgnn.load_graph(tmp_path / "g")


@pytest.mark.parametrize(
    "missing", [MemoryError(), ImportError("termios.so: failed to map segment from shared object")]
)
def test_an_error_whose_report_does_not_fit_into_memory_is_one_line_and_exit_code_4(monkeypatch, capsys, missing):
    usual = builtins.__import__

    def without_memory(name, *words, **options):
        if name == "dist":
            raise missing
        return usual(name, *words, **options)

    monkeypatch.setattr(builtins, "__import__", without_memory)
    assert main(["info", "nothing.txt"]) == 4
    assert capsys.readouterr().err == "spgnn: error: out of memory: an allocation failed\n"
