"""Every command that a training of nodes has, for links: check, verify, plan, report; and errors."""

import json

import numpy as np
import pytest
from command_line import run

import spgnn.graph.links
from spgnn.errors import CheckpointError, InputError, UsageError
from spgnn.layers import RGCN, LightGCN, Stack
from spgnn.links import DistMult

GRAPH = "sbm:n=80,seed=0"


def test_check_splits_as_a_training_does_and_counts(capsys):
    code, out, _ = run(capsys, "check", GRAPH, "--task", "links", "--split", "0.2,0.1", "--seed", "3", "--json")
    report = json.loads(out)
    graph = spgnn.split_links(spgnn.load_graph(GRAPH), val=0.2, test=0.1, seed=3)
    assert code == 0 and graph.links.counts().items() <= report.items()
    assert run(capsys, "check", GRAPH, "--seed", "3")[0] == 2


def test_check_warns_of_leaks_of_a_given_split_and_refuses_those_of_its_own(tmp_path, capsys, monkeypatch):
    for name, lines in {"train": "a r b\nb r c\nc r d\n", "valid": "b r a\n", "test": "c r d\nd r e\n"}.items():
        (tmp_path / f"kg_{name}.tsv").write_text(lines.replace(" ", "\t"))
    code, out, _ = run(capsys, "check", tmp_path / "kg", "--task", "links", "--json")
    notes = " ".join(json.loads(out)["notes"])
    assert code == 0 and "2 of 3 val and test links join nodes that a message edge joins, such as b - a" in notes
    assert "1 of 3 val and test links have a node that no training link has, such as e" in notes
    assert "spgnn: 2 of 3 val and test links" in run(capsys, "check", tmp_path / "kg", "--task", "links")[2]
    leaking = lambda links, shares, seed: 2 * (np.arange(len(links.source_T)) > 2).astype(np.int8)
    monkeypatch.setattr(spgnn.graph.links, "_drawn", leaking)
    code, _, err = run(capsys, "check", tmp_path / "kg", "--task", "links", "--split", "random")
    assert code == 3 and "the split leaks, which is a defect of spgnn" in err


def test_a_run_of_python_has_the_names_of_links_and_is_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bought.csv").write_text("user,item\n" + "".join(f"u{i % 9},i{i * 7 % 13}\n" for i in range(60)))
    spgnn.convert("bought.csv", "bought", source="user", target="item", relabel=True, bipartite=True)
    dgraph = spgnn.distribute(spgnn.split_links(spgnn.load_graph("bought"))).with_embedding(4)
    spgnn.train(Stack(LightGCN(4)), dgraph, task="links", epochs=2, out="run")
    assert (tmp_path / "run/predictions.csv").read_text().startswith("user,item,split,")
    assert set(spgnn.load_links("run").top(["u3"], k=2)["user"]) == {"u3"}


def test_a_run_on_a_graph_in_memory_is_loaded_with_that_graph_alone(tmp_path):
    src, dst, relation_E = np.array([[0, 1, 2, 3, 0, 1], [1, 2, 3, 0, 2, 3], [0, 1, 0, 1, 0, 0]])
    whole = spgnn.graph_from_coo(src, dst, n_nodes=4, edge_y=relation_E, edge_classes=("r", "s"))
    graph = spgnn.split_links(whole, val=0.2, test=0.2, relations=True)
    dgraph = spgnn.distribute(graph).with_embedding(4)
    model = Stack(RGCN(4, 4, dgraph.typed_sizes[0]), decoder=DistMult(4, 2))
    spgnn.train(model, dgraph, task="links", epochs=2, out=tmp_path / "run")
    assert {"relation", "score"} <= spgnn.load_links(tmp_path / "run", graph=graph).top(k=1).keys()
    with pytest.raises(InputError, match="made in a script"):
        spgnn.load_links(tmp_path / "run")
    with pytest.raises(CheckpointError, match="another graph"):
        spgnn.load_links(tmp_path / "run", graph=spgnn.split_links(whole, val=0.4, test=0.2))


def test_a_decoder_that_is_no_module_is_an_error():
    with pytest.raises(UsageError, match="decoder is a str; expected a Decoder"):
        Stack(LightGCN(4), decoder="dot")


BAD = [
    (2, "--loss mse", "--loss mse is no loss of links"), (2, "--sampler node", "omit --sampler node"),
    (2, "--replication 2", "omit --replication 2"), (2, "--task nodes", "--features embedding learns"),
    (2, "--labels y.npy", "--labels y.npy are of nodes"), (2, "--metric recall@20", "expected one of mrr"),
    (2, "--split junk", "--split junk: expected"), (2, "--split 0.9,0.9", "--split 0.9,0.9: expected"),
    (3, "--split given", "has no split of edges"), (2, "--task nodes --decoder dot", "--decoder dot is an option of"),
    (2, "--task nodes --loss bpr", "--loss bpr is no loss of nodes"),
    (3, "complete:n=7 --split 0,0", "training links have no negative"), (3, "complete:n=2", "1 of 1 training links have no negative"),
]  # fmt: skip


@pytest.mark.parametrize("code, words, message", BAD)
def test_what_links_do_not_have_is_refused_before_a_folder_is_made(tmp_path, capsys, code, words, message):
    given = [*words.split(), "--task", "links"] if "--task" not in words else words.split()
    graph, out = [] if "complete" in words else [GRAPH], tmp_path / "run"
    found, _, error = run(capsys, "train", *graph, *given, "--features", "embedding", "--out", out)
    assert found == code and error.count("spgnn: error:") == 1 and message in error and not out.exists()
