"""runs/bench/same_results finds every difference between the results of two checkouts, and none where there is none."""

import copy
import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "runs" / "bench" / "same_results"


@pytest.fixture(scope="module")
def same():
    loader = SourceFileLoader("same_results", str(SCRIPT))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        loader.exec_module(module)
    return module


@pytest.fixture
def result():
    records = [{"epoch": 1, "loss": 0.1 + 0.2, "val": None, "bytes_sent": 8}, {"epoch": 2, "loss": float("nan")}]
    return {"records": records, "summary": {"test": 1.0}, "predictions": "ab"}


def test_equal_results_have_no_difference(same, result):
    assert not list(same.differences(result, copy.deepcopy(result)))


def test_a_loss_that_differs_in_its_last_bit_is_found(same, result):
    other = copy.deepcopy(result)
    other["records"][0]["loss"] = float(np.nextafter(0.1 + 0.2, 1))
    assert list(same.differences(result, other)) == [("records[0].loss", 0.1 + 0.2, 0.3000000000000001)]


@pytest.mark.parametrize(
    "change, path",
    [
        (lambda r: r["records"].pop(), "records, length"),
        (lambda r: r["summary"].pop("test"), "summary.test"),
        (lambda r: r["summary"].update(nnz=3), "summary.nnz"),
        (lambda r: r["summary"].update(test=1), "summary.test"),
        (lambda r: r["records"][0].update(val=0.0), "records[0].val"),
        (lambda r: r.update(predictions="ac"), "predictions"),
    ],
)
def test_what_is_missing_new_or_of_another_type_is_found(same, result, change, path):
    other = copy.deepcopy(result)
    change(other)
    assert [where for where, *_ in same.differences(result, other)] == [path]


def test_measured_seconds_are_left_out_at_any_depth(same):
    value = {"epoch_s": 1, "records": [{"epoch_s": 2, "loss": 3}]}
    assert same.without(same.MEASURED, value) == {"records": [{"loss": 3}]}


def test_equal_failures_are_no_proof(same, capsys):
    failure = {"failed": "exit code 3: no such file"}
    assert not same.report("cora-paper", failure, failure, "")
    assert "FAILED before: exit code 3" in capsys.readouterr().out


def test_a_batch_lists_every_differing_key(same, capsys):
    before = {line: {"exit code": 0, "lines": [{"rows": 1, "bytes": 4}]} for line in ("measure a", "measure b")}
    after = copy.deepcopy(before)
    after["measure b"]["lines"][0] |= {"rows": 2, "bytes": 8}
    assert not same.report("measure", before, after, "1 s")
    out = capsys.readouterr().out
    assert "DIFFERS in 1 of 2 combinations" in out and "spgnn measure a" not in out
    assert "lines[0].rows: 1 -> 2" in out and "lines[0].bytes: 4 -> 8" in out


@pytest.mark.parametrize("verb", ["measure", "plan"])
def test_the_combinations_are_drawn_from_a_fixed_seed(same, verb):
    options = {"measure": same.same_cases.MEASURE, "plan": same.same_cases.PLAN}[verb]
    assert same.same_cases.drawn(verb, options) == same.BATCHES[verb] and len(set(same.BATCHES[verb])) == 60


def script(*words) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if name != "SPGNN_DATA"}
    return subprocess.run([sys.executable, SCRIPT, *words], env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_a_checkout_has_its_own_results_and_not_those_of_an_altered_cache(tmp_path):
    words = [str(ROOT), "--only", "python-multilabel", "--keep", str(tmp_path)]
    done = script(*words)
    assert done.returncode == 0 and "1 cases, all equal" in done.stdout, done.stdout + done.stderr
    file = tmp_path / "python-multilabel.json"
    stored = json.loads(file.read_text())
    loss = stored["result"]["records"][1]["loss"]
    stored["result"]["records"][1]["loss"] = float(np.nextafter(loss, 0))
    file.write_text(json.dumps(stored))
    done = script(*words)
    assert done.returncode == 1 and "DIFFERS records[1].loss" in done.stdout and f"-> {loss!r}" in done.stdout


@pytest.mark.slow
def test_an_unknown_case_and_a_folder_without_code_are_refused(tmp_path):
    done = script(str(ROOT), "--only", "cora-papers")
    assert done.returncode == 2 and "argument --only: 'cora-papers'; expected some of cora-paper," in done.stderr
    done = script(str(tmp_path))
    assert done.returncode == 2 and "expected spgnn/ with compiled extensions" in done.stderr
