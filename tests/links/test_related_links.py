"""Links whose message edges keep their relations: what is a message, and a training on any ranks."""

import json

import numpy as np
import pytest
from worlds import parallel

import spgnn
from spgnn import cli
from spgnn.dist import SelfCommunicator
from spgnn.distgraph import distribute
from spgnn.errors import GraphError
from spgnn.graph import split_links
from spgnn.layers import RGCN, Stack
from spgnn.layers.decoders import DistMult
from spgnn.training.trainer import make_trainer

N, R = 30, 3
RNG = np.random.default_rng(0)
SRC, DST = RNG.integers(0, N, (2, 200))
REL, ROLE = RNG.integers(0, R, 200), RNG.choice(np.int8([0, 0, 0, 1, 2]), 200)
SRC[0], DST[0], REL[0], ROLE[0] = SRC[1], DST[1], (REL[1] + 1) % R, 2  # a test triple beside a training one
ROLE[1], DST[2], ROLE[2] = 0, SRC[2], 2  # a self-loop that tests
NAMES = ("likes", "knows", "owns")
TRIPLES = spgnn.graph_from_coo(SRC, DST, N, edge_y=REL, edge_split=ROLE, edge_classes=NAMES, name="triples")


def messages(graph):
    """Row, column and relation of the nonzeros."""
    row = np.repeat(np.arange(N), np.diff(graph.A.indptr))
    place = np.where(graph.edge_ids < 0, -1 - graph.edge_ids, graph.edge_ids)
    return sorted(
        zip(row.tolist(), graph.A.indices.tolist(), (2 * graph.edge_y[place] + (graph.edge_ids < 0)).tolist())
    )


def test_messages_are_the_training_triples_and_their_inverses():
    graph = split_links(TRIPLES, relations=True)
    train = [(s, t, r) for s, t, r, role in zip(SRC.tolist(), DST.tolist(), REL.tolist(), ROLE) if role == 0]
    both = [(s, t, 2 * r) for s, t, r in train] + [(t, s, 2 * r + 1) for s, t, r in train]
    assert set(messages(graph)) == set(both) and graph.typed_sizes == (2 * R, 1)
    assert len(split_links(TRIPLES, val=0.2, test=0.2, relations=True).links.of(1)) > 0
    with pytest.raises(GraphError, match="edges have no classes, which are their relations"):
        split_links(spgnn.graph_from_coo(SRC, DST, N), relations=True)


@parallel([1, 2, 3], mpi=[2])
def test_a_training_has_the_losses_and_ranks_of_one_rank(comm):
    graph = split_links(TRIPLES, relations=True)

    def trained(comm):
        dgraph = distribute(graph, comm, method="random", operator="none", dtype="float64").with_embedding(6)
        model = Stack(RGCN(6, 6, 2 * R), RGCN(6, 6, 2 * R, bases=2), decoder=DistMult(6, R))
        trainer = make_trainer(model, dgraph, on="links", loss="softmax", epochs=3, lr=0.05, batch=0)
        return trainer.fit()

    ours, alone = trained(comm), trained(SelfCommunicator())
    assert ours.records[-1]["bytes_sent"] == ours.bytes_predicted
    for name in ("loss", "val"):
        assert [r[name] for r in ours.records] == pytest.approx([r[name] for r in alone.records], rel=1e-9)


def test_a_link_without_a_relation_is_named():
    graph = spgnn.graph_from_coo(SRC, DST, N, edge_y=np.where(np.arange(200) == 7, -1, REL), edge_classes=NAMES)
    with pytest.raises(GraphError, match=f"listed edge 7, {SRC[7]} - {DST[7]}, has no class, which is its relation"):
        split_links(graph)


def test_scores_by_relation_and_of_unseen_ends_are_the_means_of_ranks_and_kept(tmp_path, capsys):
    for name, lines in {"train": "a r b,b s c,c r a", "test": "a s c,a r d,b t c,b r a"}.items():
        (tmp_path / f"{name}.tsv").write_text(lines.replace(" ", "\t").replace(",", "\n"))
    out, words = tmp_path / "run", "--task links --features embedding --hidden 4 --epochs 2".split()
    assert cli.main(["train", str(tmp_path), *words, "--out", str(out)]) == 0
    assert "unseen ends" in (said := capsys.readouterr().out) and "1: r " in said
    found, ranks = json.loads((out / "summary.json").read_text()), np.load(out / "predictions.npy")
    rows = {"r": ranks[[4, 6]], "s": ranks[[3]], "t": ranks[[5]]}
    assert [(row["relation"], row["links"]) for row in found["per_relation"]] == [("r", 2), ("s", 1), ("t", 1)]
    assert [row["mrr"] for row in found["per_relation"]] == pytest.approx([(1 / of).mean() for of in rows.values()])
    assert (found["unseen"]["links"], found["unseen"]["mrr"]) == (1, pytest.approx((1 / ranks[4]).mean()))
    assert found["seen"]["hits@3"] == pytest.approx((ranks[[3, 5, 6]] <= 3).mean())
    assert (out / "relations.csv").read_text().startswith("relation,links,mrr,hits@1,hits@3,hits@10\nr,2,")


@pytest.mark.parametrize("task", ["nodes", "links"])
def test_a_later_graph_has_the_relations_of_the_run_in_their_order(task, tmp_path):
    rng = np.random.default_rng(1)
    fields = {"X": rng.normal(size=(N, 4)), "y": np.arange(N) % 2, "split": np.zeros(N, np.int8), "ids": np.arange(N)}
    ours = spgnn.graph_from_coo(SRC, DST, N, edge_y=REL, edge_classes=NAMES, **fields)
    other = spgnn.graph_from_coo(SRC, DST, N, edge_y=2 - REL, edge_classes=NAMES[::-1], **fields)
    spgnn.save_graph(ours, tmp_path / "ours")
    spgnn.save_graph(other, tmp_path / "other")
    words = ["--task", "links"] if task == "links" else []
    run, said = str(tmp_path / "run"), ["--model", "rgcn", "--hidden", "4", "--epochs", "2", "--out"]
    assert cli.main(["train", str(tmp_path / "ours"), *words, *said, run]) == 0
    assert cli.main(["verify", str(tmp_path / "ours"), run, "--ranks", "2", *words]) == 0
    more = ["--top", "1"] if task == "links" else []
    assert cli.main(["predict", run, "--graph", str(tmp_path / "ours"), "--out", str(tmp_path / "a.csv"), *more]) == 0
    assert cli.main(["predict", run, "--graph", str(tmp_path / "other"), "--out", str(tmp_path / "b.csv"), *more]) == 3
    if task == "nodes":
        with pytest.raises(GraphError, match="'owns' is not the run's or has another place"):
            spgnn.predict(run, other)
