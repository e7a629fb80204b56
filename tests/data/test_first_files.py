"""What users bring first: a word about what looks like a mistake, and a way out of what is refused; their own formats."""

import json
import pickle
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
import torch
from command_line import run

import spgnn
from spgnn.data import detect_format, formats, known_formats, load_graph, read_graph, reader, save_graph
from spgnn.data.formats import FILES, foreign
from spgnn.data.gallery import path as path_graph
from spgnn.errors import FormatError, InputError, PartitionError, ResourceError, UsageError
from spgnn.graph import ColumnNames, GraphColumns, loaded_line, normalise
from spgnn.partition import PartitionFolder, load_partition, part_graph, part_to_folder, save_partition

CYCLE = "".join(f"{u} {(u + 1) % 9}\n" for u in range(9))


@pytest.fixture
def files(tmp_path):
    """Write {name: text or array} and return the folder."""

    def write(**contents):
        for name, content in contents.items():
            path = tmp_path / name.replace("__", ".")
            path.write_text(content) if isinstance(content, str) else np.save(path, content)
        return tmp_path

    return write


def notes_of(folder, name="e.txt", **parts):
    return " | ".join(load_graph(folder / name, **{key: folder / value for key, value in parts.items()}).notes())


@pytest.mark.parametrize("text, note", [
    ("0 1 1082052432\n1 2 1082056067\n", "weights of 1082052432 to 1082056067 look like times: --weight none"),
    ("0 1 1082052432000\n1 2 1082056067000\n", "look like times"),
    ("0 1 -1\n1 2 5\n2 0 -3\n", "2 of 3 weights are negative: gcn and means divide by sums"),
    ("1 2\n2 3\n3 1\n", "no edge names node 0: if the ids are from 1, number them with --relabel"),
    ("source,target,weight,timestamp\n0,1,2,1300000000\n", "columns that are not read: timestamp"),
    ("0 1 0\n1 2 5\n", "1 stored weights of 0 are no edges, and left out"), ("0 1 1082052432.5\n1 2 1\n", ""),
    ("0 1\n1 2\n", ""), ("7 9\n", ""),
])  # fmt: skip
def test_a_word_about_edges_that_look_like_a_mistake(files, text, note):
    said = notes_of(files(e__txt=text))
    assert note in said and bool(note) == bool(said)


def test_a_word_about_features_of_very_different_scale_and_training_nodes_without_edges(files):
    X = np.column_stack([np.linspace(1.3e9, 1.6e9, 9), np.linspace(0, 1, 9), np.zeros(9)])
    folder = files(e__txt="0 1\n1 2\n5 8\n", x__npy=X, z__npy=X / 1e9, s__npy=np.array([0, 1, 2, 0, 0, -1, -1, -1, 2]))
    said = notes_of(folder, features="x.npy")
    assert "features differ in scale: column 0 is up to 1.6e+09, column 1 up to 1;" in said
    assert notes_of(folder, features="z.npy") == ""
    assert notes_of(folder, split="s.npy") == "2 of 3 training nodes have no edge"


@pytest.mark.parametrize("command", ["train", "info", "check", "convert"])
def test_every_command_that_loads_says_what_it_has_read(files, capsys, command):
    folder = files(e__csv="src,dst,w,at\n0,1,2,9\n0,1,1,9\n1,2,1,9\n", y__npy=np.array([1, -1, 1]))
    more = {"train": ["--features", "ones", "--epochs", 1, "--out", "none"], "convert": [folder / "g"]}.get(command, [])
    labels = ["--labels", folder / "y.npy"] if command != "check" else []
    code, out, err = run(capsys, command, folder / "e.csv", *more, *labels)
    assert code == 0 and err.count("columns that are not read: at") == 1
    if command != "check":
        assert err.count("label -1 (1 nodes) means no label, and class 0 has no node") == 1
    if command in ("train", "info"):
        line = "e: 3 nodes, 2 edges (read in both directions), 1 duplicates merged by weight"
        assert line in err and "2 classes, no split" in err


def test_the_line_says_how_edges_are_used_and_what_there_is():
    graph = load_graph(
        ([0, 1], [1, 2]), features="identity", labels=np.array(["b", "a", "b"]), split=np.zeros((3, 2), int)
    )
    line = "graph: 2 nodes".replace("2", "3") + ", 2 edges (in: a node reads those that point to it), 3 sparse features"
    assert loaded_line(graph, "in") == f"{line}, 2 classes (a, b), 2 splits"
    assert "out: a node reads those that it points to" in loaded_line(graph.with_edges("directed"))
    assert "no features, no labels, no split" in loaded_line(load_graph("path:n=3"))


@pytest.mark.parametrize(
    "contents, parts, message",
    [
        ({"e__txt": "1 2\n2 3\n3 1\n", "x__npy": np.ones((3, 2))}, {"features": "x.npy"}, r"shape \(3, 2\), expected \(4, F\).* no edge names node 0: are its ids from 1\? see relabel"),
        ({"e__txt": "1 9\n9 700\n", "x__npy": np.ones((3, 2))}, {"features": "x.npy"}, r"expected \(701, F\): e has 701 nodes, and 3 of them have an edge: see relabel"),
        ({"e__txt": CYCLE, "y__csv": "a,b,c\n0,1,2\n"}, {"labels": "y.csv"}, r"which column\? give labels .*y.csv:COLUMN of b, c"),
        ({"e__tsv": "7\t1178999\n"}, {}, "number them without gaps: spgnn convert .*e.tsv DST --relabel"),
        ({"e__txt": "ann bob\nbob cy\n"}, {}, "e.txt:1: source is 'ann'; expected an integer from 0, or names with relabel"),
        ({"e__txt": "0 1 {'weight': 2}\n"}, {}, "edges have a dict; spgnn.load_graph"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_way_out(files, contents, parts, message):
    folder, name = files(**contents), next(iter(contents)).replace("__", ".")
    with pytest.raises(InputError, match=message):
        load_graph(folder / name, **{key: folder / value for key, value in parts.items()})


@pytest.mark.parametrize(
    "text", ["0 1 {}\n1 2 {}\n", "0.0,1.0\n1.0,2.0\n", "Source;Target;Weight\n0;1;1\n1;2;1\n", '"0","1"\n"1","2"\n']
)
def test_what_other_programs_write_is_read(files, text):
    assert load_graph(files(e__csv=text) / "e.csv").digest() == load_graph(([0, 1], [1, 2])).digest()


def test_a_matrix_that_is_symmetric_up_to_rounding_and_one_without_its_diagonal(tmp_path):
    C = np.abs(np.corrcoef(np.random.default_rng(5).standard_normal((16, 40))))
    C[3, 5] *= 1 + 4e-16
    assert load_graph(C).in_use().is_symmetric
    A = sp.csr_matrix(np.ones((3, 3)))
    A.setdiag(0)
    np.testing.assert_allclose(normalise(load_graph(A).A).toarray(), 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("name, text, expected", [
    ("g.gr", "c roads\np sp 3 3\na 1 2 5\na 2 3 7\na 1 2 1\n", [[0, 6, 0], [0, 0, 7], [0, 0, 0]]),
    ("g.col", "c map\np edge 3 2\nn 1 4\ne 1 2\ne 2 3\n", [[0, 1, 0], [1, 0, 1], [0, 1, 0]]),
    ("g.gr", "p tw 3 2\n1 2\n3 3\n", [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
    ("g.gr", "p sp 3 3\na 1 2 5\n", "1 arcs; its problem line declares 3; was the file cut off"),
    ("g.gr", "p sp 3 1\na 1 4 5\n", "g.gr:2: target 4; expected 1 to 3"),
    ("g.gr", "p sp 3 1\na 1 2\n", "g.gr:2: 3 columns; expected 4"),
    ("g.gr", "c a\np max 3 1\na 1 2 5\n", "g.gr:2: a problem 'max'; expected sp, edge, col, tw"),
    ("g.gr", "p sp 3 99999999\na 1 2 5\n", "declares 99999999 edges, more than"),
    ("g.gr", "p sp 999999999 1\na 1 2 5\n", "the problem line makes 999999999 nodes"),
    ("g.col", "c nothing\n", "no problem line; expected `p sp NODES EDGES`"),
])  # fmt: skip
def test_dimacs_is_read_and_held_against_its_problem_line(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    if isinstance(expected, list):
        assert load_graph(tmp_path / name).A.toarray().tolist() == expected
        return
    with pytest.raises(FormatError) as caught:
        load_graph(tmp_path / name)
    assert expected in str(caught.value)


WRITE = {
    "GML": lambda G, path: nx.write_gml(G, path),
    "GraphML": lambda G, path: nx.write_graphml(G, path),
    "GEXF": lambda G, path: nx.write_gexf(G, path),
    "Pajek": lambda G, path: nx.write_pajek(G, path),
    "graph6": lambda G, path: nx.write_graph6(nx.convert_node_labels_to_integers(G), path),
    "node-link JSON": lambda G, path: path.write_text(json.dumps(nx.node_link_data(G, edges="links"))),
    "pickle": lambda G, path: path.write_bytes(pickle.dumps(G)),
    "torch file": lambda G, path: torch.save(nx.to_scipy_sparse_array(G), path),
    "MATLAB file": lambda G, path: scipy.io.savemat(path, {"A": nx.to_scipy_sparse_array(G)}),
    "Feather table": lambda G, path: nx.to_pandas_edgelist(G).to_feather(path),
    "JSON lines": lambda G, path: nx.to_pandas_edgelist(G).to_json(path, lines=True, orient="records"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [name for name, *_ in FILES])
def test_a_file_of_another_program_is_named_with_the_line_that_loads_it(tmp_path, kind):
    endings = next(row[1] for row in FILES if row[0] == kind).split()
    path = tmp_path / f"four{endings[0]}"
    path.write_bytes(b"?")
    with pytest.raises(FormatError, match=f"an? {kind} file, which spgnn"):
        load_graph(path)
    if kind not in WRITE:
        return
    WRITE[kind](nx.Graph([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]), path)
    line = foreign(path).partition("which ")[2].partition(" loads in")[0].partition(", if")[0].partition(", A the")[0]
    names = {
        "spgnn": spgnn, "networkx": nx, "json": json, "pickle": pickle, "torch": torch, "scipy": scipy, "pandas": pd,
    }  # fmt: skip
    graph = eval(line, names)  # the line of the message is tried as it stands
    assert graph.n_nodes == 4 and graph.with_edges("undirected").nnz == 8
    other = tmp_path / "unknown"
    path.rename(other)
    if kind not in ("torch file", "JSON lines"):
        assert foreign(other).startswith(f"a {kind}")


def test_a_part_file_of_metis_is_an_owner(tmp_path):
    (tmp_path / "e.txt").write_text(CYCLE)
    (tmp_path / "e.graph.part.2").write_text("0\n1\n" * 4 + "1\n")
    part_to_folder(tmp_path / "e.txt", 2, tmp_path / "parts", owner=tmp_path / "e.graph.part.2", memory="16GB")
    assert load_partition(tmp_path / "parts").owner_N.tolist() == [0, 1] * 4 + [1]


@pytest.mark.parametrize("ids", [["x", "ü", ""], [7, 2**40, -3]])
def test_names_go_through_the_folders_of_graphs_and_parts(tmp_path, ids):
    graph = replace(
        load_graph("path:n=3"),
        ids=ids,
        y=np.array([0, 1, 0]),
        classes=["no", "yes"],
        X=np.eye(3)[:, :2],
        feature_names=["age", "job=cook"],
    )
    save_graph(graph, tmp_path / "g")
    part = part_graph(graph, 2, "block")
    save_partition(part, tmp_path / "parts", graph)
    save_partition(part, tmp_path / "parts", load_graph(tmp_path / "g"))  # replaces it
    folder = PartitionFolder(tmp_path / "parts")
    assert folder.ids().tolist() == load_graph(tmp_path / "g").ids.tolist() == ids
    for read in (folder, folder.graph(), load_graph(tmp_path / "g"), load_graph(tmp_path / "g").in_use()):
        names = read.names if read is folder else GraphColumns.of(read).names
        assert names == ColumnNames(("age", "job=cook"), ("no", "yes"))
    assert folder.describe()["feature_names"] == graph.describe()["feature_names"] == ["age", "job=cook"]
    save_partition(part, tmp_path / "plain", load_graph("path:n=3"))
    assert (
        PartitionFolder(tmp_path / "plain").ids() is None and PartitionFolder(tmp_path / "plain").names == ColumnNames()
    )
    next((tmp_path / "parts").glob("ids*.npy")).write_bytes(b"spoiled")
    with pytest.raises(PartitionError, match="parts.ids.*: the SHA-256 differs"):
        PartitionFolder(tmp_path / "parts").ids()


@pytest.fixture
def registry(monkeypatch):
    """A registry of this test's own."""
    monkeypatch.setattr(formats, "_registry", dict(known_formats()))
    return formats._registry


def test_a_format_of_ones_own_works_everywhere(registry, tmp_path):
    def is_lengths(path):
        """A file .len with one number."""
        return path.suffix == ".len"

    @reader("length", detect=is_lengths)
    def read_length(path, progress):
        return path_graph(int(path.read_text()))

    (tmp_path / "g.len").write_text("4")
    assert detect_format(tmp_path / "g.len") == "length"
    graph = load_graph(tmp_path / "g.len")
    assert (graph.n_nodes, graph.meta["format"], graph.meta["source"]) == (4, "length", "g.len")
    with pytest.raises(UsageError, match="'native' is already registered by spgnn.data.native"):
        reader("native", detect=is_lengths)(read_length)


@pytest.mark.parametrize("raised, expected, message", [
    (ValueError("bad digit"), FormatError, "cannot be read as odd: ValueError: bad digit"),
    (EOFError("cut"), FormatError, "cannot be read as odd: EOFError: cut"),
    (MemoryError("9 TiB"), ResourceError, "does not fit into memory: 9 TiB"),
    (FileNotFoundError(2, "No such file", "role.json"), InputError, "role.json: no such file; odd needs it"),
    (FormatError("line 3 is wrong"), FormatError, "line 3 is wrong"),
])  # fmt: skip
def test_what_a_reader_raises_becomes_an_error_for_a_person(registry, tmp_path, raised, expected, message):
    @reader("odd", detect=lambda path: False)
    def read_odd(path, progress):
        raise raised

    with pytest.raises(expected, match=message):
        read_graph(tmp_path, "odd")


def test_a_file_of_no_known_format_lists_what_was_looked_for(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(FormatError) as error:
        detect_format(tmp_path / "photo.png")
    for name, format in known_formats().items():
        assert f"{name} " in str(error.value) and format.looks_for in str(error.value)


def test_a_path_of_two_formats_asks_for_the_name(registry, tmp_path):
    reader("first", detect=lambda path: path.suffix == ".two")(lambda path, progress: path_graph(1))
    reader("second", detect=lambda path: path.suffix == ".two")(lambda path, progress: path_graph(2))
    (tmp_path / "g.two").touch()
    with pytest.raises(FormatError, match="could be first or second; name one with format"):
        load_graph(tmp_path / "g.two")
    assert load_graph(tmp_path / "g.two", format="second").n_nodes == 2


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'planetoid'"):
        read_graph(tmp_path, "planetiod")
