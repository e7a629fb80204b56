"""Edges between two kinds of nodes: ids of two columns, and no edge inside a kind."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from spgnn import from_pandas, graph_from_coo
from spgnn.cli import main
from spgnn.data import convert, load_graph, load_native
from spgnn.errors import FormatError, GraphError

PAIRS = [(u, i) for u in range(5) for i in range(6) if (u + 2 * i) % 3 == 0]  # 5 users, 6 items
ENDS = {"source": "user", "target": "item"}


def write(folder, user="", item="", title="user,item\n", mirror=False):
    rows = [(f"{user}{u}", f"{item}{i}") for u, i in PAIRS]
    rows += [(i, u) for u, i in rows] * mirror
    (path := folder / "e.csv").write_text(title + "".join(f"{u},{v}\n" for u, v in rows))
    return path


@pytest.mark.parametrize("user, item, first, last", [
    ("", "", "user:0", "item:5"), ("u", "i", "u0", "i5"), ("1", "2", 10, 25), ("", "i", "0", "i5"),
])  # fmt: skip
def test_ids_of_two_columns_are_two_kinds_of_nodes(tmp_path, user, item, first, last):
    path = write(tmp_path, user, item)
    for graph in (load_graph(path, bipartite=True, **ENDS), from_pandas(pd.read_csv(path), bipartite=True, **ENDS)):
        assert graph.meta["bipartite"] == {"sources": 5, "names": ["user", "item"]} and graph.n_nodes == 11
        assert (graph.ids[0], graph.ids[-1]) == (first, last) and len(set(graph.ids)) == 11
        assert sorted(zip(*graph.A.nonzero())) == [(u, 5 + i) for u, i in PAIRS]
    assert load_graph(write(tmp_path, title=""), bipartite=True).meta["bipartite"]["names"] == ["source", "target"]


def test_ids_in_both_columns_are_counted_and_the_option_is_named(tmp_path, capsys):
    load_graph(write(tmp_path), **ENDS)
    load_graph(write(tmp_path), bipartite=True, **ENDS)
    said = capsys.readouterr().err
    for ends in ("one node: `spgnn convert --bipartite` makes it two\n", "two nodes\n"):
        assert f"5 ids are in both columns, user and item, and each is {ends}" in said
    assert load_graph(write(tmp_path, "u", "i", mirror=True), relabel=True, **ENDS).n_nodes == 11
    assert "11 ids are in both columns" in capsys.readouterr().err  # the rows of a mirror table


def test_the_two_kinds_are_kept_in_folders_and_shown(tmp_path, capsys):
    convert(write(tmp_path), tmp_path / "g", bipartite=True, **ENDS)
    graph = load_native(tmp_path / "g")
    for kept in (graph, graph.with_edges("in"), graph.with_edges("both"), replace(graph, X=np.ones((11, 1)))):
        assert kept.meta["bipartite"] == {"sources": 5, "names": ["user", "item"]}
    assert main(["info", str(tmp_path / "g")]) == 0
    out, err = capsys.readouterr()
    assert "    sources            5\n    targets            6\n" in out and "11 nodes (5 of user, 6 of item)" in err


def test_an_edge_inside_a_kind_is_named():
    meta = {"bipartite": {"sources": 2, "names": ["user", "item"]}}
    for src, dst, of in ((0, 1, "a -> b joins two nodes of user"), (3, 2, "d -> c joins two nodes of item")):
        with pytest.raises(GraphError, match=f"edge {of}; in a bipartite graph nodes 0 to 1 are of user"):
            graph_from_coo([0, 2, src], [3, 1, dst], 4, meta=meta, ids=list("abcd"))
    for bad in (3, {"sources": 5, "names": ["a", "b"]}, {"sources": 1}):
        with pytest.raises(GraphError, match="meta.'bipartite'. is .*; expected"):
            graph_from_coo([0], [1], 4, meta={"bipartite": bad})


def test_tables_of_nodes_have_the_ids_of_the_graph(tmp_path):
    ids = [f"item:{i}" for i in range(6)] + [f"user:{u}" for u in range(5)] + ["user:9"]
    pd.DataFrame({"id": ids, "x": np.arange(12.0)})[:11].to_csv(tmp_path / "n.csv", index=False)
    graph = load_graph(write(tmp_path), features=tmp_path / "n.csv", bipartite=True, **ENDS)
    assert graph.X.ravel().tolist() == [6, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5]
    with pytest.raises(FormatError, match="1 of its ids are new, 'user:9' first, .* such as 'user:0'"):
        from_pandas(pd.read_csv(tmp_path / "e.csv"), pd.DataFrame({"id": ids}), bipartite=True, **ENDS)


def test_a_row_that_names_an_unknown_node_shifts_no_other(tmp_path):
    ends = ["ab", "bc", "cx", "ca", "ba", "ac"]  # the third names x
    (tmp_path / "e.csv").write_text("source,target,r\n" + "".join(f"{u},{v},{r}\n" for r, (u, v) in enumerate(ends)))
    (tmp_path / "n.csv").write_text("id,f\nc,2\na,0\nb,1\n")
    options = {"relabel": True, "edge_features": "r", "features": tmp_path / "n.csv"}
    with pytest.raises(FormatError, match="1 of 4 nodes have no row, node x first"):
        load_graph(tmp_path / "e.csv", **options)
    graph = load_graph(tmp_path / "e.csv", missing="zero", **options)
    assert graph.ids.tolist() == [*"abcx"] and graph.X.ravel().tolist() == [0, 1, 2, 0]
    src = np.repeat(graph.ids, np.diff(graph.A.indptr))
    found = zip(graph.edge_attr.ravel(), graph.edge_ids, src + graph.ids[graph.A.indices])
    assert sorted(found) == [(row, row, uv) for row, uv in enumerate(ends)]
