"""Tables of edges and nodes, from files and from pandas and pyarrow: ids are kept, gaps are counted, classes have names."""

import bz2
import decimal
import gzip
import lzma
import sys

import numpy as np
import pandas as pd
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from spgnn import from_pandas
from spgnn.data import convert, load_graph
from spgnn.data.readers.frames import BLANKS, COMMENTS, one_blank
from spgnn.data.table_columns import as_table
from spgnn.errors import FormatError, InputError, UsageError

EDGES = {"a": ["zoe", "bob", "cy"], "b": ["bob", "cy", "zoe"], "w": [1.5, 2, 3], "when": ["mon", "tue", "wed"]}
NODES = {
    "id": ["cy", "zoe", "bob", "dan"],
    "age": [30.5, 40, 50, 60],
    "city": ["ulm", "bonn", "ulm", "köln"],
    "label": ["red", "blue", None, "red"],
    "split": ["train", "val", "test", None],
}
NAMES = ["bob", "cy", "zoe"]
NO_EDGE = "1 of 4 nodes have no edge: they are rows of "
DENSE = [[0, 2, 0], [0, 0, 3], [1.5, 0, 0]]


def written(path, frame):
    """Write a table in the form that the name of the file says, columns a, b, w first."""
    frame, name = pd.DataFrame(frame), path.name
    if name.endswith(".parquet"):
        parquet.write_table(pyarrow.Table.from_pandas(frame), path)
    elif path.suffix == "":  # as Spark writes it
        path.mkdir()
        (path / "_SUCCESS").touch()
        for part in range(2):
            parquet.write_table(pyarrow.Table.from_pandas(frame[part::2]), path / f"part-{part:05d}.snappy.parquet")
    else:
        separator = {".tsv": "\t", ".txt": " "}.get("." + name.split(".")[1], ";" if "semi" in name else ",")
        raw = frame.to_csv(index=False, sep=separator, quoting=1 if "quoted" in name else 0).encode()
        pack = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
        path.write_bytes(pack(raw))
    return path


@pytest.mark.parametrize(
    "name", ["e.csv", "semi.csv", "quoted.csv.gz", "e.tsv.xz", "e.csv.bz2", "e.txt", "e.parquet", "e"]
)
def test_names_are_numbered_in_order_and_kept(tmp_path, name):
    path = written(tmp_path / name, EDGES)
    graph = load_graph(path, source="a", target="b", weight="w", relabel=True)
    assert graph.ids.tolist() == NAMES and graph.A.toarray().tolist() == DENSE
    assert graph.notes() == ["columns that are not read: when"]
    assert load_graph(path, source="b", target="a", weight="none", relabel=True).A.toarray().tolist() == [
        [0, 0, 1], [1, 0, 0], [0, 1, 0],
    ]  # fmt: skip
    convert(path, tmp_path / "g", source="a", target="b", weight="w", relabel=True)
    assert load_graph(tmp_path / "g").ids.tolist() == NAMES
    with pytest.raises(InputError, match="'(bob|zoe)'.*relabel"):
        load_graph(path, source="a", target="b")
    with pytest.raises(InputError, match=r"no column 'x' \(source\); expected one of: a, b, w, when"):
        load_graph(path, source="x", target="b")


@pytest.mark.parametrize(
    "name, text, n, ids",
    [
        ("q.csv", '"0","1"\n"1","2"\n', 3, None),
        ("q.csv", '"source","target"\n"7","900"\n"900","7"\n', 2, [7, 900]),
        ("cr.csv", "source,\rtarget\n0,1\n1,2\n", 3, None),
        ("gaps.txt", "7 900000000\n900000000 3\n", 3, [3, 7, 900000000]),
        ("n.txt", "ann bob\nbob cy\n", 3, ["ann", "bob", "cy"]),
        ("n.txt", "# names\nann   bob \n# of people\n bob cy\n", 3, ["ann", "bob", "cy"]),
        ("m.csv", "source,target\nann,1\n1,bob\n", 3, ["1", "ann", "bob"]),
        ("q.csv", 'when,src,dst\n1,"b, ann","c; ""bo"""\n2,"c; ""bo""","b, ann"\n', 2, ["b, ann", 'c; "bo"']),
        ("tags.csv", "# of, some\nsrc,dst\n#a,#b\n#b,c\n", 3, ["#a", "#b", "c"]),
        ("late.csv", "src,dst\n10,7\n07,10\n", 3, ["07", "10", "7"]),
        ("late.csv", 'src,dst\n10,7\n"7",8\n', 3, [7, 8, 10]),
        ("e.csv", "src,dst,note,w\n0,1,,2\n1,2,,3\n", 3, None),
        ("e.csv", "src,dst,note\n0,1,new york\n1,2,rome\n", 3, None),
    ],
)
def test_quotes_gaps_names_and_empty_cells_are_read(tmp_path, name, text, n, ids):
    (tmp_path / name).write_text(text)
    graph = load_graph(tmp_path / name, relabel=ids is not None)
    assert graph.n_nodes == n and graph.nnz == 2
    assert (None if graph.ids is None else graph.ids.tolist()) == ids


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".tsv.gz"])
def test_features_labels_and_split_are_found_by_id(tmp_path, ending):
    edges, nodes = written(tmp_path / "e.csv", EDGES), written(tmp_path / f"nodes{ending}", NODES)
    how = {"source": "a", "target": "b", "weight": "w", "relabel": True}
    graph = load_graph(edges, features=nodes, labels=nodes, split=nodes, **how)
    assert graph.ids.tolist() == [*NAMES, "dan"] and graph.nnz == 3  # dan has no edge
    assert graph.X.tolist() == [[50], [30.5], [40], [60]] and graph.feature_names == ("age",)
    assert graph.classes == ("blue", "red") and graph.y.tolist() == [-1, 1, 0, 1]
    assert graph.split.tolist() == [2, 0, 1, -1]
    assert graph.notes() == ["columns that are not read: when, city", NO_EDGE + str(nodes)]
    graph = load_graph(edges, features=f"{nodes}:age", one_hot="city", labels=f"{nodes}:city", **how)
    assert graph.X.tolist() == [[50, 0, 0, 1], [30.5, 0, 0, 1], [40, 1, 0, 0], [60, 0, 1, 0]]
    assert graph.classes == ("bonn", "köln", "ulm")
    assert graph.feature_names == ("age", "city=bonn", "city=köln", "city=ulm")
    assert load_graph(edges, features="ones", **how).feature_names is None
    for columns, message in (
        ("city", "column 'city' is text, such as 'ulm'; omit it, or make features of it with one_hot city"),
        ("agee", "no column 'agee'; did you mean 'age'"),
    ):
        with pytest.raises(InputError, match=message):
            load_graph(edges, features=f"{nodes}:{columns}", **how)


def test_a_table_without_a_line_of_names_has_ids_first(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    (tmp_path / "y.txt").write_text("2 5\n0 3\n1 -1\n")
    assert load_graph(tmp_path / "e.txt", labels=tmp_path / "y.txt").y.tolist() == [3, -1, 5]
    (tmp_path / "y.csv").write_text("num,when,ok\n2,7,True\n0,8,False\n1,9,\n")
    graph = load_graph(tmp_path / "e.txt", labels=f"{tmp_path}/y.csv:ok", id="num")
    assert (graph.y.tolist(), graph.classes) == ([0, -1, 1], ("False", "True"))
    (tmp_path / "x.csv").write_text("id,u,v\n3,1,0\n0,1,1\n1,0,0\n2,0,1\n")
    graph = load_graph(tmp_path / "e.txt", features="ones", labels=f"{tmp_path}/x.csv:u,v")
    assert graph.n_nodes == 4 and graph.is_multilabel and graph.y.tolist() == [[1, 1], [0, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    "nodes, options, message",
    [
        ("id,x\n0,1\n1,2\n", {}, r"1 of 3 nodes have no row, node 2 first; add them, or fill with missing zero or mean"),
        ("id,x\n0,1\n1,\n2,\n", {}, "column 'x' has no value for 2 nodes, node 1 first; fill them with missing zero or mean"),
        ("id,x\n0,1\n0,2\n2,1\n", {}, "1 ids are there more than once, 0 first, 2 times; keep one row of each"),
        ("id,x\nann,1\n ann,2\n", {}, "1 ids are there more than once, 'ann' first, 2 times"),
        ("id,x\n0,1\n,2\n2,1\n", {}, "1 ids are missing, the first in row 2; drop these rows"),
        ("id,x\nann,1\n", {}, "ids are names, such as 'ann', and the graph e has nodes 0 to 2; name the column of ids"),
        ("id,x,x\n0,1,1\n", {}, "two columns are named 'x'; rename one"),
        ("id,x\n0,1\n1,2,3\n2,1\n", {}, "n.csv:3: cannot be read as a table"),
        ("id,x\n0,1\n", {"id": "i"}, r"no column 'i' \(id\); did you mean 'id'"),
        ("id,city\n0,a\n1,b\n2,c\n", {}, "labels and split: city; name text with one_hot"),
        ("id,city\n0,a\n1,\n2,c\n", {"one_hot": "city"}, "has no value for 1 nodes; missing zero makes them 0"),
        ("id,x\n99999999999,1\n", {}, "node id 99999999999 makes"),
    ],
)  # fmt: skip
def test_what_a_table_lacks_is_counted(tmp_path, nodes, options, message):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    (tmp_path / "n.csv").write_text(nodes)
    with pytest.raises(InputError, match=message):
        load_graph(tmp_path / "e.txt", features=tmp_path / "n.csv", **options)


def test_a_table_of_labels_may_have_nodes_that_edges_and_features_have_not(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    (tmp_path / "x.csv").write_text("id,x\n0,1\n1,2\n2,3\n")
    (tmp_path / "y.csv").write_text("id,label\n4,1\n0,1\n")
    parts = {"features": tmp_path / "x.csv", "labels": tmp_path / "y.csv"}
    with pytest.raises(InputError, match="x.csv: 2 of 5 nodes have no row, node 3 first"):
        load_graph(tmp_path / "e.txt", **parts)
    graph = load_graph(tmp_path / "e.txt", missing="zero", **parts)
    assert graph.y.tolist() == [1, -1, -1, -1, 1] and graph.X.ravel().tolist() == [1, 2, 3, 0, 0]


def test_gaps_are_filled_by_a_named_rule(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n2 3\n")
    (tmp_path / "n.csv").write_text("id,x,c\n0,1,a\n1,,b\n2,4,\n")
    graph = load_graph(tmp_path / "e.txt", features=f"{tmp_path}/n.csv:c", one_hot="c", missing="zero")
    assert graph.X.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


@pytest.mark.parametrize("make", [pd.DataFrame, pyarrow.table], ids=["pandas", "pyarrow"])
def test_a_frame_of_nodes_gives_their_order_and_ids(make):
    edges, nodes = make(EDGES), make(NODES)
    graph = from_pandas(edges, nodes, source="a", target="b", weight="w", label="label", split="split")
    assert graph.ids.tolist() == NODES["id"] and graph.X.ravel().tolist() == NODES["age"]
    assert graph.A[1, 2] == 1.5 and graph.classes == ("blue", "red") and graph.y.tolist() == [1, 0, -1, 1]
    assert graph.split.tolist() == [0, 1, 2, -1] and graph.notes() == [
        "columns that are not read: when, city",
        f"{NO_EDGE}nodes",
    ]
    graph = from_pandas(edges, source="a", target="b", weight="none")
    assert graph.ids.tolist() == NAMES and graph.A.data.tolist() == [1, 1, 1]
    whole = make({"source": [5, 0, 5], "target": [0, 5, 0], "weight": [1, 2, 3]})
    assert from_pandas(whole).n_nodes == 6 and from_pandas(whole, relabel=True).ids.tolist() == [0, 5]
    assert from_pandas(whole, duplicates="max", combine="sum").A[0, 5] == 5
    with pytest.raises(InputError, match="1 ids are no rows of nodes, zoe first; add them, or drop their edges"):
        from_pandas(edges, make({"id": ["bob", "cy"]}), source="a", target="b")
    with pytest.raises(InputError, match="edges: source: ids are list<.*; expected one number or text in a row"):
        from_pandas(make({"source": [[0], [1]], "target": [1, 2]}))
    with pytest.raises(InputError, match="got a list; expected a table of pandas"):
        from_pandas([(0, 1)])
    with pytest.raises(UsageError, match="from_pandas: unknown key 'weights'; did you mean 'weight'"):
        from_pandas(edges, weights="w")


def test_categories_and_gaps_of_pandas_are_read():
    edges = pd.DataFrame({"src": pd.Categorical(["b", "a"]), "dst": ["a", "c"]})
    nodes = pd.DataFrame({
        "node": ["a", "b", "c"], "n": pd.array([1, None, 3], "Int64"), "ok": pd.array([True, None, False], "boolean"),
    })  # fmt: skip
    graph = from_pandas(edges, nodes, label="ok", features=["n"], missing="mean")
    assert graph.X.ravel().tolist() == [1, 2, 3] and graph.y.tolist() == [1, -1, 0]
    assert graph.classes == ("False", "True")
    with pytest.raises(InputError, match="edges: source: 1 ids are missing, the first in row 2"):
        from_pandas(pd.DataFrame({"src": ["a", None], "dst": ["b", "b"]}))


def test_zeros_before_a_number_make_a_name(tmp_path):
    edges, nodes = {"src": ["007", "7"], "dst": ["7", "x1"]}, {"id": ["7", "007", "x1"], "f": [1, 2, 3]}
    graph = from_pandas(pd.DataFrame(edges), pd.DataFrame(nodes))
    assert graph.ids.tolist() == nodes["id"] and graph.A.toarray().tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    edges, nodes = {"src": ["00", "01"], "dst": ["01", "02"]}, {"id": ["02", "00", "01"], "f": [2, 0, 1]}
    e, n = written(tmp_path / "e.csv", edges), written(tmp_path / "n.csv", nodes)
    for relabel, ids in ((True, ["00", "01", "02"]), (False, None)):
        graph = load_graph(e, features=n, relabel=relabel)
        assert (None if graph.ids is None else graph.ids.tolist()) == ids and graph.X.ravel().tolist() == [0, 1, 2]
    n.write_text("id,f\n0,1\n00,2\n1,1\n2,2\n")
    with pytest.raises(InputError, match="two ids are one number, such as 7 and 007; keep them apart with relabel"):
        load_graph(e, features=n)
    n.write_text("id,label\nu0,1\nu1,0\n")
    with pytest.raises(InputError, match="none of its ids, such as 'u0', is an id of the edges, such as '00'; name"):
        load_graph(e, labels=n, relabel=True)


FAR = 6221888200042590280


@pytest.mark.parametrize(
    ("source", "target", "ids"),
    [
        (pd.Categorical(["a", "b"], categories=["gone", "a", "b"]), ["b", "c"], ["a", "b", "c"]),
        ([b"ann", b"bob"], ["bob", "cy"], ["ann", "bob", "cy"]),
        ([12, 7], [7.0, 12.0], [7, 12]),
        ([12, 7], [12.0, 1.5], ["1.5", "12", "7"]),
        (["12.0", "7"], ["x", "12"], ["12", "7", "x"]),
        ([12, "7"], [7, "x"], ["12", "7", "x"]),
        ([decimal.Decimal("12.00"), decimal.Decimal("7")], [7, 12], [7, 12]),
        ([320015954360525044901, 5], [5, 7], ["320015954360525044901", "5", "7"]),
        (np.array([2**63 + 5, 5], np.uint64), [5, 7], ["5", "7", str(2**63 + 5)]),
        ([12, FAR], [float(FAR), 12.0], "1 ids are floats such as 6.22.*e.18, and above 9007199254740992 floats skip"),
        ([12, 7], np.array([2**24 + 2, 7], np.float32), "above 16777216 floats skip integers"),
        ([12, 7], [str(float(FAR)), "7"], "an id is 6.22.*, a float without its last digits; write ids as integers"),
        (pyarrow.array(["a", "b"], pyarrow.string_view()), ["b", "c"], ["a", "b", "c"]),
        ([b"ann", b"\xff"], ["bob", "cy"], "ids are binary that is no UTF-8; write them as text"),
        (["a", ""], ["b", "c"], "1 ids are missing, the first in row 2"),
        (pyarrow.array([1.0, float("nan")]), [1, 2], "1 ids are missing, the first in row 2"),
    ],
)
def test_an_id_is_one_node_whatever_its_type(tmp_path, source, target, ids):
    edges = pyarrow.table({"source": source, "target": target}) if isinstance(source, pyarrow.Array) else None
    edges = pd.DataFrame({"source": source, "target": target}) if edges is None else edges
    parquet.write_table(as_table(edges, "edges", ()), tmp_path / "e.parquet")
    for load in (lambda: from_pandas(edges, relabel=True), lambda: load_graph(tmp_path / "e.parquet", relabel=True)):
        if isinstance(ids, str):
            with pytest.raises(FormatError, match=ids):
                load()
        else:
            graph = load()
            assert graph.ids.tolist() == ids and graph.nnz == 2


def test_columns_of_pandas_that_hold_numbers_in_other_ways_are_features():
    edges = pd.DataFrame({"source": list("ab"), "target": list("bc")})
    nodes = pd.DataFrame({
        "id": list("abc"), "money": [decimal.Decimal("1.50"), None, decimal.Decimal("3")],
        "half": np.array([1, 2, 3], np.float16), "sparse": pd.arrays.SparseArray([0, 5, 0]), "far": [2**62, None, 0],
    }).astype({"far": "Int64"})  # fmt: skip
    graph = from_pandas(edges, nodes, missing="zero")
    assert graph.X.tolist() == [[1.5, 1, 0, 2.0**62], [0, 2, 5, 0], [3, 3, 0, 0]]
    edges["weight"] = nodes.money[[0, 2]].to_numpy()
    assert from_pandas(edges).A.data.tolist() == [1.5, 3]


def test_columns_are_given_by_their_names():
    edges, nodes = pd.DataFrame({"src": [0, 1], "dst": [1, 2]}), pd.DataFrame({"id": [0, 1, 2], "age": [3, 4, 5]})
    assert from_pandas(edges, nodes, features="age", label=["age"], weight=None).X.ravel().tolist() == [3, 4, 5]
    for options in ({"label": nodes.age}, {"split": nodes.age.to_numpy()}, {"features": nodes[["age"]]}):
        with pytest.raises(
            UsageError, match=f"from_pandas: {[*options][0]} is a .*; expected names of columns of nodes"
        ):
            from_pandas(edges, nodes, **options)


def test_masks_of_a_table_are_a_split_and_one_mask_is_none(tmp_path):
    edges, masks = {"src": [0, 1], "dst": [1, 2]}, ["train_mask", "val_mask", "test_mask"]
    nodes = pd.DataFrame({"id": [2, 0, 1, 3]} | {name: [i == k for i in range(4)] for k, name in enumerate(masks)})
    path, expected = written(tmp_path / "n.csv", nodes), [1, 2, 0, -1]
    assert load_graph(written(tmp_path / "e.csv", edges), split=path).split.tolist() == expected
    nodes = nodes.rename(columns={"test_mask": "tested"}).astype(int)
    graph = from_pandas(pd.DataFrame(edges), nodes, split=[*masks[:2], "tested"])
    assert graph.split[graph.ids.argsort()].tolist() == expected
    for frame in (nodes, nodes.rename(columns={"train_mask": "a"}).astype({"a": bool})):
        with pytest.raises(
            InputError, match="expected train, val and test in one column, or masks of the three in three"
        ):
            from_pandas(pd.DataFrame(edges), frame, split=frame.columns[1])


def test_an_index_of_pandas_that_has_the_name_of_ids_is_read():
    nodes = pd.DataFrame({"id": [2, 0, 1], "f": [5, 6, 7]}).set_index("id")
    edges = pd.DataFrame({"source": [0, 1], "target": [1, 2]}).set_index(["source", "target"])
    graph = from_pandas(edges, nodes)
    assert graph.ids.tolist() == [2, 0, 1] and graph.A.toarray().tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
    with pytest.raises(InputError, match="nodes: two columns are named 'f'; rename one"):
        from_pandas(edges, pd.concat([nodes, nodes], axis=1))


def test_line_ends_within_quotes_are_read_in_long_files(tmp_path):
    nodes = {"id": [f"k{i}" for i in range(20_000)], "note": ["y,\n" * 37] * 20_000}
    path = written(tmp_path / "n.csv", nodes | {"f": range(20_000)})
    graph = load_graph(written(tmp_path / "e.csv", {"src": ["k0"], "dst": ["k1"]}), features=path, relabel=True)
    assert [f"k{int(x)}" for x in graph.X.ravel()] == graph.ids.tolist()


def test_without_pyarrow_numbers_are_read_and_names_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "e.csv").write_text("source,target,weight\n7,900,1\n")
    assert load_graph(tmp_path / "e.csv", relabel=True).ids.tolist() == [7, 900]
    (tmp_path / "e.csv").write_text("source,target\nann,bob\n")
    with pytest.raises(
        InputError, match=r"e.csv: names, quotes and Parquet need pyarrow: pip install 'spgnn\[tables\]'"
    ):
        load_graph(tmp_path / "e.csv", relabel=True)


@pytest.mark.parametrize(
    "text",
    ["0;1;0,5\n1;2;0,75\n", "source;target;weight\n0;1;0,5\n1;2;1\n", "0\t1\t0,5\n1\t2\t7\n", "0 1 0,5\n1 2 2\n"],
)
def test_decimal_commas_are_read_where_a_comma_separates_nothing(tmp_path, text):
    (tmp_path / "e.csv").write_text(text)
    graph = load_graph(tmp_path / "e.csv")
    assert (graph.n_nodes, graph.nnz, graph.A.data[0]) == (3, 2, 0.5)
    (tmp_path / "n.csv").write_text("id;x;label\n0;1;a\n1;-2,5;b\n2;3,25e1;a\n")
    graph = load_graph(tmp_path / "e.csv", features=tmp_path / "n.csv", labels=tmp_path / "n.csv")
    assert graph.X.ravel().tolist() == [1, -2.5, 32.5] and graph.classes == ("a", "b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "source,target,weight\n0,1,True\n",
            "e.csv:2: weight is 'True'; .* `spgnn convert --weight none` reads no weights",
        ),
        ("source,target,weight\nann,bob,strong\n", "e.csv:2: weight is 'strong'; .* reads no weights"),
        ('0,1,"0,5"\n', "e.csv:1: weight is '0,5'; expected a finite number, with a point: 0.5"),
    ],
)
def test_weights_that_are_no_numbers_are_refused_with_the_way_out(tmp_path, text, said):
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(FormatError, match=said):
        load_graph(tmp_path / "e.csv", relabel=True)


@pytest.mark.parametrize("ending", ["csv", "mtx", "graph", "gr"])
def test_text_in_utf_16_is_refused_with_the_command_that_converts_it(tmp_path, ending):
    path = tmp_path / f"e.{ending}"
    path.write_bytes("source,target\n0,1\n1,2\n".encode("utf-16"))
    with pytest.raises(FormatError, match="is text in UTF-16; write it in UTF-8: iconv -f UTF-16 -t UTF-8"):
        load_graph(path)


def test_text_labels_keep_their_text_and_numbers_in_two_ways_are_warned_of(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    labelled = lambda *labels: (tmp_path / "n.csv").write_text(
        "id,label\n" + "".join(f"{i},{y}\n" for i, y in enumerate(labels))
    )
    labelled("007", "07", "7")
    graph = load_graph(tmp_path / "e.txt", labels=tmp_path / "n.csv")
    assert graph.classes == ("007", "07", "7") and graph.y.tolist() == [0, 1, 2]
    assert any("007 and 07 and 7 are classes of their own" in note for note in graph.notes())
    for labels, y in ((("1", " 0", "-1"), [1, 0, -1]), (("1.0", "0", ""), [1, 0, -1])):
        labelled(*labels)
        graph = load_graph(tmp_path / "e.txt", labels=tmp_path / "n.csv")
        assert graph.y.tolist() == y and graph.classes is None and not any("classes of" in n for n in graph.notes())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\n", "is a pointer of Git LFS"),
        (b"<!DOCTYPE html><html></html>\n", "is a page of the web"),
        (b"source,target\r0,1\r1,2\r", "lines end in carriage returns"),
        (b"source|target\n0|1\n", "separated by |; expected commas"),
        (b"0 1 {'weight': 1.5}\n", "read_edgelist"),
        (b'source,target,weight\n0,1,"1,234"\n', "without commas: 1234, or 1.234"),
        (
            b"source,target\n8f14-ce,c4ca\n",
            "source is '8f14-ce'; expected an integer from 0, or names with relabel",
        ),
    ],
)
def test_what_is_no_list_of_edges_is_named_with_the_way_out(tmp_path, content, said):
    (tmp_path / "e.csv").write_bytes(content)
    with pytest.raises(FormatError) as error:
        load_graph(tmp_path / "e.csv")
    assert said in str(error.value)


def test_names_after_a_line_of_numbers_are_found_and_other_encodings_named(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\n0,1\nann,2\n")
    assert load_graph(tmp_path / "e.csv", relabel=True).ids.tolist() == ["0", "1", "2", "ann"]
    (tmp_path / "e.txt").write_text("0 1\n# ann\n1 2\n")
    assert load_graph(tmp_path / "e.txt", relabel=True).ids.tolist() == [0, 1, 2]
    (tmp_path / "e.csv").write_bytes("source,target\nJosé,Zoë\n".encode("latin-1"))
    with pytest.raises(FormatError, match="is not UTF-8; if it is Latin-1: iconv"):
        load_graph(tmp_path / "e.csv", relabel=True)


def test_columns_of_text_among_features_are_named_with_a_value_that_is_no_number(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n2 3\n")
    nodes = tmp_path / "n.csv"
    load = lambda: load_graph(tmp_path / "e.txt", features=nodes, labels=nodes)
    nodes.write_text("id,x,z,city,label\n0,1,1,ulm,a\n1,?,2,bonn, b\n2,3,3,ulm,a\n3,4,4,ulm,b\n")
    graph = load()
    assert (
        "columns that are not read: x (row 2 is '?'; expected a finite number), city" in graph.notes()
        and graph.classes == ("a", "b")
    )
    nodes.write_text("id,x,label\n0,50%,a\n1,20%,b\n2,1%,a\n3,4%,b\n")
    with pytest.raises(
        FormatError,
        match=r"beside ids \('id'\), labels and split: x .row 1 is '50%'; expected a finite number without %: 50.; name text",
    ):
        load()


def test_a_split_may_be_words_and_labels_in_other_files_are_named(tmp_path):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n2 3\n")
    np.save(tmp_path / "s.npy", np.array(["train", "Val", "test", ""]))
    for split in (tmp_path / "s.npy", ["train", "Val", "test", None]):
        assert load_graph(tmp_path / "e.txt", split=split).split.tolist() == [0, 1, 2, -1]
    with pytest.raises(FormatError, match="split: 'tests' is no part of a split"):
        load_graph(tmp_path / "e.txt", split=["train", "val", "tests", ""])
    (tmp_path / "y.json").write_text("[0, 1, 0, 1]")
    with pytest.raises(FormatError, match="y.json: is no .npy; expected the labels as .npy, .csv"):
        load_graph(tmp_path / "e.txt", labels=tmp_path / "y.json")


@given(st.text(" \t\r\n#%ab", max_size=12).map(str.encode))
def test_lines_have_one_blank_between_their_cells_and_no_comments(block):
    assert one_blank(block) == COMMENTS.sub(b"", BLANKS.sub(b" ", block))
