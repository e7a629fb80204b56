"""convert and check: what they report, what they refuse, what a kill leaves."""

import os

import numpy as np
import pytest

from spgnn.data import check, convert, load_graph, save_graph
from spgnn.data.gallery import path as path_graph
from spgnn.errors import FormatError, InputError, UsageError


@pytest.fixture
def edges(tmp_path):
    (tmp_path / "e.txt").write_text("# a comment\n0 1\n1 2\n0 1\n2 2\n5 0\n")
    return tmp_path / "e.txt"


def test_convert_reports_what_it_saw(edges, tmp_path):
    report = convert(edges, tmp_path / "g")
    expected = {"nodes": 6, "nonzeros": 4, "duplicates": 1, "self_loops": 1, "isolated": 2, "symmetric": False}
    assert expected.items() <= report.items()
    assert {"features": 0, "classes": 0, "splits": 0, "format": "edges", "name": "e"}.items() <= report.items()
    assert report["seconds"] >= 0 and "dropped_lines" in report
    assert load_graph(tmp_path / "g").digest() == load_graph(edges).digest()


def test_convert_adds_features_labels_and_split(edges, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((6, 3), np.float32))
    np.save(tmp_path / "y.npy", np.array([0, 1, 1, 0, -1, 2]))
    np.save(tmp_path / "s.npy", np.int8([0, 0, 1, 2, -1, 0]))
    report = convert(
        edges, tmp_path / "g", features=tmp_path / "x.npy", labels=tmp_path / "y.npy", split=tmp_path / "s.npy"
    )
    expected = {"features": 3, "classes": 3, "labelled": 5, "train": 3, "val": 1, "test": 1}
    assert expected.items() <= report.items()
    assert expected.items() <= check(tmp_path / "g").items()


def test_convert_refuses_a_folder_that_is_no_graph_before_it_reads(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    with pytest.raises(UsageError, match="not overwritten"):
        convert(tmp_path / "does-not-exist", tmp_path / "home")
    assert os.listdir(tmp_path / "home") == ["letter"]


def test_a_failed_convert_leaves_what_was_there(tmp_path, edges):
    convert(edges, tmp_path / "g")
    edges.write_text("0 x\n")
    with pytest.raises(FormatError, match="e.txt:1"):
        convert(edges, tmp_path / "g")
    assert check(tmp_path / "g")["nonzeros"] == 4
    with pytest.raises(InputError):
        convert(edges, tmp_path / "other")
    assert sorted(os.listdir(tmp_path)) == ["e.txt", "g"]


def test_check_verifies_the_checksums_of_a_native_folder_only(edges, tmp_path):
    save_graph(path_graph(5), tmp_path / "g")
    assert (check(tmp_path / "g")["files"], check(edges)["files"], check("path:n=5")["files"]) == (2, 0, 0)
    indices = np.load(tmp_path / "g" / "indices.npy")
    indices[0] = 3  # still a graph, but another one
    np.save(tmp_path / "g" / "indices.npy", indices)
    assert load_graph(tmp_path / "g").nnz == 8
    with pytest.raises(FormatError, match="indices.npy: SHA-256"):
        check(tmp_path / "g")
