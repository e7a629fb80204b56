"""METIS part files: read, written, and refused with the line."""

import numpy as np
import pytest

from spgnn.errors import FormatError, PartitionError
from spgnn.graph import graph_from_coo
from spgnn.partition import export_metis_parts, import_metis_parts, part_graph

GRAPH = graph_from_coo(np.arange(11), np.arange(1, 12))


def test_a_partition_written_for_metis_comes_back(tmp_path):
    part = part_graph(GRAPH, 3)
    path = export_metis_parts(part, tmp_path / "path.graph")
    assert path.name == "path.graph.part.3"
    assert path.read_text().split("\n")[:2] == [str(part.owner_N[0]), str(part.owner_N[1])]
    again = import_metis_parts(path, GRAPH)
    np.testing.assert_array_equal(again.owner_N, part.owner_N)
    assert again.metrics == part.metrics and again.graph_digest == part.graph_digest


def test_a_part_file_is_read_without_the_graph(tmp_path):
    path = tmp_path / "g.part.2"
    path.write_bytes(b"0\r\n1\r\n1\r\n")
    part = import_metis_parts(path, 3)
    assert part.k == 2 and part.owner_N.tolist() == [0, 1, 1] and part.metrics == {}


def test_the_number_of_parts_is_in_the_name_or_given_or_one_more_than_the_largest(tmp_path):
    (tmp_path / "parts.txt").write_text("0\n1\n2\n")
    assert import_metis_parts(tmp_path / "parts.txt", 3).k == 3
    assert import_metis_parts(tmp_path / "parts.txt", 3, k=5).k == 5
    (tmp_path / "g.part.4").write_text("0\n1\n2\n")
    assert import_metis_parts(tmp_path / "g.part.4", 3).k == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n1\nx\n", r"part.2:3: 'x'; expected one part number"),
        ("0\n-1\n1\n", r"part.2:2: '-1'; expected one part number"),
        ("0\n1.0\n1\n", r"part.2:2: '1.0'"),
        ("0 1\n1\n", r"part.2:1: '0 1'"),
        ("0\n\n1\n", r"part.2:2: ''"),
        ("0\n99999999999999999999\n1\n", r"part.2:2: '9999"),
        ("0\n2\n1\n", r"part.2:2: part 2; expected 0 to 1, as there are 2 parts"),
        ("0\n1\n", "2 lines, the graph has 3 nodes; was this partition made for another graph"),
        ("0\n1\n1\n1\n", "4 lines, the graph has 3 nodes"),
        ("", "0 lines, the graph has 3 nodes"),
        ("0\n0\n0\n", "part 1 owns no node"),
        ("0\n" * 5000, "bytes are too many for 3 nodes"),
        ("\x00\xff", "part.2:1"),
    ],
)
def test_a_part_file_that_does_not_fit_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "g.part.2"
    path.write_text(text, encoding="latin1")
    with pytest.raises((FormatError, PartitionError), match=message):
        import_metis_parts(path, 3)


def test_a_part_file_that_is_not_there_is_a_format_error(tmp_path):
    with pytest.raises(FormatError, match="nowhere.part.2: cannot be read"):
        import_metis_parts(tmp_path / "nowhere.part.2", 3)
