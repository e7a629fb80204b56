"""runs/bench/same_results finds every difference between the results of two checkouts, and none where there is none."""

import copy
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scripts import script

from spgnn.config.names import SAMPLERS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def same():
    return script("bench/same_results")


@pytest.fixture
def result():
    records = [{"epoch": 1, "loss": 0.1 + 0.2, "val": None, "bytes_sent": 8}, {"epoch": 2, "loss": float("nan")}]
    return {"records": records, "summary": {"test": 1.0}, "predictions": "ab"}


def test_a_loss_that_differs_in_its_last_bit_is_found(same, result):
    other = copy.deepcopy(result)
    other["records"][0]["loss"] = float(np.nextafter(0.1 + 0.2, 1))
    assert list(same.differences(result, other)) == [("records[0].loss", 0.1 + 0.2, 0.3000000000000001)]


@pytest.mark.parametrize("change, path", [
    (lambda r: r["records"].pop(), "records, length"), (lambda r: r["summary"].pop("test"), "summary.test"),
    (lambda r: r["summary"].update(nnz=3), "summary.nnz"), (lambda r: r["summary"].update(test=1), "summary.test"),
    (lambda r: r["records"][0].update(val=0.0), "records[0].val"),
    (lambda r: r.update(predictions="ac"), "predictions"),
])  # fmt: skip
def test_what_is_missing_new_or_of_another_type_is_found(same, result, change, path):
    other = copy.deepcopy(result)
    change(other)
    assert [where for where, *_ in same.differences(result, other)] == [path]


def ended(result) -> dict:
    return {"result": result, "seconds": 1.0}


def test_a_difference_that_is_explained_is_shown_and_counts_as_equal(same, result, capsys, monkeypatch):
    other = copy.deepcopy(result)
    other["summary"]["halo"] = "stale"
    monkeypatch.setattr(same, "EXPLAINED", {})
    assert not same.report("paper", ended(other), ended(result))
    monkeypatch.setattr(same, "EXPLAINED", {"pap* summary.halo": "it is always the same"})
    assert same.report("paper", ended(other), ended(result))
    assert "explained (it is always the same): summary.halo: 'stale' -> '(absent)'" in capsys.readouterr().out
    other["summary"]["test"] = 0.5
    assert not same.report("paper", ended(other), ended(result))


def test_a_case_that_ends_its_process_costs_no_other(same, tmp_path, monkeypatch):
    started = []

    def call(words, checkout, folder):
        log, names = Path(words[words.index("--worker") + 2]), words[words.index("--worker") + 4 :]
        started.append(names)
        done = names[: names.index("bad")] if "bad" in names else names
        log.write_text("".join(json.dumps({"name": name, "failed": "", "seconds": 1.0}) + "\n" for name in done))
        if "bad" in names:
            raise same.Failed("exit code 9: killed")

    monkeypatch.setattr(same, "call", call)
    found = same.run_group(["a", "bad", "b"], 2, False, ROOT, tmp_path)
    assert started == [["a", "bad", "b"], ["b"]]
    assert [("failed" in found[name]) for name in ("a", "bad", "b")] == [False, True, False]


LEVELS = {
    "family": r"--model (\w+)",
    "type": r"--dtype (\w+)",
    "graph": r"^(\{\w+\}(?: --edges \w+)?)",
    "scheme": r"--scheme (\w+)",
    "wire": r"--wire (\w+)",
}
ONE_HOP = ("gcn", "sage", "gat", "gin", "ngnn")  # families whose layers take the blocks of neighbour and labor


def levels_of(training) -> dict[str, str]:
    """The level that each factor of ARRAY has in a training."""
    found = {name: re.search(pattern, training.line) for name, pattern in LEVELS.items()}
    levels = {name: match[1] if match else "" for name, match in found.items()}
    steps = [
        *(("--sync gradients", "gradients"), ("--correct drift", "drift"), ("--mode average", "average")),
        *(("--sampler neighbour", "blocks"), ("--sampler labor", "blocks"), ("--sampler", "subgraph"), ("", "full")),
    ]
    step = next(step for option, step in steps if option in training.line)
    grid = f"{training.ranks}{'x2' * ('--replication' in training.line)}"
    return levels | {"family": levels["family"] or "gcn", "step": step, "grid": grid}


def is_possible(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether a training may have both levels."""
    levels = dict((one, other))
    if levels.get("grid") == "1" and (levels.get("scheme") or levels.get("wire")):
        return False
    if levels.get("grid", "1") != "1" and levels.get("scheme") == "":
        return False
    if levels.get("scheme") == "" and levels.get("wire"):
        return False
    if levels.get("grid") == "4x2" and levels.get("step", "full") != "full":
        return False
    return not (levels.get("step") == "blocks" and levels.get("family", "gcn") not in ONE_HOP)


def test_the_trainings_cover_each_pair_of_their_factors(same):
    rows = [levels_of(training) for training in same.same_cases.ARRAY.values()]
    levels = {name: sorted({row[name] for row in rows}) for name in rows[0]}
    assert len(levels["family"]) == 10 and len(levels["step"]) == 6 and len(levels["grid"]) == 5
    missing = [
        (one, other)
        for a, b in itertools.combinations(levels, 2)
        for one in ((a, level) for level in levels[a])
        for other in ((b, level) for level in levels[b])
        if is_possible(one, other) and not any(row[a] == one[1] and row[b] == other[1] for row in rows)
    ]
    assert not missing
    lines = " ".join(training.line for training in same.same_cases.ARRAY.values())
    assert set(re.findall(r"--sampler (\w+)", lines)) == set(SAMPLERS) and len(rows) >= 60
