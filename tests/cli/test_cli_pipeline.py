"""partition --memory: an edge file becomes a folder of parts, out of core."""

import json
import os

import numpy as np
import pytest
from command_line import in_python
from test_cli_volume import PARTITION_KEYS, run


@pytest.fixture
def edges(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    np.random.default_rng(0).integers(0, 50, (200, 2)).astype(np.int32).tofile(tmp_path / "e.bin")
    np.save(tmp_path / "X.npy", np.ones((50, 2)))
    np.save(tmp_path / "s.npy", np.zeros(50, np.int8))
    return tmp_path / "e.bin"


def test_json_has_the_keys_of_partition_and_measure_takes_the_folder(edges, tmp_path, capsys):
    out = tmp_path / "parts"
    tables = ["--features", tmp_path / "X.npy", "--split", tmp_path / "s.npy"]
    code, text, err = run(capsys, "partition", edges, "-k", 3, *tables, "--memory", "4GB", "--out", out, "--json")
    assert code == 0 and err == ""
    report = json.loads(text)
    assert (
        set(report) == PARTITION_KEYS | {"edges", "hops", "out"}
        and report["method"] == "spring"
        and report["edges"] == 200
    )
    code, text, _ = run(capsys, "measure", edges, "--partition", out, "--json")
    assert code == 0 and json.loads(text)["total_rows"] == report["total_rows"]


@pytest.mark.parametrize("words", [[], ["--memory", "4GB"]], ids=["in memory", "out of core"])
def test_hops_give_every_part_a_halo_and_check_reads_all_of_it(edges, tmp_path, capsys, words):
    out = tmp_path / "parts"
    assert run(capsys, "partition", edges, "-k", 3, "--method", "spring", "--hops", 2, *words, "--out", out)[0] == 0
    code, text, err = run(capsys, "check", out, "--json")
    assert (
        code == 0
        and {"format": "partition", "version": 4, "k": 3, "nodes": 50, "hops": 2}.items() <= json.loads(text).items()
    )
    sums = np.load(out / "part-00001" / "halo_sums.npy")
    np.save(out / "part-00001" / "halo_sums.npy", sums + 1)
    code, _, err = run(capsys, "check", out)
    assert code == 3 and "halo_sums.npy: the SHA-256 differs" in err


@pytest.mark.parametrize("words, code, message", [
    (["--memory", "4GB"], 2, "--memory requires --out DIR"),
    (["--memory", "4GB", "--out", "OUT", "--method", "metis"], 2,
     "metis needs the graph in memory; omit --memory, or choose"),
    (["--memory", "4GB", "--out", "OUT", "--effort", "2"], 2,
     "--effort is for volume, which needs the graph in memory"),
    (["--memory", "lots", "--out", "OUT"], 2, "memory = 'lots'; expected a size such as 2GB"),
    (["--relabel"], 2, "--relabel requires --memory"),
    (["--memory", "9MB", "--out", "OUT"], 4, "memory of 9 MB is too little: the interpreter has"),
    (["--memory", "4GB", "--out", "OUT", "--features", "none.npy"], 3, "none.npy: no such file"),
])  # fmt: skip
def test_what_does_not_go_together_is_told(edges, tmp_path, capsys, words, code, message):
    found, _, err = run(capsys, "partition", edges, *[tmp_path / "parts" if word == "OUT" else word for word in words])
    assert (found, message in err) == (code, True), err
    assert not list(tmp_path.glob("*parts*"))


@pytest.mark.slow
def test_neither_torch_nor_the_edges_come_into_memory(tmp_path):
    n_nodes = 1 << 16
    with open(tmp_path / "e.bin", "wb") as file:
        for seed in range(64):
            (np.random.default_rng(seed).random((n_nodes, 2)) ** 2 * n_nodes).astype(np.int32).tofile(file)
    words = ["partition", f"{tmp_path}/e.bin", *"-k 8 --memory 90MB --json --out".split(), f"{tmp_path}/parts"]
    code = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({300 << 20}, {300 << 20}))
from spgnn.cli import main
code = main({words})
print("torch" in sys.modules)
sys.exit(code)
"""
    done = in_python(code)
    assert done.returncode == 0, done.stderr
    report, torch = done.stdout.splitlines()
    assert json.loads(report)["peak_rss_mb"] <= 90 and torch == "False"
    assert json.loads(report)["edges"] == 64 * n_nodes
