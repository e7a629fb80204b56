"""What tables leave to a guess, lack, or hold twice: it is said in one line, or refused with the cell and the way out."""

import pandas as pd
import pytest

from spgnn import from_pandas
from spgnn.data import convert, load_graph
from spgnn.errors import FormatError

TAKEN = "the first line ({}) was taken for "


@pytest.mark.parametrize(
    ("text", "options", "edges"),
    [
        ("ann\tlikes\tbob\nbob\tknows\tcy\n", {"source": 1, "target": 3}, [("ann", "bob"), ("bob", "cy")]),
        ("head\trelation\ttail\nann\tlikes\tbob\n", {}, [("ann", "bob")]),
        ("subject,predicate,object\nann,likes,bob\n", {}, [("ann", "bob")]),
        ("ann,bob\ncy,dan\n", {"source": 1, "target": 2}, [("ann", "bob"), ("cy", "dan")]),
        ("ann,bob\n", {}, [("ann", "bob")]),
        ("who,whom,since\nann,bob,3\n", {"source": 2, "target": 1, "weight": "none"}, [("bob", "ann")]),
        (
            "ann\tlikes\tbob\nbob\tknows\tcy\n",
            {},
            "e.csv:1: the third column is 'bob', no weight: .* source=1 target=3",
        ),
        ("head,relation,tail\nann,likes,bob\n", {"source": 4}, "no column '4' .source.; expected one of: head"),
    ],
)
def test_columns_without_a_line_of_names_have_numbers(tmp_path, text, options, edges):
    (tmp_path / "e.csv").write_text(text)
    if isinstance(edges, str):
        with pytest.raises(FormatError, match=edges):
            load_graph(tmp_path / "e.csv", relabel=True, **options)
    else:
        graph = load_graph(tmp_path / "e.csv", relabel=True, **options)
        assert sorted((graph.ids[u], graph.ids[v]) for u, v in zip(*graph.A.nonzero())) == edges


def test_a_first_row_of_nodes_is_a_row_where_a_value_of_it_comes_again(tmp_path, capsys):
    (tmp_path / "e.txt").write_text("ann bob\nbob cy\n")
    (tmp_path / "n.csv").write_text("ann,red\nbob,blue\ncy,red\n")
    graph = load_graph(tmp_path / "e.txt", relabel=True, labels=tmp_path / "n.csv")
    assert graph.classes == ("blue", "red") and graph.y.tolist() == [1, 0, 1]
    assert capsys.readouterr().err.count(TAKEN.format("ann, red") + "a row") == 1  # load_graph says it


@pytest.mark.parametrize("names, shared", [
    ("customer,product", 2), ("user_id,item_id", 2), ("userId,movieId", 2), ("src,dst", 0), ("follower,followee", 0),
    ("from_user,to_user", 0), ("node1,node2", 0), ("citing,cited", 0),
])  # fmt: skip
def test_ids_in_both_columns_of_two_kinds_are_counted(tmp_path, names, shared):
    said = [f"{shared} ids are in both columns, {' and '.join(names.split(','))}, and each is one node"] * bool(shared)
    for ids in ("1,2\n2,1\n3,4\n", "u1,u2\nu2,u1\nu3,u4\n"):
        (tmp_path / "e.csv").write_text(f"{names}\n{ids}")
        frame = pd.read_csv(tmp_path / "e.csv")
        for graph in (load_graph(tmp_path / "e.csv", relabel=True), from_pandas(frame, relabel=True)):
            assert [note.partition(":")[0] for note in graph.meta.get("notes", []) if "first line" not in note] == said
    (tmp_path / "out.konect").write_text("% bip unweighted\n% 2 2 2\n1 1\n2 1\n")
    assert "1 id is in both columns, 1 and 2" in load_graph(tmp_path / "out.konect").meta["notes"][0]


@pytest.mark.parametrize(
    "missing, fill, x", [("zero", "0", [1, 0, 4, 0]), ("mean", "the mean of the column", [1, 2.5, 4, 2.5])]
)
def test_what_is_filled_and_has_no_edge_is_counted(tmp_path, missing, fill, x):
    (tmp_path / "e.txt").write_text("a b\nb d\n")
    (tmp_path / "n.csv").write_text("id,x,z\na,1,1\nb,,1\nc,4,1\n")
    graph = load_graph(tmp_path / "e.txt", features=tmp_path / "n.csv", missing=missing, relabel=True)
    assert dict(zip(graph.ids, graph.X[:, 0].tolist())) == dict(zip("abcd", x))
    assert graph.meta["notes"] == [
        f"1 of 4 nodes have no edge: they are rows of {tmp_path}/n.csv",
        f"{tmp_path}/n.csv: features of 1 missing value of x and 1 node without a row are {fill}",
    ]
    with pytest.raises(FormatError, match="1 of 4 nodes have no row, node d first; add them"):
        load_graph(tmp_path / "e.txt", features=tmp_path / "n.csv", relabel=True)


def test_what_counts_as_no_label_is_said(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n2 3\n")
    edges = pd.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3]})
    for labels, y, note in (
        (["a", "None", "-", "NA"], [1, -1, 0, -1], "2 labels are NA, None: no label"),
        (["1", "NA", "0", "0"], [1, -1, 0, 0], "1 labels of column 'label' are NA, None or the like: no label"),
    ):
        (tmp_path / "n.csv").write_text("id,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
        graph = load_graph(tmp_path / "e.txt", labels=tmp_path / "n.csv")
        assert graph.y.tolist() == y and note in graph.meta["notes"][0]
    nodes = pd.DataFrame({"id": range(4), "label": ["a", "None", "-", "NA"]})
    graph = from_pandas(edges, nodes, label="label")
    assert graph.y.tolist() == [1, -1, 0, -1] and "2 labels are NA, None: no label" in graph.meta["notes"][0]
    assert "'-' is a class (1 nodes)" in graph.notes()[-1]
    assert load_graph(tmp_path / "e.txt", labels=["a", "None", "a", None]).meta["notes"] == [
        "labels: 1 labels are None: no label"
    ]
    (tmp_path / "n.csv").write_text("country,x\nNA,1\nDE,2\n")
    (tmp_path / "e.txt").write_text("NA DE\n")
    graph = load_graph(tmp_path / "e.txt", features=tmp_path / "n.csv", relabel=True)
    assert graph.ids.tolist() == ["DE", "NA"] and graph.X.ravel().tolist() == [2, 1]
    assert graph.meta["notes"] == [f"{tmp_path}/n.csv: column 'country' was taken for ids: --id COLUMN names another"]


@pytest.mark.parametrize("cell, said", [
    ("x3", "'x3'; expected a finite number"), ('"1,200"', "'1,200'; .* without commas: 1200, or 1.200"),
    ("4%", "'4%'; expected a finite number without %: 4"), ("۱۲", "'۱۲'; expected a finite number, of the digits 0 to 9: 12"),
])  # fmt: skip
def test_one_cell_that_is_no_number_is_named_with_its_row(tmp_path, cell, said):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    (tmp_path / "n.csv").write_text(f"id,age,x\n0,30,1\n1,{cell},1\n2,50,1\n")
    with pytest.raises(FormatError, match=f"n.csv: column 'age': row 2 is {said}"):
        load_graph(tmp_path / "e.txt", features=f"{tmp_path}/n.csv:age,x")
    edges = pd.DataFrame({"source": [0, 1, 2], "target": [1, 2, 0], "weight": [1, 2, cell.strip('"')]})
    with pytest.raises(FormatError, match="edges: weight: row 3 is " + said):
        from_pandas(edges)


@pytest.mark.parametrize("frame, first, notes", [
    ({"rank": [2, 0, 1], "f": [1, 2, 3]}, [2, 1], ["row i is node i"]), ({"f": [1.5, 2, 3]}, [1.5], ["row i is node i"]),
    ({"name of": ["u", "v", "w"], "f": [1, 2, 3]}, [1], ["row i is node i"]), ({"place": [0, 1, 2], "f": [1, 2, 3]}, [0, 1], ["row i is node i"]),
    ({"user": [1, 2, 0, 9], "f": [1, 2, 3, 4]}, [1], ["column 'user' was taken for ids", "1 of 4 nodes have no edge"]),
])  # fmt: skip
def test_nodes_without_a_column_of_ids_are_rows_in_their_order(frame, first, notes, capsys):
    graph = from_pandas(pd.DataFrame({"source": [0, 1], "target": [1, 2]}), pd.DataFrame(frame))
    assert graph.X[0].tolist() == first and (graph.ids.tolist()[:3] == [0, 1, 2]) == ("row i" in notes[0])
    said = capsys.readouterr().err
    assert all(note in said for note in notes) and "--id" not in said


def test_an_index_of_names_and_columns_of_lists_are_said(capsys):
    edges = pd.DataFrame({"source": ["a"], "target": ["b"]})
    nodes = pd.DataFrame({"f": [1, 2], "emb": [[1, 2], [3, 4]]}, index=["a", "b"])
    assert from_pandas(edges, nodes).ids.tolist() == ["a", "b"]
    assert "not read: emb (holds lists; give each entry a column of its own)" in capsys.readouterr().err
    with pytest.raises(FormatError, match="nodes: column 'emb' holds lists; give each"):
        from_pandas(edges, nodes, features=["emb"])


def test_empty_cells_of_columns_that_are_not_read_are_no_fault(tmp_path):
    (tmp_path / "e.csv").write_text("src,dst,weight,note\n0,1,2,a\n1,2,3,\n")
    assert load_graph(tmp_path / "e.csv").A.data.tolist() == [2, 3]
    for row, what in (("1,2,,a", "weight"), ("1,,3,a", "target")):
        (tmp_path / "e.csv").write_text(f"src,dst,weight,note\n0,1,2,a\n{row}\n")
        with pytest.raises(FormatError, match=f"e.csv:3: the {what} is missing; fill it, or omit the line"):
            load_graph(tmp_path / "e.csv")
    (tmp_path / "e.csv").write_text("src,dst,at\n0,1,2026-11-12\n")
    with pytest.raises(FormatError, match="e.csv:2: column 'at' is '2026-11-12'; expected a finite number$"):
        load_graph(tmp_path / "e.csv", edge_features="at")


def test_a_line_that_may_be_an_edge_and_not_names_is_noted(tmp_path):
    (tmp_path / "e.tsv").write_text("ann\tbob\nbob\tcy\n")
    graph = load_graph(tmp_path / "e.tsv", relabel=True)
    assert graph.nnz == 2 and graph.notes() == [TAKEN.format("ann, bob") + "a row, not for names of columns"]
    (tmp_path / "e.tsv").write_text("who\twhom\nann\tbob\nbob\tcy\n")
    taken = TAKEN.format("who, whom") + "names of columns: --source 1 --target 2 of `spgnn convert` reads it as an edge"
    assert load_graph(tmp_path / "e.tsv", relabel=True).notes() == [taken]
    assert load_graph(tmp_path / "e.tsv", relabel=True, source=1, target=2).nnz == 3
    convert(tmp_path / "e.tsv", tmp_path / "g", relabel=True)
    (tmp_path / "e.tsv").write_text("source\ttarget\nann\tbob\nbob\tcy\n")
    for path in (tmp_path / "e.tsv", tmp_path / "g"):
        graph = load_graph(path, relabel=True) if path.suffix else load_graph(path)
        assert not any("first line" in note for note in graph.notes())
