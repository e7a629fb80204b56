"""spgnn plan: a table or JSON of what would run, and a refusal with its arithmetic."""

import json

import numpy as np
import pytest
from command_line import run

KEYS = {
    "ranks", "hosts", "method", "scheme", "replication", "bytes_per_epoch", "total_rows", "work_imbalance", "epoch_s",
    "evaluation_s", "epoch_parts_s", "memory_mb", "memory_rank", "memory_largest", "memory_parts_mb", "host_mb",
    "available_mb", "fits", "fastest",
}  # fmt: skip
GRAPH = "sbm:n=400,seed=1"
PLAN = ["plan", GRAPH, "--hidden", "8", "--method", "block", "--machine", "ethernet-1g"]


def test_every_combination_has_a_line_and_one_is_the_fastest(capsys):
    code, out, _ = run(capsys, *PLAN, "--ranks", "1,2,4", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    tiers = {"rows_between_hosts", "bytes_between_hosts"}
    assert code == 0 and all(set(line) == KEYS | (tiers if line["hosts"] > 1 else set()) for line in lines)
    found = [(line["ranks"], line["replication"], line["scheme"]) for line in lines]
    schemes = ("cover", "columns", "broadcast")
    assert found == [(1, 1, "cover"), *[(2, 1, s) for s in schemes], *[(4, c, s) for c in (1, 2) for s in schemes]]
    best = [line for line in lines if line["fastest"]]
    assert len(best) == 1 and best[0]["epoch_s"] == min(line["epoch_s"] for line in lines)
    for line in lines:
        parts = line["epoch_parts_s"]
        assert line["epoch_s"] == pytest.approx(sum(parts.values()) - 2 * parts["hidden"])


def test_a_run_that_cannot_fit_is_refused_with_the_arithmetic(capsys):
    code, out, err = run(capsys, *PLAN, "--ranks", "2", "--memory", "0.2")
    assert code == 4
    assert all(line.endswith("does not fit") for line in out.splitlines()[3:])
    assert "no run fits: the smallest (block, columns, c = 1) needs" in err and "available 200 MB" in err
    assert "GB process" in err and "most goes to process" in err
    assert "more ranks do not help" in err
    assert run(capsys, *PLAN, "--ranks", "2", "--memory", "200MB") == (code, out, err)  # a number alone is of GB


def test_a_refusal_names_the_ranks_that_would_fit(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((40_000, 100), np.float32))
    np.save(tmp_path / "y.npy", np.arange(40_000) % 4)
    argv = ["plan", "path:n=40000", "--features", tmp_path / "x.npy", "--labels", tmp_path / "y.npy"]
    argv += ["--method", "block", "--machine", "ethernet-1g", "--hidden", "2000", "--ranks", "1", "--scheme", "columns"]
    code, _, err = run(capsys, *argv, "--memory", "0.7")
    assert code == 4 and "most goes to activations and exchange buffers" in err
    ranks = int(err.split(" ranks on ")[0].split()[-1])
    assert ranks > 1 and f"{ranks} ranks on {ranks} host(s) would fit" in err
    argv[argv.index("--ranks") + 1] = ranks
    assert run(capsys, *argv, "--memory", "0.7")[0] == 0


def test_a_partition_of_more_parts_than_ranks_is_planned_merged(tmp_path, capsys):
    run(capsys, "partition", GRAPH, "-k", 6, "--method", "random", "--out", tmp_path / "p")
    folder = [*PLAN, "--partition", tmp_path / "p", "--scheme", "columns", "--json"]
    code, out, _ = run(capsys, *folder, "--ranks", "2,4,6", "--replication", "1,2")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [(line["ranks"], line["replication"]) for line in lines] == [(2, 1), (4, 1), (4, 2), (6, 1)]
    rows = [line["total_rows"] for line in lines]
    assert rows[0] < rows[1] < rows[3]
    code, _, err = run(capsys, *folder, "--ranks", "8", "--replication", "1")
    assert code == 2 and "has k = 6 parts, which do not fit --ranks 8, --replication 1: P / c is at most k" in err


def test_without_a_machine_this_host_is_taken_and_said_so(capsys):
    argv = [word for word in PLAN if word not in ("--machine", "ethernet-1g")]
    code, out, err = run(capsys, *argv, "--ranks", "2", "--scheme", "columns")
    assert code == 0 and "this host:" in out
    assert "`spgnn doctor --calibrate FILE` measures this host's" in err


@pytest.mark.parametrize("argv, code, said", [
    (["--machine", "ethernet"], 2, "did you mean 'ethernet-1g'"),
    (["--machine", "none/of.toml"], 3, "none/of.toml: no such file"),
    (["--ranks", "6", "--replication", "2"], 2, "those that work: 1"),
    (["--ranks", "none"], 2, "--ranks 'none'; expected positive integers"),
    (["--scheme", "colums"], 2, "did you mean 'columns'"), (["--scheme", ","], 2, "--scheme is empty"),
    (["--memory", "2 GBit"], 2, "--memory '2 GBit'; expected a size such as 2GB"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_would(capsys, argv, code, said):
    found, out, err = run(capsys, *PLAN, *argv)
    assert (found, out) == (code, "") and said in err


def test_a_graph_without_features_is_asked_for_them(capsys):
    code, _, err = run(capsys, "plan", "path:n=9")
    assert code == 2 and "has no features; give --features FILE" in err


def test_two_tier_has_a_line_where_several_hosts_have_several_ranks(capsys):
    argv = [*PLAN, "--ranks", "4", "--replication", "1,2", "--ranks-per-host"]
    for here, expected in (("1", 0), ("2", 1), ("4", 0)):
        lines = [json.loads(line) for line in run(capsys, *argv, here, "--json")[1].splitlines()]
        assert [line["replication"] for line in lines if line["scheme"] == "two-tier"] == [1] * expected


def test_this_host_takes_all_ranks_as_train_does_and_its_seconds_are_not_calibrated(monkeypatch, capsys):
    monkeypatch.setattr("spgnn.cost.machines.machine_file.cores", lambda: 2)
    _, out, _ = run(capsys, *PLAN[:-2], "--ranks", "3,2", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert {line["hosts"] for line in lines} == {1} and "two-tier" not in {line["scheme"] for line in lines}
    _, out, _ = run(capsys, *PLAN[:-2], "--ranks", "3")
    assert out.splitlines()[1].startswith("this host: 3 rank(s) per host") and "seconds not calibrated" in out
