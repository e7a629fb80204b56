"""Text formats: what is wrong is said with file and line, and nothing is allocated for what a header declares."""

import bz2
import gzip
import lzma
import re
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import tiny_files as tiny
from hypothesis import given
from hypothesis import strategies as st
from test_readers_npz import refusal as refused

from spgnn.data import _text
from spgnn.data.formats import known_formats, read_graph
from spgnn.data.readers import text
from spgnn.data.readers.lines import EdgeLines
from spgnn.errors import FormatError, InputError

PATH = Path("some.txt")


def refusal(tmp_path, name: str, content: bytes | str, peak_mb: float = 8) -> str:
    """Write a file, read it, return the FormatError's message; the memory that it took is bounded."""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return refused(path, peak_mb, FormatError)[len(str(tmp_path)) + 1 :]


@pytest.mark.parametrize("lines, message", [
    ("0 1\n1 x\n", "e.txt:2: target is 'x'; expected an integer from 0, or names with relabel"),
    ("0 1\n# c\n\n-1 2\n", "e.txt:4: source is '-1'; expected an integer from 0"),
    ("0 1\n1.5 2\n", "e.txt:2: source is '1.5'"), ("0 1\n1\n", "e.txt:2: 1 columns; expected 2"),
    ("0 1 2 3\n", "e.txt:1: 4 columns; expected 2 or 3"), ("0 1\n0 1 5\n", "e.txt:2: 3 columns; expected 2"),
    ("0 1 nan\n", "e.txt:1: weight is 'nan'; expected a finite number"),
    ("0 1 1.0\n1 2 -inf\n", "e.txt:2: weight is '-inf'; expected a finite"),
    ("0 1 1.0\n1 2 3,5,6\n", "e.txt:2: 5 columns"), ("0 1 1e\n", "e.txt:1: weight is '1e'; expected a finite number"),
    ("0 1 1.5\n1 2 1_0\n", "e.txt:2: weight is '1_0'; expected a finite number"),
    ("0 9999999999999999999\n", "e.txt:1: target is '9999999999999999999'"),
    ("0 999999999999\n", "node id 999999999999 makes 1000000000000 nodes for 1 edges"),
    ("# only comments\n", "holds no edge"), ("0 1\n\0\0 2\n", "e.txt:2: source is '\\x00\\x00'"),
    ("", "the file is empty"),
])  # fmt: skip
def test_edge_lists_name_the_line(tmp_path, lines, message):
    assert message in refusal(tmp_path, "e.txt", lines)


@pytest.mark.parametrize("content, message", [
    ("%%MatrixMarket matrix coordinate real general\n9 9 99999999999\n1 1 1\n",
     ":2: declares 99999999999 entries, more than 68 bytes"),
    ("%%MatrixMarket matrix coordinate real general\n99999999999 99999999999 1\n1 1 1\n",
     "makes 99999999999 nodes for 1 edges"),
    ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n", "complex general is not a graph"),
    ("%%MatrixMarket matrix coordinate real skew-symmetric\n1 1 1\n", "skew-symmetric is not a graph"),
    ("%%MatrixMarket matrix array real general\n1 1\n", "array real"),
    ("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1\n", ":2: 2 rows and 3 columns"),
    ("%%MatrixMarket matrix coordinate real general\n% c\n3 3 2\n1 1 1\n4 1 1\n", ":5: row 4; expected 1 to 3"),
    ("%%MatrixMarket matrix coordinate real general\n3 3 1\n0 1 1\n", ":3: row 0; expected 1 to 3"),
    ("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n", "1 entries; its size line declares 2"),
    ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1 1\n1 2 1\n", "more entries than the 1"),
    ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1 inf\n", ":3: value is 'inf'"),
    ("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 1 1\n", ":3: 3 columns; expected 2"),
    ("%%MatrixMarket matrix coordinate real general\n% only\n", "no size line"),
    ("1 2 3\n", "is b'1 2 3'"),
])  # fmt: skip
def test_matrix_market_is_held_against_its_header(tmp_path, content, message):
    assert message in refusal(tmp_path, "m.mtx", content)


def test_matrix_market_symmetric_stores_both_ways_and_the_diagonal_once(tmp_path):
    path = tmp_path / "s.mtx"
    path.write_text("%%MatrixMarket matrix coordinate integer symmetric\n3 3 2\n2 1 5\n3 3 7\n")
    graph = read_graph(path)
    np.testing.assert_array_equal(graph.A.toarray(), [[0, 5, 0], [5, 0, 0], [0, 0, 7]])
    assert graph.meta["duplicates"] == 0


@pytest.mark.parametrize("block_bytes", [1, 9, 1 << 22])
def test_the_head_of_matrix_market_may_come_in_any_pieces(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(text.line_blocks, "__defaults__", (None, block_bytes))
    banner, comments, sizes = (
        b"%%MatrixMarket matrix coordinate pattern general\n",
        b"% c\n\n  \n%\n" * 9,
        b"3 3 2\n1 2\n2 3\n",
    )
    pack = gzip.compress
    for number, content in enumerate((
        banner + sizes, banner + comments + sizes, pack(banner + comments + sizes), pack(banner) + pack(sizes), pack(banner) + pack(comments) + pack(sizes),
        pack(banner + comments + sizes[:6]) + pack(sizes[6:]), b"".join(pack(line + b"\n") for line in (banner + comments + sizes).split(b"\n")),
    )):  # fmt: skip
        path = tmp_path / f"{number}.mtx"
        path.write_bytes(content)
        np.testing.assert_array_equal(read_graph(path).A.toarray(), [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert "m.mtx:1: is b''" in refusal(tmp_path, "m.mtx", pack(b""))
    assert "m.mtx: no size line" in refusal(tmp_path, "m.mtx", pack(banner) + pack(comments))
    assert "m.mtx:39: row 4; expected 1 to 3" in refusal(
        tmp_path, "m.mtx", pack(banner) + pack(comments) + pack(b"3 3 2\n4 2\n1 1\n")
    )


@pytest.mark.parametrize("content, message", [
    ("99999999999 1\n2\n1\n", "m.graph:1: declares 99999999999 nodes"),
    ("2 99999999999\n2\n1\n", "99999999999 edges, more than"),
    ("% c\n3 1\n2\n1\n", "lines for 2 nodes; the header declares 3"),
    ("2 1\n2\n1\n2\n", "m.graph:4: a line for a node after the 2"),
    ("2 2\n2\n1\n", "2 neighbours; expected 4 for 2 edges of the header, as METIS lists each edge at both"),
    ("2 1\n3\n1\n", "m.graph:2: neighbour 3; expected 1 to 2"),
    ("2 1\n2\n0\n", "m.graph:3: neighbour 0; expected 1 to 2"), ("3 2\n2\n3\n1 2\n", "disagree about their edge"),
    ("2 1 1\n2 5\n1 6\n", "disagree about their edge"),
    ("2 1 1\n2\n1 6\n", "m.graph:2: 1 numbers; expected 0 and then pairs"),
    ("2 1 7\n2\n1\n", "fmt 7; expected three digits"), ("2 1 1\n2 x\n1 x\n", "m.graph:2: number is 'x'"),
    ("2\n", "m.graph:1: 1 numbers; expected `n m [fmt [ncon]]`"), ("% no header\n", "no header line"),
])  # fmt: skip
def test_metis_is_held_against_its_header(tmp_path, content, message):
    assert message in refusal(tmp_path, "m.graph", content)


def test_ogb_tables_are_held_against_the_node_count(tmp_path):
    for name, rows, message in [
        ("raw/node-label", "0\n1\n", "node-label.csv.gz: 2 rows; expected 6"),
        ("raw/node-feat", "1,2\n3\n", "node-feat.csv.gz:2: 1 columns; expected 2"),
        ("raw/node-feat", "1,nan\n", "node-feat.csv.gz:1: entry is 'nan'; expected a finite"),
        ("raw/num-node-list", "6\n6\n", "num-node-list.csv.gz: 2 rows; expected one number"),
        ("raw/num-edge-list", "8\n", "edge.csv.gz: 7 edges; num-edge-list declares 8"),
        ("raw/edge", "0,1\n0,77\n0,1\n0,1\n0,1\n0,1\n0,1\n", "node ids must be 0 to 5"),
        ("split/time/train", "0\n6\n", "the split names node 6; expected 0 to 5"),
        ("split/time/valid", "0\n", "node 0 is in two parts of the split"),
    ]:
        folder = tmp_path / name.replace("/", "-") / str(len(message))
        folder.mkdir(parents=True)
        path = tiny.write_ogb(folder)
        (path / f"{name}.csv.gz").write_bytes(gzip.compress(rows.encode()))
        with pytest.raises(InputError) as caught:
            read_graph(path)
        assert message in str(caught.value)


@pytest.mark.parametrize("n_nodes", [3 * 10**7, 10**13])
def test_ogb_takes_no_memory_for_nodes_that_only_a_count_names(tmp_path, n_nodes):
    path = tiny.write_ogb(tmp_path)
    for name in ("node-label", "node-feat"):
        (path / "raw" / f"{name}.csv.gz").unlink(missing_ok=True)
    (path / "raw" / "num-node-list.csv.gz").write_bytes(gzip.compress(b"%d\n" % n_nodes))
    assert f"num-node-list makes {n_nodes} nodes for 7 edges" in refused(path, 8)


def test_graphsaint_json_is_held_against_the_node_count(tmp_path):
    for number, (name, content, message) in enumerate(
        [
            ("class_map.json", '{"0": 1}', "labels of 1 nodes; expected each of the nodes 0 to 5"),
            ("class_map.json", '{"0": 1, "1": 1, "2": 1, "3": 1, "4": 1, "x": 1}', "a key is not a node id"),
            ("class_map.json", '{"0": 1, "1": 1, "2": 1, "3": 1, "4": 1, "5": 1.5}', "label is not a list of integers"),
            (
                "class_map.json",
                '{"0": [1], "1": [0], "2": [1], "3": [1], "4": [1], "5": [1, 0]}',
                "labels of 1 to 2 classes",
            ),
            ("class_map.json", '{"0": 1, "1": 1, "2": 1, "3": 1, "4": 1, "5": -9}', "node 5 has label -9"),
            ("class_map.json", '{"0": 1, "1": 1, "2": 1, "3": 1, "4": 1, "5": 99999999}', "node 5 has label 99999999"),
            (
                "class_map.json",
                '{"0": 1, "1": 1, "2": 1, "3": 1, "4": 1, "5": 1' + "0" * 30 + "}",
                "does not fit 64 bits",
            ),
            ("role.json", '{"tr": [0], "va": [1], "te": [6]}', "the split names node 6"),
            ("role.json", '{"tr": [0], "va": [0], "te": [1]}', "node 0 is in two parts"),
            ("role.json", '{"tr": [0], "va": [1]}', "expected an object with the lists tr, va and te"),
            ("role.json", '{"tr": [0,\n "va', "role.json:2: not JSON"),
            ("role.json", "[" * 100_000, "not JSON"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = tiny.write_graphsaint(folder)
        (path / name).write_text(content)
        with pytest.raises(InputError) as caught:
            read_graph(path)
        assert message in str(caught.value)


def test_gzip_damage_is_named(tmp_path):
    whole = gzip.compress(b"".join(b"%d %d\n" % (i, i + 1) for i in range(5000)))
    assert "gzip data is cut off" in refusal(tmp_path, "cut.txt.gz", whole[:-9])
    assert "damaged gzip" in refusal(tmp_path, "crc.txt.gz", whole[:-6] + b"\0\0" + whole[-4:])
    assert "damaged gzip" in refusal(tmp_path, "after.txt.gz", whole + b"trailing")
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    refusal(tmp_path, "flip.txt.gz", bytes(flipped))


@pytest.mark.parametrize("ending, pack", [(".xz", lzma.compress), (".bz2", bz2.compress)])
def test_xz_and_bzip2_are_read_as_gzip_is(tmp_path, ending, pack):
    whole = pack(b"".join(b"%d %d\n" % (i, i + 1) for i in range(50_000)))
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(whole + pack(b"7 9\n"))
    assert read_graph(path).nnz == 50_001
    assert "data is cut off" in refusal(tmp_path, f"cut.txt{ending}", whole[:-20], peak_mb=30)
    assert ": damaged" in refusal(tmp_path, f"a.csv{ending}", whole[:300] + b"x" * 300 + whole[600:], peak_mb=30)
    bomb = pack(b"#%63s" % b"\n" * (9 << 16))  # 38 MB
    assert "unpack to more than" in refusal(tmp_path, f"bomb.txt{ending}", bomb, peak_mb=300)


@pytest.mark.slow
def test_a_gzip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    packer = zlib.compressobj(9, wbits=31)
    lines = b"#%63s" % b"\n" * (1 << 15)
    head, block = (
        packer.compress(lines) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    )  # a block can be repeated
    bomb = head + 99 * block + packer.flush()
    assert len(bomb) < 1 << 20
    said = refusal(tmp_path, "bomb.txt.gz", bomb, peak_mb=300)
    assert int(re.search(r"the first (\d+) of \d+ bytes unpack to more than", said)[1]) <= 1 << 18  # not all of it


@pytest.mark.slow
def test_a_line_without_end_is_refused(tmp_path):
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"1 " * (1 << 19)) for _ in range(40)) + packer.flush()
    assert "a line of over 1 MiB" in refusal(tmp_path, "line.txt.gz", bomb, peak_mb=300)


def test_a_line_without_end_is_refused_after_its_first_block(tmp_path):
    with open(tmp_path / "line.txt", "wb") as file:
        file.write(b"1" * (1 << 21))
        file.truncate(1 << 36)
    started = time.monotonic()
    with pytest.raises(FormatError, match="line.txt:1: a line of over 1 MiB"):
        read_graph(tmp_path / "line.txt")
    assert time.monotonic() - started < 20


def test_the_line_is_right_beyond_the_first_block(tmp_path, monkeypatch):
    monkeypatch.setattr(text.line_blocks, "__defaults__", (None, 64))
    content = "".join(f"{i} {i + 1}\n" for i in range(100)) + "oops 1\n"
    assert "e.txt:101: source is 'oops'" in refusal(tmp_path, "e.txt", content)


def test_windows_lines_a_byte_order_mark_and_a_title_are_read(tmp_path):
    path = tmp_path / "w.csv"
    path.write_bytes(b"\xef\xbb\xbfsource,target\r\n0,1\r\n1,2")
    graph = read_graph(path)
    assert graph.nnz == 2 and graph.meta["dropped_lines"] == 1
    path.write_bytes(b"\xef\xbb\xbf0,1\n1,2")
    assert read_graph(path).nnz == 2


def test_ids_with_gaps_stay_ids_and_a_header_adds_isolated_nodes(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("# Nodes: 3 Edges: 2\n0 7\n7 2\n")
    assert read_graph(path).n_nodes == 8
    path.write_text("# Nodes: 12 Edges: 2\n0 7\n7 2\n")
    assert read_graph(path).n_nodes == 12


def test_a_file_that_cannot_be_opened_is_an_input_error(tmp_path):
    for name, format in known_formats().items():
        with pytest.raises(InputError):
            format.read(tmp_path / "nowhere", None)


rows = st.lists(
    st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 999), st.floats(allow_nan=False, allow_infinity=False)),
    min_size=1,
)


@given(
    rows, st.sampled_from([" ", "\t", ",", ", ", "  \t", " ; "]), st.sampled_from(["\n", "\r\n", "\n\n", " \n# 1\n"])
)
def test_the_parser_gives_what_python_gives(rows, separator, end):
    text = end.join(separator.join(map(str, row)) for row in rows).encode()
    edges, weights = EdgeLines(3, weight=2).read(text, PATH, 1)
    assert (edges.tolist(), weights.tolist()) == ([list(row[:2]) for row in rows], [row[2] for row in rows])
    edges, weights = EdgeLines(3, source=1, target=0).read(text, PATH, 1)
    assert edges.tolist() == [[row[1], row[0]] for row in rows] and not len(weights)
    values, counts, fault = _text.read_rows(text, "#")
    assert np.frombuffer(values).tolist() == [float(value) for row in rows for value in row] and fault is None
    assert sum(np.frombuffer(counts, np.int64) == 3) == len(rows)


@given(st.binary(min_size=1, max_size=80))
def test_any_bytes_parse_or_give_a_format_error_on_a_line_that_exists(raw):
    n_lines = len(raw.split(b"\n")) - raw.endswith(b"\n")
    for count in (2, 3):
        try:
            EdgeLines(count, weight=count - 1 if count == 3 else -1).read(raw, PATH, 1)
        except FormatError as error:
            assert 1 <= int(str(error).split(":")[1]) <= n_lines
    _, counts, fault = _text.read_rows(raw, "#%")
    assert len(counts) == 8 * (n_lines if fault is None else fault[0] + 1)
