"""What stands before the first edge of a text file: in memory, as a stream and out of core it is read by one rule."""

import gzip

import numpy as np
import pytest

from spgnn.data.formats import read_graph
from spgnn.data.readers import text
from spgnn.errors import FormatError
from spgnn.partition import load_partition, part_stream, part_to_folder

HEADER = b"# Nodes: 10 Edges: 2\n"
PACKED = gzip.compress
HEADS = {
    "plain": HEADER,
    "byte order mark": b"\xef\xbb\xbf" + HEADER,
    "blanks before it": b"\n \t" + HEADER,
    "after long comments": b"# " + b"c" * 70 + b"\n" + b"% more\n" * 1000 + HEADER,
    "windows lines": b"# c\r\n\r\n# Nodes: 10 Edges: 2\r\n",
    "before a title": HEADER + b"source,target\n",
    "after a title": b"# c\n\nsource target\n" + HEADER,
}


def node_counts(path, folder) -> list[int]:
    """N in memory, as a stream of each kind of method, and out of core."""
    part_to_folder(path, 2, folder / "parts", memory="16GB")
    streamed = [
        part_stream(path, 2, method, **options).n_nodes
        for method, options in (("spring", {}), ("spring", {"degrees": "online"}), ("hdrf", {}))
    ]
    return [read_graph(path).n_nodes, *streamed, load_partition(folder / "parts").n_nodes]


@pytest.mark.parametrize("block_bytes", [7, 1 << 22])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize(
    "pack", [bytes, PACKED, lambda raw: PACKED(raw[:-8]) + PACKED(raw[-8:])], ids=["text", "gz", "two members"]
)
def test_declared_nodes_are_nodes_wherever_the_header_stands(tmp_path, monkeypatch, head, block_bytes, pack):
    monkeypatch.setattr(text.line_blocks, "__defaults__", (None, block_bytes))
    path = tmp_path / "e.txt"
    path.write_bytes(pack(head + b"0 1\n1 2\n"))
    assert node_counts(path, tmp_path) == [10] * 5


def test_a_header_after_the_first_edge_is_a_comment(tmp_path):
    path = tmp_path / "e.txt"
    path.write_bytes(b"0 1\n" + HEADER + b"1 2\n")
    assert node_counts(path, tmp_path) == [3] * 5


def test_fewer_edges_than_declared_are_refused_by_every_reader(tmp_path):
    path = tmp_path / "e.txt"
    path.write_bytes(b"% c\n # Nodes: 3 Edges: 3\n0 1\n1 2\n")
    for read in (
        read_graph, lambda path: part_stream(path, 2), lambda path: part_stream(path, 2, relabel=True), lambda path: part_stream(path, 2, n_nodes=3),
        lambda path: part_to_folder(path, 2, tmp_path / "parts", memory="16GB", labels=np.zeros(3, int)),
    ):  # fmt: skip
        with pytest.raises(FormatError, match="e.txt: its header declares 3 edges, it holds 2; get the file again"):
            read(path)


@pytest.mark.parametrize(
    "content", [gzip.compress(b""), b"\xef\xbb\xbf", b"# c", b"source target\n"], ids=["gz", "mark", "comment", "title"]
)
def test_a_file_of_nothing_but_a_head_is_refused_by_every_reader(tmp_path, content):
    path = tmp_path / "e.txt"
    path.write_bytes(content)
    for read in (read_graph, lambda path: part_to_folder(path, 2, tmp_path / "parts", memory="16GB")):
        with pytest.raises(FormatError, match="e.txt: holds no edge"):
            read(path)
    assert part_stream(path, 2).n_nodes == 0


def test_absurdly_many_declared_nodes_are_refused_by_every_reader(tmp_path):
    path = tmp_path / "e.txt"
    path.write_bytes(b"# Nodes: 999999999999 Edges: 1\n0 1\n")
    for read in (
        read_graph,
        lambda path: part_stream(path, 2),
        lambda path: part_to_folder(path, 2, tmp_path / "parts", memory="16GB"),
    ):
        with pytest.raises(FormatError, match="the header makes 999999999999 nodes for 1 edges"):
            read(path)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize(
    "edges, is_said", [(b"0 1 0.5\n1 2 0.5\n", True), (b"0,1,2\n1,2,3\n", True), (b"0 1\n1 2\n", False)]
)
def test_it_is_said_that_weights_are_not_read(tmp_path, head, edges, is_said):
    path, said = tmp_path / "e.txt", []
    path.write_bytes(head + edges)
    part_to_folder(path, 2, tmp_path / "parts", memory="16GB", note=said.append)
    assert said == [f"the third column of {path} is not read: every edge weighs 1"] * is_said


@pytest.mark.parametrize("line", [b"1 2 0.5", b"1,2,0.5", b"\t1 2 #", b"1  2 \t7 \r"])
@pytest.mark.parametrize("lines", [b"0 1\n", b"0\t1\n# a comment\n", b"  0 , 1 \r\n\n"])
def test_a_weight_that_the_first_edge_has_not_is_refused_by_every_reader(tmp_path, lines, line):
    path = tmp_path / "e.txt"
    path.write_bytes(b"u v\n" + lines * 3 + line + b"\n0 1\n")
    number = 2 + 3 * lines.count(b"\n")
    for read in (read_graph, lambda path: part_stream(path, 2)):
        with pytest.raises(FormatError, match=f"e.txt:{number}: 3 columns; expected 2 as in the lines before"):
            read(path)
    path.write_bytes(b"u v\n" + lines * 3 + b"1 2 \r\n0 1\n")
    assert part_stream(path, 2).n_edges == read_graph(path).meta["duplicates"] + 2 == 5


def test_one_title_is_dropped_and_a_second_is_a_bad_line(tmp_path):
    path = tmp_path / "e.csv"
    path.write_bytes(b"\xef\xbb\xbf% c\n\nsource,target\n# c\n0,1\n")
    assert read_graph(path).meta["dropped_lines"] == 1 and part_stream(path, 1).n_edges == 1
    path.write_bytes(b"# c\nsource,target\nu,v\n0,1\n")
    for read in (read_graph, lambda path: part_stream(path, 1)):
        with pytest.raises(FormatError, match="e.csv:3: .*'u"):
            read(path)
