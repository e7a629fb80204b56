"""spgnn partition and bad input: one line on stderr, the right exit code, nothing written."""

import json

import numpy as np
import pytest
from command_line import run

STREAMED = ("spring", "spring+", "dbh", "greedy", "hdrf", "2psl")
METHODS = ("block", "random", "metis", "volume", *STREAMED)


def partition(capsys, graph, *argv):
    return run(capsys, "partition", graph, *argv)


@pytest.mark.parametrize("k, said", [
    *((k, f"-k {k!r}; expected positive integers") for k in ("0", "-2", "1.5", "two")),
    ("2,4", "--out takes one partition, got --ranks 2,4 and 1 methods"), ("8193", "k = 8193; the number of parts must be an integer from 1 to 8192"),
])  # fmt: skip
def test_a_k_that_is_no_number_of_parts_exits_with_2(capsys, tmp_path, k, said):
    code, out, err = partition(capsys, "path:n=12", "-k", k, "--out", tmp_path / "parts")
    assert (code, out) == (2, "") and said in err
    assert err.startswith("spgnn: error: ") and err.count("\n") == 1 and not (tmp_path / "parts").exists()


def test_what_metis_prints_is_neither_data_nor_a_message(capfd):
    """With more parts than it can bisect into it complains by printf, on stdout."""
    code, out, err = partition(capfd, "star:n=3000", "-k", "600", "--method", "metis", "--json")
    assert code == 0 and json.loads(out)["k"] == 600 and "too many parts" not in err


@pytest.mark.parametrize("method", METHODS)
def test_self_loops_duplicates_one_direction_and_gaps_are_partitioned(capsys, tmp_path, method):
    (path := tmp_path / "edges.txt").write_text("0 1\n0 1\n1 0\n2 2\n3 4\n4 3\n7 9\n9 12\n")
    code, out, err = partition(capsys, path, "-k", 3, "--method", method, "--out", tmp_path / "parts", "--json")
    assert code == 0, err
    owner_N = np.load(tmp_path / "parts" / "owner.npy")
    assert json.loads(out)["n"] == len(owner_N) == 13 and set(owner_N) == {0, 1, 2}


def test_entropy_needs_features_and_reports_how_mixed_the_labels_are(capsys):
    code, out, err = partition(capsys, "path:n=12", "--method", "entropy")
    assert (code, out) == (3, "") and "has no features" in err and err.count("\n") == 1
    code, out, _ = partition(capsys, "sbm:n=120", *"-k 3 --method entropy -c 4 --fanout 10 --json".split())
    report = json.loads(out)
    assert code == 0 and len(report["label_entropies"]) == 3
    assert min(report["label_entropies"]) <= report["label_entropy"] <= max(report["label_entropies"])


@pytest.mark.parametrize("option", ["-c=2", "--fanout=3"])
def test_options_of_entropy_belong_to_it(capsys, option):
    code, _, err = partition(capsys, "path:n=12", "--method", "metis", *option.split("="))
    assert code == 2 and "is for --method entropy; metis has none" in err
