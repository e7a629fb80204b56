"""What stands before the first edge of a text file: in memory, as a stream and out of core it is read by one rule."""

import gzip

import numpy as np
import pytest

from spgnn.data.formats import read_graph
from spgnn.data.readers import text
from spgnn.data.readers.heads import read_head
from spgnn.errors import FormatError
from spgnn.partition import edge_stream, load_partition, part_stream, part_to_folder

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


@pytest.mark.every
@pytest.mark.parametrize("block_bytes", [7, 1 << 22])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize(
    "pack", [bytes, PACKED, lambda raw: PACKED(raw[:-8]) + PACKED(raw[-8:])], ids=["text", "gz", "two members"]
)
def test_a_header_is_read_wherever_it_stands(tmp_path, monkeypatch, head, block_bytes, pack):
    monkeypatch.setattr(text.line_blocks, "__defaults__", (None, block_bytes))
    path = tmp_path / "e.txt"
    path.write_bytes(pack(head + b"0 1\n1 2\n"))
    found = read_head(path)
    assert (found.n_nodes, found.n_edges, found.lines.count) == (10, 2, 2) and read_graph(path).n_nodes == 10
    assert np.concatenate(list(edge_stream(path).chunks())).tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_every_reader_has_the_declared_nodes(tmp_path, head):
    path = tmp_path / "e.txt"
    path.write_bytes(head + b"0 1\n1 2\n")
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


@pytest.mark.parametrize(
    "head, edges, is_said",
    [(head, b"0 1 0.5\n1 2 0.5\n", True) for head in HEADS.values()]
    + [(HEADER, b"0,1,2\n1,2,3\n", True), (HEADER, b"0 1\n1 2\n", False)],
)
def test_a_note_says_that_weights_are_not_read(tmp_path, head, edges, is_said):
    path, said = tmp_path / "e.txt", []
    if is_said:
        head = head.replace(b"source,target", b"source,target,w").replace(b"source target", b"source target w")
    path.write_bytes(head + edges)
    part_to_folder(path, 2, tmp_path / "parts", memory="16GB", note=said.append)
    assert said == [f"the third column of {path} is ignored: every edge weighs 1"] * is_said


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


@pytest.mark.parametrize(
    "lines, message",
    [
        (b",a,b\n0,5,7\n1,2,9\n", "e.csv:1: the first column has no name, so it is taken for an index, as pandas writes one; write the file with index=False"),
        (b"# made today\nUnnamed: 0,a,b\n0,5,7\n", "e.csv:2: the first column has no name"),
        (b"src,dst,weight\n5,7,\n6,7,2\n", "e.csv:1: names a third column, 'weight', which the first edge lacks; fill it"),
        (b"src dst\n5 7 1\n", "e.csv:1: names 'src', 'dst', and the first edge has 3 columns; name each"),
        (b"# c\n5 7 1 4\n", "e.csv:2: 4 columns; expected 2 or 3: source, target and perhaps a weight; name them with source=1"),
        (b"5\n", "e.csv:1: 1 columns; expected source and target"),
        (b"# Nodes: 999999999999 Edges: 1\n0 1\n", "the header makes 999999999999 nodes for 1 edges"),
    ],
)  # fmt: skip
def test_columns_that_are_no_edges_and_absurdly_many_nodes_are_refused_by_every_reader(tmp_path, lines, message):
    path = tmp_path / "e.csv"
    path.write_bytes(lines)
    for read in (
        read_graph, lambda path: part_stream(path, 2), lambda path: part_to_folder(path, 2, tmp_path / "parts", memory="16GB"),
    ):  # fmt: skip
        with pytest.raises(FormatError) as caught:
            read(path)
        assert message in str(caught.value)


@pytest.mark.parametrize("lines, weight, unread", [
    (b",src,dst\n9,0,1\n", 1, [""]), (b"\tsource\ttarget\n9\t0\t1\n", 1, [""]),
    (b'"","src","dst",w\n9,0,1,2.5\n', 2.5, [""]), (b"# made today\nUnnamed: 0,src,dst\n9,0,1\n", 1, ["Unnamed: 0"]),
    (b"src,dst,time\n0,1,1000\n", 1, ["time"]), (b"weight,src,dst\n2.5,0,1\n", 2.5, []),
    (b"Target;Source\n1;0\n", 1, []), (b"time,DST,from,value\n9,1.0,0,2.5\n", 2.5, ["time"]),
    (b"a,b,c\n0,1,7\n", 1, ["c"]),
])  # fmt: skip
def test_columns_are_found_by_their_names(tmp_path, lines, weight, unread):
    path = tmp_path / "e.csv"
    path.write_bytes(lines)
    graph = read_graph(path)
    assert (graph.nnz, graph.A[0, 1], graph.meta.get("unread", [])) == (1, weight, unread)
    assert graph.notes() == [f"columns that are not read: {name}" for name in unread if name]
    assert np.concatenate(list(edge_stream(path).chunks())).tolist() == [[0, 1]]


@pytest.mark.parametrize("lines, weight", [
    (b"src,dst,weight\n0,1,2.5\n", 2.5), (b'"from","to","W"\r\n0,1,2.5\r\n', 2.5),
    (b"source target Value\n0 1 2.5\n", 2.5), (b"0,1,2.5\n", 2.5), (b"# src dst time\n0 1 2.5\n", 2.5),
    (b"src, dst,\n0,1\n", 1), (b"\tsrc\tdst\n\t0\t1\n", 1), (b"edges of a graph\n0 1\n", 1),
    (b"node 1,node 2\n0,1\n", 1),
])  # fmt: skip
def test_the_third_column_is_the_weight_where_its_name_or_no_name_says_so(tmp_path, lines, weight):
    path = tmp_path / "e.csv"
    path.write_bytes(lines)
    A = read_graph(path).A
    assert (A.nnz, A[0, 1]) == (1, weight) and part_stream(path, 2).n_nodes == 2
