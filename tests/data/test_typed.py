"""Typed graphs of PyG and DGL: exact both ways, used as their libraries use them, and checked."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from graphs import acm, typed_graph

import spgnn
from spgnn.cli import main
from spgnn.errors import GraphError, InputError, UsageError
from spgnn.graph import fingerprint

RNG = np.random.default_rng(0)
SIZES = {"author": 4, "paper": 6, "venue": 2}
EDGES = {
    ("author", "writes", "paper"): RNG.integers(0, 4, (2, 9)), ("paper", "rev writes", "author"): RNG.integers(0, 4, (2, 5)),
    ("paper", "cites", "paper"): RNG.integers(0, 6, (2, 7)), ("venue", "has", "paper"): np.zeros((2, 0), np.int64),
}  # fmt: skip
X = {"author": RNG.normal(size=(4, 3)) * (RNG.random((4, 3)) < 0.5), "paper": RNG.normal(size=(6, 2))}
LABELS = {"classes": np.array([0, 2, -1, 1, 0, 1]), "numbers": RNG.normal(size=(6, 2)), "labels": np.eye(6, 3, dtype=int)}  # fmt: skip
MASKS = {f"{name}_mask": np.arange(6) % 3 == role for role, name in enumerate(("train", "val", "test"))}


def hetero(y):
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    for name, x in X.items():
        data[name].x = torch.tensor(x)
    data["venue"].num_nodes = 2
    for name, values in {"y": y, **MASKS}.items():
        data["paper"][name] = torch.tensor(values)
    for triple, ends in EDGES.items():
        data[triple].edge_index = torch.tensor(ends)
    return data


def same(a, b):
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a.dtype == b.dtype and torch.equal(a, b) if torch.is_tensor(a) else a == b


@pytest.mark.parametrize("task", LABELS)
def test_hetero_data_comes_back_as_it_was(task, tmp_path):
    data = hetero(LABELS[task])
    graph = spgnn.from_pyg(data)
    spgnn.save_graph(graph, tmp_path / "g")
    for again in (graph, graph.in_use(), graph.with_edges("both"), spgnn.load_graph(tmp_path / "g")):
        assert same(spgnn.to_pyg(again).to_dict(), data.to_dict())
    assert graph.feature_names == ("author.0", "author.1", "author.2", "paper.0", "paper.1", "venue")
    assert (graph.X.shape, graph.X.nnz) == ((12, 6), np.count_nonzero(X["author"]) + 12 + 2)
    assert graph.task == task and list(graph.ids[[0, 11]]) == ["author:0", "venue:1"]


def test_edges_are_used_as_pyg_uses_them_with_one_relation_for_each_of_its_types():
    data, writes = hetero(LABELS["classes"]), EDGES["author", "writes", "paper"]
    for triple in data.edge_types[1:]:
        del data[triple]
    data["paper", "rev", "author"].edge_index = torch.tensor(writes[::-1].copy())
    graph = spgnn.from_pyg(data)
    assert graph.is_symmetric  # of which both directions would be used, were it not typed
    A = spgnn.distribute(graph, operator="none").A
    relation_E, R = A.relations
    sources, targets = A.edge_index.numpy()
    expected = [edge for u, v in writes.T for edge in ((u, 4 + v, 0), (4 + v, u, 1))]
    assert R == 2 and sorted(zip(sources, targets, relation_E)) == sorted(expected)
    swapped = replace(graph, edge_y=1 - graph.edge_y, edge_classes=None)
    assert fingerprint(swapped) != fingerprint(graph)


def test_what_does_not_fit_is_named(capsys):
    data = hetero(LABELS["classes"])
    data["author"].y, data["author"].age = torch.zeros(4, dtype=torch.int64), torch.zeros(4)
    with pytest.raises(GraphError, match=r"target = None; the types with labels, y, are: author, paper"):
        spgnn.from_pyg(data)
    with pytest.raises(GraphError, match=r"target = 'venue'; the types with labels"):
        spgnn.from_pyg(data, target="venue")
    assert (spgnn.from_pyg(data, target="author").y[:4] == 0).all()
    data["venue", "has", "paper"].edge_attr = torch.zeros(0, 2)
    capsys.readouterr()
    assert (spgnn.from_pyg(data, target="paper").y[4:10] == LABELS["classes"]).all()
    assert "does not read author.age, author.y, venue-has-paper.edge_attr" in " ".join(capsys.readouterr().err.split())
    data["author", "writes", "paper"].edge_index = torch.tensor([[4], [0]])
    with pytest.raises(GraphError, match="edge paper:0 -> paper:0 of relation 'author writes paper' joins types paper"):
        spgnn.from_pyg(data, target="paper")
    data["paper", "in", "book"].edge_index = torch.tensor([[4], [0]])
    with pytest.raises(GraphError, match="edges join nodes of type book; give how many"):
        spgnn.from_pyg(data, target="paper")
    with pytest.raises(UsageError, match="expected a typed graph"):
        spgnn.to_pyg(spgnn.graph_from_coo([0], [1]))
    for types in ({"names": ["a"], "starts": [0, 1]}, {"names": ["a b"], "starts": [0, 2]}, {"names": "a"}, 3):
        with pytest.raises(GraphError, match="node_types"):
            spgnn.graph_from_coo([0], [1], meta={"node_types": types})


class Heterograph:
    """What spgnn uses of a heterograph of DGL."""

    is_homogeneous = False

    def __init__(self, ends, num_nodes_dict):
        self.ends, self.sizes = ends, num_nodes_dict
        self.nodes = {name: SimpleNamespace(data={}) for name in num_nodes_dict}
        self.ntypes, self.canonical_etypes = list(num_nodes_dict), list(ends)

    def num_nodes(self, name):
        return self.sizes[name]

    def edges(self, etype):
        return self.ends[etype]


Heterograph.__module__ = "dgl.heterograph"


def test_a_heterograph_comes_back_as_it_was(monkeypatch):
    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(heterograph=Heterograph))
    g = Heterograph({triple: tuple(map(torch.tensor, ends)) for triple, ends in EDGES.items()}, SIZES)
    for name, x in X.items():
        g.nodes[name].data["feat"] = torch.tensor(x)
    g.nodes["paper"].data |= {
        "label": torch.tensor(LABELS["classes"]),
        **{k: torch.tensor(m) for k, m in MASKS.items()},
    }
    again = spgnn.to_dgl(spgnn.load_graph(g))
    assert again.sizes == SIZES and list(again.ends) == list(EDGES)
    assert all(map(same, sum(again.ends.values(), ()), sum(g.ends.values(), ())))
    assert all(same(again.nodes[name].data, g.nodes[name].data) for name in SIZES)


def test_info_check_and_train_say_the_types_and_what_is_without_edges(tmp_path, capsys):
    spgnn.save_graph(typed_graph(), tmp_path / "g")
    types = "12 authors, 20 papers, 3 venues; 3 relations"
    assert main(["info", str(tmp_path / "g")]) == main(["check", str(tmp_path / "g")]) == 0
    out, err = capsys.readouterr()
    assert out.count(f"    types              {types}\n") == 2
    assert (
        err.count("type venue: no edge reaches its 3 nodes")
        == err.count("relation venue has paper: no edge has it")
        == 2
    )
    assert main(["train", str(tmp_path / "g"), "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().err
    assert f"35 nodes ({types}), 70 edges" in said and "--on edges" not in said
    assert repr(typed_graph()).startswith(f"Graph(typed: 35 nodes ({types}), 70 nonzeros, ")
    one_way = spgnn.graph_from_coo([0], [1], edge_y=[0], edge_classes=["a to b"], meta={
        "typed": True, "edges": "in", "node_types": {"names": ["a", "b"], "starts": [0, 1, 2]}})  # fmt: skip
    for graph in (one_way, one_way.in_use()):
        assert graph.notes() == ["type a: no edge reaches its 1 nodes"]
    assert one_way.with_edges("both").notes() == []


def test_a_stream_refuses_relations(tmp_path):
    with pytest.raises(InputError, match="edges have attributes or relations, and a stream of edges carries none"):
        spgnn.part_to_folder(typed_graph(), 2, tmp_path / "parts")


@pytest.mark.data
def test_acm_is_a_typed_graph(data_dir):
    graph = acm(data_dir)
    assert repr(graph).startswith("Graph(acm: 11,246 nodes (4,019 papers, 7,167 authors, 60 subjects; 2 relations), ")
    assert np.bincount(graph.edge_y).tolist() == [13407, 4019] and graph.notes() == []
    assert np.bincount(graph.y + 1).tolist() == [7227, 1993, 965, 1061]
    assert graph.X.shape == (11246, 3805) and graph.X.nnz == 340377 + 888869 + 60
    assert [int((graph.split == role).sum()) for role in range(3)] == [180, 1000, 1000]
    dgraph = spgnn.distribute(graph, operator="none")
    assert dgraph.A.relations[1] == 4 and np.bincount(dgraph.A.node_type_n).tolist() == [4019, 7167, 60]


def test_attributes_of_networkx_are_types():
    G = nx.Graph(name="library")
    G.add_nodes_from([("p", {"kind": "paper", "x": [1.0, 2.0], "c": "a"}), ("a", {"kind": "author"}), ("q", {"kind": "paper", "x": [3.0, 4.0], "c": "b"})])  # fmt: skip
    G.add_edges_from([("a", "p"), ("q", "a")], of="wrote")
    G.add_edge("q", "p", of="cites")
    graph = spgnn.from_networkx(G, node_type="kind", edge_type="of", features="x", labels="c")
    assert repr(graph).startswith("Graph(library: 3 nodes (2 papers, 1 author; 2 relations), 3 nonzeros")
    assert graph.ids.tolist() == ["p", "q", "a"] and graph.edge_classes == ("paper wrote author", "paper cites paper")
    assert graph.A.toarray().tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]] and graph.y.tolist() == [0, 1, -1]
    assert graph.X.toarray().tolist() == [[1, 2, 0], [3, 4, 0], [0, 0, 1]] and graph.classes == ("a", "b")
    graph = spgnn.from_networkx(G, edge_type="of")
    assert graph.edge_classes == ("node wrote node", "node cites node") and graph.X is None and graph.y is None
