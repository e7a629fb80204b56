"""Graphs, parts, runs and options files of every release, tests/releases/*.zip, are read by this version."""

import json
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from command_line import run

RELEASES = Path(__file__).parent / "releases"
ON_NODES = ("nodes", "average", "sampled")


@pytest.fixture(params=[*sorted(RELEASES.glob("*.zip")), "here"], ids=lambda of: getattr(of, "stem", of))
def kept(request, tmp_path, monkeypatch):
    """Change to the files of a release; here: of this version, by the script that writes those of the next."""
    path = request.param
    if path == "here":
        path = tmp_path / "here.zip"
        subprocess.run([RELEASES / "write", path], check=True, capture_output=True, timeout=300)
    ZipFile(path).extractall(tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")


def losses(folder):
    lines = map(json.loads, Path(folder, "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in lines if "loss" in record]


def test_runs_of_a_release_predict_go_on_and_give_their_options(kept, capsys):
    for folder in ON_NODES:
        expected, before = np.load(f"{folder}/predictions.npy"), losses(folder)
        assert run(capsys, "predict", folder, "--out", "again.npy")[0] == 0
        np.testing.assert_array_equal(np.load("again.npy"), expected, folder)
        shutil.rmtree(f"{folder}/checkpoints/epoch-000006")
        assert run(capsys, "train", "--resume", folder)[0] == 0
        np.testing.assert_allclose(losses(folder), before, rtol=1e-9, err_msg=folder)
        graph = "parts" if folder == "average" else "graph"
        assert run(capsys, "train", graph, "--config", f"{folder}/config.toml", "--out", f"{folder}-again")[0] == 0
        np.testing.assert_allclose(losses(f"{folder}-again"), before, rtol=1e-9, err_msg=folder)
    assert run(capsys, "predict", "links", "--top", "2", "--out", "again.csv")[0] == 0
    columns = lambda path: np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 1, 2))
    np.testing.assert_allclose(columns("again.csv"), columns("links.csv"), rtol=1e-9)
