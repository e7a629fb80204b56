"""Small graphs whose links, splits and ranks are worked out by hand."""

import numpy as np
import pytest
import torch
from command_line import run
from worlds import parallel

import spgnn
from spgnn.graph.links import TEST, TRAIN, VAL
from spgnn.layers import GCN, Stack
from spgnn.layers.decoders import Dot
from spgnn.links import Candidates
from spgnn.links.scored_pairs import negatives_of
from spgnn.training.link_scorer import ALL, LinkScorer
from spgnn.training.trainer import make_trainer


def pairs_of(graph):
    """The pairs of train, val and test, without direction; messages are both directions of those that train."""
    ends_T = np.sort([graph.links.source_T, graph.links.target_T], axis=0).T.tolist()
    found = [[tuple(ends_T[t]) for t in graph.links.of(role)] for role in (TRAIN, VAL, TEST)]
    assert set(zip(*graph.A.nonzero())) == {ends for a, b in found[0] for ends in ((a, b), (b, a))}
    return found


def users(lines, n_users, n_nodes, **options):
    meta = {"bipartite": {"sources": n_users, "names": ["user", "item"]}}
    return spgnn.graph_from_coo(*np.array(lines).T, n_nodes, meta=meta, **options)


def scored(comm, graph, Z_NF):
    dgraph = spgnn.distribute(graph, comm, method="random")
    scorer = LinkScorer(torch.nn.Module(), dgraph, Dot(Z_NF.shape[1]), 0)
    scorer.logits = lambda: torch.from_numpy(np.asarray(Z_NF, np.float32)[dgraph.node_n])
    return scorer.final(), scorer.predictions()


@pytest.mark.parametrize("seed", range(4))
def test_a_path_of_four_nodes_has_a_pair_in_each_split_and_no_mirrored_negative(seed):
    graph = spgnn.split_links(spgnn.graph_from_coo([0, 1, 2], [1, 2, 3], 4), val=0.4, test=0.2, seed=seed)
    splits, links = pairs_of(graph), graph.links
    assert [len(of) for of in splits] == [1, 1, 1] and sorted(sum(splits, [])) == [(0, 1), (1, 2), (2, 3)]
    node_tK, is_source_tK = negatives_of(links, 200, seed, ALL).draw(links.source_T, links.target_T, np.arange(3), 0)
    kept_tK = np.where(is_source_tK, links.target_T[:, None], links.source_T[:, None])
    assert set(zip(*np.sort([node_tK.ravel(), kept_tK.ravel()], axis=0).tolist())) == {(0, 2), (0, 3), (1, 3)}


def test_a_ring_without_val_trains_and_is_tested():
    graph = spgnn.split_links(spgnn.graph_from_coo(np.arange(10), (np.arange(10) + 1) % 10), val=0, test=0.2)
    assert [len(of) for of in pairs_of(graph)] == [8, 0, 2]
    history = spgnn.train(Stack(GCN(4, 4)), spgnn.distribute(graph).with_embedding(4), task="links", epochs=2)
    assert np.isnan(history.val) and 0 < history.test <= 1


def test_users_and_items_with_a_table_of_mirrored_lines_are_a_link_each():
    lines = [(0, 5), (0, 6), (1, 6), (1, 7), (2, 5), (2, 8), (3, 9), (3, 10), (4, 5), (4, 10)]
    graph = spgnn.split_links(users(lines + [(b, a) for a, b in lines], 5, 11), val=0.2, test=0.2)
    assert sorted(zip(graph.links.source_T.tolist(), graph.links.target_T.tolist())) == lines
    assert graph.links.among == (5, 11) and [len(of) for of in pairs_of(graph)] == [6, 2, 2]


@parallel([1, 3], mpi=[])
@pytest.mark.parametrize("block", [7, 100])
def test_entities_whose_rows_are_equal_by_type_share_a_mean_rank(comm, block):
    dgraph = spgnn.distribute(spgnn.graph_from_coo([0], [1], 100), comm, method="random")
    Z_NF, target_q = np.eye(10, dtype=np.float32)[np.arange(100) % 10], np.arange(100)  # ten types of ten entities
    Z = Candidates(dgraph, torch.from_numpy(Z_NF[dgraph.node_n]))
    Z.block_bytes = block * 10 * 4
    assert (Z.ranks(Z_NF, target_q).rank_q() == 1 + 9 / 2).all()  # nine others of its type
    # Of a query of another type its ten are above, and the other 89 equal.
    assert (Z.ranks(np.roll(Z_NF, 1, axis=0), target_q).rank_q() == 1 + 10 + 89 / 2).all()
    known = (
        np.arange(101) * 3,
        (target_q[:, None] + [0, 10, 11]).ravel() % 100,
    )  # itself, one of its type, one of another
    assert (Z.ranks(Z_NF, target_q, known).rank_q() == 1 + 8 / 2).all()


@parallel([1, 2, 3, 4], mpi=[])
def test_structural_twins_have_equal_ranks_where_their_sums_have_one_order(comm):
    # Two hubs, 0 and 1, with twelve leaves each, of which six train: twelve leaves get no message, and are equal.
    given = {
        "edge_split": np.tile(np.repeat([0, 1, 2], [6, 3, 3]), 2).astype(np.int8),
        "X": np.ones((26, 3), np.float32),
    }
    graph = spgnn.split_links(spgnn.graph_from_coo(np.repeat([0, 1], 12), np.arange(2, 26), **given))
    dgraph = spgnn.distribute(graph, comm, method="random")
    trainer = make_trainer(Stack(GCN(3, 4), GCN(4, 4)), dgraph, on="links", loss="softmax", epochs=3)
    trainer.fit()
    ranks = trainer.steps.scorer.predictions()[dgraph.links.of(VAL, TEST)]
    # (0, ?): the six held-out leaves of hub 1 are equal; its six others, 0 and 1 are above or below.
    assert (ranks[:, 0] == ranks[0, 0]).all() and ranks[0, 0] in (4, 6, 10, 12)
    if comm.size == 1:  # else the sums of the two hubs may be cut at different places, and differ in the last bits
        assert (ranks[:, 1] == ranks[0, 1]).all() and ranks[0, 1] % 1 == 0.5


@parallel([1, 3], mpi=[])
def test_scores_of_zero_and_one_have_exact_ties(comm):
    split = np.array([0, 2, 2, 0], np.int8)  # users 0 and 1, items 2 to 7; items 2, 3 and 4 score 1, the others 0
    graph = spgnn.split_links(users([(0, 2), (0, 3), (0, 5), (1, 6)], 2, 8, edge_split=split))
    found, ranks = scored(comm, graph, np.array([[1], [1], [1], [1], [1], [0], [0], [0]]))
    # Item 3: 2 and 5 are known, 4 is equal. Item 5: 4 is above, 6 and 7 are equal.
    assert ranks[graph.links.of(TEST)].ravel().tolist() == [1.5, 3] and found["test"]["mrr"] == pytest.approx(0.5)


@parallel([1, 3], mpi=[3])
def test_a_user_without_a_held_out_item_is_no_part_of_recall(comm):
    # Users 0 to 6 train on item 36; items 7 to 36 are in falling order of score; user 6 has no other.
    lines = [(u, 36) for u in range(7)] + [(0, 7), (0, 30), (1, 8), (2, 29), (3, 7), (4, 26), (5, 27)]
    graph = spgnn.split_links(users(lines, 7, 37, edge_split=np.array([0] * 7 + [2] * 7, np.int8)))
    found = scored(comm, graph, np.r_[np.ones(7), np.arange(30, 0, -1)][:, None])[0]["test"]
    # Ranks: 0: 1 and 24, without what is known 23; 1: 2; 2: 23; 3: 1; 4: 20; 5: 21. Of six users, within twenty:
    assert found["recall@20"] == pytest.approx((0.5 + 1 + 0 + 1 + 1 + 0) / 6)
    gain = 1 / np.log2(1 + np.arange(1, 21))
    assert found["ndcg@20"] == pytest.approx((gain[0] / (gain[0] + gain[1]) + gain[1] + gain[0] + gain[19]) / 6)
    assert found["mrr"] == pytest.approx((1 + 1 / 23 + 1 / 2 + 1 / 23 + 1 + 1 / 20 + 1 / 21) / 7)


def test_a_node_that_never_trains_is_named_and_ranked():
    split = np.array([0, 0, 0, 2], np.int8)
    graph = spgnn.split_links(spgnn.graph_from_coo([0, 1, 2, 3], [1, 2, 0, 4], 5, edge_split=split))
    assert graph.links.notes == (
        "no link validates: the weights of the last epoch count as the best",
        "1 of 1 val and test links have a node that no training link has, such as 3",
    )
    found, ranks = scored(None, graph, np.array([[1], [1], [1], [0], [1]]))
    assert ranks[3].tolist() == [3, 5]  # (3, ?): five scores of 0; (?, 4): four others score 1, and 3 scores 0


@pytest.mark.parametrize("is_triple", [False, True])
def test_of_ten_lines_three_doubled_and_two_loops_are_told(is_triple):
    lines = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)] + [(0, 1), (1, 2), (2, 3)] + [(2, 2), (4, 4)]
    graph = spgnn.graph_from_coo(*np.array(lines).T, 5, **({"edge_y": np.zeros(10, int)} if is_triple else {}))
    links = spgnn.split_links(graph, val=0.2, test=0.2).links
    assert "2 self-loops, such as of node 2, are no targets" in links.notes
    assert ("3 links are listed again, and count once" in links.notes) or graph.meta["duplicates"] == 3
    assert np.bincount(links.split_T).tolist() == [3, 1, 1]


def test_a_table_whose_third_row_names_an_unknown_node_shifts_nothing(tmp_path, capsys):
    edges, nodes, pairs, folder = (tmp_path / name for name in ("edges.csv", "nodes.csv", "pairs.csv", "g"))
    nodes.write_text("id,f\n" + "".join(f"n{i},{i}\n" for i in range(5)))
    edges.write_text("source,target\nn0,n1\nn1,n2\nn9,n3\nn2,n3\nn3,n4\nn4,n0\n")
    given = ("convert", edges, folder, "--features", nodes, "--relabel")
    code, _, error = run(capsys, *given)
    assert code == 3 and "1 of 6 nodes have no row, node n9 first" in error and not folder.exists()
    assert run(capsys, *given, "--missing", "zero")[0] == 0
    graph = spgnn.load_graph(folder)
    assert [f"n{int(x)}" for x in graph.X[:, 0]] == ["n0" if name == "n9" else name for name in graph.ids]
    out = ("--task", "links", "--epochs", 1, "--split", "0.2,0.2", "--out", tmp_path / "run")
    assert run(capsys, "train", folder, *out)[0] == 0
    pairs.write_text(edges.read_text().replace("n9", "n8"))
    code, _, error = run(capsys, "predict", tmp_path / "run", "--pairs", pairs, "--out", tmp_path / "l.csv")
    assert (
        code == 3 and f"{pairs}: row 3: source 'n8' is not in the graph" in error and not (tmp_path / "l.csv").exists()
    )
