"""run_protected in one process: exit codes, one message, tracebacks on demand."""

import os
import subprocess
import sys

import pytest
from worlds import ROOT

from spgnn.dist import run_protected
from spgnn.errors import InputError, LaunchError, NumericalError, UsageError


@pytest.fixture(autouse=True)
def no_debug(monkeypatch):
    monkeypatch.setenv("SPGNN_DEBUG", "0")


def fail(error):
    def body():
        raise error

    return body


@pytest.mark.parametrize("error, code, message", [
    (UsageError("no such option"), 2, "spgnn: no such option\n"),
    (InputError("graph.txt:7: bad"), 3, "spgnn: graph.txt:7: bad\n"), (LaunchError("one job"), 4, "spgnn: one job\n"),
    (NumericalError("loss is NaN"), 5, "spgnn: loss is NaN\n"),
    (ZeroDivisionError("boom"), 1, "spgnn: ZeroDivisionError: boom\n"),
    (MemoryError("9 bytes"), 4, "spgnn: MemoryError: 9 bytes\n"), (KeyboardInterrupt(), 130, "spgnn: interrupted\n"),
    (SystemExit(3), 3, "spgnn: sys.exit(3)\n"), (SystemExit("no good"), 1, "spgnn: no good\n"), (SystemExit(0), 0, ""),
    (SystemExit(), 0, ""),
])  # fmt: skip
def test_an_error_becomes_its_exit_code_and_one_message(error, code, message, capfd):
    assert run_protected(fail(error)) == code
    assert capfd.readouterr().err == message


def test_what_the_body_returns_is_the_exit_code(capfd):
    assert run_protected(lambda: None) == 0
    assert run_protected(lambda: 2) == 2
    assert capfd.readouterr().err == ""


def test_debug_shows_the_traceback_and_the_message(capfd):
    assert run_protected(fail(InputError("bad")), debug=True) == 3
    err = capfd.readouterr().err
    assert "Traceback" in err and err.endswith("spgnn: bad\n")


def test_the_environment_is_left_as_it_was(monkeypatch):
    for before in ("1", "0", None):
        monkeypatch.setenv("SPGNN_DEBUG", before) if before else monkeypatch.delenv("SPGNN_DEBUG")
        run_protected(lambda: None, debug=True)
        assert os.environ.get("SPGNN_DEBUG") == before


def test_a_reader_that_has_gone_is_quiet():
    code = "import sys\nfrom spgnn.dist import run_protected\n"
    code += "sys.exit(run_protected(lambda: [print('x' * 999) for _ in range(9999)] and None))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(20) == 141
