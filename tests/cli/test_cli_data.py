"""convert, check and info: a file in, a native folder and a report out."""

import json

import pytest
from command_line import run

from spgnn.partition import PartitionFolder


@pytest.fixture
def edge_list(tmp_path):
    """A path of three nodes with one edge twice and one self-loop."""
    path = tmp_path / "path.txt"
    path.write_text("# a path\n0 1\n1 2\n1 2\n2 2\n")
    return path


def test_convert_prints_what_the_import_found_and_writes_a_graph_that_loads(edge_list, tmp_path, capsys):
    code, out, err = run(capsys, "convert", edge_list, tmp_path / "native")
    assert code == 0
    lines = dict(line.strip().rsplit("  ", 1) for line in out.splitlines() if "  " in line.strip())
    found = {key.strip(): value for key, value in lines.items()}
    assert (found["nodes"], found["nonzeros"], found["duplicates"], found["self-loops"]) == ("3", "3", "1", "1")
    assert "spgnn info" in err
    code, out, _ = run(capsys, "info", tmp_path / "native", "--json")
    assert code == 0
    assert (json.loads(out)["n"], json.loads(out)["nnz"]) == (3, 3)


def test_split_and_labels_of_files_are_read_by_info_check_and_partition(edge_list, tmp_path, capsys):
    (tmp_path / "nodes.csv").write_text("id,label,split\n0,red,train\n1,blue,val\n2,red,test\n")
    files = ["--labels", tmp_path / "nodes.csv", "--split", tmp_path / "nodes.csv"]
    for command in ("info", "check"):
        code, out, _ = run(capsys, command, edge_list, *files, "--json")
        report = json.loads(out)
        assert code == 0 and (report["train"], report["val"], report["test"]) == (1, 1, 1)
        assert report["class_names"] == ["blue", "red"]
    assert "class names          blue, red\n" in run(capsys, "info", edge_list, *files)[1]
    run(capsys, "convert", edge_list, tmp_path / "native", "--labels", files[1])
    code, out, _ = run(capsys, "check", tmp_path / "native", *files[2:], "--json")
    assert code == 0 and (json.loads(out)["files"], json.loads(out)["test"]) == (3, 1)
    run(capsys, "partition", edge_list, "-k", "2", "--method", "block", "--out", tmp_path / "parts", *files)
    assert PartitionFolder(tmp_path / "parts").graph().split.tolist() == [0, 1, 2]
    code, _, err = run(capsys, "info", tmp_path / "parts", *files)
    assert code == 2 and "is a partition folder, which has its own; omit it" in err


def test_info_of_parts_shows_the_graph_and_the_sizes_of_its_parts(tmp_path, capsys):
    run(capsys, "partition", "path:n=9", "--k", 2, "--method", "block", "--out", tmp_path / "parts")
    code, out, _ = run(capsys, "info", tmp_path / "parts", "--json")
    report = json.loads(out)
    assert code == 0 and (report["format"], report["k"], report["method"], report["n_nodes"]) == (
        "partition",
        2,
        "block",
        9,
    )
    assert report["smallest_part"] + report["largest_part"] == 9
